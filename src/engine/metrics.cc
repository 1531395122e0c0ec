#include "engine/metrics.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace cento {
namespace {

// Natural log of the sum of exponentials.
double log_sum_exp(std::span<const float> logits) {
  const double top = static_cast<double>(logits[argmax(logits)]);
  double sum = 0;
  for (const float l : logits) sum += std::exp(static_cast<double>(l) - top);
  return top + std::log(sum);
}

}  // namespace

double kl_divergence(std::span<const float> p_logits, std::span<const float> q_logits) {
  CHECK(p_logits.size() == q_logits.size() && !p_logits.empty());
  const double p_norm = log_sum_exp(p_logits), q_norm = log_sum_exp(q_logits);
  double kl = 0;
  for (size_t i = 0; i < p_logits.size(); ++i) {
    const double log_p = static_cast<double>(p_logits[i]) - p_norm, log_q = static_cast<double>(q_logits[i]) - q_norm;
    const double p = std::exp(log_p);
    if (p != 0) kl += p * (log_p - log_q);  // NaN goes on: no distance is not distance 0
  }
  return std::max(kl, 0.0);
}

double negative_log_likelihood(std::span<const float> logits, size_t id) {
  CHECK(id < logits.size());
  return log_sum_exp(logits) - static_cast<double>(logits[id]);
}

size_t argmax(std::span<const float> logits) {
  CHECK(!logits.empty());
  size_t best = 0;
  for (size_t i = 1; i < logits.size(); ++i) {
    if (logits[i] > logits[best] || (std::isnan(logits[best]) && !std::isnan(logits[i]))) best = i;
  }
  return best;
}

}  // namespace cento
