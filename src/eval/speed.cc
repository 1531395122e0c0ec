#include "eval/speed.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "engine/engine.h"
#include "eval/synthetic.h"

namespace cento {
namespace {

double rate(size_t tokens, double ms) { return static_cast<double>(tokens) * 1000 / std::max(ms, 1e-3); }

// nullopt: stopped.
std::optional<double> prefill_once(Engine& engine, const std::vector<int32_t>& ids, const BenchSteps& steps) {
  engine.truncate(0);
  PromptPlan plan;
  plan.segments.emplace_back();
  plan.segments[0].ids = ids;
  PipelineOptions options;
  options.blend.policy = PolicyKind::kNone;
  options.stop = steps.stop();
  const Stopwatch watch;
  const auto outcome = engine.prefill(plan, options, 0);
  const double ms = watch.ms();
  if (std::get<PipelineReport>(outcome).stopped) return std::nullopt;  // nothing is stored, so no segment can fail
  return rate(ids.size(), ms);
}

std::optional<double> decode_once(Engine& engine, const std::vector<int32_t>& ids, const BenchSteps& steps) {
  engine.truncate(0);
  const Stopwatch watch;
  for (const int32_t id : ids) {
    if (steps.stopped()) return std::nullopt;
    (void)engine.extend(std::span(&id, 1));
  }
  return rate(ids.size(), watch.ms());
}

}  // namespace

bool measure_rates(LoadedModel& model, const SpeedOptions& options, size_t repeat, BenchSteps& steps,
                   RateSamples& out) {
  Engine engine(model);
  Rng rng(options.seed);
  const std::vector<int32_t> prompt = synthetic_ids(model.tokenizer(), options.prompt_tokens, rng);
  const std::vector<int32_t> answer = synthetic_ids(model.tokenizer(), options.decode_tokens, rng);
  for (size_t i = 0; i <= repeat; ++i) {
    if (steps.stopped()) return false;
    const auto prefill = prefill_once(engine, prompt, steps);
    if (!prefill) return false;
    steps.done();
    const auto decode = decode_once(engine, answer, steps);
    if (!decode) return false;
    steps.done();
    if (i == 0) continue;
    out.prefill.push_back(*prefill);
    out.decode.push_back(*decode);
  }
  return true;
}

}  // namespace cento
