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
// and live KV would no longer be the same on every target. The compiler's baseline is visited too; on x86-64 it
// compiles to nothing, on AArch64 it is the only target. SVE is not one: its vectors have no size that kv_vec-inl.h
// could know when it is compiled.
#pragma once

#if defined(__aarch64__)
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#define CENTO_SIMD_TARGET (HWY_TARGET == HWY_NEON)
#else
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#define CENTO_SIMD_TARGET (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3)
#endif
