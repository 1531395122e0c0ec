#include "kernels/simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/kv_deviation.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/simd/kv_vec-inl.h"
#include "kernels/simd/rows.h"
#include "kernels/simd/simd_ops.h"

#if CENTO_SIMD_TARGET
HWY_BEFORE_NAMESPACE();
namespace cento::HWY_NAMESPACE {

namespace {

// Sum of (x - live)^2 over [d] in kLanes partial sums, then lane by lane: an order that depends on d alone.
template <class T>
HWY_INLINE float squared_distance(const float* x, const T* live, size_t d) {
  VF sum = hn::Zero(DF());
  size_t i = 0;
  for (; i + kLanes <= d; i += kLanes) {
    const VF diff = hn::Sub(load_vec(x + i), load_vec(live + i));
    sum = hn::MulAdd(diff, diff, sum);
  }
  float total = hn::GetLane(hn::SumOfLanes(DF(), sum));
  for (; i < d; ++i) {
    const float diff = x[i] - load_one(live + i);
    total += diff * diff;
  }
  return total;
}

template <class T>
void deviation(const ExecContext& ctx, const KvDeviationArgs& a) {
  const size_t d = a.live.head_dim, n_kv_heads = a.live.n_kv_heads;
  for_rows(ctx, a.t, 2 * n_kv_heads * d, [&](size_t begin, size_t end) HWY_ATTR {
    HWY_ALIGN float row[kMaxHeadDim];
    HWY_ALIGN T row_rounded[kMaxHeadDim];
    for (size_t t = begin; t < end; ++t) {
      float k_sum = 0, v_sum = 0;
      for (size_t h = 0; h < n_kv_heads; ++h) {
        const size_t from = (t * n_kv_heads + h) * d;
        const size_t at = (h * a.live.capacity + static_cast<size_t>(a.pos[t])) * d;
        convert(static_cast<const T*>(a.k) + from, row, d);
        rotate(row, row, d, a.rope, a.pos[t]);
        convert(row, row_rounded, d);  // as kv_place rounds: a row that has not changed deviates by exactly 0
        convert(row_rounded, row, d);
        k_sum += squared_distance(row, static_cast<const T*>(a.live.k) + at, d);
        convert(static_cast<const T*>(a.v) + from, row, d);
        v_sum += squared_distance(row, static_cast<const T*>(a.live.v) + at, d);
      }
      a.k_dev[t] = k_sum;
      a.v_dev[t] = v_sum;
    }
  });
}

}  // namespace

void kv_deviation(const ExecContext& ctx, const KvDeviationArgs& a) {
  CHECK(a.live.head_dim <= kMaxHeadDim);
  if (a.live.type == KvType::kF16)
    deviation<fp16>(ctx, a);
  else
    deviation<float>(ctx, a);
}

}  // namespace cento::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
