#include "support/run_binary.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>

namespace cento::test {
namespace {

using Seconds = std::chrono::duration<double>;
double now() { return Seconds(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Closes itself; -1: none.
struct Fd {
  int fd = -1;
  ~Fd() { reset(); }
  void reset() {
    if (fd >= 0) ::close(fd);
    fd = -1;
  }
};

void make_pipe(Fd& read_end, Fd& write_end) {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) throw std::runtime_error("pipe failed");
  read_end.fd = fds[0];
  write_end.fd = fds[1];
}

std::vector<std::string> environment_of(const RunSpec& spec) {
  std::map<std::string, std::string> all = {{"LANG", "C.UTF-8"}, {"HOME", "/nonexistent"}};
  for (const char* kept : {"PATH", "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "LSAN_OPTIONS"}) {
    if (const char* value = ::getenv(kept)) all[kept] = value;
  }
  for (const auto& [name, value] : spec.environment) all[name] = value;
  std::vector<std::string> out;
  for (const auto& [name, value] : all) out.push_back(name + "=" + value);
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (auto& t : texts) out.push_back(t.data());
  out.push_back(nullptr);
  return out;
}

// Everything the child needs is made before the fork; after it only async-signal-safe calls are made.
pid_t start(const std::string& program, const RunSpec& spec, int in, int out, int err) {
  std::vector<std::string> args = {program};
  args.insert(args.end(), spec.args.begin(), spec.args.end());
  std::vector<std::string> environment = environment_of(spec);
  const auto argv = pointers(args), envp = pointers(environment);
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child > 0) return child;
  if (spec.terminal) {
    ::setsid();
    ::ioctl(in, TIOCSCTTY, 0);
  }
  ::dup2(in, 0);
  ::dup2(out, 1);
  ::dup2(err, 2);
  if (!spec.folder.empty() && ::chdir(spec.folder.c_str()) != 0) ::_exit(126);
  ::signal(SIGPIPE, SIG_DFL);
  ::signal(SIGINT, SIG_DFL);
  ::execve(argv[0], argv.data(), envp.data());
  ::_exit(127);
}

struct Running {
  pid_t child;
  double started = now();
  std::optional<int> status = {};  // as waitpid gave it

  void reap(bool wait) {
    int s = 0;
    if (!status && ::waitpid(child, &s, wait ? 0 : WNOHANG) == child) status = s;
  }
};

// Appends what is there; closes the descriptor at its end.
void drain(Fd& from, std::string& into) {
  char buffer[1 << 14];
  const ssize_t n = ::read(from.fd, buffer, sizeof buffer);
  if (n > 0) {
    into.append(buffer, static_cast<size_t>(n));
  } else if (n == 0 || (errno != EINTR && errno != EAGAIN)) {
    from.reset();  // a closed pseudo-terminal is EIO
  }
}

void feed(Fd& to, const std::string& text, size_t& at) {
  if (at < text.size()) {
    const ssize_t n = ::write(to.fd, text.data() + at, text.size() - at);
    if (n > 0) {
      at += static_cast<size_t>(n);
    } else if (n < 0 && errno != EINTR && errno != EAGAIN) {
      at = text.size();
    }
  }
  if (at >= text.size()) to.reset();
}

}  // namespace

RunResult run_program(const std::string& program, const RunSpec& spec) {
  if (::access(program.c_str(), X_OK) != 0) throw std::runtime_error("cannot run " + program);
  ::signal(SIGPIPE, SIG_IGN);  // the program may close its stdin early
  Fd in_read, in_write, out_read, out_write, err_read, err_write;
  if (spec.terminal) {
    out_read.fd = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (out_read.fd < 0 || ::grantpt(out_read.fd) != 0 || ::unlockpt(out_read.fd) != 0)
      throw std::runtime_error("no terminal");
    out_write.fd = ::open(::ptsname(out_read.fd), O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (out_write.fd < 0) throw std::runtime_error("no terminal");
    const winsize size = {24, 80, 0, 0};
    ::ioctl(out_write.fd, TIOCSWINSZ, &size);
  } else {
    make_pipe(in_read, in_write);
    make_pipe(out_read, out_write);
    make_pipe(err_read, err_write);
    ::fcntl(in_write.fd, F_SETFL, O_NONBLOCK);
  }
  Running run{start(program, spec, spec.terminal ? out_write.fd : in_read.fd, out_write.fd,
                    spec.terminal ? out_write.fd : err_write.fd)};
  in_read.reset();
  out_write.reset();
  err_write.reset();

  RunResult result;
  size_t fed = 0;
  double marker_seen = -1;
  while (out_read.fd >= 0 || err_read.fd >= 0 || !run.status) {
    const double t = now();
    if (t - run.started > spec.limit_seconds) {
      result.timed_out = true;
      ::kill(run.child, SIGKILL);
      run.reap(true);
      break;
    }
    if (spec.signal != 0 && !result.signalled && !run.status) {
      const bool seen = spec.signal_after.empty() || result.err.find(spec.signal_after) != std::string::npos ||
                        result.out.find(spec.signal_after) != std::string::npos;
      if (seen && marker_seen < 0) marker_seen = t;
      if (seen && t - marker_seen >= spec.signal_delay_seconds) {
        ::kill(run.child, spec.signal);
        result.signalled = true;
      }
    }
    pollfd wait[3] = {{out_read.fd, POLLIN, 0}, {err_read.fd, POLLIN, 0}, {in_write.fd, POLLOUT, 0}};  // -1 is ignored
    // Up to 10 ms, and not past the moment of the signal.
    double wait_s = 0.01;
    if (marker_seen >= 0 && !result.signalled)
      wait_s = std::clamp(marker_seen + spec.signal_delay_seconds - now(), 0.0, wait_s);
    const timespec limit = {0, static_cast<long>(1e9 * wait_s)};
    ::ppoll(wait, 3, &limit, nullptr);
    if (out_read.fd >= 0 && wait[0].revents != 0) drain(out_read, result.out);
    if (err_read.fd >= 0 && wait[1].revents != 0) drain(err_read, result.err);
    if (in_write.fd >= 0 && wait[2].revents != 0) feed(in_write, spec.stdin_text, fed);
    if (spec.close_stdout_after && result.out.size() >= *spec.close_stdout_after) out_read.reset();
    run.reap(false);
    if (run.status && out_read.fd < 0 && err_read.fd < 0) break;
  }
  run.reap(true);
  const int s = run.status.value_or(0);
  result.status = WIFEXITED(s) ? WEXITSTATUS(s) : -WTERMSIG(s);
  return result;
}

}  // namespace cento::test
