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
  kHybrid,  // that times the deviation of both at the check layer
  kOracle,  // scores given from outside (PipelineOptions::row_weights), true deviations for one: a ceiling for plots
};

// What is done to the rows of a chunk that are not recomputed.
enum class Repair {
  kNone,
  kShift,  // in each layer but the first they move by n / (n + 4) of what the chunk's n >= 2 recomputed rows moved on
           // average (K before rotation)
};
std::optional<Repair> find_repair(std::string_view name);
const char* repair_name(Repair repair);

struct PolicyInfo {
  PolicyKind kind;
  const char* name;           // as on the command line
  const char* what;           // one line for --help
  bool needs_scores = false;  // by hand or by knowing full prefill: of no use where an answer is wanted
};
const std::vector<PolicyInfo>& policies();
std::optional<PolicyKind> find_policy(std::string_view name);
const char* policy_name(PolicyKind kind);
bool has_check_layer(PolicyKind kind);  // all rows go up to BlendSettings::check_layer, and are chosen there
std::string policy_names();             // "none, all, ..." for messages

struct BlendSettings {
  PolicyKind policy = PolicyKind::kQuery;
  // Share of the rankable rows to recompute, 0..1; unset: default_budget().
  std::optional<double> ratio;
  // Instead of `ratio`, one for each layer, the last for all that follow; a row that is left out of a layer is left out
  // of those behind it, so that ratios count up to the smallest before them. With a deviation policy the rows that go
  // on are chosen anew where the ratio falls: CacheBlend's gradual filtering.
  std::vector<double> layer_ratios = {};
  uint32_t check_layer = 1;  // of the deviation policies
  uint32_t head_rows = 0;    // first rows of each chunk that rank above all others (query, hybrid, deviation)
  uint32_t smooth = 2;       // half-width of the box average over a chunk's rows (query)
  double probe_depth = 1.0;  // share of the layers that the probe runs through (query)
  uint64_t seed = 1;         // of kRandom
  Repair repair = Repair::kNone;
};

// Rows to recompute of n rankable ones: ratio * n rounded to nearest, or min(.15 n, 600) rounded up where no ratio is
// set (BLENDING.md, finding 3: the number of rows counts, not the ratio).
size_t row_budget(const BlendSettings& settings, size_t n);

// The same layer by layer, not ascending. [n_layers]
std::vector<size_t> layer_budgets(const BlendSettings& settings, size_t n, size_t n_layers);

// Falling from 1.5 to 0.5 of `ratio` between the check layer and the last: gradual filtering at the same mean.
std::vector<double> gradual_ratios(double ratio, uint32_t check_layer, size_t n_layers);

}  // namespace cento
