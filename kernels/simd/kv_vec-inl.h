// Per target: vectors of live KV elements as float32, and the rotation. Included by files under foreach_target, after
// hwy/highway.h (the guard is Highway's, which flips with every target).
#if defined(CENTO_KERNELS_SIMD_KV_VEC_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef CENTO_KERNELS_SIMD_KV_VEC_INL_H
#undef CENTO_KERNELS_SIMD_KV_VEC_INL_H
#else
#define CENTO_KERNELS_SIMD_KV_VEC_INL_H
#endif

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/tensor_view.h"
#include "compute/ops.h"

#if CENTO_SIMD_TARGET
HWY_BEFORE_NAMESPACE();
namespace cento::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;
constexpr size_t kLanes = HWY_LANES(float);

constexpr float kMaxHalf = 65504.0F;  // largest finite half
constexpr size_t kMaxHeadDim = 256;

HWY_INLINE VF load_vec(const float* p) { return hn::LoadU(DF(), p); }
HWY_INLINE VF load_vec(const fp16* p) {
  const hn::Rebind<hwy::float16_t, DF> d16;
  return hn::PromoteTo(DF(), hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
}
HWY_INLINE void store_vec(VF v, float* p) { hn::StoreU(v, DF(), p); }
// Rounds to nearest even; beyond the largest finite half: clamped to it.
HWY_INLINE void store_vec(VF v, fp16* p) {
  const hn::Rebind<hwy::float16_t, DF> d16;
  const VF clamped = hn::Max(hn::Min(v, hn::Set(DF(), kMaxHalf)), hn::Set(DF(), -kMaxHalf));
  hn::StoreU(hn::DemoteTo(d16, clamped), d16, reinterpret_cast<hwy::float16_t*>(p));
}
HWY_INLINE float load_one(const float* p) { return *p; }
HWY_INLINE float load_one(const fp16* p) { return to_float(*p); }
HWY_INLINE void store_one(float v, float* p) { *p = v; }
HWY_INLINE void store_one(float v, fp16* p) { *p = to_fp16(std::min(std::max(v, -kMaxHalf), kMaxHalf)); }

// y[n] = x[n] in another or the same type.
template <class From, class To>
HWY_INLINE void convert(const From* x, To* y, size_t n) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store_vec(load_vec(x + i), y + i);
  for (; i < n; ++i) store_one(load_one(x + i), y + i);
}

// y = x [d] rotated by the table's row for `pos`; y may be x. Products and sums are rounded one by one, in the order of
// the reference: the same bits on every target.
HWY_INLINE void rotate(const float* x, float* y, size_t d, const RopeTable& rope, int32_t pos) {
  const DF df;
  const size_t half = rope.dims / 2;
  const float* row = rope.table + static_cast<size_t>(pos) * rope.dims;
  size_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    VF cos, sin, a, b;
    hn::LoadInterleaved2(df, row + 2 * i, cos, sin);
    if (rope.interleaved) {
      hn::LoadInterleaved2(df, x + 2 * i, a, b);
    } else {
      a = load_vec(x + i);
      b = load_vec(x + i + half);
    }
    const VF ya = hn::Sub(hn::Mul(a, cos), hn::Mul(b, sin));
    const VF yb = hn::Add(hn::Mul(b, cos), hn::Mul(a, sin));
    if (rope.interleaved) {
      hn::StoreInterleaved2(ya, yb, df, y + 2 * i);
    } else {
      store_vec(ya, y + i);
      store_vec(yb, y + i + half);
    }
  }
  for (; i < half; ++i) {
    const size_t ia = rope.interleaved ? 2 * i : i;
    const size_t ib = rope.interleaved ? 2 * i + 1 : i + half;
    const float cos = row[2 * i], sin = row[2 * i + 1];
    const float a = x[ia], b = x[ib];
    y[ia] = a * cos - b * sin;
    y[ib] = b * cos + a * sin;
  }
  if (y != x) std::copy(x + rope.dims, x + d, y + rope.dims);
}

}  // namespace cento::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // CENTO_SIMD_TARGET

#endif  // per-target guard
