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
      {PolicyKind::kHeadK, "head-k", "the first rows of each chunk (EPIC)"},
      {PolicyKind::kRandom, "random", "rows drawn at random, seeded"},
      {PolicyKind::kNone, "none", "no row: plain concatenation"},
      {PolicyKind::kAll, "all", "every row: equals full prefill"},
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

}  // namespace cento
