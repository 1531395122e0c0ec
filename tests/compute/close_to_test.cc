#include "support/close_to.h"

#include <limits>

namespace cento::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr double kNan64 = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf64 = std::numeric_limits<double>::infinity();

bool close(const std::vector<float>& actual, const std::vector<double>& expected, double bound) {
  return CloseTo(expected, bound).match(actual);
}

TEST_CASE("CloseTo accepts what lies within the bound, and the bound itself", "[compute]") {
  CHECK(close({}, {}, 0));
  CHECK(close({1, 2, 3}, {1, 2, 3}, 0));
  CHECK(close({1.5F, -2}, {1.25, -2.25}, 0.25));
  CHECK(CloseTo(std::vector<double>{1, 2}, std::vector<double>{0, 0.5}).match({1, 2.5F}));
  CHECK(CloseTo(std::vector<float>{1, 2}, 0.5).match({1, 2.5F}));
  CHECK(CloseTo64({1, 2}, 0.5).match({1, 2.5}));
}

TEST_CASE("CloseTo rejects one element beyond its bound, wherever it is", "[compute]") {
  for (size_t i = 0; i < 5; ++i) {
    std::vector<float> actual(5, 1.0F);
    actual[i] = 1.26F;
    CAPTURE(i);
    CHECK_FALSE(close(actual, std::vector<double>(5, 1.0), 0.25));
    std::vector<double> bounds(5, 10.0);
    CHECK(CloseTo(std::vector<double>(5, 1.0), bounds).match(actual));
    bounds[i] = 0.25;
    CHECK_FALSE(CloseTo(std::vector<double>(5, 1.0), bounds).match(actual));
  }
}

TEST_CASE("CloseTo rejects values that are not finite on either side, with any bound", "[compute]") {
  CHECK_FALSE(close({kNan}, {1}, 1e30));
  CHECK_FALSE(close({kNan}, {kNan64}, 1e30));
  CHECK_FALSE(close({kInf}, {kInf64}, 1e30));
  CHECK_FALSE(close({-kInf}, {0}, kInf64));
  CHECK_FALSE(close({0}, {kNan64}, kInf64));
  CHECK_FALSE(close({0}, {kInf64}, kInf64));
  CHECK_FALSE(CloseTo64({kNan64}, 1.0).match({kNan64}));
}

TEST_CASE("CloseTo rejects another size and a bound that is none", "[compute]") {
  CHECK_FALSE(close({1, 2}, {1}, 1));
  CHECK_FALSE(close({}, {1}, 1));
  CHECK_FALSE(close({1}, {}, 1));
  CHECK_FALSE(close({1}, {1}, kNan64));
  CHECK_FALSE(close({1}, {1}, -1));
  CHECK_FALSE(CloseTo(std::vector<double>{1, 2}, std::vector<double>{1}).match({1, 2}));
}

TEST_CASE("CloseTo names the first element that is off and counts them", "[compute]") {
  const CloseTo matcher(std::vector<double>{1, 2, 3, 4}, 0.5);
  CHECK_FALSE(matcher.match({1, 2, 30, 40}));
  CHECK_THAT(matcher.describe(), Catch::Contains("[2] is 30") && Catch::Contains("2 of 4"));
  CHECK_FALSE(matcher.match({1}));
  CHECK_THAT(matcher.describe(), Catch::Contains("has 1 elements, expected 4"));
}

}  // namespace
}  // namespace cento::test
