#include "base/size_math.h"

#include <catch2/catch.hpp>
#include <limits>

namespace cento {
namespace {

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

TEST_CASE("size math: sums and products are right or absent", "[base]") {
  CHECK(checked_add(2, 3) == 5u);
  CHECK(checked_add(kMax, 0) == kMax);
  CHECK_FALSE(checked_add(kMax, 1));
  CHECK_FALSE(checked_add(kMax, kMax));
  CHECK(checked_mul(6, 7) == 42u);
  CHECK(checked_mul(kMax, 0) == 0u);
  CHECK(checked_mul(kMax, 1) == kMax);
  CHECK(checked_mul(1ull << 32, (1ull << 32) - 1) == ((1ull << 32) - 1) << 32);
  CHECK_FALSE(checked_mul(1ull << 32, 1ull << 32));
  CHECK_FALSE(checked_mul(kMax, 2));
}

TEST_CASE("size math: rounding up is right or absent", "[base]") {
  CHECK(checked_round_up(0, 32) == 0u);
  CHECK(checked_round_up(1, 32) == 32u);
  CHECK(checked_round_up(32, 32) == 32u);
  CHECK(checked_round_up(33, 32) == 64u);
  CHECK(checked_round_up(10, 3) == 12u);
  CHECK(checked_round_up(kMax, 1) == kMax);
  CHECK(checked_round_up(kMax - 31, 32) == kMax - 31);
  CHECK_FALSE(checked_round_up(kMax - 30, 32));
  CHECK_FALSE(checked_round_up(kMax, kMax - 1));
  CHECK(div_up(0, 4) == 0);
  CHECK(div_up(1, 4) == 1);
  CHECK(div_up(8, 4) == 2);
  CHECK(round_up(9, 4) == 12);
  CHECK(round_up(8, 4) == 8);
}

}  // namespace
}  // namespace cento
