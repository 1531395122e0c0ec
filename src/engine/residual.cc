#include "engine/residual.h"

#include <algorithm>
#include <cmath>

#include "engine/metrics.h"

namespace cento {

std::array<double, Residual::kFeatures> Residual::features() const {
  const auto log_of = [](double x) { return std::log(std::max(x, 1e-9)); };
  return {unselected, entropy, chunk_mass, log_of(moved), log_of(shift), open};
}

std::optional<Residual> residual_of(const PromptPlan& plan, const PipelineReport& report) {
  if (report.scores.empty() || report.probe_logits.empty() || report.logits.size() != report.probe_logits.size())
    return std::nullopt;
  double total = 0;
  for (const float s : report.scores) total += static_cast<double>(s);
  if (!(total > 0)) return std::nullopt;
  Residual out;
  double entropy = 0;
  for (const float s : report.scores) {
    const double p = static_cast<double>(s) / total;
    if (p > 0) entropy -= p * std::log(p);
  }
  if (report.scores.size() > 1) out.entropy = entropy / std::log(static_cast<double>(report.scores.size()));
  auto chosen = report.recomputed.begin();
  int32_t position = 0;
  size_t row = 0;
  for (const Segment& s : plan.segments) {
    double left = 0;
    for (size_t i = 0; i < s.ids.size(); ++i, ++position) {
      if (s.from != SegmentFrom::kChunk) continue;
      const double p = static_cast<double>(report.scores[row++]) / total;
      if (chosen != report.recomputed.end() && *chosen == position) {
        ++chosen;
      } else {
        left += p;
      }
    }
    out.unselected += left;
    out.chunk_mass = std::max(out.chunk_mass, left);
  }
  out.moved = report.moved;
  out.shift = kl_divergence(report.logits, report.probe_logits);
  out.open = 1 - std::exp(-negative_log_likelihood(report.logits, argmax(report.logits)));
  if (!std::isfinite(out.shift) || !std::isfinite(out.open) || !std::isfinite(out.moved)) return std::nullopt;
  return out;
}

}  // namespace cento
