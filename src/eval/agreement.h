// What an evaluation on somebody's own documents comes to, in a sentence.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "eval/eval_summary.h"

namespace cento {

// Blended answers beside full prefill's: of the first setting that was asked for.
struct Agreement {
  std::string setting;                   // its name
  size_t n_items = 0, n_same = 0;        // the same greedy answer
  size_t n_right = 0, n_right_full = 0;  // of the items, judged right
  double kl_mean = 0, kl_p95 = 0, kl_max = 0, top1 = 0;
};

// nullopt without items, a blended setting, or answers.
std::optional<Agreement> agreement_of(const SetSummary& set);

// "on your documents blended answers agree with full prefill in N of M"
std::string agreement_text(const Agreement& agreement);

}  // namespace cento
