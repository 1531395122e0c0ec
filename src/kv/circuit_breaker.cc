#include "kv/circuit_breaker.h"

#include <algorithm>

namespace cento {

// The one that asks while it is open pushes the time on, so that the others wait for its answer; if none is told ever,
// the next one asks after the same wait.
bool CircuitBreaker::allow(int64_t now_ms) {
  if (!open_) return true;
  if (now_ms < until_ms_) return false;
  until_ms_ = now_ms + settings_.wait_ms;
  return true;
}

void CircuitBreaker::succeeded() {
  failures_ = openings_ = 0;
  open_ = false;
}

// The wait is a random share, half or more, of 1, 2, 4, ... times the first one: many processes that lost the same
// server do not come back to it in one moment.
void CircuitBreaker::failed(int64_t now_ms, bool timed_out) {
  ++failures_;
  if (!open_ && !timed_out && failures_ < settings_.failures_max) return;
  open_ = true;
  int64_t wait = settings_.wait_ms;
  for (int i = 0; i < openings_ && wait < settings_.wait_ms_max; ++i) wait *= 2;
  ++openings_;
  wait = std::min(wait, settings_.wait_ms_max);
  until_ms_ = now_ms + wait / 2 + static_cast<int64_t>(rng_.below(static_cast<uint64_t>(wait - wait / 2) + 1));
}

}  // namespace cento
