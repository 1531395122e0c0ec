#include "eval/calibration.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/rng.h"
#include "blend/stand_in.h"
#include "engine/engine_test.h"
#include "eval/calibration_text.h"

using namespace cento;
using namespace cento::test;

namespace {

// With room for the prompts, which have many tokens in a tiny vocabulary.
TinyModelSpec long_spec() {
  TinyModelSpec spec = tiny_spec("llama", DType::kQ8_0);
  spec.context = 16384;
  return spec;
}

// Prompts whose shift tells how bad they are: KL above the limit with a chance that grows with log shift.
std::vector<GuardSample> samples(size_t n, double noise, uint64_t seed) {
  Rng rng(seed);
  std::vector<GuardSample> out;
  for (size_t i = 0; i < n; ++i) {
    GuardSample s;
    s.prompt = i / 2;
    const double log_shift = -6 + 5 * rng.uniform();
    s.residual = {rng.uniform(),       rng.uniform(), rng.uniform(), 0.1 + 0.01 * rng.uniform(),
                  std::exp(log_shift), rng.uniform()};
    s.bad = log_shift + noise * (rng.uniform() - 0.5) > -3.5;
    out.push_back(s);
  }
  return out;
}

}  // namespace

TEST_CASE("guard: fitted where a feature tells, with a limit that keeps false alarms low", "[eval]") {
  const auto fitted = fit_guard(samples(120, 1, 1));
  REQUIRE(fitted);
  REQUIRE(fitted->guard);
  CHECK(fitted->quality.n == 120);
  CHECK(fitted->quality.auc > 0.9);
  CHECK(fitted->quality.false_alarms <= kFalseAlarmsMax);
  CHECK(fitted->quality.found > 0.5);
  // On samples it has not seen.
  size_t right = 0, n = 0;
  for (const GuardSample& s : samples(200, 1, 2)) {
    right += (fitted->guard->probability(s.residual) > fitted->guard->limit) == s.bad ? 1 : 0;
    ++n;
  }
  CHECK(static_cast<double>(right) / static_cast<double>(n) > 0.75);
  CHECK(fitted->guard->weights[4] > 0);
}

TEST_CASE("guard: none where nothing tells, nothing said where either kind is rare", "[eval]") {
  std::vector<GuardSample> blind = samples(120, 1, 3);
  Rng rng(9);
  for (GuardSample& s : blind) s.bad = rng.uniform() < 0.3;
  const auto fitted = fit_guard(blind);
  REQUIRE(fitted);
  CHECK_FALSE(fitted->guard);
  CHECK(fitted->quality.auc < kGuardAucMin);

  std::vector<GuardSample> rare = samples(60, 1, 4);
  for (GuardSample& s : rare) s.bad = false;
  for (size_t i = 0; i + 1 < kGuardSamplesMin; ++i) rare[i].bad = true;
  CHECK_FALSE(fit_guard(rare));
  for (GuardSample& s : rare) s.bad = !s.bad;
  CHECK_FALSE(fit_guard(rare));
  CHECK_FALSE(fit_guard({}));
}

TEST_CASE("calibration: a repair is taken only where it is surely better and harms no prompt", "[eval]") {
  std::vector<double> none, shift;
  for (int i = 0; i < 12; ++i) {
    none.push_back(0.03 + 0.001 * i);
    shift.push_back(none.back() - 0.008 - 0.0002 * i);
  }
  CHECK(choose_repair(none, shift) == Repair::kShift);
  CHECK(choose_repair(shift, none) == Repair::kNone);
  CHECK(choose_repair(none, none) == Repair::kNone);
  // Better on average, but of one prompt it makes something else.
  std::vector<double> one_harmed = shift;
  one_harmed[3] = 0.06;
  CHECK(choose_repair(none, one_harmed) == Repair::kNone);
  // Better on average by chance.
  std::vector<double> mixed = none;
  for (size_t i = 0; i < mixed.size(); ++i) mixed[i] += i % 2 == 0 ? -0.006 : 0.005;
  CHECK(choose_repair(none, mixed) == Repair::kNone);
  CHECK(choose_repair({}, {}) == Repair::kNone);
}

TEST_CASE("calibration: prompts hold the passages of the answer once, and stand behind none of their own", "[eval]") {
  const ModelFile file(long_spec());
  LoadedEngine loaded(file.path(), best_ops(), Precision::kFast);
  const std::vector<TrialPrompt> prompts = calibration_prompts(loaded.model, 1);
  size_t n_questions = 0;
  for (const CalibrationWorld& world : calibration_worlds()) {
    n_questions += world.questions.size();
    for (const CalibrationQuestion& q : world.questions)
      for (const size_t gold : q.gold) REQUIRE(gold < world.passages.size());
  }
  REQUIRE(prompts.size() == n_questions);
  for (const TrialPrompt& prompt : prompts) {
    CHECK(prompt.chunks.size() == 8);
    CHECK(std::set<Ids>(prompt.chunks.begin(), prompt.chunks.end()).size() == 8);
    for (size_t i = 0; i < prompt.chunks.size(); ++i) {
      CHECK(prompt.contexts[i].size() >= kStandInTokens);
      const auto at = std::search(prompt.contexts[i].begin(), prompt.contexts[i].end(), prompt.chunks[i].begin(),
                                  prompt.chunks[i].end());
      CHECK(at == prompt.contexts[i].end());
    }
  }
  // The same seed, the same prompts; another, others.
  CHECK(calibration_prompts(loaded.model, 1)[3].chunks == prompts[3].chunks);
  CHECK(calibration_prompts(loaded.model, 2)[3].chunks != prompts[3].chunks);
}

TEST_CASE("calibration: the record holds the smallest ratio that keeps the bar", "[eval]") {
  const ModelFile file(long_spec());
  LoadedEngine loaded(file.path(), best_ops(), Precision::kFast);
  size_t last = 0, total_trials = 0;
  CalibrationHooks hooks;
  hooks.progress = [&](size_t done, size_t total) {
    last = done;
    total_trials = total;
  };
  const Calibration c = calibrate(loaded.engine, hooks);
  CHECK_FALSE(c.stopped);
  CHECK((total_trials > 0 && last == total_trials));
  CHECK(c.record.n_prompts == 12);
  // Rows in order: none, then the ratios from the smallest on. The first that keeps the bar is the one recorded.
  REQUIRE(c.rows.size() > 6);
  const auto chosen = std::find_if(c.rows.begin() + 1, c.rows.begin() + 6,
                                   [](const CalibrationRow& row) { return row.kl <= kCalibrationKl; });
  REQUIRE(chosen != c.rows.begin() + 6);  // a tiny model hardly listens to what stands far in front
  CHECK(chosen->setting.find(std::to_string(c.record.ratio).substr(0, 4)) != std::string::npos);
  CHECK(c.record.kl == chosen->kl);
  CHECK(c.record.kl_worst == chosen->kl_worst);
  for (const CalibrationRow& row : c.rows) {
    CHECK(row.kl_worst >= row.kl);
    CHECK((row.charged > 0 && row.charged < 1));
  }
}

TEST_CASE("calibration: stops where it is told to, and then records nothing", "[eval]") {
  const ModelFile file(long_spec());
  LoadedEngine loaded(file.path(), best_ops(), Precision::kFast);
  size_t trials = 0;
  CalibrationHooks hooks;
  hooks.progress = [&](size_t, size_t) { ++trials; };
  hooks.stop = [&] { return trials >= 3; };
  const Calibration stopped = calibrate(loaded.engine, hooks);
  CHECK(stopped.stopped);
  CHECK(stopped.rows.empty());
  CHECK(trials < 5);
}
