// One prompt under several settings: how close each comes to full prefill of the same token ids, and what it costs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "blend/policy.h"
#include "engine/engine.h"
#include "engine/residual.h"
#include "eval/deviation.h"
#include "kv/kv_types.h"

namespace cento {

struct TrialPrompt {
  std::vector<int32_t> prefix;                 // the fixed prefix
  std::vector<std::vector<int32_t>> chunks;    // in the order of the prompt
  std::vector<std::vector<int32_t>> contexts;  // what each stands behind when it is precomputed with a stand-in
                                               // context, without the fixed prefix; empty: behind the prefix alone
  std::vector<int32_t> question;
  std::optional<std::vector<int32_t>> answer;  // teacher-forced instead of full prefill's own

  size_t n_tokens() const;
};

enum class TrialKind {
  kNoContext,  // the question alone: what the passages bring
  kFull,       // everything computed
  kBlend,      // chunk KV reused, the policy's rows recomputed
};

struct TrialSetting {
  std::string name;  // "query r=0.15 stand-in": unique in a sweep
  TrialKind kind = TrialKind::kBlend;
  bool stand_in = true;  // chunk KV that was computed behind the stand-in context
  // What chunk KV has been through, encoded and decoded again, before it is used (through_codec).
  KvCodec codec = KvCodec::kLossless;
  bool exact_first = false;  // but the first chunk's behind the prefix alone, where it stands: exact
  BlendSettings blend;
};

// Stored KV moved to its place and used as it is, each chunk's computed behind the same kind of context, none lost by a
// codec.
bool is_plain_reuse(const TrialSetting& setting);

// Per answer row (the prompt's last row first, one for each teacher-forced token): against full prefill's logits.
struct TrialOutcome {
  double charged = 1;
  size_t n_tokens = 0, n_recomputed = 0;
  double ttft_ms = 0;  // plan made to logits there; chunk KV in memory
  std::vector<double> kl;
  std::vector<char> same_top;
  double nll = 0, nll_full = 0;         // mean over the answer's tokens, nats
  std::vector<int32_t> answer;          // this setting's own greedy answer
  std::vector<double> attention_shift;  // [layers] |attended - full's| / |full's| over the question's rows; if wanted
  // Of plain reuse's stored KV, a first chunk that is exact left out; if wanted.
  std::optional<DeviationProfile> deviation;
  std::vector<float> logits;         // [rows, V] if wanted
  std::optional<Residual> residual;  // of policy query
};

struct TrialOptions {
  size_t answer_tokens = 24;      // teacher-forced at most
  size_t own_answer_tokens = 32;  // of each setting's own answer; 0: none is made
  bool want_attention = false, want_logits = false, want_deviation = false;
  std::function<bool()> stop;
};

// What full prefill gives. Kept by the caller between sweeps if it likes.
struct TrialReference {
  std::vector<int32_t> answer;  // the tokens that are teacher-forced
  std::vector<int32_t> own_answer;
  std::vector<float> logits;  // [answer + 1, V]; fewer where the end of the turn was reached: see rows
  size_t rows = 0;
  double ttft_ms = 0;
};

// Uses the engine's live KV; engine, prompt and options outlive it. Throws Error for a prompt that does not fit the
// model's context. One thread.
class Trial {
 public:
  Trial(Engine& engine, const TrialPrompt& prompt, const TrialOptions& options);
  ~Trial();

  // False: stopped. Must come first; `known` is an earlier reference of the same prompt, model and options. It is made
  // anew all the same where the attention is wanted, which it does not hold.
  bool prepare(const TrialReference* known);
  const TrialReference& reference() const;
  // nullopt: stopped; the next run starts afresh.
  std::optional<TrialOutcome> run(const TrialSetting& setting);

  // How far chunk KV, computed behind the stand-in context or the prefix alone, is from full prefill's: see
  // deviation.h. [layers][chunk rows]; empty: stopped.
  std::vector<std::vector<float>> layer_deviation(bool stand_in);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cento
