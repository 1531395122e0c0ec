#include "eval/trial_key.h"

namespace cento {
namespace {

// Raised when the meaning of a journal's figures changes.
constexpr const char* kJournalVersion = "trial 1";

}  // namespace

Hash prompt_key(LoadedModel& model, const TrialPrompt& prompt, bool contexts) {
  Hasher h(kJournalVersion);
  h.add_hash(model.fingerprint()).add_hash(model.layout()).add_text(model.ops().name);
  h.add_u64(model.precision() == Precision::kF32 ? 1 : 0);
  h.add_i32s(prompt.prefix).add_i32s(prompt.question).add_u64(prompt.chunks.size());
  for (const auto& c : prompt.chunks) h.add_i32s(c);
  if (contexts)
    for (const auto& c : prompt.contexts) h.add_i32s(c);
  h.add_u64(prompt.answer ? 1 : 0);
  if (prompt.answer) h.add_i32s(*prompt.answer);
  return h.finish();
}

Hash trial_key(const Hash& prompt, const TrialSetting& s, const EvalOptions& o) {
  Hasher h(kJournalVersion);
  h.add_hash(prompt);
  h.add_text(s.name).add_u64(static_cast<uint64_t>(s.kind)).add_u64(s.stand_in ? 1 : 0);
  if (s.exact_first) h.add_u64(1);
  if (is_lossy(s.codec)) h.add_text(std::string("codec 1 ") + kv_codec_name(s.codec));
  const BlendSettings& b = s.blend;
  const auto real = [&h](double x) { h.add_text(std::to_string(x)); };  // the name has all digits
  h.add_u64(static_cast<uint64_t>(b.policy)).add_u64(b.check_layer).add_u64(b.smooth).add_u64(b.head_rows);
  h.add_u64(b.seed).add_u64(static_cast<uint64_t>(b.repair)).add_u64(b.ratio ? 1 : 0);
  real(b.ratio.value_or(0));
  real(b.probe_depth);
  for (const double r : b.layer_ratios) real(r);
  h.add_u64(o.answer_tokens).add_u64(o.own_answer_tokens).add_u64(o.attention ? 1 : 0);
  if (o.deviation && is_plain_reuse(s)) h.add_text("deviation");  // other settings do not have it
  return h.finish();
}

Hash reference_key(LoadedModel& model, const TrialPrompt& prompt, const EvalOptions& options) {
  Hasher h("full prefill");
  h.add_hash(prompt_key(model, prompt, false)).add_u64(options.answer_tokens).add_u64(options.own_answer_tokens);
  return h.finish();
}

}  // namespace cento
