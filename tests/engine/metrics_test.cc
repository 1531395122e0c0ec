#include "engine/metrics.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "base/rng.h"
#include "support/reference_model.h"

using namespace cento;
using cento::test::kl64;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

}  // namespace

TEST_CASE("metrics: KL is the formula in float64", "[engine]") {
  // Both sums are taken in double over V terms of at most 1: V units of 2^-53 of the larger |log p - log q| and more
  // than enough for the rest.
  for (const size_t v : {1, 2, 17, 1000, 49152}) {
    for (const double spread : {1e-3, 1.0, 10.0, 80.0}) {
      CAPTURE(v, spread);
      Rng rng(v + static_cast<uint64_t>(spread));
      std::vector<float> p(v), q(v);
      for (size_t i = 0; i < v; ++i) {
        p[i] = static_cast<float>(spread * (2 * rng.uniform() - 1));
        q[i] = static_cast<float>(spread * (2 * rng.uniform() - 1));
      }
      const std::vector<double> p64(p.begin(), p.end()), q64(q.begin(), q.end());
      const double bound = static_cast<double>(v + 8) * 0x1p-53 * (4 * spread + 1);
      CHECK(std::abs(kl_divergence(p, q) - kl64(p64, q64)) <= bound);
      CHECK(kl_divergence(p, p) == 0);
    }
  }
}

TEST_CASE("metrics: KL of known distributions", "[engine]") {
  const auto log = [](double x) { return static_cast<float>(std::log(x)); };
  // 1/2 ln(1/2 : 1/4) + 1/2 ln(1/2 : 3/4) = ln 2 - ln 3 / 2, to float32 logits' rounding
  CHECK(kl_divergence(std::vector{log(0.5), log(0.5)}, std::vector{log(0.25), log(0.75)}) ==
        Approx(std::log(2.0) - std::log(3.0) / 2).margin(1e-6));
  // A constant on all logits changes nothing, and large ones do not overflow.
  CHECK(kl_divergence(std::vector{1.0f, 2.0f}, std::vector{1001.0f, 1002.0f}) == 0);
  CHECK(kl_divergence(std::vector{9000.0f, -9000.0f}, std::vector{0.0f, 0.0f}) == Approx(std::log(2.0)));
  // What p rules out does not count; what only q rules out is infinitely far.
  CHECK(kl_divergence(std::vector{0.0f, -kInf}, std::vector{0.0f, 0.0f}) == Approx(std::log(2.0)));
  CHECK(kl_divergence(std::vector{0.0f, 0.0f}, std::vector{0.0f, -kInf}) == HUGE_VAL);
  CHECK(kl_divergence(std::vector{0.0f, -kInf}, std::vector{0.0f, -kInf}) == 0);
}

TEST_CASE("metrics: logits that are no numbers are no distance of 0", "[engine]") {
  const std::vector<float> good = {1, 2, 3};
  for (const std::vector<float>& bad :
       {std::vector<float>{1, kNaN, 3}, {kNaN, kNaN, kNaN}, {1, kInf, 3}, {-kInf, -kInf, -kInf}}) {
    CAPTURE(bad);
    CHECK(std::isnan(kl_divergence(bad, good)));
    CHECK(std::isnan(kl_divergence(good, bad)));
    CHECK(std::isnan(kl_divergence(bad, bad)));
  }
}

TEST_CASE("metrics: argmax is the first of equals, never NaN while there is a number", "[engine]") {
  CHECK(argmax(std::vector{1.0f}) == 0);
  CHECK(argmax(std::vector{1.0f, 3.0f, 3.0f}) == 1);
  CHECK(argmax(std::vector{kNaN, -kInf, -5.0f, kNaN}) == 2);
  CHECK(argmax(std::vector{kNaN, -kInf}) == 1);
  CHECK(argmax(std::vector{-3.0f, kNaN, -2.0f}) == 2);
  CHECK(argmax(std::vector{kNaN, kNaN}) == 0);
  CHECK(argmax(std::vector{1.0f, kInf}) == 1);
}

TEST_CASE("metrics: negative log-likelihood of known distributions", "[engine]") {
  const std::vector<float> even(8, 100.0f), sure = {0.0f, -kInf};
  // The sum 100 + ln 8 is rounded by half of 2^-46; all else is exact or far smaller.
  CHECK(std::abs(negative_log_likelihood(even, 3) - std::log(8.0)) <= 0x1p-46);
  // Chances 1/5 and 4/5: one logit larger by ln 4, which float rounds by less than 6e-8.
  const std::vector<float> fifth = {-7000.0f, -7000.0f + static_cast<float>(std::log(4.0))};
  CHECK(negative_log_likelihood(std::vector<float>{0.0f, static_cast<float>(std::log(4.0))}, 0) ==
        Approx(std::log(5.0)).epsilon(0).margin(1e-7));
  CHECK(std::isfinite(negative_log_likelihood(fifth, 0)));  // exp(-7000) alone would be 0
  CHECK(negative_log_likelihood(sure, 0) == 0);
  CHECK(negative_log_likelihood(sure, 1) == HUGE_VAL);
  CHECK(std::isnan(negative_log_likelihood(std::vector<float>{0.0f, kNaN}, 0)));
  CHECK(std::isnan(negative_log_likelihood(std::vector<float>{kInf, 0.0f}, 0)));
}
