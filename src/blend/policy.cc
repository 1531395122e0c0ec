#include "blend/policy.h"

#include <algorithm>
#include <cmath>

namespace cento {

const std::vector<PolicyInfo>& policies() {
  static const std::vector<PolicyInfo> table = {
      {PolicyKind::kQuery, "query", "rows that the question attends to (default)"},
      {PolicyKind::kDevKv, "dev-kv", "rows whose K and V deviate most at the check layer (CacheBlend)"},
      {PolicyKind::kDevK, "dev-k", "rows whose K deviates most at the check layer"},
      {PolicyKind::kDevV, "dev-v", "rows whose V deviates most at the check layer"},
      {PolicyKind::kHybrid, "hybrid", "rows that the question attends to and that deviate at the check layer"},
      {PolicyKind::kHeadK, "head-k", "the first rows of each chunk (EPIC)"},
      {PolicyKind::kRandom, "random", "rows drawn at random, seeded"},
      {PolicyKind::kNone, "none", "no row: plain concatenation"},
      {PolicyKind::kAll, "all", "every row: equals full prefill"},
      {PolicyKind::kOracle, "oracle", "rows whose KV is farthest from full prefill's, which is computed for it", true},
  };
  return table;
}

std::optional<PolicyKind> find_policy(std::string_view name) {
  for (const PolicyInfo& info : policies()) {
    if (name == info.name) return info.kind;
  }
  return std::nullopt;
}

const char* policy_name(PolicyKind kind) {
  for (const PolicyInfo& info : policies()) {
    if (kind == info.kind) return info.name;
  }
  return "?";
}

bool has_check_layer(PolicyKind kind) {
  return kind == PolicyKind::kDevK || kind == PolicyKind::kDevV || kind == PolicyKind::kDevKv ||
         kind == PolicyKind::kHybrid;
}

std::optional<Repair> find_repair(std::string_view name) {
  for (const Repair repair : {Repair::kNone, Repair::kShift}) {
    if (name == repair_name(repair)) return repair;
  }
  return std::nullopt;
}

const char* repair_name(Repair repair) { return repair == Repair::kShift ? "shift" : "none"; }

std::string policy_names() {
  std::string names;
  for (const PolicyInfo& info : policies()) names += (names.empty() ? "" : ", ") + std::string(info.name);
  return names;
}

size_t row_budget(const BlendSettings& settings, size_t n) {
  if (settings.policy == PolicyKind::kNone) return 0;
  if (settings.policy == PolicyKind::kAll) return n;
  const double rows = static_cast<double>(n);
  if (settings.ratio) return static_cast<size_t>(std::llround(std::clamp(*settings.ratio, 0.0, 1.0) * rows));
  return static_cast<size_t>(std::ceil(std::min(0.15 * rows, 600.0)));
}

std::vector<size_t> layer_budgets(const BlendSettings& settings, size_t n, size_t n_layers) {
  std::vector<size_t> budgets(n_layers, row_budget(settings, n));
  const std::vector<double>& ratios = settings.layer_ratios;
  if (ratios.empty() || settings.policy == PolicyKind::kNone || settings.policy == PolicyKind::kAll) return budgets;
  BlendSettings one = settings;
  for (size_t l = 0; l < n_layers; ++l) {
    one.ratio = ratios[std::min(l, ratios.size() - 1)];
    budgets[l] = row_budget(one, n);
    if (l > 0) budgets[l] = std::min(budgets[l], budgets[l - 1]);
  }
  return budgets;
}

std::vector<double> gradual_ratios(double ratio, uint32_t check_layer, size_t n_layers) {
  std::vector<double> ratios(n_layers, 1.5 * ratio);
  const size_t steps = n_layers > check_layer + 1 ? n_layers - 1 - check_layer : 1;
  for (size_t l = check_layer; l < n_layers; ++l)
    ratios[l] = ratio * (1.5 - static_cast<double>(l - check_layer) / static_cast<double>(steps));
  return ratios;
}

}  // namespace cento
