#include "eval/trial.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/check.h"
#include "base/clock.h"
#include "engine/metrics.h"
#include "kv/frame_codec.h"
#include "kv/memory_kv.h"
#include "session/chunk_kv.h"

namespace cento {
namespace {

struct TrialStopped {};

}  // namespace

bool is_plain_reuse(const TrialSetting& s) {
  return s.kind == TrialKind::kBlend && s.blend.policy == PolicyKind::kNone && !s.exact_first && !is_lossy(s.codec);
}

size_t TrialPrompt::n_tokens() const {
  size_t n = prefix.size() + question.size();
  for (const auto& c : chunks) n += c.size();
  return n;
}

struct Trial::Impl {
  Impl(Engine& engine_in, const TrialPrompt& prompt_in, const TrialOptions& options_in)
      : engine(engine_in), prompt(prompt_in), options(options_in) {}

  using Block = std::shared_ptr<const KvBlock>;
  // [layers][question rows * H * D]
  using Attended = std::vector<std::vector<float>>;

  size_t vocab() const { return engine.model().config().vocab; }

  static Segment fresh(const std::vector<int32_t>& ids) {
    Segment s;
    s.ids = ids;
    return s;
  }

  Segment prefix_segment(bool resident_allowed) {
    Segment s = fresh(prompt.prefix);
    if (resident_allowed && engine.resident_prefix(prompt.prefix) == prompt.prefix.size())
      s.from = SegmentFrom::kResident;
    return s;
  }

  void poll() const {
    if (options.stop && options.stop()) throw TrialStopped{};
  }

  const std::vector<Block>& blocks(bool stand_in) {
    std::vector<Block>& out = stored[stand_in ? 1 : 0];
    if (!out.empty()) return out;
    std::vector<Block> made;
    for (size_t i = 0; i < prompt.chunks.size(); ++i) {
      std::vector<int32_t> context = prompt.prefix;
      if (stand_in && i < prompt.contexts.size())
        context.insert(context.end(), prompt.contexts[i].begin(), prompt.contexts[i].end());
      auto computed = compute_kv(engine, context, prompt.chunks[i], options.stop);
      if (!computed) throw TrialStopped{};
      made.push_back(std::make_shared<const KvBlock>(std::move(computed->block)));
    }
    out = std::move(made);
    return out;
  }

  bool first_is_exact(const TrialSetting& setting) const {
    return setting.exact_first || !setting.stand_in || prompt.contexts.empty() || prompt.contexts[0].empty();
  }

  // The first chunk behind the prefix alone.
  Block first_alone() {
    if (!stored[0].empty()) return stored[0][0];
    if (!alone) {
      auto computed = compute_kv(engine, prompt.prefix, prompt.chunks[0], options.stop);
      if (!computed) throw TrialStopped{};
      alone = std::make_shared<const KvBlock>(std::move(computed->block));
    }
    return alone;
  }

  // A block as a store with this codec gives it back. Each is encoded once.
  Block coded(const Block& block, KvCodec codec) {
    if (!is_lossy(codec)) return block;
    Block& out = through[{block.get(), codec}];
    if (!out) out = std::make_shared<const KvBlock>(through_codec(*block, codec));
    return out;
  }

  // The stored KV of chunk i as a setting uses it. It has been computed, see make_stored().
  Block stored_kv(const TrialSetting& setting, size_t i) {
    const bool alone_wanted = i == 0 && setting.exact_first;
    return coded(alone_wanted ? first_alone() : blocks(setting.stand_in)[i], setting.codec);
  }

  void make_stored(const TrialSetting& setting) {
    for (size_t i = 0; i < prompt.chunks.size(); ++i) {
      if (!prompt.chunks[i].empty()) (void)stored_kv(setting, i);
    }
  }

  // K and V of all chunk rows as full prefill computes them.
  const KvBlock& full_kv() {
    if (full_block) return *full_block;
    size_t n = 0;
    for (const auto& c : prompt.chunks) n += c.size();
    KvBlock block(engine.shape(), n);
    PromptPlan plan = full_plan();
    PipelineOptions run;
    run.capture = &block;
    run.capture_from = prompt.prefix.size();
    run.stop = options.stop;
    finished(engine.prefill(plan, run, 0));
    full_block = std::make_unique<KvBlock>(std::move(block));
    return *full_block;
  }

  PromptPlan full_plan() {
    engine.truncate(0);
    PromptPlan plan;
    plan.segments.push_back(fresh(prompt.prefix));
    for (const auto& c : prompt.chunks) plan.segments.push_back(fresh(c));
    plan.segments.push_back(fresh(prompt.question));
    return plan;
  }

  PromptPlan plan_of(const TrialSetting& setting) {
    if (setting.kind == TrialKind::kFull) return full_plan();
    PromptPlan plan;
    if (setting.kind == TrialKind::kNoContext) {
      plan.segments.push_back(prefix_segment(true));
      plan.segments.push_back(fresh(prompt.question));
      return plan;
    }
    plan.segments.push_back(prefix_segment(true));
    for (size_t i = 0; i < prompt.chunks.size(); ++i) {
      Segment s = fresh(prompt.chunks[i]);
      if (!s.ids.empty()) {
        const bool exact = i == 0 && first_is_exact(setting);
        s.from = exact ? SegmentFrom::kExact : SegmentFrom::kChunk;
        s.kv = std::make_unique<MemoryKv>(stored_kv(setting, i), kv_ids_hash(s.ids));
      }
      plan.segments.push_back(std::move(s));
    }
    plan.segments.push_back(fresh(prompt.question));
    return plan;
  }

  static PipelineReport finished(std::variant<PipelineReport, SegmentFailure> outcome) {
    if (const auto* failure = std::get_if<SegmentFailure>(&outcome)) throw failure->error;
    auto report = std::get<PipelineReport>(std::move(outcome));
    if (report.stopped) throw TrialStopped{};
    return report;
  }

  bool ends(int32_t id) const {
    const std::vector<int32_t>& end = engine.model().tokenizer().end_of_turn;
    return std::find(end.begin(), end.end(), id) != end.end();
  }

  // Greedy, behind what the live KV holds, from `logits` on: at most `n` tokens, the one that ends the turn left out.
  std::vector<int32_t> continue_greedily(std::vector<float> logits, size_t n) {
    std::vector<int32_t> ids;
    while (ids.size() < n) {
      const auto id = static_cast<int32_t>(argmax(logits));
      if (ends(id)) break;
      ids.push_back(id);
      poll();
      if (ids.size() < n) logits = engine.extend(std::span(&id, 1));
    }
    return ids;
  }

  // Logits of the prompt's last row and of each teacher-forced token: [answer + 1, V].
  std::vector<float> force(std::vector<float> first, const std::vector<int32_t>& answer) {
    if (answer.empty()) return first;
    const std::vector<float> rest = engine.extend(answer, true);
    first.insert(first.end(), rest.begin(), rest.end());
    return first;
  }

  // While it lives the engine's tap fills `into` with what the question's rows attend to.
  class Tap {
   public:
    Tap(Engine& tapped, Attended& into, size_t n_prompt, size_t n_question) : engine_(tapped) {
      into.assign(engine_.shape().n_layers, {});
      engine_.set_tap([&into, n_prompt, n_question](uint32_t layer, std::span<const int32_t> pos,
                                                    std::span<const float> rows) {
        if (pos.empty()) return;
        const size_t width = rows.size() / pos.size();
        const auto first = static_cast<int32_t>(n_prompt - n_question);
        const size_t from = static_cast<size_t>(std::lower_bound(pos.begin(), pos.end(), first) - pos.begin()) * width;
        std::vector<float>& kept = into[layer];
        if (kept.size() >= n_question * width) kept.clear();  // the probe's rows give way to the last pass's
        kept.insert(kept.end(), rows.begin() + static_cast<ptrdiff_t>(from), rows.end());
      });
    }
    ~Tap() { engine_.set_tap({}); }
    Tap(const Tap&) = delete;
    Tap& operator=(const Tap&) = delete;

   private:
    Engine& engine_;
  };

  // |a - b| / |b| of each layer, over the last rows that both have. [layers]
  static std::vector<double> shift(const Attended& a, const Attended& b) {
    std::vector<double> out;
    for (size_t l = 0; l < std::min(a.size(), b.size()); ++l) {
      const size_t n = std::min(a[l].size(), b[l].size());
      double difference = 0, size = 0;
      for (size_t i = 0; i < n; ++i) {
        const double x = static_cast<double>(a[l][a[l].size() - n + i]);
        const double y = static_cast<double>(b[l][b[l].size() - n + i]);
        difference += (x - y) * (x - y);
        size += y * y;
      }
      out.push_back(size > 0 ? std::sqrt(difference / size) : 0);
    }
    return out;
  }

  void make_reference() {
    PromptPlan plan = full_plan();
    const size_t n = plan.n_tokens();
    PipelineOptions run;
    run.stop = options.stop;
    std::optional<Tap> tap;
    if (options.want_attention) tap.emplace(engine, full_attended, n, prompt.question.size());
    const Stopwatch watch;
    const PipelineReport report = finished(engine.prefill(plan, run, reserve()));
    reference.ttft_ms = watch.ms();
    tap.reset();
    const size_t forced = prompt.answer ? 0 : options.answer_tokens;
    reference.own_answer = continue_greedily(report.logits, std::max(forced, options.own_answer_tokens));
    reference.answer = reference.own_answer;
    if (reference.answer.size() > options.answer_tokens) reference.answer.resize(options.answer_tokens);
    if (reference.own_answer.size() > options.own_answer_tokens) reference.own_answer.resize(options.own_answer_tokens);
    if (prompt.answer) reference.answer = *prompt.answer;
    engine.truncate(n);
    reference.logits = force(report.logits, reference.answer);
    reference.rows = reference.answer.size() + 1;
  }

  size_t reserve() const {
    return std::max({options.answer_tokens, options.own_answer_tokens, prompt.answer ? prompt.answer->size() : 0});
  }

  TrialOutcome run(const TrialSetting& setting) {
    PipelineOptions run;
    run.blend = setting.blend;
    run.stop = options.stop;
    std::vector<float> weights;
    if (setting.kind == TrialKind::kBlend && setting.blend.policy == PolicyKind::kOracle) {
      weights = deviation_of_rankable(setting);
      run.row_weights = weights;
    }
    run.want_residual = setting.kind == TrialKind::kBlend;
    if (setting.kind == TrialKind::kBlend) make_stored(setting);
    if (setting.kind != TrialKind::kFull) warm_prefix();
    Attended attended;
    std::optional<Tap> tap;
    const Stopwatch watch;
    PromptPlan plan = plan_of(setting);
    const size_t n = plan.n_tokens();
    if (options.want_attention && setting.kind != TrialKind::kNoContext)
      tap.emplace(engine, attended, n, prompt.question.size());
    const PipelineReport report = finished(engine.prefill(plan, run, reserve()));
    TrialOutcome out;
    out.ttft_ms = watch.ms();
    tap.reset();
    out.charged = report.charged;
    out.n_tokens = report.n_total;
    out.n_recomputed = report.n_recomputed;
    if (options.want_attention) out.attention_shift = shift(attended, full_attended);
    out.residual = residual_of(plan, report);
    compare(report.logits, n, out);
    if (options.want_deviation && is_plain_reuse(setting)) {
      const bool exact = first_is_exact(setting) && !prompt.chunks.empty();
      out.deviation = deviation_profile(deviation(setting.stand_in), exact ? prompt.chunks[0].size() : 0);
    }
    return out;
  }

  void compare(const std::vector<float>& first, size_t n_prompt, TrialOutcome& out) {
    std::vector<float> logits = force(first, reference.answer);
    const size_t v = vocab();
    size_t agree = 0;  // leading tokens of the teacher-forced answer that this setting would choose too
    for (size_t row = 0; row < reference.rows; ++row) {
      const auto full = std::span(reference.logits).subspan(row * v, v), own = std::span(logits).subspan(row * v, v);
      out.kl.push_back(kl_divergence(full, own));
      const size_t top = argmax(own);
      out.same_top.push_back(top == argmax(full) ? 1 : 0);
      if (row == reference.answer.size()) break;  // nothing follows the last row
      const auto next = static_cast<size_t>(reference.answer[row]);
      out.nll += negative_log_likelihood(own, next) / static_cast<double>(reference.answer.size());
      out.nll_full += negative_log_likelihood(full, next) / static_cast<double>(reference.answer.size());
      if (agree == row && top == next && !ends(reference.answer[row])) ++agree;
    }
    if (options.own_answer_tokens > 0) out.answer = own_answer(logits, n_prompt, agree);
    if (options.want_logits) out.logits = std::move(logits);
  }

  // What was teacher-forced is this setting's own answer as far as it would have chosen the same tokens: `agree`.
  std::vector<int32_t> own_answer(std::span<const float> forced_logits, size_t n_prompt, size_t agree) {
    agree = std::min(agree, options.own_answer_tokens);
    std::vector<int32_t> out(reference.answer.begin(), reference.answer.begin() + static_cast<ptrdiff_t>(agree));
    engine.truncate(n_prompt + agree);
    const auto at = forced_logits.subspan(agree * vocab(), vocab());
    const std::vector<int32_t> rest =
        continue_greedily(std::vector<float>(at.begin(), at.end()), options.own_answer_tokens - agree);
    out.insert(out.end(), rest.begin(), rest.end());
    return out;
  }

  // The fixed prefix in the live KV, as a program that has answered before has it.
  void warm_prefix() {
    if (engine.resident_prefix(prompt.prefix) == prompt.prefix.size()) return;
    PromptPlan plan;
    plan.segments.push_back(fresh(prompt.prefix));
    PipelineOptions run;
    run.stop = options.stop;
    finished(engine.prefill(plan, run, 0));
  }

  // [layers][chunk rows]
  std::vector<std::vector<float>> deviation(bool stand_in) {
    return deviation_by_layer(blocks(stand_in), full_kv(), [this] { poll(); });
  }

  // Without the rows of a first chunk that is exact.
  std::vector<float> deviation_of_rankable(const TrialSetting& setting) {
    std::vector<float> all = mean_over_layers(deviation(setting.stand_in));
    if (first_is_exact(setting) && !prompt.chunks.empty())
      all.erase(all.begin(), all.begin() + static_cast<ptrdiff_t>(prompt.chunks[0].size()));
    return all;
  }

  Engine& engine;
  const TrialPrompt& prompt;
  const TrialOptions& options;
  TrialReference reference;
  std::vector<Block> stored[2];  // behind the prefix, behind the stand-in context
  Block alone;                   // the first chunk behind the prefix
  std::map<std::pair<const KvBlock*, KvCodec>, Block> through;
  std::unique_ptr<KvBlock> full_block;
  Attended full_attended;
};

Trial::Trial(Engine& engine, const TrialPrompt& prompt, const TrialOptions& options)
    : impl_(std::make_unique<Impl>(engine, prompt, options)) {}
Trial::~Trial() = default;

bool Trial::prepare(const TrialReference* known) {
  try {
    if (known != nullptr && !impl_->options.want_attention) {
      impl_->reference = *known;
    } else {
      impl_->make_reference();
    }
    return true;
  } catch (const TrialStopped&) {
    return false;
  }
}

const TrialReference& Trial::reference() const { return impl_->reference; }

std::optional<TrialOutcome> Trial::run(const TrialSetting& setting) {
  CHECK(impl_->reference.rows > 0);
  try {
    return impl_->run(setting);
  } catch (const TrialStopped&) {
    return std::nullopt;
  }
}

std::vector<std::vector<float>> Trial::layer_deviation(bool stand_in) {
  try {
    return impl_->deviation(stand_in);
  } catch (const TrialStopped&) {
    return {};
  }
}

}  // namespace cento
