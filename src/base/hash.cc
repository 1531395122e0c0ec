#include "base/hash.h"

#include <sodium.h>

#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

#include "base/check.h"

namespace cento {
namespace {

static_assert(sizeof(crypto_generichash_state) <= 384);
static_assert(alignof(crypto_generichash_state) <= 64);

crypto_generichash_state* as_state(std::array<std::byte, 384>& bytes) {
  return reinterpret_cast<crypto_generichash_state*>(bytes.data());
}

void update(std::array<std::byte, 384>& state, const void* data, size_t n_bytes) {
  CHECK(crypto_generichash_update(as_state(state), static_cast<const unsigned char*>(data), n_bytes) == 0);
}

constexpr uint32_t kCastagnoli = 0x82f63b78u;  // reflected polynomial

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ ((c & 1u) ? kCastagnoli : 0u);
    table[i] = c;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = make_table();

uint32_t crc_table(const uint8_t* p, size_t n, uint32_t crc) {
  for (size_t i = 0; i < n; ++i) crc = kTable[(crc ^ p[i]) & 0xffu] ^ (crc >> 8);
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t crc_sse42(const uint8_t* p, size_t n, uint32_t crc) {
  uint64_t wide = crc;
  for (; n >= 8; n -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    wide = _mm_crc32_u64(wide, word);
  }
  crc = static_cast<uint32_t>(wide);
  for (; n > 0; --n, ++p) crc = _mm_crc32_u8(crc, *p);
  return crc;
}
#endif

}  // namespace

std::string Hash::hex() const {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string s(64, '0');
  for (size_t i = 0; i < 32; ++i) {
    s[2 * i] = kDigits[bytes[i] >> 4];
    s[2 * i + 1] = kDigits[bytes[i] & 15];
  }
  return s;
}

std::optional<Hash> hash_from_hex(std::string_view hex) {
  const auto digit = [](char c) -> int {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
  };
  if (hex.size() != 64) return std::nullopt;
  Hash hash;
  for (size_t i = 0; i < 32; ++i) {
    const int high = digit(hex[2 * i]), low = digit(hex[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    hash.bytes[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return hash;
}

Hasher::Hasher(std::string_view tag) {
  CHECK(crypto_generichash_init(as_state(state_), nullptr, 0, 32) == 0);
  add_text(tag);
}

Hasher& Hasher::add(std::span<const std::byte> bytes) {
  update(state_, bytes.data(), bytes.size());
  return *this;
}

Hasher& Hasher::add_text(std::string_view text) {
  add_u64(text.size());
  update(state_, text.data(), text.size());
  return *this;
}

Hasher& Hasher::add_u64(uint64_t value) {
  std::array<uint8_t, 8> le;
  for (size_t i = 0; i < 8; ++i) le[i] = static_cast<uint8_t>(value >> (8 * i));
  update(state_, le.data(), le.size());
  return *this;
}

Hasher& Hasher::add_i32s(std::span<const int32_t> values) {
  add_u64(values.size());
  for (const int32_t v : values) {
    const auto u = static_cast<uint32_t>(v);
    const std::array<uint8_t, 4> le = {static_cast<uint8_t>(u), static_cast<uint8_t>(u >> 8),
                                       static_cast<uint8_t>(u >> 16), static_cast<uint8_t>(u >> 24)};
    update(state_, le.data(), le.size());
  }
  return *this;
}

Hasher& Hasher::add_hash(const Hash& hash) {
  update(state_, hash.bytes.data(), hash.bytes.size());
  return *this;
}

Hash Hasher::finish() {
  Hash hash;
  CHECK(crypto_generichash_final(as_state(state_), hash.bytes.data(), hash.bytes.size()) == 0);
  return hash;
}

Hash hash_of_text(std::string_view tag, std::string_view text) { return Hasher(tag).add_text(text).finish(); }

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t crc) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) {
    return ~crc_sse42(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), ~crc);
  }
#endif
  return crc32c_portable(bytes, crc);
}

uint32_t crc32c_portable(std::span<const std::byte> bytes, uint32_t crc) {
  return ~crc_table(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), ~crc);
}

}  // namespace cento
