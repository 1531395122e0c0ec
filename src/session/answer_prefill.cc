// How the KV of a prompt is made: the mode, the plan, the guard's second tries, what is kept for later prompts.
#include <cmath>

#include "base/log.h"
#include "kv/memory_kv.h"
#include "session/answer_impl.h"
#include "session/chunk_kv.h"
#include "session/gate.h"

namespace cento {
namespace {

constexpr double kRaisedRatioMax = 0.5;  // beyond it computing everything costs little more

// What runs that were not kept have cost.
struct Spent {
  double charged = 0, load_wait_ms = 0, probe_ms = 0, select_ms = 0, compute_ms = 0, reserve_ms = 0, load_ms = 0;
  uint64_t bytes_loaded = 0;

  void add(const PipelineReport& r) {
    charged += r.charged;
    load_wait_ms += r.load_wait_ms;
    probe_ms += r.probe_ms;
    select_ms += r.select_ms;
    compute_ms += r.compute_ms + r.logits_ms;
    reserve_ms += r.reserve_ms;
    load_ms += r.load_ms;
    bytes_loaded += r.bytes_loaded;
  }
  void add_to(PipelineReport& r) const {
    r.charged += charged;
    r.load_wait_ms += load_wait_ms;
    r.probe_ms += probe_ms;
    r.select_ms += select_ms;
    r.compute_ms += compute_ms;
    r.reserve_ms += reserve_ms;
    r.load_ms += load_ms;
    r.bytes_loaded += bytes_loaded;
  }
};

}  // namespace

// Whether prefix and chunk are the leading rows of the live KV, as full prefill computes them.
bool Answerer::Impl::is_resident(const std::vector<int32_t>& prefix, const std::vector<int32_t>& chunk) const {
  std::vector<int32_t> ids = prefix;
  ids.insert(ids.end(), chunk.begin(), chunk.end());
  return !chunk.empty() && engine.resident_prefix(ids) == ids.size();
}

// `blend` gets the ratio that was chosen, if nobody has set one.
void Answerer::Impl::choose_mode(Prompt& prompt, const AskOptions& options, CacheReport& cache, BlendSettings& blend) {
  cache.mode = options.prefill;
  cache.why = "asked for";
  if (options.prefill == PrefillMode::kFull || options.prefill == PrefillMode::kPrefix) return;
  if (options.prefill == PrefillMode::kAuto) {
    if (prompt.n_tokens() < kMinBlendTokens) {
      cache.mode = PrefillMode::kFull;
      cache.why = "the prompt is shorter than " + std::to_string(kMinBlendTokens) + " tokens";
      return;
    }
    cache.mode = PrefillMode::kBlend;
    cache.why =
        "stored KV of " + std::to_string(prompt.n_hits()) + " of " + std::to_string(prompt.chunks.size()) + " chunks";
  }
  if (prompt.n_hits() == 0) {
    cache.mode = PrefillMode::kPrefix;
    cache.why = prompt.chunks.empty() ? "the prompt has no chunks"
                                      : "no chunk's KV is usable: " + prompt.chunks[0].report.reason;
    return;
  }
  if (const GateResult g = gate(engine, catalogue()); !g.passed) {
    cache.mode = PrefillMode::kFull;
    cache.why = g.why;
    return;
  }
  if (prompt.distrusted) {
    compute_chunks(prompt, cache, "the guard does not trust a blend");
    cache.why = "the guard does not trust a blend of this prompt";
    return;
  }
  const ReuseFacts facts = facts_of(prompt);
  settle(prompt, options, facts.n_chunk, blend);
  const auto cost = speed.cost();
  if (options.prefill != PrefillMode::kAuto || !cost) return;
  const size_t rows_min = row_budget(blend, facts.n_chunk);
  const BlendChoice choice = choose_blend(*cost, facts, options.blend.policy, rows_min);
  const auto about = [](double ms) { return std::to_string(std::llround(std::max(ms, 1.0))) + " ms"; };
  cache.why += "; about " + about(choice.blend_ms) + " against " + about(choice.full_ms) + " to compute everything";
  if (!choice.blend && facts.n_chunk > 0) {
    compute_chunks(prompt, cache, "computing is faster");
    return;
  }
  if (choice.blend && choice.n_rows > rows_min && !options.blend.ratio && !prompt.raised_ratio)
    blend.ratio = static_cast<double>(choice.n_rows) / static_cast<double>(facts.n_chunk);
}

void Answerer::Impl::compute_chunks(Prompt& prompt, CacheReport& cache, const std::string& reason) {
  cache.mode = PrefillMode::kPrefix;
  for (PromptChunk& chunk : prompt.chunks) {
    if (chunk.kv == nullptr) continue;
    chunk.kv = nullptr;
    chunk.report.from = "computed";
    chunk.report.reason = reason;
  }
}

// What nobody has set comes from the model's record, and from the guard.
void Answerer::Impl::settle(const Prompt& prompt, const AskOptions& options, size_t n_chunk_rows,
                            BlendSettings& blend) const {
  if (options.repair) blend.repair = *options.repair;
  if (blend.policy == PolicyKind::kQuery && record) {
    if (!options.repair) blend.repair = record->repair;
    if (!blend.ratio && blend.layer_ratios.empty()) blend.ratio = ratio_for(*record, n_chunk_rows);
  }
  if (prompt.raised_ratio) blend.ratio = prompt.raised_ratio;
}

// Whether the run is to be done again: with a raised ratio at first, then without stored KV.
bool Answerer::Impl::guard_wants_more(const PromptPlan& plan, const PipelineReport& report, const AskOptions& options,
                                      Prompt& prompt, CacheReport& cache) const {
  if (cache.mode != PrefillMode::kBlend || !record || !record->guard || !options.guard) return false;
  const auto residual = residual_of(plan, report);
  if (!residual) return false;
  const GuardReport earlier = cache.guard.value_or(GuardReport{});
  cache.guard = GuardReport{record->guard->probability(*residual), record->guard->limit, earlier.action};
  if (options.prefill != PrefillMode::kAuto || !(cache.guard->chance > cache.guard->limit)) return false;
  const size_t n_chunk_rows = report.n_reused + report.n_recomputed;
  const double ratio = static_cast<double>(report.n_recomputed) / static_cast<double>(n_chunk_rows);
  if (!prompt.raised_ratio && ratio < kRaisedRatioMax) {
    prompt.raised_ratio = std::min(2 * ratio, kRaisedRatioMax);
    cache.guard->action = "ratio";
  } else {
    prompt.distrusted = true;
    cache.guard->action = "full";
  }
  return true;
}

ReuseFacts Answerer::Impl::facts_of(const Prompt& prompt) const {
  ReuseFacts facts;
  facts.n_exact = prompt.prefix.size();
  facts.n_fresh = prompt.question.size();
  for (const PromptChunk& chunk : prompt.chunks) {
    if (chunk.kv == nullptr) {
      facts.n_fresh += chunk.ids.size();
    } else if (&chunk == &prompt.chunks.front() &&
               (chunk.exact_behind_prefix || is_resident(prompt.prefix, chunk.ids))) {
      facts.n_exact += chunk.ids.size();
    } else {
      facts.n_chunk += chunk.ids.size();
    }
  }
  const KvShape shape = engine.shape();
  facts.n_layers = shape.n_layers;
  facts.n_bytes = 2 * shape.n_layers * shape.side_bytes(facts.n_chunk);
  return facts;
}

PromptPlan Answerer::Impl::make_plan(Prompt& prompt, const CacheReport& cache) {
  PromptPlan plan;
  if (cache.mode == PrefillMode::kFull) {
    engine.truncate(0);
    plan.segments.push_back(fresh_segment(prompt.prefix, "prefix"));
  } else {
    plan.segments =
        prefix_segments(engine, prompt.store_allowed && !prompt.prefix_failed ? store : nullptr, prompt.prefix);
  }
  const bool may_reuse = cache.mode == PrefillMode::kReuse || cache.mode == PrefillMode::kBlend;
  for (PromptChunk& chunk : prompt.chunks) {
    Segment s = fresh_segment(chunk.ids, chunk.report.id);
    // Right behind the fixed prefix a chunk that was computed there is no guess but the thing itself.
    const bool first = &chunk == &prompt.chunks.front();
    if (first && plan.segments[0].from == SegmentFrom::kResident && is_resident(prompt.prefix, chunk.ids)) {
      s.from = SegmentFrom::kResident;  // an earlier prompt began with it too
      chunk.report.from = "ram";
      chunk.report.reason.clear();
      chunk.keep_exact.reset();
    } else if (chunk.kv != nullptr && may_reuse) {
      s.from = first && chunk.exact_behind_prefix ? SegmentFrom::kExact : SegmentFrom::kChunk;
      s.kv = std::move(chunk.kv);
    }
    plan.segments.push_back(std::move(s));
  }
  plan.segments.push_back(fresh_segment(prompt.question, "question"));
  return plan;
}

// Readers go back to their chunks when a plan has to be made anew.
void Answerer::Impl::take_back(PromptPlan& plan, Prompt& prompt) {
  const size_t first = plan.segments.size() - 1 - prompt.chunks.size();
  for (size_t i = 0; i < prompt.chunks.size(); ++i) {
    if (plan.segments[first + i].kv != nullptr) prompt.chunks[i].kv = std::move(plan.segments[first + i].kv);
  }
}

// `captured` takes the KV of the fixed prefix and of a leading chunk if they were computed here and are to be stored.
PipelineReport Answerer::Impl::prefill(Prompt& prompt, const AskOptions& options, const AskHooks& hooks, size_t reserve,
                                       std::optional<Capture>& captured, Answer& answer) {
  Spent spent;
  for (;;) {
    const Stopwatch prepare_watch;
    PipelineOptions run;
    run.blend = options.blend;
    run.want_residual = record && record->guard && options.guard;
    choose_mode(prompt, options, answer.cache, run.blend);
    PromptPlan plan = make_plan(prompt, answer.cache);
    if (answer.cache.mode != PrefillMode::kBlend) run.blend.policy = PolicyKind::kNone;
    run.stop = hooks.stop;
    captured.reset();
    if (answer.cache.mode != PrefillMode::kFull && prompt.store_allowed && may_write()) {
      const bool prefix = plan.segments[0].from == SegmentFrom::kFresh;
      const bool chunk = !prompt.chunks.empty() && prompt.chunks[0].keep_exact && !prompt.chunks[0].ids.empty();
      if (prefix || chunk) {
        const size_t rows = (prefix ? prompt.prefix.size() : 0) + (chunk ? prompt.chunks[0].ids.size() : 0);
        captured.emplace(Capture{KvBlock(engine.shape(), rows), prefix, chunk});
        run.capture = &captured->block;
        run.capture_from = prefix ? 0 : prompt.prefix.size();
      }
    }
    answer.timings.prepare_ms += prepare_watch.ms();
    const Stopwatch run_watch;
    auto outcome = engine.prefill(plan, run, reserve);
    if (auto* failure = std::get_if<SegmentFailure>(&outcome)) {
      answer.timings.load_wait_ms += run_watch.ms();  // for nothing
      const Segment& failed = plan.segments[failure->segment];
      const std::string reason = failure->error.message();
      log_warning("stored KV of " + failed.label + " is not used: " + reason);
      if (store != nullptr) store->give_up(*failed.kv, reason);
      const size_t segment = failure->segment;
      take_back(plan, prompt);
      const size_t first = plan.segments.size() - 1 - prompt.chunks.size();
      if (segment >= first) {
        PromptChunk& chunk = prompt.chunks[segment - first];
        chunk.kv = nullptr;
        chunk.report.from = "computed";
        chunk.report.reason = reason;
      } else {
        prompt.prefix_failed = true;
      }
      continue;
    }
    PipelineReport report = std::get<PipelineReport>(std::move(outcome));
    speed.observe(report, engine.shape());
    if (!report.stopped && guard_wants_more(plan, report, options, prompt, answer.cache)) {
      spent.add(report);
      take_back(plan, prompt);
      continue;
    }
    spent.add_to(report);
    if (answer.cache.guard && answer.cache.guard->action == "ratio" && answer.cache.mode != PrefillMode::kBlend)
      answer.cache.guard->action = "full";  // with more rows computing everything was faster
    return report;
  }
}

void Answerer::Impl::store_captured(const Prompt& prompt, const Capture& captured) {
  const auto put = [&](const KvIdentity& identity, const KvBlock& block, const std::optional<Hash>& chunk) {
    if (auto stored = store->put(identity, block, KvCodec::kLossless, chunk); !stored.ok())
      log_warning("KV that was computed is not stored: " +
                  stored.error().message());  // the answer does not depend on it
  };
  const size_t n_prefix = captured.prefix ? prompt.prefix.size() : 0;
  if (captured.prefix)
    put(identity_of(engine, KvKind::kPrefix, prompt.prefix, {}, prompt.prefix), rows_of(captured.block, 0, n_prefix),
        {});
  if (!captured.chunk) return;
  const PromptChunk& chunk = prompt.chunks[0];
  put(identity_of(engine, KvKind::kChunkPrefix, prompt.prefix, prompt.prefix, chunk.ids),
      rows_of(captured.block, n_prefix, chunk.ids.size()), chunk.keep_exact);
}

// What came from the remote tier is here next time.
void Answerer::Impl::keep_fetched(const Prompt& prompt) {
  for (const PromptChunk& chunk : prompt.chunks) {
    if (!chunk.keep_remote || chunk.report.from != store->remote()->name()) continue;
    const auto& [row, hash] = *chunk.keep_remote;
    (void)store->fetch_row(row, identity_of(engine, row.kind, prompt.prefix, {}, chunk.ids), hash);
  }
}

// The leading chunk once more, where it is exact: the next prompt that begins with it needs no guess.
void Answerer::Impl::copy_leading_chunk(const Prompt& prompt, const CacheReport& cache, const AskHooks& hooks) {
  if (cache.mode != PrefillMode::kBlend || prompt.chunks.empty() || !prompt.chunks[0].copy_exact) return;
  const PromptChunk& chunk = prompt.chunks[0];
  const auto computed = compute_kv(engine, prompt.prefix, chunk.ids, hooks.stop);
  if (!computed) return;
  const KvIdentity identity = identity_of(engine, KvKind::kChunkPrefix, prompt.prefix, prompt.prefix, chunk.ids);
  if (auto stored = store->put(identity, computed->block, KvCodec::kLossless, chunk.copy_exact); !stored.ok())
    log_warning("an exact copy is not stored: " + stored.error().message());
}

}  // namespace cento
