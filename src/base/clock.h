// The only source of time. Tests put a fake in its place.
#pragma once

#include <chrono>
#include <cstdint>

namespace cento {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t unix_ms() const = 0;    // wall clock, for what is stored
  virtual int64_t steady_us() const = 0;  // monotonic, for durations
  static const Clock& system();
};

// Processor time that the calling thread has used so far, in milliseconds: unlike a stopwatch it stands still while
// other threads have the processor or a disk is waited for.
double thread_cpu_ms();

// Milliseconds since construction or the last restart, on the monotonic clock.
class Stopwatch {
 public:
  explicit Stopwatch(const Clock& clock = Clock::system()) : clock_(&clock), start_us_(clock.steady_us()) {}
  double ms() const { return static_cast<double>(clock_->steady_us() - start_us_) / 1000.0; }
  void restart() { start_us_ = clock_->steady_us(); }

 private:
  const Clock* clock_;
  int64_t start_us_;
};

}  // namespace cento
