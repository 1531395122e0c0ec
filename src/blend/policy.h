// Which reused rows to recompute: scores and their names (DESIGN 3).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cento {

enum class PolicyKind {
  kNone,    // nothing is recomputed: plain concatenation
  kAll,     // every reused row: the identity check
  kRandom,  // seeded, uniform: the floor that a policy has to beat
  kHeadK,   // the first rows of each chunk (EPIC, arXiv:2410.15332)
  kDevK,    // largest deviation of K at the check layer
  kDevV,    //   of V
  kDevKv,   //   of both, each scaled by its mean: CacheBlend (arXiv:2405.16444)
  kQuery,   // attention of the question rows over the stored KV: the default
};

struct PolicyInfo {
  PolicyKind kind;
  const char* name;  // as on the command line
  const char* what;  // one line for --help
};
const std::vector<PolicyInfo>& policies();
std::optional<PolicyKind> find_policy(std::string_view name);
const char* policy_name(PolicyKind kind);
std::string policy_names();  // "none, all, ..." for messages

struct BlendSettings {
  PolicyKind policy = PolicyKind::kQuery;
  // Share of the rankable rows to recompute, 0..1; unset: default_budget().
  std::optional<double> ratio;
  uint32_t check_layer = 1;  // of the deviation policies
  uint32_t smooth = 2;       // half-width of the box average over a chunk's rows (query)
  double probe_depth = 1.0;  // share of the layers that the probe runs through (query)
  uint64_t seed = 1;         // of kRandom
};

// Rows to recompute of n rankable ones: ratio * n rounded to nearest, or min(.15 n, 600) rounded up where no ratio is
// set (BLENDING.md, finding 3: the number of rows counts, not the ratio).
size_t row_budget(const BlendSettings& settings, size_t n);

}  // namespace cento
