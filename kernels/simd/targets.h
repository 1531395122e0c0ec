// Which Highway targets the files of this folder are compiled for. Include before hwy/foreach_target.h:
//
//   #include "kernels/simd/targets.h"
//   #undef HWY_TARGET_INCLUDE
//   #define HWY_TARGET_INCLUDE "kernels/simd/NAME.cc"
//   #include <hwy/foreach_target.h>
//   #include <hwy/highway.h>
//   ...
//   #if CENTO_SIMD_TARGET
//   HWY_BEFORE_NAMESPACE();
//   namespace cento::HWY_NAMESPACE { ... }
//   HWY_AFTER_NAMESPACE();
//   #endif
//
// The targets are those of simd_ops.h. SSE4 is not among them: without F16C Highway rounds to half by cutting off bits,
// and live KV would no longer be the same on every target. The compiler's baseline is visited too and compiles to
// nothing.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#define CENTO_SIMD_TARGET (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3)
