#include "kv/remote_parts.h"

#include <algorithm>
#include <cstring>

#include "base/hash.h"
#include "kv/little_endian.h"

namespace cento {
namespace {

// Little-endian, no gaps: magic, u32 number of parts, u64[parts] lengths, u32 CRC-32C of all that.
constexpr std::string_view kMagic = "CKR1";
constexpr size_t kCountAt = 4, kLengthsAt = 8;

std::string fault(std::span<const uint64_t> lengths) {
  if (lengths.empty() || lengths.size() > kRemotePartsMax) return "impossible number of parts";
  if (lengths[0] > kRemoteHeaderBytesMax) return "impossible length of a header";
  for (const uint64_t n : lengths) {
    if (n > kRemotePartBytesMax) return "impossible length of a part";
  }
  return {};
}

}  // namespace

Result<std::string> remote_parts_text(std::span<const uint64_t> lengths) {
  if (const std::string why = fault(lengths); !why.empty())
    return Error{Code::kResource, "too large for the remote tier: " + why};
  std::vector<std::byte> out;
  for (const char c : kMagic) out.push_back(static_cast<std::byte>(c));
  put_le(out, static_cast<uint32_t>(lengths.size()));
  for (const uint64_t n : lengths) put_le(out, n);
  put_le(out, crc32c(out));
  return std::string(reinterpret_cast<const char*>(out.data()), out.size());
}

Result<RemoteParts> parse_remote_parts(std::span<const std::byte> bytes) {
  const auto bad = [](const std::string& what) { return Error{Code::kInput, what}; };
  if (bytes.size() < kLengthsAt || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
    return bad("not a table of parts");
  const auto n_parts = get_le<uint32_t>(bytes, kCountAt);
  if (n_parts == 0 || n_parts > kRemotePartsMax) return bad("impossible number of parts");
  RemoteParts out;
  const size_t crc_at = kLengthsAt + 8 * size_t{n_parts};
  out.header_at = crc_at + sizeof(uint32_t);
  if (bytes.size() < out.header_at) return bad("table of parts cut short");
  if (get_le<uint32_t>(bytes, crc_at) != crc32c(bytes.first(crc_at))) return bad("checksum mismatch in table of parts");
  for (uint32_t i = 0; i < n_parts; ++i) out.lengths.push_back(get_le<uint64_t>(bytes, kLengthsAt + 8 * size_t{i}));
  if (const std::string why = fault(out.lengths); !why.empty()) return bad(why);
  if (bytes.size() - out.header_at != out.lengths[0]) return bad("the header has another length");
  return out;
}

}  // namespace cento
