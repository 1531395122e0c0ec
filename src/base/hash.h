// Content hash (identity of chunks, models, files) and the checksum of stored blocks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace cento {

// 256-bit BLAKE2b. Equality of two means equality of what was hashed.
struct Hash {
  std::array<uint8_t, 32> bytes{};
  bool operator==(const Hash&) const = default;
  auto operator<=>(const Hash&) const = default;
  std::string hex() const;  // 64 lower-case digits
  std::string short_hex() const { return hex().substr(0, 16); }
};
std::optional<Hash> hash_from_hex(std::string_view hex);

// Feeds bytes in any number of pieces. `tag` keeps hashes made for different purposes apart: it is hashed first, with
// its length.
class Hasher {
 public:
  explicit Hasher(std::string_view tag);
  Hasher& add(std::span<const std::byte> bytes);  // raw bytes, no length: for the last or only piece of variable length
  Hasher& add_text(std::string_view text);        // length first, so that ("ab","c") and ("a","bc") differ
  Hasher& add_u64(uint64_t value);                // 8 bytes, little-endian
  Hasher& add_i32s(std::span<const int32_t> values);  // count first, then little-endian
  Hasher& add_hash(const Hash& hash);
  Hash finish();  // once

 private:
  alignas(64) std::array<std::byte, 384> state_;  // crypto_generichash_state; checked in hash.cc
};

Hash hash_of_text(std::string_view tag, std::string_view text);

// CRC-32C (Castagnoli, reflected, as in RFC 3720). `crc` continues an earlier value; start with 0.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t crc = 0);
// The same without the processor's CRC instruction: what machines that lack it use.
uint32_t crc32c_portable(std::span<const std::byte> bytes, uint32_t crc = 0);

}  // namespace cento
