#include "eval/kl.h"

#include "base/check.h"
#include "engine/metrics.h"
#include "eval/statistics.h"

namespace cento {

std::vector<RowAgreement> compare_rows(std::span<const float> full, std::span<const float> other, size_t vocab,
                                       std::span<const int32_t> next) {
  CHECK(vocab > 0 && full.size() == other.size() && full.size() % vocab == 0);
  const size_t n_rows = full.size() / vocab;
  CHECK(next.size() <= n_rows);
  std::vector<RowAgreement> out(n_rows);
  for (size_t r = 0; r < n_rows; ++r) {
    const auto p = full.subspan(r * vocab, vocab), q = other.subspan(r * vocab, vocab);
    out[r].kl = kl_divergence(p, q);
    out[r].same_top1 = argmax(p) == argmax(q);
    if (r >= next.size()) continue;
    CHECK(next[r] >= 0 && static_cast<size_t>(next[r]) < vocab);
    const auto id = static_cast<size_t>(next[r]);
    out[r].nll_change = negative_log_likelihood(q, id) - negative_log_likelihood(p, id);
  }
  return out;
}

Agreement summarise(std::span<const RowAgreement> rows) {
  std::vector<double> kl, nll_change;
  size_t same = 0;
  for (const RowAgreement& row : rows) {
    kl.push_back(row.kl);
    same += row.same_top1;
    if (row.nll_change) nll_change.push_back(*row.nll_change);
  }
  Agreement out;
  out.n_rows = rows.size();
  out.kl_mean = mean(kl);
  out.kl_p95 = percentile(kl, 0.95);
  out.kl_max = percentile(kl, 1);
  out.top1 = static_cast<double>(same) / static_cast<double>(rows.size());  // 0 / 0 is the NaN that is meant
  out.nll_change_mean = mean(nll_change);
  return out;
}

}  // namespace cento
