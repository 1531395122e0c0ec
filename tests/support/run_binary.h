// Runs a program as a person would: arguments, environment, folder, stdin; catches what it prints and how it ends.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace cento::test {

struct RunSpec {
  std::vector<std::string> args = {};                   // without the program's name
  std::string stdin_text = {};                          // all of stdin; then its end
  std::map<std::string, std::string> environment = {};  // the whole of it but PATH, LANG=C.UTF-8 and sanitizer options
  std::string folder = {};                              // current folder; empty: the caller's
  double limit_seconds = 120;                           // then it is killed and timed_out is true
  // Sends `signal` once `signal_after` has appeared in stderr or stdout ("" : at once after signal_delay_seconds).
  int signal = 0;
  std::string signal_after = {};
  double signal_delay_seconds = 0;
  // Reads stdout no further than this many bytes and closes the pipe then.
  std::optional<size_t> close_stdout_after = {};
  bool terminal = false;  // stdin, stdout and stderr are one pseudo-terminal; all of it is `out`
};

struct RunResult {
  int status = -1;  // exit status; minus the signal if it died of one
  bool timed_out = false;
  bool signalled = false;  // the signal of the spec was sent
  std::string out, err;
};

// Throws std::runtime_error if the program cannot be started.
RunResult run_program(const std::string& program, const RunSpec& spec);

}  // namespace cento::test
