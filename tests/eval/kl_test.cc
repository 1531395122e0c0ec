#include "eval/kl.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

namespace cento {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Logits of known chances. Rounding a logit of up to 3 to float moves it by 1.2e-7, and with it each figure below by
// no more than a few times that.
std::vector<float> logits_of(std::initializer_list<double> chances) {
  std::vector<float> out;
  for (const double c : chances) out.push_back(static_cast<float>(std::log(c)));
  return out;
}
Approx near(double value) { return Approx(value).epsilon(0).margin(1e-6); }

TEST_CASE("agreement: KL, first choice and likelihood of each row by hand", "[eval]") {
  // Row 0: (1/2, 1/2) against (1/4, 3/4). KL = ln 2 - ln 3 / 2. Equal chances: the first id counts as first choice.
  // Row 1: the same distribution on both sides, one with a constant added.
  // Row 2: (3/4, 1/4) against (1/2, 1/2).  KL = 3/4 ln(3/2) + 1/4 ln(1/2). Nothing follows.
  const auto full = logits_of({0.5, 0.5, 0.25, 0.75, 0.75, 0.25});
  auto other = logits_of({0.25, 0.75, 0.25, 0.75, 0.5, 0.5});
  other[2] += 5;
  other[3] += 5;
  const auto rows = compare_rows(full, other, 2, std::vector<int32_t>{0, 1});
  REQUIRE(rows.size() == 3);
  const double kl0 = std::log(2.0) - std::log(3.0) / 2, kl2 = 0.75 * std::log(1.5) - 0.25 * std::log(2.0);
  CHECK(rows[0].kl == near(kl0));
  CHECK_FALSE(rows[0].same_top1);
  CHECK(rows[0].nll_change.value() == near(std::log(2.0)));  // ln 4 - ln 2
  CHECK(rows[1].kl == near(0));
  CHECK(rows[1].same_top1);
  CHECK(rows[1].nll_change.value() == near(0));
  CHECK(rows[2].kl == near(kl2));
  CHECK(rows[2].same_top1);
  CHECK_FALSE(rows[2].nll_change);

  const Agreement a = summarise(rows);
  CHECK(a.kl_mean == near((kl0 + kl2) / 3));
  CHECK(a.kl_max == near(kl0));
  // Sorted 0, kl2 = .1308, kl0 = .1438: index .95 * 2 = 1.9.
  CHECK(a.kl_p95 == near(kl2 + 0.9 * (kl0 - kl2)));
  CHECK(a.top1 == 2.0 / 3);
  CHECK(a.nll_change_mean == near(std::log(2.0) / 2));
  CHECK(a.n_rows == 3);
}

TEST_CASE("agreement: no rows have no figures, and what is no number stays none", "[eval]") {
  const Agreement none = summarise({});
  CHECK((none.n_rows == 0 && std::isnan(none.kl_mean) && std::isnan(none.kl_p95) && std::isnan(none.kl_max) &&
         std::isnan(none.top1) && std::isnan(none.nll_change_mean)));
  CHECK(compare_rows({}, {}, 7, {}).empty());

  const std::vector<float> full = {0, 0, 0, 0}, bad = {0, 0, kNaN, 0}, impossible = {0, 0, 0, -kInf};
  const Agreement a = summarise(compare_rows(full, bad, 2, std::vector<int32_t>{0, 1}));
  CHECK((std::isnan(a.kl_mean) && std::isnan(a.kl_p95) && std::isnan(a.kl_max) && std::isnan(a.nll_change_mean)));
  const Agreement b = summarise(compare_rows(full, impossible, 2, std::vector<int32_t>{0, 1}));
  CHECK((std::isinf(b.kl_mean) && std::isinf(b.kl_max) && std::isinf(b.nll_change_mean) && b.nll_change_mean > 0));
}

}  // namespace
}  // namespace cento
