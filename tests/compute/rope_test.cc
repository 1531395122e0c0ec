#include "compute/rope_table.h"

#include <algorithm>

#include "compute/op_test.h"

namespace cento::test {
namespace {

// Angle in long double (64-bit mantissa): at position 32767 off by less than 1e-14.
long double angle(uint64_t p, size_t i, uint32_t dims, double base, double scale, const std::vector<float>& factors) {
  const long double freq =
      std::pow(static_cast<long double>(base), -2.0L * static_cast<long double>(i) / static_cast<long double>(dims));
  return static_cast<long double>(p) / static_cast<long double>(scale) * freq /
         (factors.empty() ? 1.0L : static_cast<long double>(factors[i]));
}

TEST_CASE("rope table: holds cosine and sine of each angle, correct to float32 at large positions", "[compute]") {
  struct Row {
    uint32_t dims;
    double base, scale;
    std::vector<float> factors;
    uint64_t from, to;
  };
  const auto row = GENERATE(Row{2, 10000, 1, {}, 0, 3}, Row{64, 100000, 1, {}, 0, 70},
                            Row{64, 1e6, 1, {}, 32700, 32768}, Row{128, 500000, 1, {}, 131000, 131072},
                            Row{256, 10000, 8, {}, 5, 20}, Row{8, 10000, 0.5, {1, 2, 4.5F, 32}, 1000, 1010});
  CAPTURE(row.dims, row.base, row.scale, row.from);
  const std::vector<float> table = make_rope_table(row.dims, row.base, row.scale, row.factors, row.from, row.to);
  std::vector<double> expected;
  for (uint64_t p = row.from; p < row.to; ++p) {
    for (size_t i = 0; i < row.dims / 2; ++i) {
      const long double a = angle(p, i, row.dims, row.base, row.scale, row.factors);
      expected.push_back(static_cast<double>(std::cos(a)));
      expected.push_back(static_cast<double>(std::sin(a)));
    }
  }
  // Half a unit in the last place of values up to 1, 2^-25; and the angle in double: four roundings of 2^-53 of it.
  const double bound = 0x1p-25 + 4 * 0x1p-53 * static_cast<double>(row.to) / std::min(1.0, row.scale);
  CHECK_THAT(table, CloseTo(expected, bound));
}

TEST_CASE("rope table: a part has the bits of the whole, and an empty range is empty", "[compute]") {
  const std::vector<float> all = make_rope_table(64, 10000, 1, {}, 0, 100);
  const std::vector<float> part = make_rope_table(64, 10000, 1, {}, 37, 90);
  CHECK(same_bits(part, std::vector<float>(all.begin() + 37 * 64, all.begin() + 90 * 64)));
  CHECK(make_rope_table(64, 10000, 1, {}, 5, 5).empty());
}

struct Shape {
  size_t t, h, d;
  uint32_t dims;
};

std::vector<float> run(const Ops& ops, const Shape& s, bool interleaved, const std::vector<float>& x,
                       const std::vector<int32_t>& pos, const std::vector<float>& table, size_t n_threads) {
  const size_t width = s.h * s.d, ldx = width + 7;
  const size_t t = pos.size();
  DeviceArray<float> x_dev(ops, with_stride(x, t, width, ldx, -3), 1);
  DeviceArray<int32_t> pos_dev(ops, pos, 1);
  DeviceArray<float> table_dev(ops, table, 1);
  RopeRowsArgs a{};
  a.x = x_dev.ptr();
  a.pos = pos_dev.ptr();
  a.t = t;
  a.h = s.h;
  a.d = s.d;
  a.ldx = ldx;
  a.rope = {table_dev.ptr(), s.dims, interleaved};
  ops.rope_rows(context(n_threads), a);
  return without_stride(x_dev.get(), t, width, ldx, -3);
}

TEST_CASE("rope_rows: agrees with float64 and is the same on every backend, bit for bit", "[compute]") {
  const auto s = GENERATE(Shape{0, 1, 2, 2}, Shape{1, 1, 2, 2}, Shape{3, 2, 16, 16}, Shape{5, 3, 34, 34},
                          Shape{7, 1, 62, 30}, Shape{200, 9, 64, 64}, Shape{4, 2, 80, 20}, Shape{3, 4, 256, 256});
  const bool interleaved = GENERATE(false, true);
  CAPTURE(s.t, s.h, s.d, s.dims, interleaved);
  constexpr int32_t kPositions = 32768;
  Rng rng(kSeed);
  const std::vector<float> table = make_rope_table(s.dims, 10000, 1, {}, 0, kPositions);
  const std::vector<float> x = random_floats(rng, s.t * s.h * s.d, 5);
  std::vector<int32_t> pos(s.t);
  for (int32_t& p : pos) p = static_cast<int32_t>(rng.below(kPositions));
  if (s.t > 1) pos[0] = 0, pos[1] = kPositions - 1;

  // Two products and a sum are rounded, each by u at most, and the table by 2^-25 = u/2: 3u (|a| + |b|) covers them.
  std::vector<double> expected, bound;
  for (size_t row = 0; row < s.t * s.h; ++row) {
    const float* from = x.data() + row * s.d;
    std::vector<double> y(from, from + s.d), b(s.d, 0);
    for (size_t i = 0; i < s.dims / 2; ++i) {
      const size_t ia = interleaved ? 2 * i : i, ib = interleaved ? 2 * i + 1 : i + s.dims / 2;
      const long double w = angle(static_cast<uint64_t>(pos[row / s.h]), i, s.dims, 10000, 1, {});
      const double cos = static_cast<double>(std::cos(w)), sin = static_cast<double>(std::sin(w));
      const double xa = static_cast<double>(from[ia]), xb = static_cast<double>(from[ib]);
      y[ia] = xa * cos - xb * sin;
      y[ib] = xb * cos + xa * sin;
      b[ia] = b[ib] = 3 * kU * (std::fabs(xa) + std::fabs(xb)) + 1e-10;
    }
    expected.insert(expected.end(), y.begin(), y.end());
    bound.insert(bound.end(), b.begin(), b.end());
  }
  const std::vector<float> reference = run(ref_ops(), s, interleaved, x, pos, table, 1);
  for (const Ops* ops : tested_ops()) {
    CAPTURE(ops->name);
    const std::vector<float> y = run(*ops, s, interleaved, x, pos, table, 2);
    CHECK_THAT(y, CloseTo(expected, bound));
    CHECK(same_bits(y, reference));
    for (size_t t = 0; t < s.t; t += 61) {  // rows alone
      const size_t width = s.h * s.d;
      const std::vector<float> one(x.begin() + static_cast<long>(t * width),
                                   x.begin() + static_cast<long>((t + 1) * width));
      CHECK(same_bits(run(*ops, s, interleaved, one, {pos[t]}, table, 1),
                      std::vector<float>(y.begin() + static_cast<long>(t * width),
                                         y.begin() + static_cast<long>((t + 1) * width))));
    }
  }
}

}  // namespace
}  // namespace cento::test
