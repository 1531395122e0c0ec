// stdout, stderr and stdin as the commands see them: what is a terminal, how wide it is, colour, progress.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "app/options.h"
#include "base/clock.h"
#include "base/error.h"

namespace cento {

struct ReaderGone {};  // thrown by Terminal::out when whoever reads stdout has closed it; exit status 0

class Terminal {
 public:
  explicit Terminal(const CommonOptions& options, const Clock& clock = Clock::system());
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  bool out_is_terminal() const { return out_is_terminal_; }
  bool err_is_terminal() const { return err_is_terminal_; }

  // All of `text` to stdout, at once. Throws ReaderGone, or Error(kResource) for a full disk.
  void out(std::string_view text);
  // As out; on a terminal, control characters other than line ends and tabs are shown and not obeyed.
  void out_foreign(std::string_view text);
  // One line to stderr, unless quiet. The progress bar makes room for it. Control characters are shown.
  void note(std::string_view line);
  void warning(std::string_view line);  // also when quiet
  void error(const Error& error);       // the three lines

  // A bar on a terminal, a line every few seconds elsewhere. `what` "precompute", `unit` "chunks"; `extra` may be
  // empty.
  void progress(std::string_view what, uint64_t done, uint64_t total, std::string_view unit,
                std::string_view extra = {});
  void end_progress();  // takes the bar away

 private:
  void clear_bar();
  void err_line(std::string_view prefix, std::string_view text);
  size_t width() const;

  const Clock* clock_;
  bool out_is_terminal_, err_is_terminal_, color_, quiet_, progress_;
  std::mutex mutex_;        // of what follows: warnings may come from other threads
  size_t bar_columns_ = 0;  // of the bar on the screen now
  int64_t started_us_ = -1, drawn_us_ = -1;
  uint64_t first_done_ = 0;
};

// The line itself, without colour; pure. `seconds` since the start, in which `done - first` were done.
std::string progress_line(std::string_view what, uint64_t done, uint64_t total, std::string_view unit,
                          std::string_view extra, double seconds, uint64_t first, size_t width, bool bar);
std::string time_text(double seconds);  // "0:07", "1:02:03"

// `text` with all control characters but line ends and tabs shown as \xHH.
std::string printable_lines(std::string_view text);

// All of stdin. Throws Interrupted on Ctrl-C and Error(kUsage) above `max_bytes`.
std::string read_stdin(uint64_t max_bytes);

}  // namespace cento
