#include <cmath>

#include "kernels/simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/rms_norm.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/simd/kv_vec-inl.h"
#include "kernels/simd/rows.h"
#include "kernels/simd/simd_ops.h"

#if CENTO_SIMD_TARGET
HWY_BEFORE_NAMESPACE();
namespace cento::HWY_NAMESPACE {

namespace {

// Sum of squares in double, in two vectors of partial sums, then lane by lane: an order that depends on c alone.
// Double, because float32 overflows from values of 2e19 on and costs the same here (the row comes from memory).
HWY_INLINE double sum_of_squares(const float* x, size_t c) {
  const hn::ScalableTag<double> dd;
  const hn::Rebind<float, decltype(dd)> dhalf;
  constexpr size_t kHalf = kLanes / 2;
  auto sum0 = hn::Zero(dd), sum1 = hn::Zero(dd);
  size_t i = 0;
  for (; i + kLanes <= c; i += kLanes) {
    const auto x0 = hn::PromoteTo(dd, hn::LoadU(dhalf, x + i));
    const auto x1 = hn::PromoteTo(dd, hn::LoadU(dhalf, x + i + kHalf));
    sum0 = hn::MulAdd(x0, x0, sum0);
    sum1 = hn::MulAdd(x1, x1, sum1);
  }
  double sum = hn::GetLane(hn::SumOfLanes(dd, hn::Add(sum0, sum1)));
  for (; i < c; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

HWY_INLINE void norm_row(const RmsNormArgs& a, size_t r) {
  const float* x = a.x + r * a.ldx;
  float* y = a.y + r * a.ldy;
  const double mean = sum_of_squares(x, a.c) / static_cast<double>(a.c);
  const float scale = static_cast<float>(1 / std::sqrt(mean + static_cast<double>(a.eps)));
  const VF scale_v = hn::Set(DF(), scale);
  size_t i = 0;
  for (; i + kLanes <= a.c; i += kLanes) {
    VF value = hn::Mul(hn::Mul(load_vec(x + i), scale_v), load_vec(a.weight + i));
    if (a.add) value = hn::Add(load_vec(y + i), value);
    store_vec(value, y + i);
  }
  for (; i < a.c; ++i) {
    const float value = x[i] * scale * a.weight[i];
    y[i] = a.add ? y[i] + value : value;
  }
}

}  // namespace

void rms_norm(const ExecContext& ctx, const RmsNormArgs& a) {
  for_rows(ctx, a.r, a.c, [&](size_t begin, size_t end) HWY_ATTR {
    for (size_t r = begin; r < end; ++r) norm_row(a, r);
  });
}

}  // namespace cento::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
