#include "session/speed_record.h"

#include <catch2/catch.hpp>

#include "base/rng.h"

using namespace cento;

TEST_CASE("speed record: rows and keys of prompts of several lengths are told apart", "[session]") {
  SpeedRecord record;
  CHECK_FALSE(record.cost().has_value());
  const double row_ms = 0.4, row_key_ms = 0.0002;
  for (const double n : {100.0, 1500.0, 400.0, 6000.0, 300.0})
    record.observe_compute(n, n * n / 2, n * (row_ms + n / 2 * row_key_ms));
  record.observe_load(1e6, 3);
  REQUIRE(record.cost().has_value());
  CHECK(record.cost()->row_ms == Approx(row_ms).epsilon(1e-6));
  CHECK(record.cost()->row_key_ms == Approx(row_key_ms).epsilon(1e-6));
  CHECK(record.cost()->load_ms_per_byte == Approx(3e-6));
}

TEST_CASE("speed record: prompts of one length give the cost at that length", "[session]") {
  SpeedRecord record;
  for (int i = 0; i < 5; ++i) record.observe_compute(1000, 1000 * 500, 600 + i % 2);
  REQUIRE(record.cost().has_value());
  CHECK(record.cost()->compute_ms(1000, 500) == Approx(600.5).epsilon(2e-3));
  CHECK(record.cost()->compute_ms(500, 500) == Approx(300.25).epsilon(2e-3));
}

TEST_CASE("speed record: a machine that has become slower is noticed", "[session]") {
  SpeedRecord record;
  const auto observe = [&](double factor) {
    for (const double n : {200.0, 2000.0}) record.observe_compute(n, n * n / 2, factor * n * (1 + n / 2 * 0.001));
  };
  for (int i = 0; i < 20; ++i) observe(1);
  for (int i = 0; i < 15; ++i) observe(3);
  // What 30 observations at .9 leave of the old ones, of which each weighs nine times a new one in the sums of
  // (rows / ms)^2: 9 * .9^30 / (1 - .9^30) = .4.
  CHECK(record.cost()->row_ms > 2);
  CHECK(record.cost()->row_ms < 3.01);
}

TEST_CASE("speed record: what says nothing is not taken in", "[session]") {
  SpeedRecord record;
  record.observe_compute(3, 9, 1);
  record.observe_compute(100, 100, 0);
  record.observe_compute(100, 100, NAN);
  record.observe_load(10, 1);
  CHECK_FALSE(record.cost().has_value());
  CHECK(record.text() == SpeedRecord().text());
}

TEST_CASE("speed record: text and back, and anything else is refused", "[session]") {
  SpeedRecord record;
  record.observe_compute(100, 5000, 60);
  record.observe_compute(1000, 500000, 800);
  record.observe_load(1e7, 12);
  const auto again = SpeedRecord::from_text(record.text());
  REQUIRE(again.has_value());
  CHECK(again->text() == record.text());
  CHECK(again->cost()->row_ms == Approx(record.cost()->row_ms).epsilon(1e-6));
  for (const char* text : {"", "1 2 3", "1 2 3 4 5 6 x", "1 2 3 4 5 6 7 8", "1 2 3 4 5 6 -7", "nan 2 3 4 5 6 7"})
    CHECK_FALSE(SpeedRecord::from_text(text).has_value());
}
