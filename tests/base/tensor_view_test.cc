#include "base/tensor_view.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "base/rng.h"

namespace cento {
namespace {

// The value of a half by its definition, in float64.
double value64(uint16_t bits) {
  const double sign = bits & 0x8000u ? -1 : 1, mantissa = bits & 0x3ffu;
  const int exponent = bits >> 10 & 31;
  if (exponent == 31) return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  return sign * (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25));
}

TEST_CASE("fp16: all 65536 halves become the float they stand for, and come back", "[base]") {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const fp16 h{static_cast<uint16_t>(bits)};
    const float f = to_float(h);
    CAPTURE(bits, f);
    if (std::isnan(value64(h.bits))) {
      REQUIRE(std::isnan(f));
      REQUIRE(std::isnan(to_float(to_fp16(f))));
      continue;
    }
    REQUIRE(f == value64(h.bits));
    REQUIRE(std::signbit(f) == ((bits & 0x8000u) != 0));
    REQUIRE(to_fp16(f).bits == bits);
  }
}

// Rounding is monotonic, so it is right everywhere if it is right at, just below and just above each midpoint of two
// neighbouring halves. The midpoint needs 12 bits and is exact in float32.
TEST_CASE("fp16: a float goes to the nearest half, at a midpoint to the even one", "[base]") {
  for (uint16_t bits = 0; bits < 0x7c00; ++bits) {
    const uint16_t next = static_cast<uint16_t>(bits + 1);
    // Above the largest half the next step of its binade counts, though it stands for infinity.
    const double upper = next == 0x7c00 ? 65536 : value64(next);
    const auto middle = static_cast<float>((value64(bits) + upper) / 2);
    const uint16_t even = bits % 2 == 0 ? bits : next;
    CAPTURE(bits, middle);
    REQUIRE(to_fp16(middle).bits == even);
    REQUIRE(to_fp16(-middle).bits == (even | 0x8000u));
    REQUIRE(to_fp16(std::nextafter(middle, 0.0f)).bits == bits);
    REQUIRE(to_fp16(std::nextafter(middle, 1e30f)).bits == next);
  }
  CHECK(to_fp16(0.0f).bits == 0);
  CHECK(to_fp16(-0.0f).bits == 0x8000);
  CHECK(to_fp16(std::numeric_limits<float>::denorm_min()).bits == 0);
  CHECK(to_fp16(std::numeric_limits<float>::max()).bits == 0x7c00);
  CHECK(to_fp16(-std::numeric_limits<float>::infinity()).bits == 0xfc00);
}

TEST_CASE("fp16: random floats go to a half no farther away than its neighbours", "[base]") {
  Rng rng(1);
  for (int i = 0; i < 100000; ++i) {
    const auto f = static_cast<float>(std::ldexp(rng.uniform() * 2 - 1, static_cast<int>(rng.below(40)) - 24));
    const fp16 h = to_fp16(f);
    if ((h.bits & 0x7fffu) == 0x7c00) {
      REQUIRE(std::abs(f) >= 65520);
      continue;
    }
    const double off = std::abs(f - value64(h.bits));
    const auto up = static_cast<uint16_t>(h.bits + 1);
    CAPTURE(f, h.bits);
    REQUIRE(off <= std::abs(f - value64(up)));
    if ((h.bits & 0x7fffu) != 0) REQUIRE(off <= std::abs(f - value64(static_cast<uint16_t>(h.bits - 1))));
  }
}

TEST_CASE("bf16: is the upper half of a float", "[base]") {
  CHECK(to_float(bf16{0x3f80}) == 1.0f);
  CHECK(to_float(bf16{0xc049}) == -3.140625f);
  CHECK(std::isinf(to_float(bf16{0x7f80})));
}

TEST_CASE("tensor view: rows, columns and bytes follow from shape and type", "[base]") {
  TensorView t;
  CHECK(t.cols() == 1);
  CHECK(t.rows() == 1);
  CHECK(shape_text(t) == "[]");
  t.shape = {5, 1, 1, 1};
  t.n_dims = 1;
  CHECK(t.cols() == 5);
  CHECK(t.rows() == 1);
  CHECK(t.row_bytes() == 20);
  t.shape = {2, 3, 512, 1};
  t.n_dims = 3;
  t.dtype = DType::kQ4_K;
  CHECK(t.cols() == 512);
  CHECK(t.rows() == 6);
  CHECK(t.row_bytes() == 288);
  CHECK(shape_text(t) == "[2, 3, 512]");
}

TEST_CASE("dtype: numbers of GGUF that are not read have no description", "[base]") {
  for (const uint32_t type : {4u, 5u, 9u, 15u, 16u, 23u, 29u, 31u, 1000u, ~0u}) CHECK_FALSE(dtype_info(type));
  CHECK(std::string(dtype_info(DType::kQ6_K).name) == "Q6_K");
}

}  // namespace
}  // namespace cento
