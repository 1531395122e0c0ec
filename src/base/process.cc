#include "base/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"

extern char** environ;

namespace cento {
namespace {

constexpr size_t kErrorTextMax = 4096;
constexpr int64_t kStopEveryMs = 100;

struct Pipe {
  FileHandle read, write;
};

Result<Pipe> make_pipe() {
  std::array<int, 2> fds{};
  if (::pipe2(fds.data(), O_CLOEXEC) != 0) return system_error("cannot make a pipe", "", errno);
  return Pipe{FileHandle(fds[0]), FileHandle(fds[1])};
}

// A process in a group of its own, killed with its children and waited for when it goes out of scope.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid) {}
  ~Child() {
    if (pid_ > 0) (void)end();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void kill() const { (void)::kill(-pid_, SIGKILL); }

  // The process's status as waitpid gives it if it ends by itself within `wait_ms`; it is killed then in any case.
  int end(int64_t wait_ms = 0, const std::function<bool()>& stop = {}) {
    int status = 0;
    const Stopwatch watch;
    bool done = false;
    while (!(done = ::waitpid(pid_, &status, WNOHANG) == pid_) && watch.ms() < static_cast<double>(wait_ms) &&
           !(stop && stop())) {
      (void)::poll(nullptr, 0, 5);
    }
    kill();
    while (!done && ::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_;
};

int start(const std::vector<std::string>& words, const Pipe& out, const Pipe& err, pid_t& pid) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.write.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.write.get(), STDERR_FILENO);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const int error = ::posix_spawnp(&pid, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  return error;
}

// Reads once; false at the end of the stream.
bool read_some(const FileHandle& from, std::string& into, size_t keep) {
  std::array<char, 1 << 16> buffer{};
  const ssize_t n = ::read(from.get(), buffer.data(), buffer.size());
  if (n < 0) return errno == EINTR || errno == EAGAIN;
  if (n == 0) return false;
  into.append(buffer.data(), std::min(static_cast<size_t>(n), keep - std::min(keep, into.size())));
  return true;
}

std::string first_line(const std::string& text) {
  const std::string_view s = trim(text);
  return printable(to_valid_utf8(s.substr(0, s.find('\n')).substr(0, 200)));
}

}  // namespace

Result<ProcessEnd> run_process(const std::vector<std::string>& words, const ProcessLimits& limits,
                               const std::function<bool()>& stop) {
  using How = ProcessEnd::How;
  ProcessEnd end;
  auto out = make_pipe(), err = make_pipe();
  if (!out) return out.error();
  if (!err) return err.error();
  pid_t pid = -1;
  if (const int error = start(words, *out, *err, pid)) {
    end.how = How::kNotStarted;
    end.value = error;
    return end;
  }
  Child child(pid);
  out->write = FileHandle();
  err->write = FileHandle();

  const Stopwatch watch;
  const auto left_ms = [&] { return limits.time_ms - static_cast<int64_t>(watch.ms()); };
  const auto gave_up = [&](How how) {
    end.how = how;
    return end;
  };
  std::array<pollfd, 2> wait{pollfd{out->read.get(), POLLIN, 0}, pollfd{err->read.get(), POLLIN, 0}};
  while (wait[0].fd >= 0 || wait[1].fd >= 0) {
    if (stop && stop()) return gave_up(How::kStopped);
    if (left_ms() <= 0) return gave_up(How::kTooLong);
    if (::poll(wait.data(), wait.size(), static_cast<int>(std::min(left_ms(), kStopEveryMs))) < 0 && errno != EINTR) {
      return system_error("cannot wait for a program", words[0], errno);
    }
    if (wait[0].revents != 0 && !read_some(out->read, end.out, limits.output_bytes + 1)) wait[0].fd = -1;
    if (wait[1].revents != 0 && !read_some(err->read, end.err, kErrorTextMax)) wait[1].fd = -1;
    if (end.out.size() > limits.output_bytes) return gave_up(How::kTooMuch);
    wait[0].revents = wait[1].revents = 0;
  }
  const int status = child.end(std::max<int64_t>(0, left_ms()), stop);
  if (stop && stop()) return gave_up(How::kStopped);
  end.how = WIFSIGNALED(status) ? How::kSignalled : How::kExited;
  end.value = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
  return end;
}

std::string process_failure(const ProcessEnd& end, const ProcessLimits& limits) {
  const std::string why = end.err.empty() ? "" : ": " + first_line(end.err);
  switch (end.how) {
    case ProcessEnd::How::kExited:
      return "ended with status " + std::to_string(end.value) + why;
    case ProcessEnd::How::kSignalled:
      return "was ended by signal " + std::to_string(end.value) + why;
    case ProcessEnd::How::kNotStarted:
      return "cannot be started: " + errno_text(end.value);
    case ProcessEnd::How::kTooLong:
      return "took more than " + std::to_string(limits.time_ms / 1000) + " s";
    case ProcessEnd::How::kTooMuch:
      return "printed more than " + size_text(limits.output_bytes);
    case ProcessEnd::How::kStopped:
      return "was stopped";
  }
  return "failed";
}

}  // namespace cento
