#include "kernels/simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/add.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/simd/kv_vec-inl.h"
#include "kernels/simd/rows.h"
#include "kernels/simd/simd_ops.h"

#if CENTO_SIMD_TARGET
HWY_BEFORE_NAMESPACE();
namespace cento::HWY_NAMESPACE {

void add(const ExecContext& ctx, const AddArgs& a) {
  constexpr size_t kPiece = 4096;  // elements
  const size_t n_pieces = (a.n + kPiece - 1) / kPiece;
  for_rows(ctx, n_pieces, kPiece, [&](size_t begin, size_t end) HWY_ATTR {
    const size_t n = std::min(a.n, end * kPiece);
    size_t i = begin * kPiece;
    for (; i + kLanes <= n; i += kLanes) store_vec(hn::Add(load_vec(a.y + i), load_vec(a.x + i)), a.y + i);
    for (; i < n; ++i) a.y[i] += a.x[i];
  });
}

}  // namespace cento::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
