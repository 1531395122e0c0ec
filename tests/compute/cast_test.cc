#include <algorithm>

#include "compute/op_test.h"

namespace cento::test {
namespace {

template <class T>
std::vector<T> run(const Ops& ops, const std::vector<float>& x, size_t t, size_t w, size_t n_threads) {
  const size_t ldx = w + 3;
  DeviceArray<float> x_dev(ops, with_stride(x, t, w, ldx, NAN), 1);
  DeviceArray<T> y_dev(ops, std::vector<T>(t * w), 1);
  ops.cast_rows(context(n_threads),
                {x_dev.ptr(), y_dev.ptr(), t, w, ldx, std::is_same_v<T, fp16> ? KvType::kF16 : KvType::kF32});
  return y_dev.get();
}

// Value of the bits of a finite half, from the format's definition.
double half_value(uint32_t bits) {
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  const int exponent = static_cast<int>(bits >> 10 & 31);
  const double mantissa = bits & 0x3ff;
  return sign * (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25));
}

TEST_CASE("cast_rows: every half comes back, every tie goes to the even one, and what is larger is clamped",
          "[compute]") {
  std::vector<float> x;
  std::vector<uint16_t> expected;
  const auto add = [&](double value, uint32_t bits) {
    x.push_back(static_cast<float>(value));
    expected.push_back(static_cast<uint16_t>(bits));
  };
  for (const uint32_t sign : {0U, 0x8000U}) {
    for (uint32_t bits = sign; bits < sign + 0x7bff; ++bits) {
      const double low = half_value(bits), high = half_value(bits + 1), middle = (low + high) / 2;
      const float tie = static_cast<float>(middle);
      add(low, bits);
      add(middle, bits % 2 == 0 ? bits : bits + 1);
      add(static_cast<double>(std::nextafter(tie, static_cast<float>(low))), bits);
      add(static_cast<double>(std::nextafter(tie, static_cast<float>(high))), bits + 1);
    }
    const double s = sign == 0 ? 1 : -1;
    for (const double large : {65504.0, 65519.0, 65520.0, 65536.0, 1e5, 1e30, 3.4e38}) add(s * large, sign | 0x7bff);
  }
  for (const Ops* ops : tested_ops()) {
    CAPTURE(ops->name);
    const std::vector<fp16> y = run<fp16>(*ops, x, 1, x.size(), 2);
    size_t n_bad = 0;
    for (size_t i = 0; i < y.size(); ++i) {
      if (y[i].bits == expected[i]) continue;
      if (n_bad++ == 0) FAIL_CHECK(x[i] << " became " << y[i].bits << ", expected " << expected[i]);
    }
    CHECK(n_bad == 0);
  }
}

TEST_CASE("cast_rows: rows with a stride become dense, on every backend alike", "[compute]") {
  struct Shape {
    size_t t, w;
  };
  const auto s = GENERATE(Shape{0, 3}, Shape{1, 1}, Shape{3, 7}, Shape{2, 15}, Shape{2, 16}, Shape{2, 17}, Shape{5, 31},
                          Shape{300, 192});
  CAPTURE(s.t, s.w);
  Rng rng(kSeed);
  const std::vector<float> x = random_floats(rng, s.t * s.w, 100);
  for (const Ops* ops : tested_ops()) {
    CAPTURE(ops->name);
    CHECK(same_bits(run<float>(*ops, x, s.t, s.w, 2), x));
    CHECK(same_bits(run<fp16>(*ops, x, s.t, s.w, 2), halves(x)));
  }
}

}  // namespace
}  // namespace cento::test
