#include "kv/blob_codec.h"

#include <zstd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/size_math.h"
#include "kv/blob_format.h"

namespace cento {
namespace {

// Values are written as they lie in memory.
static_assert(std::endian::native == std::endian::little, "KV blobs hold little-endian values");

template <class T>
void put_le(std::vector<std::byte>& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out.push_back(static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i)));
}

void put_hash(std::vector<std::byte>& out, const Hash& hash) {
  const auto bytes = std::as_bytes(std::span(hash.bytes));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

// Reads at offsets that the caller has checked against the span's size.
template <class T>
T get_le(std::span<const std::byte> bytes, size_t at) {
  CHECK(at + sizeof(T) <= bytes.size());
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= static_cast<uint64_t>(bytes[at + i]) << (8 * i);
  return static_cast<T>(value);
}

Hash get_hash(std::span<const std::byte> bytes, size_t at) {
  Hash hash;
  CHECK(at + hash.bytes.size() <= bytes.size());
  std::memcpy(hash.bytes.data(), bytes.data() + at, hash.bytes.size());
  return hash;
}

// "" if the format can hold these.
std::string outside_limits(const KvShape& shape, uint64_t n_tokens) {
  if (n_tokens == 0 || n_tokens > blob::kTokensMax) return std::to_string(n_tokens) + " tokens";
  if (shape.n_layers == 0 || shape.n_layers > blob::kLayersMax) return std::to_string(shape.n_layers) + " layers";
  if (shape.n_kv_heads == 0 || shape.n_kv_heads > blob::kKvHeadsMax)
    return std::to_string(shape.n_kv_heads) + " KV heads";
  if (shape.head_dim == 0 || shape.head_dim > blob::kHeadDimMax)
    return "head dimension " + std::to_string(shape.head_dim);
  // At most 2^20 * 2^12 * 2^12 * 4 = 2^46: within 64 bits.
  if (shape.side_bytes(n_tokens) > blob::kFrameRawBytesMax)
    return std::to_string(shape.side_bytes(n_tokens)) + " bytes a frame";
  return {};
}

// At most 204 + 4 * 2^20 + 1024 * (1 + 2 * 28) + 4 bytes: within 32 bits.
uint64_t header_size(uint64_t n_tokens, uint64_t n_layers) {
  return blob::kFixedBytes + 4 * n_tokens + n_layers + 2 * n_layers * blob::kFrameEntryBytes + 4;
}

std::vector<std::byte> header_bytes(const BlobHeader& header) {
  std::vector<std::byte> out;
  out.reserve(header.header_bytes);
  for (const uint8_t byte : blob::kMagic) out.push_back(std::byte{byte});
  put_le<uint32_t>(out, blob::kVersion);
  put_le<uint32_t>(out, static_cast<uint32_t>(header.header_bytes));
  put_le<uint64_t>(out, header.file_bytes);
  for (const Hash* hash : {&header.fingerprint, &header.layout, &header.key, &header.prefix_id, &header.context_id}) {
    put_hash(out, *hash);
  }
  put_le<uint32_t>(out, static_cast<uint32_t>(header.ids.size()));
  put_le<uint32_t>(out, header.shape.n_layers);
  put_le<uint32_t>(out, header.shape.n_kv_heads);
  put_le<uint32_t>(out, header.shape.head_dim);
  put_le<uint8_t>(out, static_cast<uint8_t>(header.shape.type));
  put_le<uint8_t>(out, static_cast<uint8_t>(header.kind));
  put_le<uint8_t>(out, blob::kTransformPlanes);
  put_le<uint8_t>(out, 0);
  CHECK(out.size() == blob::kFixedBytes);
  for (const int32_t id : header.ids) put_le<uint32_t>(out, static_cast<uint32_t>(id));
  for (const KvCodec codec : header.codecs) put_le<uint8_t>(out, static_cast<uint8_t>(codec));
  for (const BlobFrame& frame : header.frames) {
    put_le<uint64_t>(out, frame.offset);
    put_le<uint64_t>(out, frame.stored_bytes);
    put_le<uint64_t>(out, frame.raw_bytes);
    put_le<uint32_t>(out, frame.crc);
  }
  put_le<uint32_t>(out, crc32c(out));
  CHECK(out.size() == header.header_bytes);
  return out;
}

// The numbers of the fixed part, as far as they can be checked without the rest. An Error's message says what is wrong.
Result<BlobHeader> parse_fixed(std::span<const std::byte> bytes, uint64_t file_bytes, const std::string& where) {
  const auto error = [&](std::string what) { return Error{Code::kInput, std::move(what), where}; };
  const size_t n_magic = std::min(bytes.size(), blob::kMagic.size());
  if (std::memcmp(bytes.data(), blob::kMagic.data(), n_magic) != 0) return error("not a KV blob");
  if (bytes.size() >= blob::kVersionAt + 4) {
    const auto version = get_le<uint32_t>(bytes, blob::kVersionAt);
    if (version != blob::kVersion) return error("unknown version " + std::to_string(version));
  }
  if (bytes.size() < blob::kFixedBytes) return error("file cut short");
  BlobHeader header;
  header.header_bytes = get_le<uint32_t>(bytes, blob::kHeaderBytesAt);
  header.file_bytes = get_le<uint64_t>(bytes, blob::kFileBytesAt);
  header.fingerprint = get_hash(bytes, blob::kFingerprintAt);
  header.layout = get_hash(bytes, blob::kLayoutAt);
  header.key = get_hash(bytes, blob::kKeyAt);
  header.prefix_id = get_hash(bytes, blob::kPrefixIdAt);
  header.context_id = get_hash(bytes, blob::kContextIdAt);
  const auto n_tokens = get_le<uint32_t>(bytes, blob::kTokensAt);
  header.shape.n_layers = get_le<uint32_t>(bytes, blob::kLayersAt);
  header.shape.n_kv_heads = get_le<uint32_t>(bytes, blob::kKvHeadsAt);
  header.shape.head_dim = get_le<uint32_t>(bytes, blob::kHeadDimAt);
  const auto type = get_le<uint8_t>(bytes, blob::kTypeAt);
  const auto kind = get_le<uint8_t>(bytes, blob::kKindAt);
  if (type > static_cast<uint8_t>(KvType::kF32)) return error("damaged header: value type " + std::to_string(type));
  if (kind > static_cast<uint8_t>(KvKind::kChunkStandIn)) return error("damaged header: kind " + std::to_string(kind));
  if (get_le<uint8_t>(bytes, blob::kTransformAt) != blob::kTransformPlanes ||
      get_le<uint8_t>(bytes, blob::kReservedAt) != 0) {
    return error("damaged header: order of values");
  }
  header.shape.type = static_cast<KvType>(type);
  header.kind = static_cast<KvKind>(kind);
  if (const std::string outside = outside_limits(header.shape, n_tokens); !outside.empty()) {
    return error("damaged header: " + outside);
  }
  if (header.header_bytes != header_size(n_tokens, header.shape.n_layers)) return error("damaged header: its length");
  if (header.header_bytes > file_bytes) return error("file cut short");
  header.ids.resize(n_tokens);
  return header;
}

// Token ids, codecs and frame table, behind the fixed part. `bytes` is the whole header; its CRC is right.
Status parse_tables(std::span<const std::byte> bytes, BlobHeader& header, const std::string& where) {
  size_t at = blob::kFixedBytes;
  for (int32_t& id : header.ids) {
    id = static_cast<int32_t>(get_le<uint32_t>(bytes, at));
    at += 4;
  }
  for (uint32_t layer = 0; layer < header.shape.n_layers; ++layer, ++at) {
    const auto codec = get_le<uint8_t>(bytes, at);
    if (codec > static_cast<uint8_t>(KvCodec::kLossless)) {
      return Error{Code::kInput, "unknown codec " + std::to_string(codec), where};
    }
    header.codecs.push_back(static_cast<KvCodec>(codec));
  }
  const uint64_t raw_bytes = header.shape.side_bytes(header.ids.size());
  uint64_t end = header.header_bytes;
  for (uint32_t i = 0; i < 2 * header.shape.n_layers; ++i, at += blob::kFrameEntryBytes) {
    const BlobFrame frame{get_le<uint64_t>(bytes, at), get_le<uint64_t>(bytes, at + 8),
                          get_le<uint64_t>(bytes, at + 16), get_le<uint32_t>(bytes, at + 24)};
    const auto next = checked_add(frame.offset, frame.stored_bytes);
    const bool plausible =
        frame.stored_bytes <= header.file_bytes && div_up(frame.raw_bytes, blob::kExpansionMax) <= frame.stored_bytes;
    if (frame.offset != end || !next || frame.raw_bytes != raw_bytes || !plausible) {
      return Error{Code::kInput, "damaged frame table: entry " + std::to_string(i), where};
    }
    header.frames.push_back(frame);
    end = *next;
  }
  if (end != header.file_bytes) return Error{Code::kInput, "damaged frame table: its end", where};
  return Status::done();
}

// ---- byte planes

// Sixteen bytes at a time in the compiler's vector types, which become the instructions that every target has for this.
using Bytes = uint8_t __attribute__((vector_size(16)));
struct Pair {
  Bytes first, second;
};

Bytes load(const void* from) {
  Bytes bytes;
  std::memcpy(&bytes, from, sizeof bytes);
  return bytes;
}

void store(void* to, const Bytes& bytes) { std::memcpy(to, &bytes, sizeof bytes); }

// a0 b0 a1 b1 ... a15 b15
Pair interleave(const Bytes& a, const Bytes& b) {
  return {__builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23),
          __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)};
}

// Its inverse.
Pair separate(const Bytes& a, const Bytes& b) {
  return {__builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30),
          __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)};
}

// planes[0] gets the most significant byte of each of n values of `width` bytes.
void split_planes(const std::byte* raw, size_t n, size_t width, const std::array<uint8_t*, 4>& planes) {
  size_t i = 0;
  for (; width == 2 && i + 16 <= n; i += 16) {
    const Pair p = separate(load(raw + 2 * i), load(raw + 2 * i + 16));
    store(planes[1] + i, p.first);
    store(planes[0] + i, p.second);
  }
  for (; width == 4 && i + 16 <= n; i += 16) {
    const std::byte* at = raw + 4 * i;
    const Pair low = separate(load(at), load(at + 16)), high = separate(load(at + 32), load(at + 48));
    const Pair bytes02 = separate(low.first, high.first), bytes13 = separate(low.second, high.second);
    store(planes[3] + i, bytes02.first);
    store(planes[2] + i, bytes13.first);
    store(planes[1] + i, bytes02.second);
    store(planes[0] + i, bytes13.second);
  }
  for (; i < n; ++i) {
    for (size_t p = 0; p < width; ++p) planes[p][i] = static_cast<uint8_t>(raw[width * i + width - 1 - p]);
  }
}

// Its inverse.
void join_planes(const std::array<const uint8_t*, 4>& planes, size_t n, size_t width, std::byte* raw) {
  size_t i = 0;
  for (; width == 2 && i + 16 <= n; i += 16) {
    const Pair p = interleave(load(planes[1] + i), load(planes[0] + i));
    store(raw + 2 * i, p.first);
    store(raw + 2 * i + 16, p.second);
  }
  for (; width == 4 && i + 16 <= n; i += 16) {
    std::byte* at = raw + 4 * i;
    const Pair bytes02 = interleave(load(planes[3] + i), load(planes[1] + i));
    const Pair bytes13 = interleave(load(planes[2] + i), load(planes[0] + i));
    const Pair low = interleave(bytes02.first, bytes13.first), high = interleave(bytes02.second, bytes13.second);
    store(at, low.first);
    store(at + 16, low.second);
    store(at + 32, high.first);
    store(at + 48, high.second);
  }
  for (; i < n; ++i) {
    for (size_t p = 0; p < width; ++p) raw[width * i + width - 1 - p] = static_cast<std::byte>(planes[p][i]);
  }
}

template <auto Free>
struct FreeWith {
  template <class T>
  void operator()(T* p) const noexcept {
    (void)Free(p);
  }
};

}  // namespace

// ---- FrameCodec

struct FrameCodec::State {
  std::unique_ptr<ZSTD_CCtx, FreeWith<ZSTD_freeCCtx>> compress;
  std::unique_ptr<ZSTD_DCtx, FreeWith<ZSTD_freeDCtx>> decompress;
  std::vector<uint8_t> planes;  // [bytes of a value, values]
  std::vector<std::byte> packed;
};

FrameCodec::FrameCodec() : state_(std::make_unique<State>()) {}
FrameCodec::~FrameCodec() = default;

// A lossless frame: u32 stored length of each plane, then the planes. A plane as long as the number of values is stored
// as it is, a shorter one is a zstd frame.
void FrameCodec::encode(KvCodec codec, KvType type, std::span<const std::byte> raw, std::vector<std::byte>& out) {
  if (codec == KvCodec::kRaw) {
    out.insert(out.end(), raw.begin(), raw.end());
    return;
  }
  const size_t width = kv_type_bytes(type), n = raw.size() / width;
  CHECK(n * width == raw.size() && raw.size() <= blob::kFrameRawBytesMax);
  State& s = *state_;
  if (!s.compress) s.compress.reset(ZSTD_createCCtx());
  if (!s.compress) throw Error{Code::kResource, "not enough memory to compress KV"};
  s.planes.resize(raw.size());
  std::array<uint8_t*, 4> planes{};
  for (size_t p = 0; p < width; ++p) planes[p] = s.planes.data() + p * n;
  split_planes(raw.data(), n, width, planes);

  const size_t lengths_at = out.size();
  out.resize(out.size() + 4 * width);
  s.packed.resize(ZSTD_compressBound(n));
  for (size_t p = 0; p < width; ++p) {
    const size_t packed =
        ZSTD_compressCCtx(s.compress.get(), s.packed.data(), s.packed.size(), planes[p], n, blob::kZstdLevel);
    if (ZSTD_isError(packed)) {
      throw Error{Code::kResource, std::string("cannot compress KV: ") + ZSTD_getErrorName(packed)};
    }
    const bool worthwhile = packed < n && packed <= n - n / blob::kWorthwhileShare;
    const auto* from = worthwhile ? s.packed.data() : reinterpret_cast<const std::byte*>(planes[p]);
    const size_t length = worthwhile ? packed : n;
    for (size_t i = 0; i < 4; ++i) out[lengths_at + 4 * p + i] = static_cast<std::byte>(length >> (8 * i));
    out.insert(out.end(), from, from + length);
  }
}

Status FrameCodec::decode(KvCodec codec, KvType type, std::span<const std::byte> stored, std::span<std::byte> raw) {
  const auto error = [](std::string what) { return Error{Code::kInput, std::move(what)}; };
  if (codec == KvCodec::kRaw) {
    if (stored.size() != raw.size()) return error("frame has the wrong length");
    std::copy(stored.begin(), stored.end(), raw.begin());
    return Status::done();
  }
  const size_t width = kv_type_bytes(type), n = raw.size() / width;
  CHECK(n * width == raw.size());
  State& s = *state_;
  if (!s.decompress) s.decompress.reset(ZSTD_createDCtx());
  if (!s.decompress) return Error{Code::kResource, "not enough memory to decompress KV"};
  if (stored.size() < 4 * width) return error("frame has the wrong length");
  s.planes.resize(raw.size());
  std::array<const uint8_t*, 4> planes{};
  std::span<const std::byte> rest = stored.subspan(4 * width);
  for (size_t p = 0; p < width; ++p) {
    const size_t length = get_le<uint32_t>(stored, 4 * p);
    if (length > n || length > rest.size()) return error("frame has the wrong length");
    const std::span<const std::byte> plane = rest.first(length);
    rest = rest.subspan(length);
    if (length == n) {
      planes[p] = reinterpret_cast<const uint8_t*>(plane.data());
      continue;
    }
    // One zstd frame, no more (zstd itself would take several, or skippable ones, in a row), of exactly n bytes.
    if (ZSTD_getFrameContentSize(plane.data(), length) != n ||
        ZSTD_findFrameCompressedSize(plane.data(), length) != length) {
      return error("frame has the wrong decompressed size");
    }
    uint8_t* into = s.planes.data() + p * n;
    const size_t got = ZSTD_decompressDCtx(s.decompress.get(), into, n, plane.data(), length);
    if (ZSTD_isError(got)) return error(std::string("frame cannot be decompressed: ") + ZSTD_getErrorName(got));
    if (got != n) return error("frame has the wrong decompressed size");
    planes[p] = into;
  }
  if (!rest.empty()) return error("frame has the wrong length");
  join_planes(planes, n, width, raw.data());
  return Status::done();
}

// ---- whole blobs

Result<std::vector<std::byte>> encode_blob(const BlobHeader& about, const KvBlock& block, KvCodec codec) {
  if (const std::string outside = outside_limits(about.shape, about.ids.size()); !outside.empty()) {
    return Error{Code::kInput, "KV cannot be stored: " + outside};
  }
  if (!(block.shape() == about.shape) || block.n_tokens() != about.ids.size()) {
    return Error{Code::kInput, "KV cannot be stored: its shape is not that of its tokens"};
  }
  BlobHeader header = about;
  const uint32_t n_layers = header.shape.n_layers;
  header.header_bytes = header_size(header.ids.size(), n_layers);
  header.codecs.assign(n_layers, codec);
  header.frames.clear();
  std::vector<std::byte> out(header.header_bytes);
  FrameCodec frames;
  for (uint32_t i = 0; i < 2 * n_layers; ++i) {
    const std::span<const std::byte> raw = i % 2 == 0 ? block.k(i / 2) : block.v(i / 2);
    const size_t offset = out.size();
    frames.encode(codec, header.shape.type, raw, out);
    const std::span<const std::byte> stored = std::span(out).subspan(offset);
    header.frames.push_back({offset, stored.size(), raw.size(), crc32c(stored)});
  }
  header.file_bytes = out.size();
  const std::vector<std::byte> head = header_bytes(header);
  std::copy(head.begin(), head.end(), out.begin());
  return out;
}

Result<BlobHeader> read_blob_header(const File& file, const std::string& where) {
  const auto size = file.size();
  if (!size) return size.error();
  std::vector<std::byte> bytes(std::min<uint64_t>(*size, blob::kFixedBytes));
  if (bytes.empty()) return Error{Code::kInput, "file cut short", where};
  if (auto s = file.read_at(0, bytes); !s) return s.error();
  auto header = parse_fixed(bytes, *size, where);
  if (!header) return header;
  // parse_fixed bounds it: by the limits of its parts (some 4 MiB) and by the file's size.
  bytes.resize(header->header_bytes);
  if (auto s = file.read_at(blob::kFixedBytes, std::span(bytes).subspan(blob::kFixedBytes)); !s) return s.error();
  const std::span<const std::byte> covered = std::span<const std::byte>(bytes).first(bytes.size() - 4);
  if (crc32c(covered) != get_le<uint32_t>(bytes, covered.size())) {
    return Error{Code::kInput, "header checksum mismatch", where};
  }
  if (header->file_bytes > *size) return Error{Code::kInput, "file cut short", where};
  if (header->file_bytes < *size) return Error{Code::kInput, "file longer than its header says", where};
  if (auto s = parse_tables(bytes, *header, where); !s) return s.error();
  return header;
}

}  // namespace cento
