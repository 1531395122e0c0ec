#include "kv/circuit_breaker.h"

#include <catch2/catch.hpp>

#include <set>

using namespace cento;

TEST_CASE("circuit breaker: opens after failures in a row, lets one through after a wait, and closes", "[kv]") {
  CircuitBreaker b({.failures_max = 3, .wait_ms = 1'000, .wait_ms_max = 8'000}, 1);
  int64_t now = 5;
  for (int i = 0; i < 2; ++i) {
    CHECK(b.allow(now));
    b.failed(now, false);
  }
  b.succeeded();  // a success in between: they are not in a row
  for (int i = 0; i < 2; ++i) b.failed(now, false);
  CHECK((b.allow(now) && !b.open()));
  b.failed(now, false);
  CHECK((!b.allow(now) && b.open()));
  CHECK((b.until_ms() - now >= 500 && b.until_ms() - now <= 1'000));
  CHECK(!b.allow(b.until_ms() - 1));
  now = b.until_ms();
  CHECK(b.allow(now));   // the one that finds out
  CHECK(!b.allow(now));  // the others wait for it
  b.succeeded();
  CHECK((b.allow(now) && b.allow(now) && !b.open()));
}

TEST_CASE("circuit breaker: a time-out opens at once, and each further failure doubles the wait up to its limit",
          "[kv]") {
  CircuitBreaker b({.failures_max = 3, .wait_ms = 1'000, .wait_ms_max = 5'000}, 2);
  int64_t now = 0;
  b.failed(now, true);
  for (const int64_t most : {1'000, 2'000, 4'000, 5'000, 5'000}) {
    CHECK(b.open());
    CHECK((b.until_ms() - now >= most / 2 && b.until_ms() - now <= most));
    now = b.until_ms();
    REQUIRE(b.allow(now));
    b.failed(now, false);
  }
  REQUIRE(b.allow(b.until_ms()));
  b.succeeded();
  b.failed(now, true);
  CHECK(b.until_ms() - now <= 1'000);  // from the beginning
}

TEST_CASE("circuit breaker: one that asks and never tells does not keep it open for ever", "[kv]") {
  CircuitBreaker b({.failures_max = 1, .wait_ms = 1'000, .wait_ms_max = 1'000}, 3);
  b.failed(0, false);
  const int64_t now = b.until_ms();
  CHECK(b.allow(now));
  CHECK(!b.allow(now + 999));
  CHECK(b.allow(now + 1'000));
}

TEST_CASE("circuit breaker: waits of many processes differ", "[kv]") {
  std::set<int64_t> waits;
  for (uint64_t seed = 0; seed < 32; ++seed) {
    CircuitBreaker b({}, seed);
    b.failed(0, true);
    waits.insert(b.until_ms());
  }
  CHECK(waits.size() > 16);  // of 501 possible ones; 16 or fewer by chance: far below 1e-20
}
