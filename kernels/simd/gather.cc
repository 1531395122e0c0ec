#include "kernels/simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/gather.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/simd/kv_vec-inl.h"
#include "kernels/simd/rows.h"
#include "kernels/simd/simd_ops.h"

#if CENTO_SIMD_TARGET
HWY_BEFORE_NAMESPACE();
namespace cento::HWY_NAMESPACE {

void gather(const ExecContext& ctx, const GatherArgs& a) {
  for_rows(ctx, a.t, a.c, [&](size_t begin, size_t end) {
    for (size_t t = begin; t < end; ++t)
      std::memcpy(a.dst + t * a.c, a.src + static_cast<size_t>(a.rows[t]) * a.c, a.c * sizeof(float));
  });
}

}  // namespace cento::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
