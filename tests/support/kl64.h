// KL divergence as its definition has it, in float64: what the product's is compared with.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>

namespace cento::test {

// KL(softmax(p) || softmax(q)) of one row of moderate logits, nats.
inline double kl64(std::span<const float> p, std::span<const float> q) {
  const auto log_sum = [](std::span<const float> x) {
    double sum = 0;
    for (const float v : x) sum += std::exp(static_cast<double>(v));
    return std::log(sum);
  };
  const double zp = log_sum(p), zq = log_sum(q);
  double kl = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double lp = static_cast<double>(p[i]) - zp;
    kl += std::exp(lp) * (lp - (static_cast<double>(q[i]) - zq));
  }
  return kl;
}

}  // namespace cento::test
