#include "base/hash.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <set>
#include <vector>

#include "base/rng.h"

namespace cento {
namespace {

std::span<const std::byte> bytes_of(std::string_view s) { return std::as_bytes(std::span(s.data(), s.size())); }

TEST_CASE("crc32c: agrees with the examples of RFC 3720, B.4", "[base]") {
  std::array<uint8_t, 32> block{};
  const auto crc = [&] { return crc32c(std::as_bytes(std::span(block))); };
  CHECK(crc() == 0x8a9136aau);
  block.fill(0xff);
  CHECK(crc() == 0x62a8ab43u);
  std::iota(block.begin(), block.end(), uint8_t{0});
  CHECK(crc() == 0x46dd794eu);
  std::reverse(block.begin(), block.end());
  CHECK(crc() == 0x113fdb5cu);
  const uint8_t read_command[48] = {0x01, 0xc0, 0, 0, 0, 0, 0,    0, 0,    0, 0, 0,    0, 0, 0, 0,
                                    0x14, 0,    0, 0, 0, 0, 0x04, 0, 0,    0, 0, 0x14, 0, 0, 0, 0x18,
                                    0x28, 0,    0, 0, 0, 0, 0,    0, 0x02, 0, 0, 0,    0, 0, 0, 0};
  CHECK(crc32c(std::as_bytes(std::span(read_command))) == 0xd9963a56u);
  CHECK(crc32c(bytes_of("123456789")) == 0xe3069283u);
  CHECK(crc32c({}) == 0);
}

TEST_CASE("crc32c: the value of a whole is that of its parts, at any cut and alignment", "[base]") {
  std::string text(70, '\0');
  Rng rng(1);
  for (char& c : text) c = static_cast<char>(rng.next());
  for (size_t start = 0; start < 8; ++start) {
    const auto all = bytes_of(text).subspan(start);
    for (size_t cut = 0; cut <= all.size(); ++cut) {
      REQUIRE(crc32c(all.subspan(cut), crc32c(all.first(cut))) == crc32c(all));
    }
  }
}

TEST_CASE("crc32c: the portable code gives the same values", "[base]") {
  std::string text(200, '\0');
  Rng rng(2);
  for (char& c : text) c = static_cast<char>(rng.next());
  for (size_t n = 0; n <= text.size(); ++n) {
    const auto part = bytes_of(text).first(n);
    REQUIRE(crc32c_portable(part) == crc32c(part));
    REQUIRE(crc32c_portable(part, 0x12345678u) == crc32c(part, 0x12345678u));
  }
  CHECK(crc32c_portable(bytes_of("123456789")) == 0xe3069283u);
}

// Computed with Python's hashlib.blake2b(digest_size=32) over the bytes that the header describes: each length and
// number as 8 bytes, little-endian, list elements as 4.
TEST_CASE("hasher: is BLAKE2b of the tag and the pieces in the encoding of the header", "[base]") {
  CHECK(Hasher("").finish().hex() == "81e47a19e6b29b0a65b9591762ce5143ed30d0261e5d24a3201752506b20f15c");
  CHECK(Hasher("abc").add(bytes_of("hello")).finish().hex() ==
        "f9d9f13cabb9f766680de726f3ac0ef62fa3a7b720656f1c8fe11b54fc24dceb");
  CHECK(hash_of_text("cento test", "hello").hex() ==
        "e01b923bad4dd2f58590a0e9e9c8abf68d67339a745dce1e55c54c2d7cf5ff57");
  Hash inner;
  std::iota(inner.bytes.begin(), inner.bytes.end(), uint8_t{0});
  const int32_t values[] = {-1, 7};
  CHECK(Hasher("t").add_u64(0x0102030405060708).add_i32s(values).add_hash(inner).finish().hex() ==
        "abc71c783d7397f166e658131a33a43bc6c3168df01d47354959eb8467c6f394");
}

TEST_CASE("hasher: pieces of raw bytes may be cut anywhere, texts and tags may not", "[base]") {
  const std::string text = "some bytes that are hashed in pieces";
  const Hash whole = Hasher("x").add(bytes_of(text)).finish();
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    CHECK(Hasher("x").add(bytes_of(text).first(cut)).add(bytes_of(text).subspan(cut)).finish() == whole);
  }
  std::set<Hash> seen;
  CHECK(seen.insert(Hasher("x").add_text("ab").add_text("c").finish()).second);
  CHECK(seen.insert(Hasher("x").add_text("a").add_text("bc").finish()).second);
  CHECK(seen.insert(Hasher("x").add_text("abc").finish()).second);
  CHECK(seen.insert(Hasher("y").add_text("abc").finish()).second);
  CHECK(seen.insert(Hasher("xa").add_text("bc").finish()).second);
  CHECK(seen.insert(Hasher("x").add_i32s({}).finish()).second);
  CHECK(seen.insert(Hasher("x").finish()).second);
}

TEST_CASE("hash: hex goes both ways and nothing else is read", "[base]") {
  const Hash h = hash_of_text("a", "b");
  CHECK(h.hex().size() == 64);
  CHECK(h.short_hex() == h.hex().substr(0, 16));
  CHECK(hash_from_hex(h.hex()) == h);
  CHECK_FALSE(hash_from_hex(""));
  CHECK_FALSE(hash_from_hex(h.hex().substr(1)));
  CHECK_FALSE(hash_from_hex(h.hex() + "0"));
  for (const char bad : {'g', 'A', ' ', '\0', '/', ':', '`'}) {
    std::string hex = h.hex();
    hex[17] = bad;
    CHECK_FALSE(hash_from_hex(hex));
  }
  Hash small, large;
  large.bytes[0] = 1;
  CHECK(small < large);
}

}  // namespace
}  // namespace cento
