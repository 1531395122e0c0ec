#include "kernels/simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/kv_place.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/simd/kv_vec-inl.h"
#include "kernels/simd/rows.h"
#include "kernels/simd/simd_ops.h"

#if CENTO_SIMD_TARGET
HWY_BEFORE_NAMESPACE();
namespace cento::HWY_NAMESPACE {

namespace {

template <class T>
void place(const ExecContext& ctx, const KvPlaceArgs& a) {
  const size_t d = a.dst.head_dim, n_kv_heads = a.dst.n_kv_heads;
  const T* k = static_cast<const T*>(a.k);
  const T* v = static_cast<const T*>(a.v);
  T* k_live = static_cast<T*>(a.dst.k);
  T* v_live = static_cast<T*>(a.dst.v);
  for_rows(ctx, a.t, 2 * n_kv_heads * d, [&](size_t begin, size_t end) HWY_ATTR {
    HWY_ALIGN float row[kMaxHeadDim];
    for (size_t h = 0; h < n_kv_heads; ++h) {
      for (size_t t = begin; t < end; ++t) {
        const size_t from = (t * n_kv_heads + h) * d;
        const size_t to = (h * a.dst.capacity + static_cast<size_t>(a.pos[t])) * d;
        convert(k + from, row, d);
        rotate(row, row, d, a.rope, a.pos[t]);
        convert(row, k_live + to, d);
        std::memcpy(v_live + to, v + from, d * sizeof(T));
      }
    }
  });
}

}  // namespace

void kv_place(const ExecContext& ctx, const KvPlaceArgs& a) {
  CHECK(a.dst.head_dim <= kMaxHeadDim);
  if (a.dst.type == KvType::kF16)
    place<fp16>(ctx, a);
  else
    place<float>(ctx, a);
}

}  // namespace cento::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
