#include "kernels/simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/rope.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/simd/kv_vec-inl.h"
#include "kernels/simd/rows.h"
#include "kernels/simd/simd_ops.h"

#if CENTO_SIMD_TARGET
HWY_BEFORE_NAMESPACE();
namespace cento::HWY_NAMESPACE {

void rope_rows(const ExecContext& ctx, const RopeRowsArgs& a) {
  for_rows(ctx, a.t, a.h * a.d, [&](size_t begin, size_t end) HWY_ATTR {
    for (size_t t = begin; t < end; ++t) {
      for (size_t h = 0; h < a.h; ++h) {
        float* x = a.x + t * a.ldx + h * a.d;
        rotate(x, x, a.d, a.rope, a.pos[t]);
      }
    }
  });
}

}  // namespace cento::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
