// A Catch2 matcher for results of floating-point kernels.
//
//   CHECK_THAT(run(*ops, n), CloseTo(expected64, bound64));
//
// `actual` is a std::vector<float> (CloseTo64: std::vector<double>); `expected` the same count of float64 values;
// `bound` is one absolute bound for all elements, or one for each. What can never be close is rejected first, so that
// no comparison with NaN passes by accident: another size, a value that is not finite on either side, a bound that is
// not >= 0.
#pragma once

#include <catch2/catch.hpp>
#include <cmath>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace cento::test {

template <class T>
class CloseToMatcher : public Catch::MatcherBase<std::vector<T>> {
 public:
  CloseToMatcher(std::vector<double> expected, std::vector<double> bounds)
      : expected_(std::move(expected)), bounds_(std::move(bounds)) {}

  bool match(const std::vector<T>& actual) const override {
    why_ = reason(actual);
    return why_.empty();
  }
  // Catch prints this after the elements, of which it shows few: the first offender is named here.
  std::string describe() const override { return "is close to expected: " + (why_.empty() ? "yes" : why_); }

 private:
  std::string reason(const std::vector<T>& actual) const {
    std::ostringstream out;
    out.precision(9);
    if (actual.size() != expected_.size()) {
      out << "has " << actual.size() << " elements, expected " << expected_.size();
      return out.str();
    }
    if (bounds_.size() != expected_.size()) {
      out << "the test gives " << bounds_.size() << " bounds for " << expected_.size() << " elements";
      return out.str();
    }
    size_t n_bad = 0;
    for (size_t i = 0; i < actual.size(); ++i) {
      const double a = static_cast<double>(actual[i]);
      const bool comparable = std::isfinite(a) && std::isfinite(expected_[i]) && bounds_[i] >= 0;
      if (comparable && std::fabs(a - expected_[i]) <= bounds_[i]) continue;
      if (n_bad++ == 0)
        out << "[" << i << "] is " << a << ", expected " << expected_[i] << " +- " << bounds_[i] << ", off by "
            << std::fabs(a - expected_[i]);
    }
    if (n_bad > 1) out << "; " << n_bad << " of " << actual.size() << " elements are off";
    return out.str();
  }

  std::vector<double> expected_, bounds_;
  mutable std::string why_;
};

// For results in float32.
class CloseTo : public CloseToMatcher<float> {
 public:
  CloseTo(const std::vector<double>& expected, const std::vector<double>& bounds)
      : CloseToMatcher<float>(expected, bounds) {}
  CloseTo(const std::vector<double>& expected, double bound)
      : CloseToMatcher<float>(expected, std::vector<double>(expected.size(), bound)) {}
  CloseTo(const std::vector<float>& expected, double bound)
      : CloseTo(std::vector<double>(expected.begin(), expected.end()), bound) {}
};

// For results in float64.
class CloseTo64 : public CloseToMatcher<double> {
 public:
  CloseTo64(const std::vector<double>& expected, const std::vector<double>& bounds)
      : CloseToMatcher<double>(expected, bounds) {}
  CloseTo64(const std::vector<double>& expected, double bound)
      : CloseToMatcher<double>(expected, std::vector<double>(expected.size(), bound)) {}
};

}  // namespace cento::test
