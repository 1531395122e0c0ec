// Which backends this program has and this machine can run.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compute/ops.h"

namespace cento {

const Ops& ref_ops();                    // plain C++ on the host: the reference for all others
std::vector<const Ops*> all_ops();       // what runs on this machine, ref first, best last
std::vector<const Ops*> all_simd_ops();  // the SIMD targets among them, worst first
const Ops& best_ops();
// By name ("ref", "AVX2", ...), "" or "auto" for the best. Throws Error(kUsage) naming what there is.
const Ops& find_ops(std::string_view name);

// Reference ops on an address space of its own: an address handed out faults when the host touches it. `inner`
// computes. For tests: proves that nothing but ops and copies reaches tensor memory.
const Ops& fenced_ops(const Ops& inner);

}  // namespace cento
