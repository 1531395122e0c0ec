#include "kernels/simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/gate.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

#include "kernels/simd/kv_vec-inl.h"
#include "kernels/simd/rows.h"
#include "kernels/simd/simd_ops.h"

#if CENTO_SIMD_TARGET
HWY_BEFORE_NAMESPACE();
namespace cento::HWY_NAMESPACE {

namespace {

// x / (1 + exp(u)), with exp(u) from Highway (at most 1 ulp off). Where exp(u) would overflow the quotient is below
// |x| * 2^-126 and 0 is returned: no infinity arises, and none divides another.
HWY_INLINE VF over_one_plus_exp(VF x, VF u) {
  const DF df;
  const VF e = hn::Exp(df, hn::Min(u, hn::Set(df, 88.0F)));
  const VF q = hn::Div(x, hn::Add(hn::Set(df, 1.0F), e));
  return hn::IfThenElseZero(hn::Lt(u, hn::Set(df, 88.0F)), q);
}

struct Silu {
  HWY_INLINE VF operator()(VF x) const { return over_one_plus_exp(x, hn::Neg(x)); }
};

// 0.5 x (1 + tanh(w)) = x / (1 + exp(-2w)), which does not cancel; w = sqrt(2/pi) (x + 0.044715 x^3).
struct GeluTanh {
  HWY_INLINE VF operator()(VF x) const {
    const DF df;
    constexpr double kA = -2 * 0.79788456080286535588;
    const VF x2 = hn::Mul(x, x);
    const VF poly = hn::MulAdd(x2, hn::Set(df, static_cast<float>(kA * 0.044715)), hn::Set(df, static_cast<float>(kA)));
    return over_one_plus_exp(x, hn::Mul(x, poly));
  }
};

template <class Act>
void run(const ExecContext& ctx, const GateArgs& a, const Act& act) {
  constexpr size_t kPiece = 512;  // elements; an exponential is some ten operations
  const size_t n_all = a.t * a.f, n_pieces = (n_all + kPiece - 1) / kPiece;
  for_rows(ctx, n_pieces, kPiece * 8, [&](size_t begin, size_t end) HWY_ATTR {
    const DF df;
    const size_t n = std::min(n_all, end * kPiece);
    size_t i = begin * kPiece;
    for (; i + kLanes <= n; i += kLanes) store_vec(hn::Mul(act(load_vec(a.gate + i)), load_vec(a.up + i)), a.y + i);
    if (i == n) return;
    // The same arithmetic for the last few: where a row ends decides nothing about its values.
    HWY_ALIGN float g[kLanes] = {}, u[kLanes] = {};
    std::copy(a.gate + i, a.gate + n, g);
    std::copy(a.up + i, a.up + n, u);
    hn::Store(hn::Mul(act(hn::Load(df, g)), hn::Load(df, u)), df, g);
    std::copy(g, g + (n - i), a.y + i);
  });
}

}  // namespace

void gate(const ExecContext& ctx, const GateArgs& a) {
  if (a.kind == GateKind::kSilu)
    run(ctx, a, Silu());
  else
    run(ctx, a, GeluTanh());
}

}  // namespace cento::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
