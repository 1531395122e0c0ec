#include "eval/trial.h"

#include <algorithm>
#include <cmath>

#include "engine/engine_test.h"
#include "support/kl64.h"

namespace cento::test {
namespace {

TrialSetting setting(PolicyKind policy, bool stand_in = true, std::optional<double> ratio = {}) {
  TrialSetting s;
  s.name = policy_name(policy);
  s.stand_in = stand_in;
  s.blend.policy = policy;
  s.blend.ratio = ratio;
  return s;
}
TrialSetting setting(TrialKind kind) {
  TrialSetting s = setting(PolicyKind::kNone);
  s.kind = kind;
  return s;
}

// A model whose attention matters, and a prompt of three chunks.
struct Bench {
  Bench() : engine(path(), ref_ops(), Precision::kF32) {
    const size_t vocab = engine.model.config().vocab;
    prompt.prefix = random_ids(9, vocab, 11);
    prompt.chunks = {random_ids(23, vocab, 12), random_ids(37, vocab, 13), random_ids(14, vocab, 14)};
    prompt.contexts = {random_ids(31, vocab, 16), random_ids(17, vocab, 17), {}};
    prompt.question = random_ids(10, vocab, 15);
    options.answer_tokens = 6;
    options.own_answer_tokens = 9;
  }
  static std::string path() {
    static const ModelFile file([] {
      TinyModelSpec spec = tiny_spec("llama", DType::kF32);
      spec.gain = 2;
      return spec;
    }());
    return file.path();
  }
  size_t vocab() const { return engine.model.config().vocab; }
  size_t n_chunk_rows() const { return 23 + 37 + 14; }
  Ids whole() const {
    return joined(prompt.prefix, prompt.chunks[0], prompt.chunks[1], prompt.chunks[2], prompt.question);
  }
  // Plain reuse, put together by hand.
  PromptPlan reuse(bool stand_in) {
    PromptPlan plan = plan_of(fresh(prompt.prefix));
    for (size_t i = 0; i < prompt.chunks.size(); ++i) {
      const Ids context = stand_in ? joined(prompt.prefix, prompt.contexts[i]) : prompt.prefix;
      plan.segments.push_back(stored(SegmentFrom::kChunk, prompt.chunks[i],
                                     as_reader(computed_kv(engine.engine, context, prompt.chunks[i]))));
    }
    plan.segments.push_back(fresh(prompt.question));
    return plan;
  }
  // Logits of the plan's last row and of `answer` behind it. [answer + 1, V]
  std::vector<float> forced(PromptPlan plan, const Ids& answer, PolicyKind policy = PolicyKind::kNone) {
    std::vector<float> logits = prefill_anew(engine.engine, std::move(plan), with(policy)).logits;
    if (answer.empty()) return logits;
    const std::vector<float> rest = engine.engine.extend(answer, true);
    logits.insert(logits.end(), rest.begin(), rest.end());
    return logits;
  }
  // What greedy decoding of the plan says, up to the token that ends the turn.
  Ids greedy(PromptPlan plan, size_t n, PolicyKind policy = PolicyKind::kNone) {
    std::vector<float> logits = prefill_anew(engine.engine, std::move(plan), with(policy)).logits;
    const Ids& ends = engine.model.tokenizer().end_of_turn;
    Ids ids;
    while (ids.size() < n) {
      const auto best = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
      if (std::find(ends.begin(), ends.end(), best) != ends.end()) break;
      ids.push_back(best);
      logits = engine.engine.extend(Ids{best});
    }
    return ids;
  }

  LoadedEngine engine;
  TrialPrompt prompt;
  TrialOptions options;
};

bool all_zero(const std::vector<double>& x) {
  return !x.empty() && std::all_of(x.begin(), x.end(), [](double v) { return v == 0; });
}

void check_exact(const TrialOutcome& out, const TrialReference& full) {
  CHECK(out.kl.size() == full.rows);
  CHECK(all_zero(out.kl));
  CHECK(std::all_of(out.same_top.begin(), out.same_top.end(), [](char c) { return c == 1; }));
  CHECK(out.nll == out.nll_full);
  CHECK(out.answer == full.own_answer);
}

void check_same(const TrialOutcome& a, const TrialOutcome& b) {
  CHECK((a.kl == b.kl && a.same_top == b.same_top && a.nll == b.nll && a.nll_full == b.nll_full));
  CHECK((a.answer == b.answer && a.logits == b.logits && a.attention_shift == b.attention_shift));
  CHECK((a.charged == b.charged && a.n_tokens == b.n_tokens && a.n_recomputed == b.n_recomputed));
}

TEST_CASE("trial: full prefill, and blending with every row recomputed, have distance 0 and the same answer",
          "[eval]") {
  Bench b;
  Trial trial(b.engine.engine, b.prompt, b.options);
  REQUIRE(trial.prepare(nullptr));
  const TrialReference& full = trial.reference();
  CHECK(full.own_answer == b.greedy(plan_of(fresh(b.whole())), 9));
  REQUIRE(full.rows == full.answer.size() + 1);
  const TrialOutcome same = *trial.run(setting(TrialKind::kFull));
  check_exact(same, full);
  CHECK((same.charged == 1 && same.n_recomputed == 0 && same.n_tokens == b.whole().size()));
  for (const bool stand_in : {true, false}) {
    const TrialOutcome all = *trial.run(setting(PolicyKind::kAll, stand_in));
    check_exact(all, full);
    CHECK(all.n_recomputed == b.n_chunk_rows() - (stand_in ? 0 : 23));  // behind the prefix the first chunk is exact
    check_exact(*trial.run(setting(PolicyKind::kOracle, stand_in, 1.0)), full);
    check_exact(*trial.run(setting(PolicyKind::kQuery, stand_in, 1.0)), full);
  }
}

TEST_CASE("trial: plain reuse has the distance, the likelihood and the answer of a plan put together by hand",
          "[eval]") {
  Bench b;
  b.options.want_logits = true;
  Trial trial(b.engine.engine, b.prompt, b.options);
  REQUIRE(trial.prepare(nullptr));
  const TrialReference full = trial.reference();
  REQUIRE_FALSE(full.answer.empty());
  for (const bool stand_in : {true, false}) {
    CAPTURE(stand_in);
    const TrialOutcome out = *trial.run(setting(PolicyKind::kNone, stand_in));
    const std::vector<float> full_logits = b.forced(plan_of(fresh(b.whole())), full.answer);
    CHECK(same_bits(full_logits, full.logits));
    const std::vector<float> logits = b.forced(b.reuse(stand_in), full.answer);
    CHECK(same_bits(logits, out.logits));
    REQUIRE(out.kl.size() == full.rows);
    double nll = 0, nll_full = 0;
    for (size_t row = 0; row < full.rows; ++row) {
      const auto of = [&](const std::vector<float>& x) { return std::span(x).subspan(row * b.vocab(), b.vocab()); };
      // Each logarithm is off by a few 2^-52 of logits below 100, and the weights add up to 1.
      CHECK(out.kl[row] == Approx(kl64(of(full_logits), of(logits))).margin(1e-12));
      CHECK((out.same_top[row] == 1) == (argmax(of(full_logits)) == argmax(of(logits))));
      if (row == full.answer.size()) continue;
      nll += negative_log_likelihood(of(logits), static_cast<size_t>(full.answer[row]));
      nll_full += negative_log_likelihood(of(full_logits), static_cast<size_t>(full.answer[row]));
    }
    CHECK(*std::max_element(out.kl.begin(), out.kl.end()) > 1e-3);  // else nothing was told apart
    CHECK(out.nll == Approx(nll / static_cast<double>(full.answer.size())));
    CHECK(out.nll_full == Approx(nll_full / static_cast<double>(full.answer.size())));
    CHECK(out.answer == b.greedy(b.reuse(stand_in), b.options.own_answer_tokens));
    CHECK(out.n_recomputed == 0);
    CHECK(out.n_tokens == b.whole().size());
  }
}

TEST_CASE("trial: own answers are those of greedy decoding however many tokens are teacher-forced", "[eval]") {
  for (const size_t forced : {1, 4, 12}) {
    for (const size_t own : {0, 1, 4, 12}) {
      for (const bool given : {false, true}) {
        CAPTURE(forced, own, given);
        Bench b;
        b.options.answer_tokens = forced;
        b.options.own_answer_tokens = own;
        if (given) {
          b.prompt.answer = b.greedy(plan_of(fresh(b.whole())), 3);
          b.prompt.answer->push_back(7);
        }
        Trial trial(b.engine.engine, b.prompt, b.options);
        REQUIRE(trial.prepare(nullptr));
        const size_t n = given ? b.prompt.answer->size() : b.greedy(plan_of(fresh(b.whole())), forced).size();
        CHECK(trial.reference().rows == n + 1);
        if (given) CHECK(trial.reference().answer == *b.prompt.answer);
        CHECK(trial.run(setting(TrialKind::kFull))->answer == b.greedy(plan_of(fresh(b.whole())), own));
        CHECK(trial.run(setting(PolicyKind::kNone))->answer == b.greedy(b.reuse(true), own));
        CHECK(trial.run(setting(TrialKind::kNoContext))->answer ==
              b.greedy(plan_of(fresh(b.prompt.prefix), fresh(b.prompt.question)), own));
      }
    }
  }
}

TEST_CASE("trial: a given answer is teacher-forced, and an empty one leaves the prompt's last row", "[eval]") {
  Bench b;
  b.options.want_logits = true;
  b.prompt.answer = random_ids(5, b.vocab(), 18);
  {
    Trial trial(b.engine.engine, b.prompt, b.options);
    REQUIRE(trial.prepare(nullptr));
    PipelineOptions rows;
    rows.logits_rows = 6;
    const Ids all = joined(b.whole(), *b.prompt.answer);
    CHECK(same_bits(trial.reference().logits, prefill_anew(b.engine.engine, plan_of(fresh(all)), rows).logits));
  }
  b.prompt.answer = Ids{};
  Trial trial(b.engine.engine, b.prompt, b.options);
  REQUIRE(trial.prepare(nullptr));
  const TrialOutcome out = *trial.run(setting(PolicyKind::kNone));
  CHECK((out.kl.size() == 1 && out.logits.size() == b.vocab() && out.nll == 0 && out.nll_full == 0));
  CHECK(out.answer == b.greedy(b.reuse(true), b.options.own_answer_tokens));
}

TEST_CASE("trial: a reference that is given back saves full prefill and changes nothing", "[eval]") {
  Bench b;
  b.options.want_logits = true;
  const std::vector<TrialSetting> settings = {setting(TrialKind::kNoContext), setting(PolicyKind::kNone),
                                              setting(PolicyKind::kQuery, true, 0.2),
                                              setting(PolicyKind::kOracle, false, 0.2)};
  TrialReference kept;
  std::vector<TrialOutcome> before;
  {
    Trial trial(b.engine.engine, b.prompt, b.options);
    REQUIRE(trial.prepare(nullptr));
    kept = trial.reference();
    for (const TrialSetting& s : settings) before.push_back(*trial.run(s));
  }
  for (size_t i = 0; i < settings.size(); ++i) {
    CAPTURE(settings[i].name);
    b.engine.engine.truncate(0);  // as a program that has just started
    size_t n_polls = 0;
    b.options.stop = [&] {
      ++n_polls;
      return false;
    };
    Trial trial(b.engine.engine, b.prompt, b.options);
    REQUIRE(trial.prepare(&kept));
    CHECK(n_polls == 0);
    check_same(*trial.run(settings[i]), before[i]);
  }
}

TEST_CASE("trial: attention moves not at all where every row is recomputed, and in all layers but the first in reuse",
          "[eval]") {
  Bench b;
  b.options.want_attention = true;
  Trial trial(b.engine.engine, b.prompt, b.options);
  REQUIRE(trial.prepare(nullptr));
  const TrialReference kept = trial.reference();
  const size_t n_layers = b.engine.model.layers().size();
  for (const TrialSetting& s : {setting(TrialKind::kFull), setting(PolicyKind::kAll),
                                setting(PolicyKind::kQuery, true, 1.0), setting(PolicyKind::kOracle, true, 1.0)}) {
    const std::vector<double> shift = trial.run(s)->attention_shift;
    CHECK(shift.size() == n_layers);
    CHECK(all_zero(shift));
  }
  for (const PolicyKind policy : {PolicyKind::kNone, PolicyKind::kQuery, PolicyKind::kDevKv}) {
    const std::vector<double> shift = trial.run(setting(policy, true, 0.1))->attention_shift;
    REQUIRE(shift.size() == n_layers);
    for (size_t l = 1; l < n_layers; ++l) CHECK((shift[l] > 1e-6 && shift[l] < 2));
  }
  CHECK(trial.run(setting(TrialKind::kNoContext))->attention_shift.empty());
  Trial again(b.engine.engine, b.prompt, b.options);  // attention is no part of a kept reference
  REQUIRE(again.prepare(&kept));
  CHECK(all_zero(again.run(setting(PolicyKind::kAll))->attention_shift));
}

TEST_CASE("trial: what the question alone costs does not depend on what ran before", "[eval]") {
  Bench b;
  Trial trial(b.engine.engine, b.prompt, b.options);
  REQUIRE(trial.prepare(nullptr));
  const TrialOutcome after_full = *trial.run(setting(TrialKind::kNoContext));
  b.engine.engine.truncate(0);
  check_same(*trial.run(setting(TrialKind::kNoContext)), after_full);
  CHECK(after_full.n_tokens == b.prompt.prefix.size() + b.prompt.question.size());
}

TEST_CASE("trial: stopped at any point it gives nothing, and engine and trial go on", "[eval]") {
  Bench b;
  b.options.want_attention = true;
  size_t polls = 0, stop_at = SIZE_MAX;
  b.options.stop = [&] { return polls++ >= stop_at; };
  const auto usable = [&] {
    const PipelineReport report = prefill_anew(b.engine.engine, plan_of(fresh(b.whole())));
    return report.logits;
  };
  const std::vector<float> expected = usable();

  for (stop_at = 0;; ++stop_at) {
    polls = 0;
    CAPTURE(stop_at);
    Trial trial(b.engine.engine, b.prompt, b.options);
    if (trial.prepare(nullptr)) break;
    CHECK(same_bits(usable(), expected));
  }
  CHECK(stop_at > 3);

  for (const TrialSetting& s : {setting(PolicyKind::kQuery, true, 0.2), setting(PolicyKind::kOracle, false, 0.2)}) {
    stop_at = SIZE_MAX;
    const TrialOutcome whole = [&] {
      Trial trial(b.engine.engine, b.prompt, b.options);
      REQUIRE(trial.prepare(nullptr));
      return *trial.run(s);
    }();
    for (size_t n = 0;; ++n) {
      CAPTURE(s.name, n);
      stop_at = SIZE_MAX;
      Trial trial(b.engine.engine, b.prompt, b.options);
      REQUIRE(trial.prepare(nullptr));
      polls = 0;
      stop_at = n;
      const bool done = trial.run(s).has_value();
      stop_at = SIZE_MAX;
      if (done) {
        CHECK(n > 5);
        break;
      }
      if (n % 4 == 0) CHECK(same_bits(usable(), expected));
      if (n % 4 == 1) check_same(*trial.run(s), whole);
    }
  }
}

TEST_CASE("trial: a prompt beyond the model's context is an error that leaves the engine usable", "[eval]") {
  Bench b;
  b.options.want_attention = true;
  const std::vector<float> expected = prefill_anew(b.engine.engine, plan_of(fresh(b.whole()))).logits;
  TrialPrompt longer = b.prompt;
  longer.question = random_ids(b.engine.model.config().context_max, b.vocab(), 19);
  {
    Trial trial(b.engine.engine, longer, b.options);
    CHECK_THROWS_AS(trial.prepare(nullptr), Error);
  }
  CHECK(same_bits(prefill_anew(b.engine.engine, plan_of(fresh(b.whole()))).logits, expected));
}

TEST_CASE("trial: the distance of stored rows from full prefill's is 0 where nothing in front of them differs",
          "[eval]") {
  Bench b;
  Trial trial(b.engine.engine, b.prompt, b.options);
  REQUIRE(trial.prepare(nullptr));
  const size_t n_layers = b.engine.model.layers().size();
  for (const bool stand_in : {true, false}) {
    const auto distance = trial.layer_deviation(stand_in);
    REQUIRE(distance.size() == n_layers);
    for (size_t layer = 0; layer < n_layers; ++layer) {
      REQUIRE(distance[layer].size() == b.n_chunk_rows());
      double sum = 0;
      for (size_t row = 0; row < b.n_chunk_rows(); ++row) {
        CAPTURE(stand_in, layer, row);
        const bool same = layer == 0 || (!stand_in && row < 23);  // layer 0 sees the token alone
        CHECK((distance[layer][row] == 0) == same);
        sum += static_cast<double>(distance[layer][row]);
      }
      // K and V each over their mean: 2 a row on average, but for the rounding of floats of size about 1.
      if (layer > 0) CHECK(sum / static_cast<double>(b.n_chunk_rows()) == Approx(2).epsilon(1e-6));
    }
  }
}

TEST_CASE("trial: the deviation's spread is told of plain reuse alone, without a first chunk that is exact", "[eval]") {
  Bench b;
  b.options.want_deviation = true;
  b.options.want_logits = true;
  Trial trial(b.engine.engine, b.prompt, b.options);
  REQUIRE(trial.prepare(nullptr));
  for (const bool stand_in : {true, false}) {
    CAPTURE(stand_in);
    const auto deviation = trial.run(setting(PolicyKind::kNone, stand_in))->deviation;
    REQUIRE(deviation);
    const DeviationProfile expected = deviation_profile(trial.layer_deviation(stand_in), stand_in ? 0 : 23);
    CHECK(deviation->top_share == expected.top_share);
    CHECK(deviation->next_layer.size() + 1 == b.engine.model.layers().size());
  }
  TrialSetting exact_first = setting(PolicyKind::kNone);
  exact_first.exact_first = true;
  for (const TrialSetting& s :
       {setting(TrialKind::kFull), setting(TrialKind::kNoContext), exact_first, setting(PolicyKind::kQuery, true, 0.2)})
    CHECK_FALSE(trial.run(s)->deviation);
  const TrialOutcome measured = *trial.run(setting(PolicyKind::kNone));
  b.options.want_deviation = false;
  const TrialOutcome plain = *trial.run(setting(PolicyKind::kNone));
  CHECK_FALSE(plain.deviation);
  check_same(measured, plain);
}

}  // namespace
}  // namespace cento::test
