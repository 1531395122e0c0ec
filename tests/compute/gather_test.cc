#include "compute/op_test.h"

namespace cento::test {
namespace {

TEST_CASE("gather: copies the named rows, in any order and repeatedly", "[compute]") {
  struct Shape {
    size_t t, c;
  };
  const auto s = GENERATE(Shape{0, 3}, Shape{1, 1}, Shape{5, 7}, Shape{9, 16}, Shape{4, 65}, Shape{200, 576});
  CAPTURE(s.t, s.c);
  constexpr size_t kRows = 97;
  Rng rng(kSeed);
  const std::vector<float> src = random_floats(rng, kRows * s.c);
  std::vector<int32_t> rows(s.t);
  for (int32_t& r : rows) r = static_cast<int32_t>(rng.below(kRows));
  if (s.t > 1) rows[0] = kRows - 1, rows[1] = 0;
  std::vector<float> expected;
  for (const int32_t r : rows)
    for (size_t c = 0; c < s.c; ++c) expected.push_back(src[static_cast<size_t>(r) * s.c + c]);
  for (const Ops* ops : tested_ops()) {
    CAPTURE(ops->name);
    DeviceArray<float> src_dev(*ops, src, 1), dst(*ops, std::vector<float>(s.t * s.c, NAN), 1);
    DeviceArray<int32_t> rows_dev(*ops, rows, 1);
    ops->gather(context(2), {src_dev.ptr(), rows_dev.ptr(), dst.ptr(), s.t, s.c});
    CHECK(same_bits(dst.get(), expected));
  }
}

TEST_CASE("add: adds each element, rounded once", "[compute]") {
  const size_t n = GENERATE(0, 1, 7, 8, 15, 16, 17, 31, 4095, 4096, 4097, 100003);
  CAPTURE(n);
  Rng rng(kSeed);
  const std::vector<float> x = random_floats(rng, n, 3), y = random_floats(rng, n, 1e3);
  std::vector<float> expected;
  for (size_t i = 0; i < n; ++i)
    expected.push_back(static_cast<float>(static_cast<double>(x[i]) + static_cast<double>(y[i])));
  for (const Ops* ops : tested_ops()) {
    CAPTURE(ops->name);
    DeviceArray<float> x_dev(*ops, x, 1), y_dev(*ops, y, 3);
    ops->add(context(2), {x_dev.ptr(), y_dev.ptr(), n});
    CHECK(same_bits(y_dev.get(), expected));
    CHECK(same_bits(x_dev.get(), x));
  }
}

}  // namespace
}  // namespace cento::test
