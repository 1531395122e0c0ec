#include "eval/agreement.h"

namespace cento {
namespace {

// The first that recomputes anything; where none does, plain reuse.
const SettingSummary* blended(const SetSummary& set) {
  const SettingSummary* first = nullptr;
  for (const SettingSummary& s : set.settings) {
    if (s.setting.kind != TrialKind::kBlend) continue;
    if (s.setting.blend.policy != PolicyKind::kNone) return &s;
    if (first == nullptr) first = &s;
  }
  return first;
}

}  // namespace

std::optional<Agreement> agreement_of(const SetSummary& set) {
  const SettingSummary* s = blended(set);
  if (s == nullptr || !s->same_answer) return std::nullopt;
  Agreement out;
  out.setting = s->setting.name;
  out.n_items = s->n_items;
  out.n_same = s->n_same_answer;
  out.n_right = s->n_right;
  for (const SettingSummary& full : set.settings) {
    if (full.setting.kind == TrialKind::kFull) out.n_right_full = full.n_right;
  }
  out.kl_mean = s->kl.value;
  out.kl_p95 = s->kl_p95;
  out.kl_max = s->kl_max;
  out.top1 = s->top1.value;
  return out;
}

std::string agreement_text(const Agreement& a) {
  return "on your documents blended answers agree with full prefill in " + std::to_string(a.n_same) + " of " +
         std::to_string(a.n_items);
}

}  // namespace cento
