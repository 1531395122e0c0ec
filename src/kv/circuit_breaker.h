// When something far away is asked, and when it is taken to be away without asking. Pure: time comes in from outside.
#pragma once

#include <cstdint>

#include "base/rng.h"

namespace cento {

// Closed: everybody may ask. After `failures_max` failures in a row, or one that cost a time-out, it is open: nobody
// may, for a wait that doubles with every further failure. When the wait is over one caller may ask, and what comes of
// it closes or opens again. Not for several threads at once.
class CircuitBreaker {
 public:
  struct Settings {
    int failures_max = 3;
    int64_t wait_ms = 1'000;
    int64_t wait_ms_max = 60'000;
  };
  CircuitBreaker(const Settings& settings, uint64_t seed) : settings_(settings), rng_(seed) {}

  // Whether the caller may ask now. If so it has to tell what came of it.
  bool allow(int64_t now_ms);
  void succeeded();
  void failed(int64_t now_ms, bool timed_out);

  bool open() const { return open_; }
  int64_t until_ms() const { return until_ms_; }  // when the next one may ask, while it is open

 private:
  Settings settings_;
  Rng rng_;
  int failures_ = 0;  // in a row
  int openings_ = 0;  // in a row
  bool open_ = false;
  int64_t until_ms_ = 0;
};

}  // namespace cento
