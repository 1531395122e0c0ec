// What tests need from the operating system: other processes, permissions, small disks.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <sys/types.h>

namespace cento::test {

// Sets the process's umask while it lives.
class Umask {
 public:
  explicit Umask(mode_t mask);
  ~Umask();
  Umask(const Umask&) = delete;
  Umask& operator=(const Umask&) = delete;

 private:
  mode_t old_;
};

mode_t mode_of(const std::string& path);  // permission bits; throws std::runtime_error

// Runs `work` in a child process and returns what it returns; an Error it throws comes back as its what(). For root the
// child gives up its rights first when `unprivileged`, so that permissions mean something.
std::string in_child(const std::function<std::string()>& work, bool unprivileged = false);

// The same for several at once, each in its own process.
std::vector<std::string> in_children(const std::vector<std::function<std::string()>>& works);

// Makes `path`, a file or folder, belong to the user that `unprivileged` children run as. Nothing when not root.
void give_to_unprivileged(const std::string& path);

// A tmpfs of `n_bytes` mounted on a fresh folder; nullptr, with the reason printed, where this process may not mount.
class SmallDisk {
 public:
  static std::unique_ptr<SmallDisk> mount(size_t n_bytes);
  ~SmallDisk();
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  const std::string& path() const { return path_; }
  void make_read_only();  // throws std::runtime_error

 private:
  explicit SmallDisk(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace cento::test
