// Logistic regression of a few features (statistics.h).
#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>

#include "base/check.h"
#include "eval/statistics.h"

namespace cento {
namespace {

// A fit in progress, on standardised features with a leading 1 for the bias. C = features + 1.
struct Fit {
  std::vector<double> x;  // [n, C]
  std::span<const uint8_t> is_positive;
  size_t n = 0, c = 0;
  double ridge = 0;

  double score(const std::vector<double>& w, size_t i) const {
    double z = 0;
    for (size_t j = 0; j < c; ++j) z += w[j] * x[i * c + j];
    return z;
  }

  // Negative log-likelihood plus penalty, natural log.
  double loss(const std::vector<double>& w) const {
    double sum = 0;
    for (size_t j = 1; j < c; ++j) sum += 0.5 * ridge * w[j] * w[j];
    for (size_t i = 0; i < n; ++i) {
      const double z = is_positive[i] != 0 ? score(w, i) : -score(w, i);
      sum += std::max(-z, 0.0) + std::log1p(std::exp(-std::abs(z)));  // log(1 + exp(-z)) without overflow
    }
    return sum;
  }
};

double sigmoid(double z) { return z >= 0 ? 1 / (1 + std::exp(-z)) : std::exp(z) / (1 + std::exp(z)); }

// Solves a x = b in place of b for the symmetric positive definite a [c, c], which is overwritten by its Cholesky
// factor. False if it is not positive definite.
bool solve_spd(std::vector<double>& a, std::vector<double>& b, size_t c) {
  for (size_t j = 0; j < c; ++j) {
    for (size_t i = j; i < c; ++i) {
      double sum = a[i * c + j];
      for (size_t k = 0; k < j; ++k) sum -= a[i * c + k] * a[j * c + k];
      if (i == j && !(sum > 0)) return false;
      a[i * c + j] = i == j ? std::sqrt(sum) : sum / a[j * c + j];
    }
  }
  for (size_t i = 0; i < c; ++i) {
    for (size_t k = 0; k < i; ++k) b[i] -= a[i * c + k] * b[k];
    b[i] /= a[i * c + i];
  }
  for (size_t i = c; i-- > 0;) {
    for (size_t k = i + 1; k < c; ++k) b[i] -= a[k * c + i] * b[k];
    b[i] /= a[i * c + i];
  }
  return true;
}

// The Newton step at w; empty if the Hessian is singular in double.
std::vector<double> newton_step(const Fit& fit, const std::vector<double>& w) {
  const size_t c = fit.c;
  std::vector<double> hessian(c * c), descent(c);
  for (size_t j = 1; j < c; ++j) {
    hessian[j * c + j] = fit.ridge;
    descent[j] = -fit.ridge * w[j];
  }
  for (size_t i = 0; i < fit.n; ++i) {
    const double p = sigmoid(fit.score(w, i));
    const double residual = (fit.is_positive[i] != 0 ? 1.0 : 0.0) - p, curvature = p * (1 - p);
    const double* row = fit.x.data() + i * c;
    for (size_t j = 0; j < c; ++j) {
      descent[j] += residual * row[j];
      for (size_t k = 0; k <= j; ++k) hessian[j * c + k] += curvature * row[j] * row[k];
    }
  }
  if (!solve_spd(hessian, descent, c)) return {};
  return descent;
}

double largest(const std::vector<double>& v) {
  double most = 0;
  for (const double x : v) most = std::max(most, std::abs(x));
  return most;
}

// True once a step no longer changes w but for rounding.
bool minimise(const Fit& fit, size_t iterations_max, std::vector<double>& w) {
  double loss = fit.loss(w);
  for (size_t iteration = 0; iteration < iterations_max; ++iteration) {
    std::vector<double> step = newton_step(fit, w);
    if (step.empty()) return false;
    // What is left behind a step of s is about s * s; far smaller steps are the gradient's rounding and need not
    // shrink.
    if (largest(step) <= 1e-8 * (1 + largest(w))) return true;
    std::vector<double> next(w.size());
    double next_loss = 0;
    for (int halvings = 0;; ++halvings) {
      for (size_t j = 0; j < w.size(); ++j) next[j] = w[j] + step[j];
      next_loss = fit.loss(next);
      if (next_loss <= loss) break;
      if (halvings == 50) return largest(step) <= 1e-6 * (1 + largest(w));  // the loss is flat to its rounding
      for (double& s : step) s /= 2;
    }
    w = std::move(next);
    loss = next_loss;
  }
  return false;
}

// Mean and standard deviation of column j of rows [n, c].
std::pair<double, double> moments(std::span<const double> rows, size_t n, size_t c, size_t j) {
  double sum = 0, squares = 0;
  for (size_t i = 0; i < n; ++i) sum += rows[i * c + j];
  const double centre = sum / static_cast<double>(n);
  for (size_t i = 0; i < n; ++i) squares += (rows[i * c + j] - centre) * (rows[i * c + j] - centre);
  return {centre, std::sqrt(squares / static_cast<double>(n))};
}

}  // namespace

double LogisticModel::probability(std::span<const double> x) const {
  CHECK(x.size() == weights.size());
  double z = bias;
  for (size_t j = 0; j < x.size(); ++j) z += weights[j] * x[j];
  return sigmoid(z);
}

Result<LogisticModel> fit_logistic(std::span<const double> rows, size_t n_features,
                                   std::span<const uint8_t> is_positive, const LogisticOptions& options) {
  const auto refuse = [](const char* why) { return Error{Code::kInput, std::string("logistic regression: ") + why}; };
  const size_t n = is_positive.size();
  if (n_features == 0 || n == 0 || rows.size() / n_features != n || rows.size() % n_features != 0)
    return refuse("numbers of rows and labels do not match");
  if (!(options.ridge > 0) || !std::isfinite(options.ridge)) return refuse("the ridge term is not above 0");
  if (!std::all_of(rows.begin(), rows.end(), [](double v) { return std::isfinite(v); }))
    return refuse("a feature is not finite");
  const auto n_positive = std::count_if(is_positive.begin(), is_positive.end(), [](uint8_t p) { return p != 0; });
  if (n_positive == 0 || n_positive == static_cast<std::ptrdiff_t>(n)) return refuse("all items are of one class");

  Fit fit{{}, is_positive, n, n_features + 1, options.ridge};
  fit.x.assign(n * fit.c, 1);
  std::vector<double> centre(n_features), deviation(n_features);
  for (size_t j = 0; j < n_features; ++j) {
    std::tie(centre[j], deviation[j]) = moments(rows, n, n_features, j);
    if (!std::isfinite(deviation[j])) return refuse("a feature is too large");
    // A column of one value may keep a deviation of the size of its mean's rounding.
    if (deviation[j] <= 1e-12 * std::abs(centre[j])) deviation[j] = 0;
    for (size_t i = 0; i < n; ++i)
      fit.x[i * fit.c + j + 1] = deviation[j] == 0 ? 0 : (rows[i * n_features + j] - centre[j]) / deviation[j];
  }
  std::vector<double> w(fit.c);
  w[0] = std::log(static_cast<double>(n_positive) / static_cast<double>(n - static_cast<size_t>(n_positive)));
  if (!minimise(fit, options.iterations_max, w)) return refuse("no convergence");

  LogisticModel model{w[0], std::vector<double>(n_features), {w.begin() + 1, w.end()}};
  for (size_t j = 0; j < n_features; ++j) {
    if (deviation[j] == 0) continue;
    model.weights[j] = w[j + 1] / deviation[j];
    model.bias -= model.weights[j] * centre[j];
  }
  return model;
}

}  // namespace cento
