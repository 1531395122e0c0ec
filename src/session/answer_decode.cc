// From a prompt to its answer: prefill, decoding, what is told of it, and the comparison with full prefill.
#include <cmath>

#include "engine/metrics.h"
#include "session/answer_impl.h"

namespace cento {
namespace {

constexpr size_t kVerifyRows = 16;  // logits of so many rows are alive at once while an answer is verified

}  // namespace

void Answerer::Impl::respond(Prompt& prompt, const std::optional<std::string>& given, const AskOptions& options,
                             const AskHooks& hooks, const Stopwatch& since_question, double excluded_ms,
                             Answer& answer) {
  std::vector<int32_t> given_ids;
  if (given) given_ids = model.tokenizer().encode(*given, false);
  Timings& t = answer.timings;
  t.prepare_ms = std::max(0.0, since_question.ms() - excluded_ms - t.retrieve_ms);
  const Stopwatch prefill_watch;
  std::optional<Capture> captured;
  PipelineReport report =
      prefill(prompt, options, hooks, given ? given_ids.size() : options.max_tokens, captured, answer);
  t.prefill_ms = prefill_watch.ms();
  const double prefilled_ms = since_question.ms() - excluded_ms;
  answer.prompt_tokens = prompt.n_tokens();
  CacheReport& cache = answer.cache;
  cache.total = report.n_total;
  cache.exact = report.n_exact;
  cache.reused = report.n_reused;
  cache.recomputed = report.n_recomputed;
  cache.fresh = report.n_fresh;
  cache.charged = report.charged;
  cache.bytes_loaded = report.bytes_loaded;
  if (cache.mode == PrefillMode::kBlend) {
    cache.policy = policy_name(options.blend.policy);
    const size_t rankable = report.n_reused + report.n_recomputed;
    cache.ratio = rankable == 0 ? 0 : static_cast<double>(report.n_recomputed) / static_cast<double>(rankable);
  }
  for (const PromptChunk& chunk : prompt.chunks) cache.chunks.push_back(chunk.report);
  t.prepare_ms += report.reserve_ms;
  t.kv_load_ms = report.load_ms;
  t.kv_read_ms = report.read_ms;
  t.kv_unpack_ms = report.unpack_ms;
  t.kv_place_ms = report.place_ms;
  t.load_wait_ms += report.load_wait_ms;
  t.probe_ms = report.probe_ms;
  t.select_ms = report.select_ms;
  t.recompute_ms = report.compute_ms;
  if (report.stopped) {
    answer.finish_reason = "interrupted";
    return;
  }
  std::vector<int32_t> ids;
  if (given) {
    answer.timings.ttft_ms = since_question.ms() - excluded_ms;
    keep_row(report.logits, options, answer);
    for (const int32_t id : given_ids) keep_row(engine.extend(std::span(&id, 1)), options, answer);
    answer.text = *given;
    answer.finish_reason = "given";
    ids = given_ids;
    if (hooks.on_text) hooks.on_text(*given);
  } else {
    ids = decode(std::move(report.logits), options, hooks, answer, since_question, excluded_ms);
  }
  t.first_token_ms = report.logits_ms + std::max(0.0, t.ttft_ms - prefilled_ms);
  answer.completion_tokens = ids.size();
  if (hooks.on_answered) hooks.on_answered(answer);
  // Behind the answer, which needs not wait for the disk.
  if (may_write()) write_speed(engine, catalogue(), speed);
  if (captured) store_captured(prompt, *captured);
  if (options.verify && answer.logits_rows > 0 && answer.finish_reason != "interrupted") verify(prompt, ids, answer);
  keep_fetched(prompt);
  if (answer.finish_reason != "interrupted") copy_leading_chunk(prompt, answer.cache, hooks);
  if (!options.want_logits) {
    answer.logits.clear();
    answer.logits_rows = 0;
  }
}

void Answerer::Impl::keep_row(std::span<const float> logits, const AskOptions& options, Answer& answer) {
  if (!options.verify && !options.want_logits) return;
  answer.logits.insert(answer.logits.end(), logits.begin(), logits.end());
  ++answer.logits_rows;
}

// The ids of the answer, without the one that ended it.
std::vector<int32_t> Answerer::Impl::decode(std::vector<float> logits, const AskOptions& options, const AskHooks& hooks,
                                            Answer& answer, const Stopwatch& since_question, double excluded_ms) {
  Sampler sampler(options.sampler);
  StreamDecoder text_decoder(model.tokenizer());
  std::vector<std::string> stops = options.stop;
  for (std::string& s : model.chat().stop_texts()) stops.push_back(std::move(s));
  StopFilter filter(std::move(stops));
  const auto show = [&](std::string piece) {
    if (answer.text.empty())
      piece.erase(0, std::min(piece.find_first_not_of(" \n"), piece.size()));  // an answer starts with its first word
    if (piece.empty()) return;
    answer.text += piece;
    if (hooks.on_text) hooks.on_text(piece);
  };
  const std::vector<int32_t>& ends = model.tokenizer().end_of_turn;
  std::vector<int32_t> ids;
  answer.finish_reason = "length";
  Stopwatch decode_watch;
  while (ids.size() < options.max_tokens) {
    keep_row(logits, options, answer);
    const int32_t id = sampler.next(logits, ids);
    if (ids.empty()) {
      answer.timings.ttft_ms = since_question.ms() - excluded_ms;
      decode_watch.restart();
    }
    if (std::find(ends.begin(), ends.end(), id) != ends.end()) {
      answer.finish_reason = "stop";
      break;
    }
    ids.push_back(id);
    show(filter.push(text_decoder.push(id)));
    if (filter.stopped()) {
      answer.finish_reason = "stop";
      break;
    }
    if (hooks.stop && hooks.stop()) {
      answer.finish_reason = "interrupted";
      break;
    }
    if (ids.size() < options.max_tokens) logits = engine.extend(std::span(&id, 1));
  }
  show(filter.push(text_decoder.finish()));
  show(filter.finish());
  answer.timings.decode_tokens = ids.size();
  // The first token came with the prefill; what is timed is the steps after it.
  if (ids.size() > 1)
    answer.timings.decode_tokens_per_second =
        static_cast<double>(ids.size() - 1) * 1000 / std::max(decode_watch.ms(), 1e-3);
  return ids;
}

void Answerer::Impl::verify(const Prompt& prompt, const std::vector<int32_t>& answer_ids, Answer& answer) {
  engine.truncate(0);
  PromptPlan plan;
  plan.segments.push_back(fresh_segment(prompt.prefix, "prefix"));
  for (const PromptChunk& chunk : prompt.chunks) plan.segments.push_back(fresh_segment(chunk.ids, chunk.report.id));
  plan.segments.push_back(fresh_segment(prompt.question, "question"));
  const size_t rows = answer.logits_rows, vocab = answer.logits.size() / rows;
  PipelineOptions options;
  options.blend.policy = PolicyKind::kNone;
  auto outcome = engine.prefill(plan, options, answer_ids.size());
  VerifyReport result;
  size_t row = 0, agree = 0;
  const auto compare = [&](std::span<const float> full) {
    const std::span<const float> answered = std::span(answer.logits).subspan(row * vocab, vocab);
    const double kl = kl_divergence(full, answered);
    result.kl_mean += kl;
    result.kl_max = std::max(result.kl_max, kl);
    agree += argmax(full) == argmax(answered) ? 1 : 0;
    ++row;
  };
  compare(std::get<PipelineReport>(outcome).logits);
  while (row < rows) {
    const size_t n = std::min(kVerifyRows, rows - row);
    const std::vector<float> full = engine.extend(std::span(answer_ids).subspan(row - 1, n), true);
    for (size_t i = 0; i < n; ++i) compare(std::span(full).subspan(i * vocab, vocab));
  }
  result.kl_mean /= static_cast<double>(rows);
  result.top1_agreement = static_cast<double>(agree) / static_cast<double>(rows);
  // Greedy choices that agree on every row of this answer make the same answer.
  result.same_answer = agree == rows;
  answer.verify = result;
}

}  // namespace cento
