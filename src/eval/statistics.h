// What a sample says and how sure it is: means with bootstrap intervals, rank statistics, a small classifier. All in
// double; the same seed gives the same figures on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"

namespace cento {

// NaN for no values.
double mean(std::span<const double> values);

// The p-quantile, p in 0..1 (else the nearer end), by linear interpolation between the order statistics (type 7 of
// Hyndman and Fan 1996): of n sorted values the one at index p (n - 1), from 0. NaN for no values or if one is NaN.
double percentile(std::span<const double> values, double p);
// The same of values sorted in ascending order, none of them NaN.
double percentile_of_sorted(std::span<const double> sorted, double p);

struct BootstrapOptions {
  size_t draws = 10000;
  double level = 0.95;  // of the interval, 0..1
  uint64_t seed = 1;
};

// A figure and its bootstrap percentile interval (Efron 1979): the (1 - level)/2 and (1 + level)/2 percentiles of the
// figure over `draws` samples of n items drawn with replacement from the n items. With few items it is narrower than
// its level says; of one item it has no width.
struct Estimate {
  double value = 0, low = 0, high = 0;
  size_t n = 0;  // items
};

// nullopt for no values, or if one is not finite (an interval of it would mean nothing).
std::optional<Estimate> bootstrap_mean(std::span<const double> values, const BootstrapOptions& options = {});

// Mean of a - b over items: a[i] and b[i] are of the same item and are drawn together. nullopt as above, and for spans
// of different length.
std::optional<Estimate> bootstrap_difference(std::span<const double> a, std::span<const double> b,
                                             const BootstrapOptions& options = {});

// mean(numerator) / mean(denominator), items drawn together; neither is ever negative. nullopt as above and if the
// denominator's mean is 0. Draws in which it is 0 are left out; nullopt if those are more than half.
std::optional<Estimate> bootstrap_ratio(std::span<const double> numerator, std::span<const double> denominator,
                                        const BootstrapOptions& options = {});

// Gap recovered = 1 - mean KL(policy) / mean KL(floor): 1 is full prefill, 0 no better than plain reuse, and below 0
// worse. Both in nats, one value an item. nullopt as bootstrap_ratio.
std::optional<Estimate> gap_recovered(std::span<const double> policy_kl, std::span<const double> floor_kl,
                                      const BootstrapOptions& options = {});

// Ranks from 1; equal values share the mean of their ranks. No value is NaN.
std::vector<double> ranks_of(std::span<const double> values);

// Spearman's rank correlation: Pearson's r of the ranks, which is right with ties too. nullopt for spans of different
// length, fewer than two values, a NaN, or if one side is constant.
std::optional<double> spearman(std::span<const double> x, std::span<const double> y);

// Area under the ROC curve: the chance that a positive item scores above a negative one, ties counted half (Mann and
// Whitney's U over the pairs). nullopt for spans of different length, a NaN, or if one class is missing.
std::optional<double> roc_auc(std::span<const double> scores, std::span<const uint8_t> is_positive);

// An alarm is score > threshold.
struct AlarmThreshold {
  double threshold = 0;
  double false_alarm_rate = 0;  // of the negatives of the sample; at most what was asked for
  double detection_rate = 0;    // of its positives; NaN if there are none
};

// The lowest threshold with at most the share `false_alarm_rate_max` (0..1) of the negatives above it. nullopt for
// spans of different length, a NaN, or if there are no negatives.
std::optional<AlarmThreshold> calibrate_threshold(std::span<const double> scores, std::span<const uint8_t> is_positive,
                                                  double false_alarm_rate_max);

struct LogisticOptions {
  double ridge = 1;  // > 0: penalty ridge/2 times the sum of squared weights of the standardised features
  size_t iterations_max = 100;
};

// Chance of the positive class = 1 / (1 + exp(-(bias + sum_j weights[j] x[j]))), for features as they were given.
struct LogisticModel {
  double bias = 0;
  std::vector<double> weights;               // [features]; 0 for a feature that was constant in the sample
  std::vector<double> standardised_weights;  // [features]: weights times standard deviations, for comparing them

  double probability(std::span<const double> x) const;  // x [features]
};

// Logistic regression by Newton's method with step halving (iteratively reweighted least squares). The penalty is on
// features scaled to mean 0 and standard deviation 1 (n in the denominator), not on the bias, and makes the answer
// unique and finite even where the classes can be parted by a plane. rows [n, n_features], row-major.
// Error(kInput): sizes do not match, a value is not finite or cannot be scaled in double, one class is missing, the
// ridge is not above 0, no convergence in iterations_max.
Result<LogisticModel> fit_logistic(std::span<const double> rows, size_t n_features,
                                   std::span<const uint8_t> is_positive, const LogisticOptions& options = {});

}  // namespace cento
