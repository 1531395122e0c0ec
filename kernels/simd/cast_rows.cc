#include "kernels/simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/cast_rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/simd/kv_vec-inl.h"
#include "kernels/simd/rows.h"
#include "kernels/simd/simd_ops.h"

#if CENTO_SIMD_TARGET
HWY_BEFORE_NAMESPACE();
namespace cento::HWY_NAMESPACE {

namespace {

template <class To>
void cast(const ExecContext& ctx, const CastRowsArgs& a, To* y) {
  for_rows(ctx, a.t, a.w, [&](size_t begin, size_t end) HWY_ATTR {
    for (size_t t = begin; t < end; ++t) convert(a.x + t * a.ldx, y + t * a.w, a.w);
  });
}

}  // namespace

void cast_rows(const ExecContext& ctx, const CastRowsArgs& a) {
  if (a.type == KvType::kF16)
    cast(ctx, a, static_cast<fp16*>(a.y));
  else
    cast(ctx, a, static_cast<float*>(a.y));
}

}  // namespace cento::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
