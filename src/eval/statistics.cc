#include "eval/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/rng.h"

namespace cento {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

bool all_finite(std::span<const double> values) {
  return std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
}

bool any_nan(std::span<const double> values) {
  return std::any_of(values.begin(), values.end(), [](double v) { return std::isnan(v); });
}

// Draws n of n items, with replacement, `draws` times. `figure` gets the item indices and gives the figure of the
// sample, NaN to leave the draw out.
template <class Figure>
std::optional<Estimate> bootstrap(size_t n, double value, const BootstrapOptions& options, Figure figure) {
  Rng rng(options.seed);
  std::vector<size_t> sample(n);
  std::vector<double> figures;
  figures.reserve(options.draws);
  for (size_t d = 0; d < options.draws; ++d) {
    for (size_t& i : sample) i = static_cast<size_t>(rng.below(n));
    const double f = figure(sample);
    if (!std::isnan(f)) figures.push_back(f);
  }
  if (figures.empty() || figures.size() * 2 < options.draws) return std::nullopt;
  std::sort(figures.begin(), figures.end());
  const double tail = (1 - std::clamp(options.level, 0.0, 1.0)) / 2;
  return Estimate{value, percentile_of_sorted(figures, tail), percentile_of_sorted(figures, 1 - tail), n};
}

double mean_of(std::span<const double> values, const std::vector<size_t>& sample) {
  double sum = 0;
  for (const size_t i : sample) sum += values[i];
  return sum / static_cast<double>(sample.size());
}

// Indices in ascending order of value.
std::vector<size_t> order_of(std::span<const double> values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  return order;
}

}  // namespace

double mean(std::span<const double> values) {
  if (values.empty()) return kNaN;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double percentile_of_sorted(std::span<const double> sorted, double p) {
  if (sorted.empty()) return kNaN;
  const double at = std::clamp(p, 0.0, 1.0) * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(std::floor(at));
  const size_t above = std::min(below + 1, sorted.size() - 1);
  const double part = at - static_cast<double>(below);
  if (part == 0 || sorted[below] == sorted[above]) return sorted[below];  // no infinity minus infinity
  return sorted[below] + part * (sorted[above] - sorted[below]);
}

double percentile(std::span<const double> values, double p) {
  if (any_nan(values)) return kNaN;
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  return percentile_of_sorted(sorted, p);
}

std::optional<Estimate> bootstrap_mean(std::span<const double> values, const BootstrapOptions& options) {
  if (values.empty() || !all_finite(values)) return std::nullopt;
  return bootstrap(values.size(), mean(values), options,
                   [&](const std::vector<size_t>& sample) { return mean_of(values, sample); });
}

std::optional<Estimate> bootstrap_difference(std::span<const double> a, std::span<const double> b,
                                             const BootstrapOptions& options) {
  if (a.size() != b.size()) return std::nullopt;
  std::vector<double> difference(a.size());
  for (size_t i = 0; i < a.size(); ++i) difference[i] = a[i] - b[i];
  return bootstrap_mean(difference, options);
}

std::optional<Estimate> bootstrap_ratio(std::span<const double> numerator, std::span<const double> denominator,
                                        const BootstrapOptions& options) {
  if (numerator.size() != denominator.size() || numerator.empty()) return std::nullopt;
  if (!all_finite(numerator) || !all_finite(denominator)) return std::nullopt;
  const double ratio = mean(numerator) / mean(denominator);  // of a denominator of 0 no draw is left
  return bootstrap(numerator.size(), ratio, options, [&](const std::vector<size_t>& sample) {
    const double d = mean_of(denominator, sample);
    return d > 0 ? mean_of(numerator, sample) / d : kNaN;
  });
}

std::optional<Estimate> gap_recovered(std::span<const double> policy_kl, std::span<const double> floor_kl,
                                      const BootstrapOptions& options) {
  const auto ratio = bootstrap_ratio(policy_kl, floor_kl, options);
  if (!ratio) return std::nullopt;
  return Estimate{1 - ratio->value, 1 - ratio->high, 1 - ratio->low, ratio->n};
}

std::vector<double> ranks_of(std::span<const double> values) {
  const std::vector<size_t> order = order_of(values);
  std::vector<double> ranks(values.size());
  for (size_t from = 0; from < order.size();) {
    size_t to = from + 1;
    while (to < order.size() && values[order[to]] == values[order[from]]) ++to;
    const double shared = static_cast<double>(from + 1 + to) / 2;  // mean of from + 1 .. to
    for (; from < to; ++from) ranks[order[from]] = shared;
  }
  return ranks;
}

std::optional<double> spearman(std::span<const double> x, std::span<const double> y) {
  if (x.size() != y.size() || x.size() < 2 || any_nan(x) || any_nan(y)) return std::nullopt;
  const std::vector<double> rx = ranks_of(x), ry = ranks_of(y);
  const double centre = static_cast<double>(x.size() + 1) / 2;
  double xx = 0, yy = 0, xy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double dx = rx[i] - centre, dy = ry[i] - centre;
    xx += dx * dx;
    yy += dy * dy;
    xy += dx * dy;
  }
  if (xx == 0 || yy == 0) return std::nullopt;
  return std::clamp(xy / std::sqrt(xx * yy), -1.0, 1.0);
}

std::optional<double> roc_auc(std::span<const double> scores, std::span<const uint8_t> is_positive) {
  if (scores.size() != is_positive.size() || any_nan(scores)) return std::nullopt;
  const std::vector<double> ranks = ranks_of(scores);
  double positives = 0, rank_sum = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    if (is_positive[i] == 0) continue;
    positives += 1;
    rank_sum += ranks[i];
  }
  const double negatives = static_cast<double>(scores.size()) - positives;
  if (positives == 0 || negatives == 0) return std::nullopt;
  return (rank_sum - positives * (positives + 1) / 2) / (positives * negatives);
}

std::optional<AlarmThreshold> calibrate_threshold(std::span<const double> scores, std::span<const uint8_t> is_positive,
                                                  double false_alarm_rate_max) {
  if (scores.size() != is_positive.size() || any_nan(scores) || std::isnan(false_alarm_rate_max)) return std::nullopt;
  std::vector<double> negatives, positives;
  for (size_t i = 0; i < scores.size(); ++i) (is_positive[i] != 0 ? positives : negatives).push_back(scores[i]);
  if (negatives.empty()) return std::nullopt;
  std::sort(negatives.begin(), negatives.end(), std::greater<>());
  // A little up: 0.29 * 100 is 28.999999999999996, and 29 of 100 are meant.
  const double wanted = std::clamp(false_alarm_rate_max, 0.0, 1.0) * static_cast<double>(negatives.size()) + 1e-9;
  const auto allowed = static_cast<size_t>(std::floor(wanted));
  AlarmThreshold out;
  out.threshold = allowed < negatives.size() ? negatives[allowed] : -std::numeric_limits<double>::infinity();
  const auto share_above = [&](const std::vector<double>& values) {
    const auto n = std::count_if(values.begin(), values.end(), [&](double v) { return v > out.threshold; });
    return static_cast<double>(n) / static_cast<double>(values.size());
  };
  out.false_alarm_rate = share_above(negatives);
  out.detection_rate = positives.empty() ? kNaN : share_above(positives);
  return out;
}

}  // namespace cento
