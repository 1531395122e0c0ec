#include "compute/op_test.h"

namespace cento::test {
namespace {

constexpr float kEps = 1e-5F;

struct Shape {
  size_t r, c;
};

std::vector<float> run(const Ops& ops, const std::vector<float>& x, const std::vector<float>& weight,
                       const std::vector<float>& y, size_t r, bool add, size_t n_threads) {
  const size_t c = weight.size(), ldx = c + 3, ldy = c + 5;
  DeviceArray<float> x_dev(ops, with_stride(x, r, c, ldx, NAN), 1);
  DeviceArray<float> w_dev(ops, weight, 1);
  DeviceArray<float> y_dev(ops, with_stride(y, r, c, ldy, -3), 3);
  RmsNormArgs a{x_dev.ptr(), w_dev.ptr(), y_dev.ptr(), r, c, ldx, ldy, kEps, add};
  ops.rms_norm(context(n_threads), a);
  return without_stride(y_dev.get(), r, c, ldy, -3);
}

TEST_CASE("rms_norm: agrees with float64 on every backend", "[compute]") {
  const auto s = GENERATE(Shape{0, 5}, Shape{1, 1}, Shape{2, 7}, Shape{3, 15}, Shape{3, 16}, Shape{3, 17}, Shape{5, 31},
                          Shape{4, 64}, Shape{2, 4097}, Shape{300, 576});
  const bool add = GENERATE(false, true);
  const double amplitude = GENERATE(1e-18, 1.0, 1e25);
  CAPTURE(s.r, s.c, add, amplitude);
  Rng rng(kSeed);
  std::vector<float> x = random_floats(rng, s.r * s.c, amplitude);
  for (size_t i = 0; i < x.size(); i += 101) x[i] *= 300;  // outlier channels, as real activations have
  const std::vector<float> weight = random_floats(rng, s.c, 2), y = random_floats(rng, s.r * s.c, 3);
  // The sum is in double: the scale is rounded once to float32, then two products, and the sum of `add`: u each. 4u
  // covers the first three with second-order terms.
  std::vector<double> expected, bound;
  for (size_t r = 0; r < s.r; ++r) {
    double sum = 0;
    for (size_t c = 0; c < s.c; ++c) sum += static_cast<double>(x[r * s.c + c]) * static_cast<double>(x[r * s.c + c]);
    const double scale = 1 / std::sqrt(sum / static_cast<double>(s.c) + static_cast<double>(kEps));
    for (size_t c = 0; c < s.c; ++c) {
      const double value = static_cast<double>(x[r * s.c + c]) * scale * static_cast<double>(weight[c]);
      expected.push_back(value + (add ? static_cast<double>(y[r * s.c + c]) : 0));
      bound.push_back(4 * kU * std::fabs(value) + (add ? kU * std::fabs(expected.back()) : 0) + 1e-38);
    }
  }
  for (const Ops* ops : tested_ops()) {
    CAPTURE(ops->name);
    const std::vector<float> got = run(*ops, x, weight, y, s.r, add, 2);
    CHECK_THAT(got, CloseTo(expected, bound));
    for (size_t r = 0; r < s.r; r += 97) {  // rows alone
      const auto row = [&](const std::vector<float>& v) {
        return std::vector<float>(v.begin() + static_cast<long>(r * s.c), v.begin() + static_cast<long>((r + 1) * s.c));
      };
      CHECK(same_bits(run(*ops, row(x), weight, row(y), 1, add, 1), row(got)));
    }
  }
}

TEST_CASE("rms_norm: works in place, and a row of zeros stays zero", "[compute]") {
  Rng rng(kSeed);
  constexpr size_t kRows = 3, kCols = 70;
  std::vector<float> x = random_floats(rng, kRows * kCols);
  std::fill_n(x.begin() + kCols, kCols, 0.0F);
  const std::vector<float> weight = random_floats(rng, kCols);
  for (const Ops* ops : tested_ops()) {
    CAPTURE(ops->name);
    const std::vector<float> apart = run(*ops, x, weight, x, kRows, false, 1);
    DeviceArray<float> x_dev(*ops, x);
    DeviceArray<float> w_dev(*ops, weight);
    ops->rms_norm(context(1), {x_dev.ptr(), w_dev.ptr(), x_dev.ptr(), kRows, kCols, kCols, kCols, kEps});
    const std::vector<float> in_place = x_dev.get();
    CHECK(same_bits(in_place, apart));
    CHECK(std::all_of(in_place.begin() + kCols, in_place.begin() + 2 * kCols, [](float v) { return v == 0; }));
  }
}

}  // namespace
}  // namespace cento::test
