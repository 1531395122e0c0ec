#include "kv/zstd_part.h"

#include <zstd.h>

#include <string>

#include "kv/blob_format.h"

namespace cento {
namespace {

template <auto Free>
struct FreeWith {
  template <class T>
  void operator()(T* p) const noexcept {
    (void)Free(p);
  }
};

}  // namespace

struct ZstdParts::State {
  std::unique_ptr<ZSTD_CCtx, FreeWith<ZSTD_freeCCtx>> compress;
  std::unique_ptr<ZSTD_DCtx, FreeWith<ZSTD_freeDCtx>> decompress;
  std::vector<std::byte> packed;
};

ZstdParts::ZstdParts() : state_(std::make_unique<State>()) {}
ZstdParts::~ZstdParts() = default;

size_t ZstdParts::pack(std::span<const uint8_t> content, uint64_t share, std::vector<std::byte>& out) {
  State& s = *state_;
  const size_t n = content.size();
  if (!s.compress) s.compress.reset(ZSTD_createCCtx());
  if (!s.compress) throw Error{Code::kResource, "not enough memory to compress KV"};
  s.packed.resize(ZSTD_compressBound(n));
  const size_t packed =
      ZSTD_compressCCtx(s.compress.get(), s.packed.data(), s.packed.size(), content.data(), n, blob::kZstdLevel);
  if (ZSTD_isError(packed)) {
    throw Error{Code::kResource, std::string("cannot compress KV: ") + ZSTD_getErrorName(packed)};
  }
  const bool worthwhile = packed < n && packed <= n - n / share;
  const auto* from = worthwhile ? s.packed.data() : reinterpret_cast<const std::byte*>(content.data());
  const size_t length = worthwhile ? packed : n;
  out.insert(out.end(), from, from + length);
  return length;
}

Result<const uint8_t*> ZstdParts::unpack(std::span<const std::byte> stored, size_t n, uint8_t* into) {
  const auto error = [](std::string what) { return Error{Code::kInput, std::move(what)}; };
  if (stored.size() == n) return reinterpret_cast<const uint8_t*>(stored.data());
  State& s = *state_;
  if (!s.decompress) s.decompress.reset(ZSTD_createDCtx());
  if (!s.decompress) return Error{Code::kResource, "not enough memory to decompress KV"};
  // One zstd frame, no more (zstd itself would take several, or skippable ones, in a row), of exactly n bytes.
  if (ZSTD_getFrameContentSize(stored.data(), stored.size()) != n ||
      ZSTD_findFrameCompressedSize(stored.data(), stored.size()) != stored.size()) {
    return error("frame has the wrong decompressed size");
  }
  const size_t got = ZSTD_decompressDCtx(s.decompress.get(), into, n, stored.data(), stored.size());
  if (ZSTD_isError(got)) return error(std::string("frame cannot be decompressed: ") + ZSTD_getErrorName(got));
  if (got != n) return error("frame has the wrong decompressed size");
  return into;
}

}  // namespace cento
