// The SIMD kernels. Each op exists once per target, in the target's namespace, with the signature of Ops
// (compute/ops.h). The namespaces have Highway's names (HWY_NAMESPACE), so that a file compiled by foreach_target lands
// in them by itself and a file of plain intrinsics opens them by hand.
#pragma once

#include "compute/ops.h"

// The ops that have a SIMD version, on every target below. One that is not listed runs its reference.
#define CENTO_SIMD_OPS(X)          \
  X(matmul, MatmulArgs)            \
  X(rms_norm, RmsNormArgs)         \
  X(rope_rows, RopeRowsArgs)       \
  X(cast_rows, CastRowsArgs)       \
  X(kv_place, KvPlaceArgs)         \
  X(kv_deviation, KvDeviationArgs) \
  X(attention, AttentionArgs)      \
  X(gate, GateArgs)                \
  X(gather, GatherArgs)            \
  X(add, AddArgs)                  \
  X(dequant_rows, DequantRowsArgs)

#if defined(__x86_64__)
#define CENTO_SIMD_X86 1
#else
#define CENTO_SIMD_X86 0
#endif
#if defined(__aarch64__)
#define CENTO_SIMD_ARM 1
#else
#define CENTO_SIMD_ARM 0
#endif

#define CENTO_DECLARE_OP(op, Args) void op(const ExecContext&, const Args&);

#if CENTO_SIMD_X86
// AVX2, FMA, F16C, BMI2 (x86-64-v3).
namespace cento::N_AVX2 {
PackedMatrix pack(const ExecContext&, const PackArgs&);
CENTO_SIMD_OPS(CENTO_DECLARE_OP)
}  // namespace cento::N_AVX2
// AVX-512 F, BW, DQ, VL; this program runs it only where there is VNNI too, which matmul uses.
namespace cento::N_AVX3 {
PackedMatrix pack(const ExecContext&, const PackArgs&);
CENTO_SIMD_OPS(CENTO_DECLARE_OP)
}  // namespace cento::N_AVX3
#endif
#if CENTO_SIMD_ARM
// NEON with AES, which Highway's target has on, and with the int8 dot product, which matmul uses.
namespace cento::N_NEON {
PackedMatrix pack(const ExecContext&, const PackArgs&);
CENTO_SIMD_OPS(CENTO_DECLARE_OP)
}  // namespace cento::N_NEON
#endif
