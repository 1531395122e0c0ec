#include "engine/residual.h"

#include <cmath>

#include "engine/engine_test.h"
#include "support/kl64.h"

using namespace cento;
using namespace cento::test;

namespace {

// Five tokens of prefix, chunks of 3 and 2 rows, one fresh between them, a question.
PromptPlan plan_for_scores() {
  PromptPlan plan;
  const auto add = [&plan](SegmentFrom from, size_t n) {
    Segment s;
    s.from = from;
    s.ids.assign(n, 1);
    plan.segments.push_back(std::move(s));
  };
  add(SegmentFrom::kExact, 5);
  add(SegmentFrom::kChunk, 3);
  add(SegmentFrom::kFresh, 4);
  add(SegmentFrom::kChunk, 2);
  add(SegmentFrom::kFresh, 6);
  return plan;
}

PipelineReport report_for_scores() {
  PipelineReport report;
  report.scores = {0.1f, 0.2f, 0.1f, 0.0f, 0.1f};  // 0.5 in all
  report.recomputed = {6};                         // the second row of the first chunk
  report.logits = {1, 2, 3};
  report.probe_logits = {1, 3, 2};
  report.moved = 0.25;
  return report;
}

}  // namespace

TEST_CASE("residual: shares of the question's attention, and how far the answer has moved", "[engine]") {
  const auto residual = residual_of(plan_for_scores(), report_for_scores());
  REQUIRE(residual);
  // float scores: 7 digits.
  CHECK(residual->unselected == Approx(0.6).epsilon(1e-6));
  CHECK(residual->chunk_mass == Approx(0.4).epsilon(1e-6));
  const double entropy = -(3 * 0.2 * std::log(0.2) + 0.4 * std::log(0.4));
  CHECK(residual->entropy == Approx(entropy / std::log(5)).epsilon(1e-6));
  CHECK(residual->moved == 0.25);
  // p = softmax(1, 2, 3), q the same with the last two exchanged: KL = p2 (2 - 3) + p3 (3 - 2) = p3 - p2.
  const double z = 1 + std::exp(1) + std::exp(2);
  CHECK(residual->shift == Approx((std::exp(2) - std::exp(1)) / z).epsilon(1e-9));
  CHECK(residual->open == Approx(1 - std::exp(2) / z).epsilon(1e-9));
  const auto x = residual->features();
  CHECK(x[3] == Approx(std::log(0.25)));
  CHECK(x[4] == Approx(std::log(residual->shift)));
}

TEST_CASE("residual: none without scores, without the probe's logits, and where a figure is not finite", "[engine]") {
  PipelineReport report = report_for_scores();
  report.scores.clear();
  CHECK_FALSE(residual_of(plan_for_scores(), report));
  report = report_for_scores();
  report.probe_logits.clear();
  CHECK_FALSE(residual_of(plan_for_scores(), report));
  report = report_for_scores();
  report.probe_logits[0] = NAN;
  CHECK_FALSE(residual_of(plan_for_scores(), report));
  report = report_for_scores();
  report.scores.assign(5, 0.0f);
  CHECK_FALSE(residual_of(plan_for_scores(), report));
}

TEST_CASE("residual: the probe's logits are plain reuse's, and asking for them changes nothing", "[engine]") {
  const std::string architecture = GENERATE("llama", "gemma3");
  const ModelFile file(tiny_spec(architecture, DType::kF32));
  LoadedEngine loaded(file.path(), best_ops(), Precision::kF32);
  Engine& engine = loaded.engine;
  const size_t vocab = loaded.model.config().vocab;
  const Ids prefix = random_ids(5, vocab, 1), a = random_ids(20, vocab, 2), b = random_ids(30, vocab, 3),
            question = random_ids(8, vocab, 4);
  const auto plan = [&] {
    PromptPlan p = plan_of(fresh(prefix));
    for (const Ids& c : {a, b})
      p.segments.push_back(stored(SegmentFrom::kChunk, c, as_reader(computed_kv(engine, prefix, c))));
    p.segments.push_back(fresh(question));
    return p;
  };
  PipelineOptions options = with(PolicyKind::kQuery);
  options.blend.ratio = 0.3;
  const PipelineReport plain = prefill_anew(engine, plan(), options);
  CHECK(plain.probe_logits.empty());
  CHECK(plain.moved == 0);
  options.want_residual = true;
  const PipelineReport asked = prefill_anew(engine, plan(), options);
  CHECK(asked.logits == plain.logits);
  CHECK(asked.recomputed == plain.recomputed);
  CHECK(asked.probe_logits == prefill_anew(engine, plan(), with(PolicyKind::kNone)).logits);

  // Every row recomputed, behind KV of its own place: nothing moves. Behind another, something does.
  CHECK(asked.moved > 1e-6);
  PromptPlan own = plan_of(fresh(prefix));
  own.segments.push_back(stored(SegmentFrom::kChunk, a, as_reader(computed_kv(engine, prefix, a))));
  own.segments.push_back(fresh(question));
  options.blend.ratio = 1.0;
  CHECK(prefill_anew(engine, std::move(own), options).moved == 0);

  // Half of the layers asked: no logits to compare.
  options.blend.probe_depth = 0.5;
  CHECK(prefill_anew(engine, plan(), options).probe_logits.empty());
}
