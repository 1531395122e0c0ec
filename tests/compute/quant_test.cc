#include "compute/quant.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/rng.h"
#include "support/gguf_writer.h"
#include "support/shared_data.h"

namespace cento {
namespace {

constexpr DType kBlockTypes[] = {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0,
                                 DType::kQ2_K, DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};

const std::byte* as_bytes(const std::string& s) { return reinterpret_cast<const std::byte*>(s.data()); }

std::vector<float> expand(DType type, const std::string& blocks) {
  const DTypeInfo info = dtype_info(type);
  std::vector<float> out(blocks.size() / info.bytes * info.elements);
  dequantize(type, as_bytes(blocks), out.data(), out.size());
  return out;
}

std::string from_hex(const std::string& hex) {
  std::string s;
  for (size_t i = 0; i < hex.size(); i += 2) s += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return s;
}

// Same bits, so that -0, +0 and NaN are told apart.
bool same_bits(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

// One block as a row of bit fields. The value at index i is found from i alone, in float64, by the description of the
// format; nothing is shared with src/compute/quant.cc, which goes through a block in the order of its bytes.
struct Block {
  const uint8_t* b;
  unsigned bits(size_t byte, size_t shift, unsigned width) const { return b[byte] >> shift & ((1u << width) - 1); }
  unsigned nibble(size_t byte, bool high) const { return high ? b[byte] / 16u : b[byte] % 16u; }
  double half(size_t byte) const {
    const unsigned h = b[byte] + 256u * b[byte + 1];
    const double sign = h & 0x8000u ? -1 : 1, mantissa = h & 0x3ffu;
    const int exponent = static_cast<int>(h >> 10 & 31u);
    if (exponent == 0) return sign * std::ldexp(mantissa, -24);
    return sign * std::ldexp(1024 + mantissa, exponent - 25);
  }
  double s8(size_t byte) const { return b[byte] < 128 ? b[byte] : b[byte] - 256.0; }
  // The 6-bit scale and min of sub-block j of Q4_K and Q5_K, packed in 12 bytes from `at`.
  std::pair<double, double> scale_min(size_t at, size_t j) const {
    if (j < 4) return {b[at + j] % 64, b[at + 4 + j] % 64};
    return {nibble(at + 4 + j, false) + 16 * (b[at + j - 4] / 64), nibble(at + 4 + j, true) + 16 * (b[at + j] / 64)};
  }
};

double value64(DType type, const uint8_t* bytes, size_t i) {
  const Block b{bytes};
  const size_t j = i % 16;  // byte of the nibble, formats of 32 values
  const bool upper = i >= 16;
  switch (type) {
    case DType::kQ4_0:
      return b.half(0) * (b.nibble(2 + j, upper) - 8.0);
    case DType::kQ4_1:
      return b.half(0) * b.nibble(4 + j, upper) + b.half(2);
    case DType::kQ5_0:
      return b.half(0) * (b.nibble(6 + j, upper) + 16.0 * b.bits(2 + i / 8, i % 8, 1) - 16.0);
    case DType::kQ5_1:
      return b.half(0) * (b.nibble(8 + j, upper) + 16.0 * b.bits(4 + i / 8, i % 8, 1)) + b.half(2);
    case DType::kQ8_0:
      return b.half(0) * b.s8(2 + i);
    case DType::kQ2_K: {
      const unsigned scale_byte = b.b[i / 16];
      const unsigned q = b.bits(16 + i / 128 * 32 + i % 32, i % 128 / 32 * 2, 2);
      return b.half(80) * (scale_byte % 16) * q - b.half(82) * (scale_byte / 16);
    }
    case DType::kQ3_K: {
      const size_t s = i / 16;  // scale: 4 low bits in bytes 96..103, 2 high bits in bytes 104..107
      const double scale = b.nibble(96 + s % 8, s >= 8) + 16.0 * b.bits(104 + s % 4, s / 4 * 2, 2) - 32;
      const double q = b.bits(32 + i / 128 * 32 + i % 32, i % 128 / 32 * 2, 2) + 4.0 * b.bits(i % 32, i / 32, 1) - 4;
      return b.half(108) * scale * q;
    }
    case DType::kQ4_K: {
      const auto [scale, min] = b.scale_min(4, i / 32);
      return b.half(0) * scale * b.nibble(16 + i / 64 * 32 + i % 32, i % 64 >= 32) - b.half(2) * min;
    }
    case DType::kQ5_K: {
      const auto [scale, min] = b.scale_min(4, i / 32);
      const double q = b.nibble(48 + i / 64 * 32 + i % 32, i % 64 >= 32) + 16.0 * b.bits(16 + i % 32, i / 32, 1);
      return b.half(0) * scale * q - b.half(2) * min;
    }
    case DType::kQ6_K: {
      const double low = b.nibble(i / 128 * 64 + i % 64, i % 128 >= 64);
      const double q = low + 16.0 * b.bits(128 + i / 128 * 32 + i % 32, i % 128 / 32 * 2, 2) - 32;
      return b.half(208) * b.s8(192 + i / 16) * q;
    }
    default:
      FAIL("no block type");
      return 0;
  }
}

TEST_CASE("dequantize: golden blocks expand to the golden values, bit for bit", "[compute]") {
  const auto golden =
      nlohmann::json::parse(test::read_all(CENTO_SOURCE_DIR "/tests/data/quant_golden.json")).at("cases");
  for (const DType type : kBlockTypes) DYNAMIC_SECTION(dtype_info(type).name) {
      const auto& one = golden.at(dtype_info(type).name);
      const std::string blocks = from_hex(one.at("blocks")), bits = from_hex(one.at("values"));
      const std::vector<float> found = expand(type, blocks);
      REQUIRE(found.size() * 4 == bits.size());
      REQUIRE(found.size() >= 64);
      std::vector<float> wanted(found.size());
      std::memcpy(wanted.data(), bits.data(), bits.size());
      for (size_t i = 0; i < found.size(); ++i) {
        CAPTURE(i, found[i], wanted[i]);
        REQUIRE(same_bits(found[i], wanted[i]));
      }
    }
}

// The float32 formula has at most one rounding, that of the last addition: a half has 11 significant bits, scales up to
// 7, quants up to 6, so all products fit in 24. The float64 value rounded to float32 is therefore the exact answer
// (compared as numbers: the sign of a zero is not the description's business).
TEST_CASE("dequantize: every block type agrees with a float64 decoder written from the description", "[compute]") {
  constexpr uint64_t kSeed = 7;
  for (const DType type : kBlockTypes) DYNAMIC_SECTION(dtype_info(type).name) {
      const DTypeInfo info = dtype_info(type);
      CAPTURE(kSeed);
      Rng rng(kSeed);
      std::string blocks = test::random_blocks(type, info.elements * 50, 0.1, rng);
      const size_t random_bytes = blocks.size();
      for (const char fill : {'\x00', '\x3f'}) blocks += std::string(info.bytes, fill);
      for (int i = 0; i < 2; ++i) {  // all bits set but for the half floats, which would be NaN
        std::string block = blocks.substr(static_cast<size_t>(i) * info.bytes, info.bytes);
        const bool halves_last = type == DType::kQ2_K || type == DType::kQ3_K || type == DType::kQ6_K;
        for (size_t k = halves_last ? 0 : 4; k < info.bytes - (halves_last ? 4 : 0); ++k) block[k] = '\xff';
        blocks += block;
      }
      REQUIRE(random_bytes == 50 * info.bytes);
      const std::vector<float> found = expand(type, blocks);
      for (size_t i = 0; i < found.size(); ++i) {
        const auto* block = reinterpret_cast<const uint8_t*>(blocks.data()) + i / info.elements * info.bytes;
        const auto wanted = static_cast<float>(value64(type, block, i % info.elements));
        CAPTURE(i, found[i], wanted);
        REQUIRE(found[i] == wanted);
      }
    }
}

TEST_CASE("dequantize: float types are widened exactly", "[compute]") {
  const std::string f32 = test::le(0x3f9d70a4u, 4) + test::le(0x80000000u, 4);
  CHECK(expand(DType::kF32, f32)[0] == 1.23f);
  CHECK(same_bits(expand(DType::kF32, f32)[1], -0.0f));
  CHECK(expand(DType::kF16, test::le(0x3c00, 2) + test::le(0xc248, 2)) == std::vector<float>{1.0f, -3.140625f});
  CHECK(expand(DType::kBF16, test::le(0x3f80, 2) + test::le(0xc049, 2)) == std::vector<float>{1.0f, -3.140625f});
}

TEST_CASE("dequantize: no values are no work, and blocks may lie at any address", "[compute]") {
  dequantize(DType::kQ4_K, nullptr, nullptr, 0);
  Rng rng(3);
  for (const DType type : kBlockTypes) {
    const std::string blocks = test::random_blocks(type, 512, 1, rng);
    const std::string shifted = "x" + blocks;
    std::vector<float> out(512);
    dequantize(type, as_bytes(shifted) + 1, out.data(), out.size());
    CHECK(out == expand(type, blocks));
  }
}

TEST_CASE("dequantize: writes exactly n values", "[compute]") {
  Rng rng(4);
  for (const DType type :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ5_1, DType::kQ2_K, DType::kQ6_K}) {
    const std::string blocks = test::random_blocks(type, 256, 1, rng);
    std::vector<float> out(258, 12345.0f);
    dequantize(type, as_bytes(blocks), out.data() + 1, 256);
    CHECK(out.front() == 12345.0f);
    CHECK(out.back() == 12345.0f);
    CHECK(std::count(out.begin(), out.end(), 12345.0f) == 2);
  }
}

TEST_CASE("dequantize_row: takes the row that is asked for", "[compute]") {
  Rng rng(5);
  for (const DType type : {DType::kF32, DType::kF16, DType::kQ8_0, DType::kQ4_K}) {
    const std::string blocks = test::random_blocks(type, 3 * 512, 1, rng);
    TensorView view{as_bytes(blocks), type, {3, 512, 1, 1}, 2, blocks.size()};
    const std::vector<float> all = expand(type, blocks);
    for (uint64_t row = 0; row < 3; ++row) {
      std::vector<float> out(512);
      dequantize_row(view, row, out.data());
      CHECK(std::equal(out.begin(), out.end(), all.begin() + static_cast<std::ptrdiff_t>(512 * row)));
    }
  }
}

// Nearest step: half a step away, plus what the rounding of the scale to 11 bits does over up to 16 (or 127) steps.
// Q4_0 has its extra step on the side of the largest magnitude; on the other side a value may be cut off by one step.
TEST_CASE("test support: quantised values come back within a step of the format", "[compute]") {
  Rng rng(6);
  std::vector<float> x(32 * 40);
  for (float& v : x) v = static_cast<float>(rng.uniform() * 2 - 1);
  const auto worst = [&](DType type) {
    const std::vector<float> y = expand(type, test::quantise(type, x));
    float w = 0;
    for (size_t i = 0; i < x.size(); ++i) w = std::max(w, std::abs(x[i] - y[i]));
    return w;
  };
  CHECK(worst(DType::kF32) == 0);
  CHECK(worst(DType::kF16) <= 0x1p-12f);
  CHECK(worst(DType::kBF16) <= 0x1p-9f);
  CHECK(worst(DType::kQ8_0) <= 1.0f / 127 * (0.5f + 127 * 0x1p-11f));
  CHECK(worst(DType::kQ4_0) <= 1.0f / 8 * (1 + 8 * 0x1p-11f));
  CHECK(worst(DType::kQ4_1) <= 2.0f / 15 * (0.5f + 16 * 0x1p-11f) + 0x1p-11f);
  CHECK(worst(DType::kQ8_0) > 0);
}

// Of 16384 values the deviation is known to about 1 %, but the values of a block share a scale: 64 blocks of 256 and a
// scale that itself varies by 14 % leave a few percent, the recipes' own rounding a few more.
TEST_CASE("test support: random blocks have about the mean and deviation asked for", "[compute]") {
  Rng rng(8);
  for (const DType type : kBlockTypes) {
    CAPTURE(dtype_info(type).name);
    const std::vector<float> y = expand(type, test::random_blocks(type, 16384, 0.5, rng));
    double sum = 0, squares = 0;
    for (const float v : y) {
      sum += v;
      squares += double{v} * v;
    }
    CHECK(std::abs(sum / 16384) < 0.1);
    CHECK(std::sqrt(squares / 16384) > 0.4);
    CHECK(std::sqrt(squares / 16384) < 0.6);
  }
}

}  // namespace
}  // namespace cento
