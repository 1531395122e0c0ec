// A clock that stands still until it is told to move.
#pragma once

#include "base/clock.h"

namespace cento::test {

class FakeClock final : public Clock {
 public:
  int64_t unix_ms() const override { return ms_; }
  int64_t steady_us() const override { return 1000 * ms_; }
  void advance_ms(int64_t ms) { ms_ += ms; }

 private:
  int64_t ms_ = 1'700'000'000'000;
};

}  // namespace cento::test
