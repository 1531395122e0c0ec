// How an approximation's logits agree with full prefill's over the rows of a teacher-forced answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace cento {

// Of one row: the prompt's last, or one of the answer.
struct RowAgreement {
  double kl = 0;          // nats, KL(full || other); NaN and infinity as kl_divergence (engine/metrics.h) gives them
  bool same_top1 = true;  // both put the same token first
  // Nats: other's minus full's negative log-likelihood of the token that follows; nullopt if none does.
  std::optional<double> nll_change;
};

// full and other [rows, V], row-major, V > 0; next [at most rows]: the id that follows each row (behind an answer's
// last row none is given). Ids outside 0..V-1 and sizes that do not match are our own mistakes.
std::vector<RowAgreement> compare_rows(std::span<const float> full, std::span<const float> other, size_t vocab,
                                       std::span<const int32_t> next);

// Of the rows of one item, or of many items. NaN for no rows, and where a row's figure is NaN.
struct Agreement {
  double kl_mean = 0, kl_p95 = 0, kl_max = 0;  // nats; p95 as percentile() of eval/statistics.h
  double top1 = 0;                             // share of rows
  double nll_change_mean = 0;                  // nats, over the rows that a token follows
  size_t n_rows = 0;
};
Agreement summarise(std::span<const RowAgreement> rows);

}  // namespace cento
