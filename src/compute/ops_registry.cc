#include "compute/ops_registry.h"

#include "base/error.h"
#include "kernels/ref/ref_ops.h"
#include "kernels/simd/attention_bf16.h"
#include "kernels/simd/simd_ops.h"

#if CENTO_SIMD_X86
#include <hwy/targets.h>
#elif CENTO_SIMD_ARM
#include <sys/auxv.h>
#endif

namespace cento {
namespace {

Ops make_ref_ops() {
  Ops ops{};
  ops.name = "ref";
  ops.device = &Device::host();
  ops.pack = ref::pack;
  ops.matmul = ref::matmul;
  ops.rms_norm = ref::rms_norm;
  ops.rope_rows = ref::rope_rows;
  ops.cast_rows = ref::cast_rows;
  ops.kv_place = ref::kv_place;
  ops.kv_deviation = ref::kv_deviation;
  ops.attention = ref::attention;
  ops.gate = ref::gate;
  ops.gather = ref::gather;
  ops.add = ref::add;
  ops.dequant_rows = ref::dequant_rows;
  return ops;
}

#define CENTO_SET_OP(op, Args) ops.op = target::op;
// The ops of a target: those it has, and the reference of the others.
#define CENTO_MAKE_OPS(function, target_name, target_namespace) \
  Ops function() {                                              \
    namespace target = target_namespace;                        \
    Ops ops = ref_ops();                                        \
    ops.name = target_name;                                     \
    ops.pack = target::pack;                                    \
    CENTO_SIMD_OPS(CENTO_SET_OP)                                \
    return ops;                                                 \
  }

#if CENTO_SIMD_X86
CENTO_MAKE_OPS(make_avx2_ops, "AVX2", N_AVX2)

CENTO_MAKE_OPS(make_avx3_ops, "AVX3", N_AVX3)

// Highway asks the operating system too (are wide registers saved?). VNNI is not one of its conditions for AVX3.
bool runs_avx2() { return (hwy::SupportedTargets() & HWY_AVX2) != 0; }
bool runs_avx3() { return (hwy::SupportedTargets() & HWY_AVX3) != 0 && __builtin_cpu_supports("avx512vnni"); }
#endif

#if CENTO_SIMD_ARM
CENTO_MAKE_OPS(make_neon_ops, "NEON", N_NEON)

// Highway is not asked: where there is no AES it warns on stderr.
bool runs_neon() {
  constexpr unsigned long kNeeded = HWCAP_AES | HWCAP_ASIMDDP;
  return (getauxval(AT_HWCAP) & kNeeded) == kNeeded;
}
#endif

}  // namespace

const Ops& ref_ops() {
  static const Ops ops = make_ref_ops();
  return ops;
}

std::vector<const Ops*> all_simd_ops() {
  std::vector<const Ops*> all;
#if CENTO_SIMD_X86
  static const Ops avx2 = make_avx2_ops();
  static const Ops avx3 = [] {
    Ops ops = make_avx3_ops();
    ops.value_rounding = simd::has_bf16_dot() ? 0x1p-8F : 0.0F;
    return ops;
  }();
  if (runs_avx2()) all.push_back(&avx2);
  if (runs_avx3()) all.push_back(&avx3);
#endif
#if CENTO_SIMD_ARM
  static const Ops neon = make_neon_ops();
  if (runs_neon()) all.push_back(&neon);
#endif
  return all;
}

std::vector<const Ops*> all_ops() {
  std::vector<const Ops*> all = {&ref_ops()};
  for (const Ops* ops : all_simd_ops()) all.push_back(ops);
  return all;
}

const Ops& best_ops() { return *all_ops().back(); }

const Ops& find_ops(std::string_view name) {
  if (name.empty() || name == "auto") return best_ops();
  std::string names = "auto";
  for (const Ops* ops : all_ops()) {
    if (name == ops->name) return *ops;
    names += std::string(", ") + ops->name;
  }
  throw Error(Code::kUsage, "this machine has no target \"" + std::string(name) + "\"", "--target", "one of: " + names);
}

}  // namespace cento
