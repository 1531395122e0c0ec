#include "kernels/simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/dequant_rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/simd/kv_vec-inl.h"
#include "kernels/simd/simd_ops.h"

#if CENTO_SIMD_TARGET
HWY_BEFORE_NAMESPACE();
namespace cento::HWY_NAMESPACE {

namespace {

HWY_INLINE VF load_codes(const int8_t* p) {
  const hn::Rebind<int8_t, DF> d8;
  const hn::RebindToSigned<DF> d32;
  return hn::ConvertTo(DF(), hn::PromoteTo(d32, hn::LoadU(d8, p)));
}

// One scale for n codes.
HWY_INLINE void scale_run(const int8_t* codes, float scale, fp16* out, size_t n) {
  const VF s = hn::Set(DF(), scale);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store_vec(hn::Mul(s, load_codes(codes + i)), out + i);
  for (; i < n; ++i) store_one(scale * static_cast<float>(codes[i]), out + i);
}

// A scale and a centre for each code.
HWY_INLINE void scale_row(const int8_t* codes, const float* scale, const float* centre, fp16* out, size_t n) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const VF product = hn::Mul(load_vec(scale + i), load_codes(codes + i));
    store_vec(hn::Add(load_vec(centre + i), product), out + i);
  }
  for (; i < n; ++i) store_one(centre[i] + scale[i] * static_cast<float>(codes[i]), out + i);
}

}  // namespace

void dequant_rows(const ExecContext&, const DequantRowsArgs& a) {
  for (size_t t = 0; t < a.t; ++t) {
    const int8_t* codes = a.codes + t * a.c;
    fp16* out = a.out + t * a.c;
    if (a.group == 0) {
      scale_row(codes, a.scale, a.centre, out, a.c);
      continue;
    }
    const float* scale = a.scale + t * ((a.c + a.group - 1) / a.group);
    for (size_t c = 0; c < a.c; c += a.group) scale_run(codes + c, *scale++, out + c, std::min(a.group, a.c - c));
  }
}

}  // namespace cento::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
