// Servers for the remote tier's tests: a real redis-server of our own, and a fake one that does what it is told.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "support/shared_data.h"

namespace cento::test {

// In a temporary folder, on a socket of its own (and on ports only where `settings` say so), without persistence.
class RedisServer {
 public:
  // nullptr, with the reason printed, where there is no redis-server (nor valkey-server). `settings`: more words of its
  // command line, as in {"--requirepass", "secret"}. `folder`: where files that they name are.
  static std::unique_ptr<RedisServer> start(const std::vector<std::string>& settings = {});
  ~RedisServer();
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  std::string socket() const { return folder_ / "redis.sock"; }
  std::string url(const std::string& parameters = {}) const {
    return "redis+unix://" + socket() + (parameters.empty() ? "" : "?" + parameters);
  }
  // What the server answers to one command, as redis-cli would print it raw: "" for nil; lists one item a line. Throws
  // std::runtime_error. `password`: said first.
  std::string ask(const std::vector<std::string>& words, const std::string& password = {}) const;
  std::vector<std::string> keys(const std::string& pattern = "*") const;
  void stop();     // kills it
  void hold();     // it stays, and says nothing more (SIGSTOP) ...
  void go_on();    // ... until now
  void restart();  // after stop: the same socket, empty

 private:
  RedisServer(std::string program, std::vector<std::string> settings);
  void spawn();
  TempDir folder_;
  std::string program_;
  std::vector<std::string> settings_;
  int pid_ = -1;
};

// A port on the loopback that was free a moment ago.
int free_port();

// Takes connections on a socket in a temporary folder; each is handed to `serve`, in a thread of its own, and closed
// when that returns.
class FakeServer {
 public:
  explicit FakeServer(std::function<void(FakeServer& server, int fd)> serve);
  ~FakeServer();
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;
  std::string url(const std::string& parameters = {}) const {
    return "redis+unix://" + (folder_ / "fake.sock") + (parameters.empty() ? "" : "?" + parameters);
  }
  bool stopped() const { return stopped_; }
  int connections() const { return connections_; }

  // For `serve`. The next command's words; nullopt: the other side has gone, or the server is to stop.
  std::optional<std::vector<std::string>> command(int fd);
  bool say(int fd, const std::string& bytes);  // all of it, or false: the other side has gone

 private:
  TempDir folder_;
  std::function<void(FakeServer&, int)> serve_;
  int listener_ = -1;
  std::atomic<bool> stopped_{false};
  std::atomic<int> connections_{0};
  std::thread thread_;
};

}  // namespace cento::test
