#include "app/terminal.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "app/interrupt.h"
#include "base/log.h"
#include "base/text.h"

namespace cento {
namespace {

constexpr int64_t kBarEveryUs = 100'000;
// Plain lines come every 5 s at first and every 30 s in a long run: a log is to be read, not scrolled through.
constexpr int64_t kLineEveryUs = 5'000'000, kLineEveryMaxUs = 30'000'000;

bool wants_color(ColorMode mode, bool is_terminal) {
  if (mode != ColorMode::kAuto) return mode == ColorMode::kAlways;
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return is_terminal && (no_color == nullptr || *no_color == '\0') &&
         (term == nullptr || std::string_view(term) != "dumb");
}

// False when the other side is gone or the disk is full: stderr is the last resort, nobody can be told.
bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {  // a terminal that another program set to non-blocking
      pollfd wait{fd, POLLOUT, 0};
      ::poll(&wait, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

Terminal* g_terminal = nullptr;  // whose bar a message of the log has to make room for

}  // namespace

Terminal::Terminal(const CommonOptions& options, const Clock& clock)
    : clock_(&clock),
      out_is_terminal_(::isatty(STDOUT_FILENO) == 1),
      err_is_terminal_(::isatty(STDERR_FILENO) == 1),
      color_(wants_color(options.color, err_is_terminal_)),
      quiet_(options.quiet),
      progress_(options.progress && !options.quiet) {
  set_log_level(options.quiet ? LogLevel::kWarning : options.verbose ? LogLevel::kDebug : LogLevel::kInfo);
  g_terminal = this;
  set_before_log([] {
    if (g_terminal != nullptr) {
      const std::lock_guard lock(g_terminal->mutex_);
      g_terminal->clear_bar();
    }
  });
}

Terminal::~Terminal() {
  end_progress();
  set_before_log(nullptr);
  g_terminal = nullptr;
}

void Terminal::out(std::string_view text) {
  {
    const std::lock_guard lock(mutex_);
    clear_bar();
  }
  if (write_all(STDOUT_FILENO, text)) return;
  const int why = errno;
  if (why == EPIPE) throw ReaderGone{};
  throw system_error("cannot write the answer", "stdout", why);
}

void Terminal::out_foreign(std::string_view text) {
  if (out_is_terminal_) {
    out(printable_lines(text));
  } else {
    out(text);
  }
}

void Terminal::err_line(std::string_view prefix, std::string_view text) {
  const std::lock_guard lock(mutex_);
  clear_bar();
  std::string line(prefix);
  line += printable(text);
  line += '\n';
  write_all(STDERR_FILENO, line);
}

void Terminal::note(std::string_view line) {
  if (!quiet_) err_line("", line);
}
void Terminal::warning(std::string_view line) { err_line(color_ ? "\x1b[33mwarning:\x1b[0m " : "warning: ", line); }

void Terminal::error(const Error& error) {
  err_line(color_ ? "\x1b[1;31merror:\x1b[0m " : "error: ", error.message());
  if (!error.where().empty()) err_line("  in:  ", error.where());
  if (!error.hint().empty()) err_line("  try: ", error.hint());
}

size_t Terminal::width() const {
  winsize size = {};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

void Terminal::clear_bar() {
  if (bar_columns_ == 0) return;
  bar_columns_ = 0;
  write_all(STDERR_FILENO, "\r\x1b[K");
}

void Terminal::progress(std::string_view what, uint64_t done, uint64_t total, std::string_view unit,
                        std::string_view extra) {
  if (!progress_) return;
  const std::lock_guard lock(mutex_);
  const int64_t now = clock_->steady_us();
  if (started_us_ < 0) {
    started_us_ = now;
    first_done_ = done;
    if (!err_is_terminal_) drawn_us_ = now;  // short work says nothing before its result
  }
  const int64_t every_us =
      err_is_terminal_ ? kBarEveryUs : std::clamp((now - started_us_) / 10, kLineEveryUs, kLineEveryMaxUs);
  if (drawn_us_ >= 0 && now - drawn_us_ < every_us) return;
  drawn_us_ = now;
  const double seconds = static_cast<double>(now - started_us_) * 1e-6;
  const std::string line = progress_line(what, done, total, unit, extra, seconds, first_done_,
                                         err_is_terminal_ ? width() - 1 : 1000, err_is_terminal_);
  if (err_is_terminal_) {
    write_all(STDERR_FILENO, "\r\x1b[K" + line);
    bar_columns_ = line.size();
  } else {
    write_all(STDERR_FILENO, line + "\n");
  }
}

void Terminal::end_progress() {
  const std::lock_guard lock(mutex_);
  clear_bar();
  started_us_ = drawn_us_ = -1;
}

std::string time_text(double seconds) {
  const auto s = static_cast<uint64_t>(std::clamp(std::ceil(seconds), 0.0, 359999.0));
  char out[32];
  if (s >= 3600) {
    std::snprintf(out, sizeof out, "%u:%02u:%02u", static_cast<unsigned>(s / 3600), static_cast<unsigned>(s / 60 % 60),
                  static_cast<unsigned>(s % 60));
  } else {
    std::snprintf(out, sizeof out, "%u:%02u", static_cast<unsigned>(s / 60), static_cast<unsigned>(s % 60));
  }
  return out;
}

std::string progress_line(std::string_view what, uint64_t done, uint64_t total, std::string_view unit,
                          std::string_view extra, double seconds, uint64_t first, size_t width, bool bar) {
  done = std::min(done, total);
  const double share = total == 0 ? 1 : static_cast<double>(done) / static_cast<double>(total);
  std::string tail =
      " " + std::to_string(done) + (bar ? "/" : " of ") + std::to_string(total) + " " + std::string(unit);
  if (!extra.empty()) tail += ", " + std::string(extra);
  // Too early to tell before something was done and a second has passed.
  if (done > first && done < total && seconds >= 1) {
    tail += ", " + time_text(seconds / static_cast<double>(done - first) * static_cast<double>(total - done)) + " left";
  }
  std::string line = std::string(what) + (bar ? "" : ":");
  if (bar) {
    const size_t used = line.size() + tail.size() + 3;
    const size_t cells = used + 10 <= width ? std::min<size_t>(30, width - used) : 0;
    if (cells > 0) {
      const auto full = static_cast<size_t>(share * static_cast<double>(cells));
      line += " [" + std::string(full, '#') + std::string(cells - full, '.') + "]";
    }
  }
  line += tail;
  // All of it is ASCII by now (`extra` comes from us), so columns are bytes.
  if (line.size() > width) line.resize(width);
  return line;
}

std::string printable_lines(std::string_view text) {
  std::string out;
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t end = rest.find_first_of("\n\t");
    out += printable(rest.substr(0, end));
    if (end == std::string_view::npos) break;
    out += rest[end];
    rest.remove_prefix(end + 1);
  }
  return out;
}

std::string read_stdin(uint64_t max_bytes) {
  std::string out;
  char buffer[1 << 16];
  for (;;) {
    pollfd wait{STDIN_FILENO, POLLIN, 0};
    if (::poll(&wait, 1, -1) < 0 && errno == EINTR) {
      throw_if_interrupted();
      continue;
    }
    const ssize_t n = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (n == 0) return out;
    if (n < 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      throw system_error("cannot read", "stdin", errno);
    }
    out.append(buffer, static_cast<size_t>(n));
    if (out.size() > max_bytes) {
      throw Error{Code::kUsage, "more than " + size_text(max_bytes) + " on stdin", "stdin", "give it less"};
    }
  }
}

}  // namespace cento
