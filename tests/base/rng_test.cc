#include "base/rng.h"

#include <array>
#include <catch2/catch.hpp>
#include <cmath>

namespace cento {
namespace {

TEST_CASE("rng: is SplitMix64, the same everywhere", "[base]") {
  Rng rng(1234567);  // the reference sequence of this seed
  for (const uint64_t wanted : {6457827717110365317ull, 3203168211198807973ull, 9817491932198370423ull,
                                4593380528125082431ull, 16408922859458223821ull}) {
    CHECK(rng.next() == wanted);
  }
}

// 6 standard deviations of a binomial count with p = 1/n over k draws: sqrt(k p (1 - p)).
TEST_CASE("rng: below and uniform stay in range and fill it evenly", "[base]") {
  Rng rng(5);
  std::array<int, 7> counts{};
  for (int i = 0; i < 70000; ++i) ++counts[rng.below(7)];
  for (const int n : counts) CHECK(std::abs(n - 10000) < 556);
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    const double u = rng.uniform();
    REQUIRE(u >= 0);
    REQUIRE(u < 1);
    sum += u;
  }
  CHECK(std::abs(sum / 10000 - 0.5) < 6 * 0.2887 / 100);
  for (int i = 0; i < 100; ++i) CHECK(rng.below(1) == 0);
  for (int i = 0; i < 100; ++i) CHECK(rng.below((1ull << 63) + 1) <= 1ull << 63);
}

}  // namespace
}  // namespace cento
