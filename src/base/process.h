// Runs another program, without a shell, and takes what it prints.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace cento {

struct ProcessLimits {
  int64_t time_ms = 120'000;
  uint64_t output_bytes = 64ull << 20;  // of standard output
};

// How a program ended and what it said.
struct ProcessEnd {
  enum class How {
    kExited,      // value: exit status
    kSignalled,   // value: signal
    kNotStarted,  // value: errno
    kTooLong,     // above the limit of time; killed
    kTooMuch,     // above the limit of output; killed
    kStopped,     // the caller said so; killed
  };
  How how = How::kExited;
  int value = 0;
  std::string out;  // standard output
  std::string err;  // standard error, its first 4 KiB

  bool ok() const { return how == How::kExited && value == 0; }
};

// Runs words[0] (a path, or a name that is looked for in PATH) with the other words as its arguments and the caller's
// environment, in a process group of its own; standard input is empty. Nothing of the group is left when this returns.
// `stop` (may be empty) is asked ten times a second. An Error only if no pipe could be made or read.
Result<ProcessEnd> run_process(const std::vector<std::string>& words, const ProcessLimits& limits,
                               const std::function<bool()>& stop = {});

// What went wrong, in words that follow the program's name: "ended with status 3: first line of standard error".
std::string process_failure(const ProcessEnd& end, const ProcessLimits& limits);

}  // namespace cento
