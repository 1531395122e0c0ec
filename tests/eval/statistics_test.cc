#include "eval/statistics.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "base/rng.h"

namespace cento {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNaN = std::nan("");

// KL of one policy and of plain reuse on eight items: made up, in the range of real ones.
const std::vector<double> kPolicy = {0.12, 0.03, 0.45, 0.08, 0.2, 0.02, 0.31, 0.07};
const std::vector<double> kFloor = {0.30, 0.05, 0.40, 0.20, 0.5, 0.04, 0.35, 0.16};

// The figures below were computed in another language from the same numbers. Sums of at most ten such numbers, their
// quotients and one interpolation are within 1e-14 of each other whatever the order of summation.
Approx near(double value) { return Approx(value).epsilon(0).margin(1e-13); }

TEST_CASE("statistics: mean and percentiles by hand", "[eval]") {
  CHECK(mean(std::vector<double>{1, 2, 6}) == 3);
  CHECK(std::isnan(mean({})));
  // Type 7: index p (n - 1). Of 10 20 30 40: p = .95 -> 2.85 -> 30 + .85 * 10 = 38.5.
  const std::vector<double> v = {40, 10, 30, 20};
  CHECK(percentile(v, 0) == 10);
  CHECK(percentile(v, 0.5) == 25);
  CHECK(percentile(v, 0.95) == Approx(38.5).epsilon(1e-15));
  CHECK(percentile(v, 1) == 40);
  CHECK(percentile(v, -1) == 10);
  CHECK(percentile(v, 2) == 40);
  CHECK(percentile(std::vector<double>{7}, 0.3) == 7);
  CHECK(std::isnan(percentile({}, 0.5)));
  CHECK(std::isnan(percentile(std::vector<double>{1, kNaN, 3}, 0)));
  CHECK(percentile(std::vector<double>{1, kInf, kInf}, 0.75) == kInf);  // not infinity minus infinity
  CHECK(percentile(std::vector<double>{1, 2, kInf}, 0.5) == 2);
}

// Rng is SplitMix64 with rejection; quant is type 7 as above:
//   r = Rng(7); m = []; g = []
//   for _ in range(1000):
//     s = [r.below(8) for _ in range(8)]
//     m.append(sum(v[i] for i in s) / 8); g.append(1 - sum(v[i] for i in s) / sum(f[i] for i in s))
//   print(sum(v) / 8, quant(m, .025), quant(m, .975)); print(1 - sum(v) / sum(f), quant(g, .025), quant(g, .975))
TEST_CASE("statistics: bootstrap intervals are those of another program with the same draws", "[eval]") {
  const BootstrapOptions options{1000, 0.95, 7};
  const auto m = bootstrap_mean(kPolicy, options);
  REQUIRE(m);
  CHECK(m->value == near(0.16));
  CHECK(m->low == near(0.06625));
  CHECK(m->high == near(0.27125));
  CHECK(m->n == 8);
  const auto g = gap_recovered(kPolicy, kFloor, options);
  REQUIRE(g);
  CHECK(g->value == near(0.36));
  CHECK(g->low == near(0.11111111111111116));
  CHECK(g->high == near(0.5901639344262295));
  const auto ratio = bootstrap_ratio(kPolicy, kFloor, options);
  REQUIRE(ratio);
  CHECK(ratio->low == near(1 - 0.5901639344262295));
  CHECK(ratio->high == near(1 - 0.11111111111111116));
}

TEST_CASE("statistics: bootstrap of two items is the binomial", "[eval]") {
  // Means of two draws from {0, 1} are 0, 1/2, 1 with chances 1/4, 1/2, 1/4: the 2.5 and 97.5 percentiles are 0 and 1,
  // the 30 and 70 percentiles 1/2. In 10,000 draws a chance of 1/4 is met to .0043; .05 is more than ten times that.
  const std::vector<double> v = {0, 1};
  const auto wide = bootstrap_mean(v, {10000, 0.95, 1}), narrow = bootstrap_mean(v, {10000, 0.4, 1});
  REQUIRE((wide && narrow));
  CHECK((wide->low == 0 && wide->value == 0.5 && wide->high == 1));
  CHECK((narrow->low == 0.5 && narrow->high == 0.5));
}

TEST_CASE("statistics: the interval of a mean has the width of the central limit theorem", "[eval]") {
  // 400 uniform values: the standard error is s / 20, and 1.96 of them on each side hold 95 %. The 2.5 percentile of
  // 10,000 draws scatters by sqrt(.025 * .975 / 10000) / .0584 = .027 standard errors (.0584: the normal density
  // there); skewness of a mean of 400 adds less. 0.15 is five times that.
  Rng rng(5);
  std::vector<double> v(400);
  for (double& x : v) x = rng.uniform();
  double squares = 0;
  for (const double x : v) squares += (x - mean(v)) * (x - mean(v));
  const double error = std::sqrt(squares / 400) / 20;
  const auto e = bootstrap_mean(v);
  REQUIRE(e);
  CHECK(std::abs((e->value - e->low) / error - 1.96) < 0.15);
  CHECK(std::abs((e->high - e->value) / error - 1.96) < 0.15);
}

TEST_CASE("statistics: a difference is drawn by items, so that what they share cancels", "[eval]") {
  // b = a - 0.25 exactly (all are multiples of 1/4), whatever a is: the interval has no width.
  std::vector<double> a, b;
  for (int i = 0; i < 20; ++i) {
    a.push_back(0.25 * (i * i % 17));
    b.push_back(a.back() - 0.25);
  }
  const auto d = bootstrap_difference(a, b);
  REQUIRE(d);
  CHECK((d->low == 0.25 && d->value == 0.25 && d->high == 0.25 && d->n == 20));
  // So with a ratio: half of everything is a gap of one half.
  for (size_t i = 0; i < a.size(); ++i) b[i] = a[i] / 2;
  const auto gap = gap_recovered(b, a);
  REQUIRE(gap);
  CHECK((gap->low == 0.5 && gap->value == 0.5 && gap->high == 0.5));
  CHECK(gap_recovered(a, b)->value == -1);  // twice as bad as the floor
}

TEST_CASE("statistics: the same seed gives the same interval, another seed another one", "[eval]") {
  const auto a = bootstrap_mean(kPolicy, {500, 0.9, 3}), b = bootstrap_mean(kPolicy, {500, 0.9, 3}),
             c = bootstrap_mean(kPolicy, {500, 0.9, 4});
  CHECK((a->low == b->low && a->high == b->high));
  CHECK((a->low != c->low || a->high != c->high));
}

TEST_CASE("statistics: no interval where there is nothing to draw from", "[eval]") {
  const std::vector<double> some = {1, 2}, other = {1}, zero = {0, 0}, bad = {1, kNaN}, endless = {1, kInf};
  CHECK_FALSE(bootstrap_mean({}));
  CHECK_FALSE(bootstrap_mean(bad));
  CHECK_FALSE(bootstrap_mean(endless));
  CHECK_FALSE(bootstrap_mean(some, {0, 0.95, 1}));
  CHECK_FALSE(bootstrap_difference(some, other));
  CHECK_FALSE(bootstrap_difference(endless, endless));
  CHECK_FALSE(bootstrap_ratio(some, other));
  CHECK_FALSE(bootstrap_ratio({}, {}));
  CHECK_FALSE(bootstrap_ratio(some, zero));
  CHECK_FALSE(bootstrap_ratio(bad, some));
  CHECK_FALSE(bootstrap_ratio(some, bad));
  // The denominator is 0 in a quarter of the draws of {0, 1}: they are left out. Of five items with one 1 they would
  // be (4/5)^5 = 33 %; of twenty of which one is not 0, (19/20)^20 = 36 %: never half, so use what is left.
  const std::vector<double> one_of_two = {0, 1};
  REQUIRE(bootstrap_ratio(some, one_of_two));
  CHECK(bootstrap_ratio(some, one_of_two)->value == 3);
  const auto single = bootstrap_mean(other);
  CHECK((single->low == 1 && single->high == 1 && single->n == 1));
}

TEST_CASE("statistics: Spearman's correlation by hand, with ties", "[eval]") {
  const std::vector<double> x = {1, 2, 3, 4, 5};
  CHECK(spearman(x, std::vector<double>{10, 100, 1000, 1e4, 1e5}) == 1);
  CHECK(spearman(x, std::vector<double>{5, 4, 3, 2, 1}) == -1);
  // No ties: 1 - 6 sum d^2 / (n (n^2 - 1)) with d = 0 1 -1 1 -1: 1 - 24 / 120 = .8
  CHECK(spearman(x, std::vector<double>{1, 3, 2, 5, 4}).value() == near(0.8));
  // Ranks 1.5 1.5 3 4 against 1 2.5 2.5 4, centre 2.5: sum xy = 1.5 + 0 + 0 + 2.25 = 3.75; sum xx = 1 + 1 + .25 + 2.25
  // = 4.5; sum yy = 2.25 + 0 + 0 + 2.25 = 4.5: 3.75 / 4.5 = 5/6.
  CHECK(ranks_of(std::vector<double>{7, 7, 8, 9}) == std::vector<double>{1.5, 1.5, 3, 4});
  CHECK(spearman(std::vector<double>{7, 7, 8, 9}, std::vector<double>{0, 2, 2, 3}).value() == near(5.0 / 6));
  CHECK(ranks_of(std::vector<double>{3, 3, 3}) == std::vector<double>{2, 2, 2});
  CHECK(ranks_of({}).empty());
  CHECK(spearman(std::vector<double>{1, kInf}, std::vector<double>{-kInf, 0}) == 1);  // ranks do not mind
  CHECK_FALSE(spearman(x, std::vector<double>{1, 1, 1, 1, 1}));
  CHECK_FALSE(spearman(x, std::vector<double>{1, 2}));
  CHECK_FALSE(spearman(std::vector<double>{1}, std::vector<double>{1}));
  CHECK_FALSE(spearman(std::vector<double>{1, kNaN}, std::vector<double>{1, 2}));
}

TEST_CASE("statistics: area under the ROC curve counts pairs", "[eval]") {
  const std::vector<uint8_t> labels = {0, 0, 1, 1};
  CHECK(roc_auc(std::vector<double>{1, 2, 3, 4}, labels) == 1);
  CHECK(roc_auc(std::vector<double>{4, 3, 2, 1}, labels) == 0);
  CHECK(roc_auc(std::vector<double>{5, 5, 5, 5}, labels) == 0.5);
  // Pairs (1, 2) right, (1, 4) right, (2, 2) half, (2, 4) right: 3.5 of 4.
  CHECK(roc_auc(std::vector<double>{1, 2, 2, 4}, labels) == 0.875);
  CHECK_FALSE(roc_auc(std::vector<double>{1, 2}, std::vector<uint8_t>{1, 1}));
  CHECK_FALSE(roc_auc(std::vector<double>{1, 2}, std::vector<uint8_t>{0, 0}));
  CHECK_FALSE(roc_auc(std::vector<double>{1, 2, 3}, labels));
  CHECK_FALSE(roc_auc(std::vector<double>{1, 2, 3, kNaN}, labels));
  CHECK_FALSE(roc_auc({}, {}));
  // Against every pair counted, with many ties.
  Rng rng(11);
  std::vector<double> scores(200);
  std::vector<uint8_t> is_positive(200);
  for (size_t i = 0; i < scores.size(); ++i) {
    scores[i] = static_cast<double>(rng.below(12));
    is_positive[i] = rng.below(3) == 0;
  }
  double wins = 0, pairs = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    for (size_t j = 0; j < scores.size(); ++j) {
      if (is_positive[i] == 0 || is_positive[j] != 0) continue;
      pairs += 1;
      wins += scores[i] > scores[j] ? 1 : scores[i] == scores[j] ? 0.5 : 0;
    }
  }
  CHECK(roc_auc(scores, is_positive) == wins / pairs);  // both counts are exact
}

TEST_CASE("statistics: a threshold keeps the false alarms it may raise", "[eval]") {
  //                                  negatives .1 .2 .3 .4 .5, positives .35 .45 .9
  const std::vector<double> scores = {0.1, 0.35, 0.2, 0.9, 0.3, 0.4, 0.45, 0.5};
  const std::vector<uint8_t> labels = {0, 1, 0, 1, 0, 0, 1, 0};
  const auto none = calibrate_threshold(scores, labels, 0);
  REQUIRE(none);
  CHECK((none->threshold == 0.5 && none->false_alarm_rate == 0 && none->detection_rate == 1.0 / 3));
  const auto fifth = calibrate_threshold(scores, labels, 0.2);  // .5 may alarm
  CHECK((fifth->threshold == 0.4 && fifth->false_alarm_rate == 0.2 && fifth->detection_rate == 2.0 / 3));
  CHECK(calibrate_threshold(scores, labels, 0.39)->threshold == 0.4);
  const auto all = calibrate_threshold(scores, labels, 1);
  CHECK((all->threshold == -kInf && all->false_alarm_rate == 1 && all->detection_rate == 1));
  // Ties: one of three equal negatives may not alarm without the others.
  const auto tied = calibrate_threshold(std::vector<double>{1, 1, 1, 2}, std::vector<uint8_t>{0, 0, 0, 1}, 0.34);
  CHECK((tied->threshold == 1 && tied->false_alarm_rate == 0 && tied->detection_rate == 1));
  // 0.29 * 100 is below 29 in double.
  std::vector<double> hundred(100);
  for (size_t i = 0; i < 100; ++i) hundred[i] = static_cast<double>(i);
  CHECK(calibrate_threshold(hundred, std::vector<uint8_t>(100, 0), 0.29)->false_alarm_rate == 0.29);
  CHECK(std::isnan(calibrate_threshold(hundred, std::vector<uint8_t>(100, 0), 0.29)->detection_rate));
  CHECK_FALSE(calibrate_threshold(std::vector<double>{1}, std::vector<uint8_t>{1}, 0.1));
  CHECK_FALSE(calibrate_threshold(std::vector<double>{1, kNaN}, std::vector<uint8_t>{1, 0}, 0.1));
  CHECK_FALSE(calibrate_threshold(scores, labels, kNaN));
  CHECK_FALSE(calibrate_threshold(scores, std::vector<uint8_t>{0}, 0.1));
}

const std::vector<double> kRows = {0.5, 10, 1.0, 12, 1.5, 9,  2.0, 30, 2.5, 11,
                                   3.0, 25, 3.5, 14, 4.0, 28, 4.5, 13, 5.0, 31};
const std::vector<uint8_t> kLabels = {0, 0, 0, 1, 0, 0, 1, 1, 0, 1};

// By a method that shares nothing with Newton's: each weight in turn goes to the zero of its own partial derivative,
// found by bisection (the loss is convex), 500 rounds. X, y: the ten rows above; c, d: their means and deviations.
//   Z = [[1] + [(r[j] - c[j]) / d[j] for j in (0, 1)] for r in X]; w = [0, 0, 0]; ridge = [0, .5, .5]
//   def grad(j, t):
//     u = w[:]; u[j] = t
//     return ridge[j] * t - sum((yi - 1 / (1 + exp(-sum(a * b for a, b in zip(u, z))))) * z[j] for z, yi in zip(Z, y))
//   for _ in range(500):
//     for j in range(3):
//       a, b = -50, 50
//       for _ in range(80):
//         t = (a + b) / 2
//         if grad(j, t) > 0: b = t
//         else: a = t
//       w[j] = (a + b) / 2
//   print(w, w[0] - w[1] / d[0] * c[0] - w[2] / d[1] * c[1], w[1] / d[0], w[2] / d[1])
// Bisection ends where the gradient is lost in rounding, a few 1e-16 over a curvature of about 1.
TEST_CASE("statistics: logistic regression finds the minimum that bisection finds", "[eval]") {
  const auto model = fit_logistic(kRows, 2, kLabels, {0.5, 100});
  REQUIRE(model.ok());
  const auto close = [](double value) { return Approx(value).epsilon(1e-11); };
  CHECK(model->standardised_weights[0] == close(0.6246291794458605));
  CHECK(model->standardised_weights[1] == close(1.1884691534873402));
  CHECK(model->bias == close(-4.338066974774415));
  CHECK(model->weights[0] == close(0.4349359335978654));
  CHECK(model->weights[1] == close(0.13890014872299444));
  const double z = -4.338066974774415 + 0.4349359335978654 * 3 + 0.13890014872299444 * 25;
  CHECK(model->probability(std::vector<double>{3, 25}) == close(1 / (1 + std::exp(-z))));
}

TEST_CASE("statistics: logistic regression of one two-valued feature is the log odds of a table", "[eval]") {
  // x = 0: 3 of 10 positive, x = 1: 8 of 10. Without a penalty the bias is ln(3/7), the weight ln(8/2) - ln(3/7). A
  // ridge of 1e-9 pulls the standardised weight (about 1.1) by ridge * weight / curvature (about 4): below 1e-9.
  std::vector<double> x;
  std::vector<uint8_t> y;
  for (int i = 0; i < 20; ++i) {
    x.push_back(i < 10 ? 0 : 1);
    y.push_back(i < 10 ? i < 3 : i < 18);
  }
  const auto model = fit_logistic(x, 1, y, {1e-9, 100});
  REQUIRE(model.ok());
  CHECK(std::abs(model->bias - std::log(3.0 / 7)) < 1e-8);
  CHECK(std::abs(model->weights[0] - (std::log(4.0) - std::log(3.0 / 7))) < 1e-8);
  CHECK(std::abs(model->probability(std::vector<double>{1}) - 0.8) < 1e-8);
}

TEST_CASE("statistics: logistic regression stays finite where the classes part, and ignores a constant", "[eval]") {
  const std::vector<double> rows = {1, 0.1, 2, 0.1, 3, 0.1, 10, 0.1, 11, 0.1, 12, 0.1};
  const std::vector<uint8_t> labels = {0, 0, 0, 1, 1, 1};
  for (const double ridge : {1e-6, 1.0, 1e6}) {
    CAPTURE(ridge);
    const auto model = fit_logistic(rows, 2, labels, {ridge, 100});
    REQUIRE(model.ok());
    CHECK(model->weights[0] > 0);
    CHECK(std::isfinite(model->weights[0]));
    CHECK(model->weights[1] == 0);
    CHECK(model->probability(std::vector<double>{6.5, 0.1}) == Approx(0.5));  // halfway, by symmetry
  }
  // A twin of a feature: the penalty shares the weight between the two.
  const auto twins = fit_logistic(std::vector<double>{1, 1, 2, 2, 3, 3, 4, 4}, 2, std::vector<uint8_t>{0, 1, 0, 1});
  REQUIRE(twins.ok());
  CHECK(twins->weights[0] == Approx(twins->weights[1]));
  CHECK(twins->weights[0] > 0);
}

TEST_CASE("statistics: logistic regression refuses what it cannot fit", "[eval]") {
  const auto why = [](std::vector<double> rows, size_t features, std::vector<uint8_t> labels,
                      LogisticOptions options = {}) {
    const auto model = fit_logistic(rows, features, labels, options);
    return model.ok() ? std::string() : model.error().message();
  };
  using Catch::Contains;
  CHECK_THAT(why({1, 2}, 1, {1, 1}), Contains("one class"));
  CHECK_THAT(why({1, 2}, 1, {0, 0}), Contains("one class"));
  CHECK_THAT(why({1, 2, 3}, 1, {0, 1}), Contains("do not match"));
  CHECK_THAT(why({1, 2}, 0, {0, 1}), Contains("do not match"));
  CHECK_THAT(why({}, 1, {}), Contains("do not match"));
  CHECK_THAT(why({1, kNaN}, 1, {0, 1}), Contains("not finite"));
  CHECK_THAT(why({1, kInf}, 1, {0, 1}), Contains("not finite"));
  CHECK_THAT(why({1e308, -1e308}, 1, {0, 1}), Contains("too large"));
  // Variation that double cannot square is none.
  CHECK(fit_logistic(std::vector<double>{1e-310, 2e-310}, 1, std::vector<uint8_t>{0, 1})->weights[0] == 0);
  CHECK_THAT(why({1, 2}, 1, {0, 1}, {0, 100}), Contains("ridge"));
  CHECK_THAT(why({1, 2}, 1, {0, 1}, {kNaN, 100}), Contains("ridge"));
  CHECK_THAT(why(kRows, 2, kLabels, {0.5, 2}), Contains("no convergence"));
}

}  // namespace
}  // namespace cento
