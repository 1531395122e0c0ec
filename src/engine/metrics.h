// How close two rows of logits are.
#pragma once

#include <cstddef>
#include <span>

namespace cento {

// KL(softmax(p) || softmax(q)) in nats, computed in double; p and q [V]. Not negative but for rounding, which is cut at
// 0. NaN if a logit is NaN or +inf; +inf if q has no chance (-inf) where p has one.
double kl_divergence(std::span<const float> p_logits, std::span<const float> q_logits);

// -ln softmax(logits)[id] in nats, computed in double; logits [V], id < V. +inf for a logit of -inf beside finite ones,
// NaN if a logit is NaN or +inf.
double negative_log_likelihood(std::span<const float> logits, size_t id);

size_t argmax(std::span<const float> logits);  // first of equals; NaN never wins unless all are NaN

}  // namespace cento
