#include "eval/first_token.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "blend/stand_in.h"
#include "engine/engine.h"
#include "engine/metrics.h"
#include "eval/page_cache.h"
#include "eval/synthetic.h"
#include "session/answer.h"
#include "session/chunk_kv.h"
#include "session/prompt_layout.h"

namespace cento {
namespace {

constexpr size_t kChunks = 10;
constexpr size_t kChunkTokensMin = 16;
constexpr size_t kStandInTexts = 3;
constexpr const char* kQuestion = "Which of these words stands first in the third passage?";
constexpr const char* kNewQuestion = "And which word stands last in the passage before it?";

// Logits of a resumed prompt and of a computed one agree bit for bit on one backend (ops.h); the limit is the gate's
// (session/gate.cc) and leaves room for a device whose sums depend on the number of rows.
constexpr double kKlMax = 1e-6;

struct Case {
  PrefillMode mode;
  bool cold;
};
constexpr std::array<Case, 6> kCases = {{{PrefillMode::kFull, false},
                                         {PrefillMode::kPrefix, false},
                                         {PrefillMode::kReuse, false},
                                         {PrefillMode::kBlend, false},
                                         {PrefillMode::kReuse, true},
                                         {PrefillMode::kBlend, true}}};
constexpr size_t kResumeCases = 3;  // loaded, loaded cold, computed

PromptFile make_prompt(const LoadedModel& model, const PromptLayout& layout, const SpeedOptions& options) {
  const size_t overhead =
      layout.prefix().size() + std::max(layout.question(kQuestion).size(), layout.question(kNewQuestion).size());
  const size_t context = model.config().context_max - 1;  // a token of the answer has its row too
  const size_t total = std::min(std::max(options.prompt_tokens, overhead + kChunks * kChunkTokensMin), context);
  const size_t room = total - std::min(total, overhead);
  const size_t n_chunks = std::min(kChunks, room / kChunkTokensMin);
  if (n_chunks == 0) {
    throw Error{Code::kInput,
                "the model's context of " + std::to_string(model.config().context_max) +
                    " tokens is too small for a prompt with passages",
                model.file().file().path()};
  }
  Rng rng(options.seed);
  const std::vector<std::string> words = vocabulary_words(model.tokenizer());
  const auto count = [&](const std::string& text) { return layout.chunk(text).size(); };
  PromptFile prompt;
  prompt.keep = true;
  prompt.question = kQuestion;
  size_t used = 0;
  for (size_t i = 0; i < n_chunks; ++i) {
    prompt.chunks.push_back(synthetic_text(words, (room - used) / (n_chunks - i), count, rng));
    used += count(prompt.chunks.back());
  }
  const size_t largest = room / n_chunks + n_chunks;
  const size_t stand_in = kStandInTokens + kStandInTokens / (kStandInTexts - 1);  // whole texts: one too many at most
  if (layout.prefix().size() + stand_in + largest <= context) {
    for (size_t i = 0; i < kStandInTexts; ++i)
      prompt.stand_in.push_back(synthetic_text(words, kStandInTokens / (kStandInTexts - 1), count, rng));
  }
  return prompt;
}

std::optional<Spread> spread_if_any(std::vector<double> samples) {
  if (samples.empty()) return std::nullopt;
  return spread_of(std::move(samples));
}

class FirstToken {
 public:
  FirstToken(LoadedModel& model, const SpeedOptions& options, const std::string& folder, BenchSteps& steps)
      : model_(model),
        options_(options),
        steps_(steps),
        catalogue_(folder, Db::Mode::kReadWrite),
        store_(catalogue_),
        layout_(model, default_system_text()),
        prompt_(make_prompt(model, layout_, options)) {}

  std::optional<FirstTokenReport> run() {
    if (!modes() || !resume()) return std::nullopt;
    return std::move(report_);
  }

 private:
  // One question; nullopt: stopped. `first`: chunk KV may have to be computed and stored.
  std::optional<Answer> ask(Answerer& answerer, PrefillMode mode, bool first) {
    AskOptions ask;
    ask.prefill = mode;
    ask.max_tokens = 1;
    AskHooks hooks;
    hooks.stop = steps_.stop();
    Answer answer = answerer.ask_prompt(prompt_, ask, hooks);
    if (answer.finish_reason == "interrupted") return std::nullopt;
    if (answer.cache.mode != mode) {
      throw Error{Code::kInput, "stored KV is not used with this model: " + answer.cache.why,
                  model_.file().file().path(), "cento doctor"};
    }
    if (!first && answer.timings.precompute_ms > 0)
      throw Error{Code::kResource, "KV that was stored a moment ago could not be read again", store_.catalogue().dir(),
                  "check the disk, or set TMPDIR to a folder on another one"};
    return answer;
  }

  bool evict_all() {
    bool all = true;
    for (const KvRow& row : catalogue_.all_kv()) all &= evict_from_page_cache(store_.path_of(row.key));
    return all;
  }

  bool modes() {
    Answerer answerer(model_, &store_, nullptr);
    // What is stored now stays, and every run afterwards finds it.
    if (!ask(answerer, PrefillMode::kReuse, true)) return false;
    std::array<std::vector<double>, kCases.size()> ms;
    bool can_be_cold = true;
    for (size_t i = 0; i <= options_.repeat; ++i) {
      for (size_t c = 0; c < kCases.size(); ++c) {
        if (steps_.stopped()) return false;
        if (kCases[c].cold) can_be_cold = can_be_cold && evict_all();
        if (!kCases[c].cold || can_be_cold) {
          const auto answer = ask(answerer, kCases[c].mode, false);
          if (!answer) return false;
          if (i > 0) ms[c].push_back(answer->timings.ttft_ms);
          describe(*answer);
        }
        steps_.done();
      }
    }
    if (!can_be_cold) {  // some may have been: half a sample is none
      ms[4].clear();
      ms[5].clear();
    }
    report_.full = spread_of(std::move(ms[0]));
    report_.prefix = spread_of(std::move(ms[1]));
    report_.reuse = spread_of(std::move(ms[2]));
    report_.blend = spread_of(std::move(ms[3]));
    report_.reuse_cold = spread_if_any(std::move(ms[4]));
    report_.blend_cold = spread_if_any(std::move(ms[5]));
    return true;
  }

  void describe(const Answer& answer) {
    report_.tokens = answer.prompt_tokens;
    report_.chunks = prompt_.chunks.size();
    report_.context = prompt_.stand_in.empty() ? "prefix" : "stand-in";
    if (answer.cache.mode != PrefillMode::kBlend) return;
    report_.policy = answer.cache.policy;
    report_.recomputed = answer.cache.recomputed;
    report_.charged = answer.cache.charged;
    report_.bytes_loaded = answer.cache.bytes_loaded;
  }

  struct Timed {
    double ms;
    std::vector<float> logits;
  };
  // First token behind the conversation so far, which is loaded if `stored`, else computed; nullopt: stopped.
  std::optional<Timed> continued(Engine& engine, const std::vector<int32_t>& ids, bool stored) {
    engine.truncate(0);
    const Stopwatch watch;
    PromptPlan plan;
    plan.segments.resize(2);
    plan.segments[0].ids = ids;
    if (stored) {
      plan.segments[0].from = SegmentFrom::kExact;
      plan.segments[0].kv = store_.open(identity_of(engine, KvKind::kPrefix, ids, {}, ids)).or_throw();
    }
    plan.segments[1].ids = layout_.question(kNewQuestion);
    PipelineOptions run;
    run.blend.policy = PolicyKind::kNone;
    run.stop = steps_.stop();
    auto outcome = engine.prefill(plan, run, 1);
    if (const auto* failure = std::get_if<SegmentFailure>(&outcome)) throw failure->error;
    PipelineReport& report = std::get<PipelineReport>(outcome);
    if (report.stopped) return std::nullopt;
    (void)argmax(report.logits);
    if (stored) report_.resumed_bytes = report.bytes_loaded;
    return Timed{watch.ms(), std::move(report.logits)};
  }

  bool resume() {
    Engine engine(model_);
    std::vector<int32_t> ids = layout_.prefix();
    for (const std::string& text : prompt_.chunks) {
      const std::vector<int32_t> chunk = layout_.chunk(text);
      ids.insert(ids.end(), chunk.begin(), chunk.end());
    }
    report_.resumed_tokens = ids.size();
    const KvIdentity identity = identity_of(engine, KvKind::kPrefix, ids, {}, ids);
    {
      const auto computed = compute_kv(engine, {}, ids, steps_.stop());
      if (!computed) return false;
      std::move(store_.put(identity, computed->block, KvCodec::kLossless, std::nullopt)).or_throw();
    }
    const std::string blob = store_.path_of(kv_key(identity));
    std::vector<double> loaded, cold, computed;
    bool can_be_cold = true;
    for (size_t i = 0; i <= options_.repeat; ++i) {
      if (steps_.stopped()) return false;
      const auto warm_run = continued(engine, ids, true);
      if (!warm_run) return false;
      steps_.done();
      can_be_cold = can_be_cold && evict_from_page_cache(blob);
      std::optional<Timed> cold_run;
      if (can_be_cold && !(cold_run = continued(engine, ids, true))) return false;
      steps_.done();
      const auto computed_run = continued(engine, ids, false);
      if (!computed_run) return false;
      steps_.done();
      if (!(kl_divergence(computed_run->logits, warm_run->logits) <= kKlMax)) {
        throw Error{Code::kInternal, "a resumed prompt gives other logits than a computed one",
                    model_.file().file().path(), "this is a defect of cento; please report it"};
      }
      if (i == 0) continue;
      loaded.push_back(warm_run->ms);
      computed.push_back(computed_run->ms);
      if (cold_run) cold.push_back(cold_run->ms);
    }
    if (!can_be_cold) cold.clear();
    report_.resume = spread_of(std::move(loaded));
    report_.recompute = spread_of(std::move(computed));
    report_.resume_cold = spread_if_any(std::move(cold));
    return true;
  }

  LoadedModel& model_;
  const SpeedOptions& options_;
  BenchSteps& steps_;
  Catalogue catalogue_;
  KvStore store_;
  PromptLayout layout_;
  PromptFile prompt_;
  FirstTokenReport report_;
};

}  // namespace

size_t first_token_steps(const SpeedOptions& options) { return (kCases.size() + kResumeCases) * (options.repeat + 1); }

std::optional<FirstTokenReport> measure_first_token(LoadedModel& model, const SpeedOptions& options,
                                                    const std::string& folder, BenchSteps& steps) {
  return FirstToken(model, options, folder, steps).run();
}

}  // namespace cento
