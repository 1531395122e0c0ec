#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "compute/op_test.h"

namespace cento::test {
namespace {

struct Rows {
  std::vector<int8_t> codes;
  std::vector<float> scale, centre;
};

// Scales and centres are halves, as stored KV has them; a few are large enough for the result to leave their range.
Rows sample(size_t t, size_t c, size_t group, uint64_t seed) {
  Rng rng(seed);
  const auto half = [&](double largest) { return to_float(to_fp16(static_cast<float>(largest * rng.uniform()))); };
  Rows r;
  for (size_t i = 0; i < t * c; ++i) r.codes.push_back(static_cast<int8_t>(rng.next()));
  const size_t n_scales = group == 0 ? c : t * ((c + group - 1) / group);
  for (size_t i = 0; i < n_scales; ++i) r.scale.push_back(i % 13 == 5 ? half(2000) : half(0.1));
  if (group == 0) {
    for (size_t i = 0; i < c; ++i) r.centre.push_back(half(30) - 15);
  }
  return r;
}

std::vector<fp16> run(const Ops& ops, const Rows& r, size_t t, size_t c, size_t group) {
  DeviceArray<int8_t> codes(ops, r.codes, 1);
  DeviceArray<float> scale(ops, r.scale, 1), centre(ops, r.centre, 1);
  DeviceArray<fp16> out(ops, std::vector<fp16>(t * c), 1);
  ops.dequant_rows(context(1), {codes.ptr(), scale.ptr(), group == 0 ? centre.ptr() : nullptr, out.ptr(), t, c, group});
  return out.get();
}

TEST_CASE("dequant_rows: the same halves on every backend, as the formula gives them", "[compute]") {
  const size_t t = GENERATE(0, 1, 3), c = GENERATE(1, 7, 31, 64, 129), group = GENERATE(0, 1, 5, 32, 64);
  const Rows r = sample(t, c, group, 3);
  for (const Ops* ops : tested_ops()) {
    CAPTURE(ops->name, t, c, group);
    const std::vector<fp16> out = run(*ops, r, t, c, group);
    size_t n_bad = 0;
    for (size_t i = 0; i < t * c; ++i) {
      const float code = r.codes[i];
      const size_t n_groups = group == 0 ? 0 : (c + group - 1) / group;
      // A code times a half has 18 bits: exact in float32. The sum is rounded once there.
      const float value =
          group == 0 ? r.centre[i % c] + r.scale[i % c] * code : r.scale[i / c * n_groups + i % c / group] * code;
      if (out[i].bits != to_fp16(std::clamp(value, -65504.0F, 65504.0F)).bits && n_bad++ == 0)
        FAIL_CHECK("value " << i << ": " << to_float(out[i]) << ", expected " << value);
    }
    CHECK(n_bad == 0);
  }
}

}  // namespace
}  // namespace cento::test
