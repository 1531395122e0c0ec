#include "support/posix.h"

#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <stdexcept>

namespace cento::test {
namespace {

constexpr uid_t kNobody = 65534;

[[noreturn]] void run_child(int fd, const std::function<std::string()>& work, bool unprivileged) {
  std::string answer;
  if (unprivileged && ::geteuid() == 0 && (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0)) {
    answer = "cannot give up root's rights";
  } else {
    try {
      answer = work();
    } catch (const std::exception& error) {
      answer = error.what();
    }
  }
  const bool whole = ::write(fd, answer.data(), answer.size()) == static_cast<ssize_t>(answer.size());
  ::_exit(whole ? 0 : 1);
}

class Child {
 public:
  Child(const std::function<std::string()>& work, bool unprivileged) {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) throw std::runtime_error("pipe failed");
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("fork failed");
    if (pid_ == 0) {
      ::close(ends[0]);
      run_child(ends[1], work, unprivileged);
    }
    ::close(ends[1]);
    fd_ = ends[0];
  }
  ~Child() { ::close(fd_); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  std::string wait() {
    std::string answer;
    std::array<char, 4096> piece;
    for (ssize_t n; (n = ::read(fd_, piece.data(), piece.size())) > 0;)
      answer.append(piece.data(), static_cast<size_t>(n));
    int status = 0;
    if (::waitpid(pid_, &status, 0) != pid_ || status != 0) throw std::runtime_error("the child died: " + answer);
    return answer;
  }

 private:
  pid_t pid_ = -1;
  int fd_ = -1;
};

}  // namespace

Umask::Umask(mode_t mask) : old_(::umask(mask)) {}
Umask::~Umask() { ::umask(old_); }

mode_t mode_of(const std::string& path) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) throw std::runtime_error("cannot stat " + path);
  return st.st_mode & 07777;
}

std::string in_child(const std::function<std::string()>& work, bool unprivileged) {
  return Child(work, unprivileged).wait();
}

std::vector<std::string> in_children(const std::vector<std::function<std::string()>>& works) {
  std::vector<std::unique_ptr<Child>> children;
  for (const auto& work : works) children.push_back(std::make_unique<Child>(work, false));
  std::vector<std::string> answers;
  for (const auto& child : children) answers.push_back(child->wait());
  return answers;
}

void give_to_unprivileged(const std::string& path) {
  if (::geteuid() == 0 && ::chown(path.c_str(), kNobody, kNobody) != 0)
    throw std::runtime_error("cannot chown " + path);
}

std::unique_ptr<SmallDisk> SmallDisk::mount(size_t n_bytes) {
  std::string path = "/tmp/cento-disk-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  const std::string options = "size=" + std::to_string(n_bytes);
  if (::mount("tmpfs", path.c_str(), "tmpfs", 0, options.c_str()) != 0) {
    std::fprintf(stderr, "skipped: cannot mount a small disk: %s\n", std::strerror(errno));
    ::rmdir(path.c_str());
    return nullptr;
  }
  return std::unique_ptr<SmallDisk>(new SmallDisk(path));
}

SmallDisk::~SmallDisk() {
  (void)::umount2(path_.c_str(), MNT_DETACH);
  (void)::rmdir(path_.c_str());
}

void SmallDisk::make_read_only() {
  if (::mount("tmpfs", path_.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, nullptr) != 0) {
    throw std::runtime_error(std::string("cannot remount: ") + std::strerror(errno));
  }
}

}  // namespace cento::test
