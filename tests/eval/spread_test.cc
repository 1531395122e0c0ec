#include "eval/spread.h"

#include <catch2/catch.hpp>

namespace cento {
namespace {

TEST_CASE("spread: median and quartiles in any order of the samples", "[eval]") {
  struct Row {
    std::vector<double> samples;
    double q1, median, q3;
  };
  // All values are exact in binary: quantiles fall on samples or halfway and quarters between them.
  const std::vector<Row> rows = {{{7}, 7, 7, 7},
                                 {{4, 2}, 2.5, 3, 3.5},
                                 {{5, 1, 3}, 2, 3, 4},
                                 {{8, 2, 4, 6}, 3.5, 5, 6.5},
                                 {{1, 2, 3, 4, 1000}, 2, 3, 4},  // one stray run moves nothing
                                 {{2, 2, 2, 2, 2, 2}, 2, 2, 2}};
  for (const Row& row : rows) {
    CAPTURE(row.samples);
    const Spread s = spread_of(row.samples);
    CHECK(s.q1 == row.q1);
    CHECK(s.median == row.median);
    CHECK(s.q3 == row.q3);
    CHECK(s.n == row.samples.size());
  }
  CHECK(spread_of({}).n == 0);
}

}  // namespace
}  // namespace cento
