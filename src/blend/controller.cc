#include "blend/controller.h"

#include <algorithm>

namespace cento {
namespace {

constexpr double kNearlyFree = 1.02;  // the last layer's part of a row is never hidden

bool probes(PolicyKind policy) { return policy == PolicyKind::kQuery || policy == PolicyKind::kHybrid; }

double load_ms(const CostModel& cost, const ReuseFacts& facts) {
  return cost.load_ms_per_byte * static_cast<double>(facts.n_bytes);
}

// Layers go one behind the other; a layer is computed when it is loaded and the one before it is computed.
double overlapped_ms(double load, double compute, uint32_t n_layers) {
  const double first_load = load / n_layers, last_compute = compute / n_layers;
  return std::max(first_load + compute, load + last_compute);
}

}  // namespace

double estimate_full_ms(const CostModel& cost, const ReuseFacts& facts) {
  const double n = static_cast<double>(facts.n_tokens()), exact = static_cast<double>(facts.n_exact);
  return cost.compute_ms(n - exact, (n + exact) / 2);
}

double estimate_blend_ms(const CostModel& cost, const ReuseFacts& facts, PolicyKind policy, size_t n_rows) {
  const double n = static_cast<double>(facts.n_tokens()), chunk = static_cast<double>(facts.n_chunk);
  const double picked = cost.compute_ms(static_cast<double>(n_rows), n / 2);
  const double fresh = cost.compute_ms(static_cast<double>(facts.n_fresh), n);
  const double load = load_ms(cost, facts);
  // All chunk rows go through the first layer and the check layer.
  const double check = has_check_layer(policy) ? cost.compute_ms(chunk, n / 2) * 2 / facts.n_layers : 0;
  if (probes(policy)) return overlapped_ms(load, fresh, facts.n_layers) + check + picked + fresh;
  return overlapped_ms(load, check + picked + fresh, facts.n_layers);
}

BlendChoice choose_blend(const CostModel& cost, const ReuseFacts& facts, PolicyKind policy, size_t rows_min) {
  BlendChoice choice;
  choice.full_ms = estimate_full_ms(cost, facts);
  choice.n_rows = std::min(rows_min, facts.n_chunk);
  choice.blend_ms = estimate_blend_ms(cost, facts, policy, choice.n_rows);
  if (!probes(policy)) {
    // Where loading is the slower part, rows are added until the estimate, which rises with them, has moved.
    size_t low = choice.n_rows, high = facts.n_chunk;
    while (low < high) {
      const size_t middle = low + (high - low + 1) / 2;
      if (estimate_blend_ms(cost, facts, policy, middle) <= choice.blend_ms * kNearlyFree)
        low = middle;
      else
        high = middle - 1;
    }
    choice.n_rows = low;
    choice.blend_ms = estimate_blend_ms(cost, facts, policy, low);
  }
  choice.blend = facts.n_chunk > 0 && choice.blend_ms < choice.full_ms;
  return choice;
}

}  // namespace cento
