#include "engine/sampler.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "base/error.h"
#include "base/text.h"

using namespace cento;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Logits of these probabilities.
std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

SamplerOptions options_of(double temperature, uint32_t top_k = 0, double top_p = 1, double min_p = 0) {
  SamplerOptions o;
  o.temperature = temperature;
  o.top_k = top_k;
  o.top_p = top_p;
  o.min_p = min_p;
  o.seed = 42;
  return o;
}

std::map<int32_t, size_t> counts(const SamplerOptions& options, const std::vector<float>& logits, size_t n,
                                 const std::vector<int32_t>& recent = {}) {
  Sampler sampler(options);
  std::map<int32_t, size_t> seen;
  for (size_t i = 0; i < n; ++i) ++seen[sampler.next(logits, recent)];
  return seen;
}

std::set<int32_t> reached(const SamplerOptions& options, const std::vector<float>& logits,
                          const std::vector<int32_t>& recent = {}) {
  std::set<int32_t> ids;
  for (const auto& [id, n] : counts(options, logits, 2000, recent)) ids.insert(id);
  return ids;
}

// Pearson's statistic of n draws against probabilities.
double chi_square(const std::map<int32_t, size_t>& seen, const std::vector<double>& probabilities, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < probabilities.size(); ++i) {
    const auto it = seen.find(static_cast<int32_t>(i));
    const double found = it == seen.end() ? 0 : static_cast<double>(it->second);
    const double expected = probabilities[i] * static_cast<double>(n);
    if (expected == 0) {
      CHECK(found == 0);
      continue;
    }
    sum += (found - expected) * (found - expected) / expected;
  }
  return sum;
}

const std::vector<double> kFour = {0.05, 0.5, 0.15, 0.3};

}  // namespace

TEST_CASE("sampler: temperature 0 takes the highest logit, the first of equals", "[engine]") {
  struct {
    std::vector<float> logits;
    int32_t best;
  } const rows[] = {
      {{1}, 0},          {{0, 3, 2}, 1},          {{2, 5, 5, 1}, 1},
      {{-3, -1, -2}, 1}, {{-kInf, -4, -kInf}, 1}, {{kNaN, 1, kNaN, 2}, 3},
      {{kInf, 1, 0}, 1},  // no number to compare with
  };
  for (const auto& row : rows) {
    CAPTURE(row.logits);
    CHECK(Sampler(options_of(0)).next(row.logits, {}) == row.best);
    CHECK(Sampler(options_of(0, 5, 0.5, 0.5)).next(row.logits, {}) == row.best);
  }
}

TEST_CASE("sampler: cuts leave what they say", "[engine]") {
  const std::vector<float> four = logits_of(kFour);
  using Set = std::set<int32_t>;
  struct {
    const char* what;
    SamplerOptions options;
    Set kept;
  } const rows[] = {
      {"nothing cut", options_of(1), {0, 1, 2, 3}},
      {"top-k 1", options_of(1, 1), {1}},
      {"top-k 1, hot", options_of(50, 1), {1}},
      {"top-k 3", options_of(1, 3), {1, 2, 3}},
      {"top-k beyond the vocabulary", options_of(1, 100), {0, 1, 2, 3}},
      {"top-p below the best", options_of(1, 0, 0.4), {1}},
      {"top-p inside the second", options_of(1, 0, 0.7), {1, 3}},
      {"top-p inside the third", options_of(1, 0, 0.9), {1, 2, 3}},
      {"top-p tiny keeps the best", options_of(1, 0, 1e-9), {1}},
      {"min-p 0.2 of the best", options_of(1, 0, 1, 0.2), {1, 2, 3}},
      {"min-p 0.5 of the best", options_of(1, 0, 1, 0.5), {1, 3}},
      {"min-p near 1", options_of(1, 0, 1, 0.99), {1}},
      // Of the two that top-k leaves the best has 5/8: top-p counts what is left.
      {"top-k before top-p", options_of(1, 2, 0.6), {1}},
      {"top-k, then more top-p", options_of(1, 2, 0.65), {1, 3}},
      // At temperature 2 weights are square roots: 0.32 0.71 0.39 0.55 of 1.96; the best has 0.36.
      {"temperature before top-p", options_of(2, 0, 0.45), {1, 3}},
      {"temperature before min-p", options_of(2, 0, 1, 0.5), {1, 2, 3}},
  };
  for (const auto& row : rows) {
    CAPTURE(row.what);
    CHECK(reached(row.options, four) == row.kept);
  }
}

TEST_CASE("sampler: equal seeds repeat, others differ", "[engine]") {
  const std::vector<float> flat(50, 1.0f);
  const auto run = [&](uint64_t seed) {
    SamplerOptions o = options_of(1);
    o.seed = seed;
    Sampler sampler(o);
    std::vector<int32_t> ids;
    for (int i = 0; i < 40; ++i) ids.push_back(sampler.next(flat, {}));
    return ids;
  };
  CHECK(run(1) == run(1));
  CHECK(run(1) != run(2));
  CHECK(run(0) != run(1));
}

TEST_CASE("sampler: draws have the probabilities that were asked for", "[engine]") {
  // Chi-square with k degrees of freedom is above k + 2 sqrt(k x) + 2 x with probability e^-x (Laurent and Massart
  // 2000, lemma 1); x = 14 is one in a million. The seed is fixed, so this either holds or does not.
  const auto limit = [](double k) { return k + 2 * std::sqrt(k * 14) + 2 * 14; };
  constexpr size_t kDraws = 40000;
  const std::vector<double> p = {0.02, 0.4, 0.08, 0.25, 0.05, 0.2};
  CHECK(chi_square(counts(options_of(1), logits_of(p), kDraws), p, kDraws) < limit(5));
  const auto scaled = [&](double temperature) {
    std::vector<double> q;
    double sum = 0;
    for (const double x : p) sum += q.emplace_back(std::pow(x, 1 / temperature));
    for (double& x : q) x /= sum;
    return q;
  };
  CHECK(chi_square(counts(options_of(0.5), logits_of(p), kDraws), scaled(0.5), kDraws) < limit(5));
  CHECK(chi_square(counts(options_of(3), logits_of(p), kDraws), scaled(3), kDraws) < limit(5));
  const std::vector<double> top_three = {0, 0.4 / 0.85, 0, 0.25 / 0.85, 0, 0.2 / 0.85};
  CHECK(chi_square(counts(options_of(1, 3), logits_of(p), kDraws), top_three, kDraws) < limit(2));
  CHECK(chi_square(counts(options_of(1, 0, 0.8), logits_of(p), kDraws), top_three, kDraws) < limit(2));
  CHECK(chi_square(counts(options_of(1, 0, 1, 0.4), logits_of(p), kDraws), top_three, kDraws) < limit(2));
  // The check itself: a distribution that is off by one part in twenty is found out.
  const std::vector<double> wrong = {0.02, 0.38, 0.08, 0.27, 0.05, 0.2};
  CHECK(chi_square(counts(options_of(1), logits_of(p), kDraws), wrong, kDraws) > limit(5));
}

TEST_CASE("sampler: the penalty makes recent tokens less likely, once each", "[engine]") {
  SamplerOptions o = options_of(0);
  o.repetition_penalty = 2;
  const auto next = [&](const std::vector<float>& logits, const std::vector<int32_t>& recent) {
    return Sampler(o).next(logits, recent);
  };
  CHECK(next({4, 3, 1}, {}) == 0);
  CHECK(next({4, 3, 1}, {0}) == 1);     // 2 3 1
  CHECK(next({4, 3, 1}, {0, 1}) == 0);  // 2 1.5 1
  CHECK(next({4, 3, 1.8f}, {0, 0, 0}) == 1);
  CHECK(next({4, 1.9f, 1}, {0, 0, 0}) == 0);  // 2, not 0.5
  CHECK(next({-1, -1.5f, -3}, {0}) == 1);     // a negative logit goes down as well: -2 -1.5 -3
  CHECK(next({-1, -2.5f, -3}, {0}) == 0);
  CHECK(next({4, 3, 1}, {-7, 99}) == 0);  // ids that are none
  std::vector<int32_t> old(256, 2);
  old.insert(old.begin(), 0);  // token 0 is 257 tokens back
  CHECK(next({4, 3, 1}, old) == 0);
  old.erase(old.end() - 1);  // 256 back
  CHECK(next({4, 3, 1}, old) == 1);
  o.repetition_penalty = 0.5;  // below 1: more likely
  CHECK(next({4, 3, 1}, {1}) == 1);
  // Before the cuts and the temperature.
  o = options_of(1, 1);
  o.repetition_penalty = 2;
  CHECK(reached(o, {4, 3, 1}, {0}) == std::set<int32_t>{1});
}

TEST_CASE("sampler: logits that are no numbers are never drawn, and none at all is an error", "[engine]") {
  CHECK(reached(options_of(1), {kNaN, 1, kInf, 0.5f, -kInf}) == std::set<int32_t>{1, 3});
  CHECK(reached(options_of(100), {kNaN, 1, -kInf}) == std::set<int32_t>{1});
  for (const std::vector<float>& none : {std::vector<float>{}, {kNaN}, {kInf, -kInf, kNaN}}) {
    for (const double temperature : {0.0, 1.0}) {
      try {
        Sampler(options_of(temperature)).next(none, {});
        FAIL("there was nothing to choose from");
      } catch (const Error& e) {
        CHECK(e.code() == Code::kInternal);
      }
    }
  }
}

TEST_CASE("sampler: extreme temperatures and logits end in a token", "[engine]") {
  const std::vector<float> logits = {10, 30, 20};
  for (const double temperature : {std::numeric_limits<double>::denorm_min(), 1e-308, 1e-30}) {
    CHECK(reached(options_of(temperature), logits) == std::set<int32_t>{1});
  }
  CHECK(reached(options_of(100), logits).size() == 3);
  const float most = std::numeric_limits<float>::max();
  CHECK(reached(options_of(1), {-most, most, 0}) == std::set<int32_t>{1});
  SamplerOptions o = options_of(1);
  o.repetition_penalty = 100;
  CHECK(reached(o, {-most, -1, -most}, {0, 2}) == std::set<int32_t>{1});
}

TEST_CASE("sampler: options out of range are refused by name", "[engine]") {
  constexpr double kNaN64 = std::numeric_limits<double>::quiet_NaN();
  struct {
    const char* named;
    double SamplerOptions::*option;
    std::vector<double> bad, good;
  } const rows[] = {
      {"temperature", &SamplerOptions::temperature, {-0.1, 100.5, kNaN64, HUGE_VAL}, {0, 0.7, 100}},
      {"top-p", &SamplerOptions::top_p, {0, -1, 1.01, kNaN64}, {1e-6, 0.9, 1}},
      {"min-p", &SamplerOptions::min_p, {-0.1, 1, kNaN64}, {0, 0.5}},
      {"repetition penalty", &SamplerOptions::repetition_penalty, {0, -1, 101, kNaN64}, {0.5, 1, 1.3, 100}},
  };
  for (const auto& row : rows) {
    for (const double value : row.good) {
      SamplerOptions o;
      o.*row.option = value;
      CAPTURE(row.named, value);
      CHECK_NOTHROW(Sampler(o));
    }
    for (const double value : row.bad) {
      SamplerOptions o;
      o.*row.option = value;
      CAPTURE(row.named, value);
      try {
        Sampler sampler(o);
        FAIL_CHECK("was taken");
      } catch (const Error& e) {
        CHECK(e.code() == Code::kUsage);
        CHECK(e.message().find(row.named) == 0);
      }
    }
  }
}

namespace {

struct Filtered {
  std::string shown;
  bool stopped;
};
Filtered filtered(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopFilter filter(stops);
  Filtered f{"", false};
  for (const std::string& piece : pieces) f.shown += filter.push(piece);
  f.shown += filter.finish();
  f.stopped = filter.stopped();
  return f;
}

// What a filter has to show, by the definition: the text before the first stop text that is complete, byte by byte.
Filtered by_definition(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (!stop.empty() && stop.size() <= end && text.compare(end - stop.size(), stop.size(), stop) == 0) {
        longest = std::max(longest, stop.size());
      }
    }
    if (longest > 0) return {text.substr(0, end - longest), true};
  }
  return {text, false};
}

}  // namespace

TEST_CASE("stop filter: shows what stands before the stop text", "[engine]") {
  struct {
    std::vector<std::string> stops, pieces;
    std::string shown;
    bool stopped;
  } const rows[] = {
      {{}, {"all", " of it"}, "all of it", false},
      {{""}, {"all"}, "all", false},
      {{"STOP"}, {"one STOP two"}, "one ", true},
      {{"STOP"}, {"one S", "TO", "P two", "three"}, "one ", true},
      {{"STOP"}, {"one S", "TO", "RE two"}, "one STORE two", false},
      {{"STOP"}, {"one STO"}, "one STO", false},  // what was held back comes at the end
      {{"STOP"}, {"STOP"}, "", true},
      {{"STOP"}, {"SSTOP"}, "S", true},
      {{"STOP"}, {"S", "STO", "STOP"}, "SSTO", true},
      {{"aab"}, {"a", "a", "a", "b"}, "a", true},
      {{"abab", "b"}, {"a", "b"}, "a", true},
      {{"xyz", "yz"}, {"axyz"}, "a", true},     // complete at once: the longer one
      {{"abcd", "bc"}, {"xabcd"}, "xa", true},  // complete first
      {{"abcd", "bc"}, {"x", "ab", "cd"}, "xa", true},
      {{"\n\n", "User:"}, {"yes\n", "\nno"}, "yes", true},
      {{"\n\n", "User:"}, {"yes\n", "User", ":"}, "yes\n", true},
      {{"…"}, {"wait", "…", "more"}, "wait", true},
      {{"é"}, {"caf", "è", "é"}, "cafè", true},  // characters that share their first byte
      {{"日本"}, {"今日", "は", "日", "本"}, "今日は", true},
  };
  for (const auto& row : rows) {
    CAPTURE(row.stops, row.pieces);
    const Filtered f = filtered(row.stops, row.pieces);
    CHECK(f.shown == row.shown);
    CHECK(f.stopped == row.stopped);
  }
}

TEST_CASE("stop filter: nothing of a stop text gets out before it is known to be none", "[engine]") {
  StopFilter filter({"<|end|>"});
  CHECK(filter.push("hello <") == "hello ");
  CHECK(filter.push("|en") == "");
  CHECK(filter.push("ter <|e") == "<|enter ");
  CHECK(filter.push("nd|> secret") == "");
  CHECK(filter.stopped());
  CHECK(filter.push("more") == "");
  CHECK(filter.finish() == "");
}

TEST_CASE("stop filter: however the text is cut, the same is shown", "[engine]") {
  const std::vector<std::string> letters = {"a", "b", "é", "è", "…", " "};
  Rng rng(5);
  size_t n_stopped = 0;
  for (int round = 0; round < 3000; ++round) {
    const auto random_text = [&](size_t n, std::vector<std::string>* pieces) {
      std::string text, piece;
      for (size_t i = 0; i < n; ++i) {
        piece += letters[rng.below(letters.size())];
        if (pieces != nullptr && rng.below(3) == 0) {
          pieces->push_back(piece);
          text += piece;
          piece.clear();
        }
      }
      if (pieces != nullptr) pieces->push_back(piece);
      return text + piece;
    };
    std::vector<std::string> stops, pieces;
    for (uint64_t i = 0, n = rng.below(4); i < n; ++i) stops.push_back(random_text(1 + rng.below(5), nullptr));
    const std::string text = random_text(rng.below(30), &pieces);
    CAPTURE(round, stops, pieces);
    const Filtered expected = by_definition(stops, text);
    StopFilter filter(stops);
    std::string shown;
    for (const std::string& piece : pieces) {
      const std::string out = filter.push(piece);
      REQUIRE(is_valid_utf8(out));
      shown += out;
      // Never more than belongs there.
      REQUIRE(expected.shown.compare(0, shown.size(), shown) == 0);
    }
    shown += filter.finish();
    REQUIRE(shown == expected.shown);
    REQUIRE(filter.stopped() == expected.stopped);
    n_stopped += expected.stopped ? 1 : 0;
  }
  CHECK(n_stopped > 500);
  CHECK(n_stopped < 2500);
}
