#include "support/redis_server.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <stdexcept>

namespace cento::test {
namespace {

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what + ": " + std::strerror(errno)); }

int unix_socket(const std::string& path, bool listens) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) throw std::runtime_error("too long: " + path);
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) fail("socket");
  const auto* a = reinterpret_cast<const sockaddr*>(&address);
  if (listens ? ::bind(fd, a, sizeof address) == 0 && ::listen(fd, 16) == 0 : ::connect(fd, a, sizeof address) == 0)
    return fd;
  ::close(fd);
  return -1;
}

std::string find_program(const char* name) {
  const char* path = std::getenv("PATH");
  std::string folders = path == nullptr ? "/usr/bin:/bin" : path;
  for (size_t i = 0; i <= folders.size();) {
    const size_t end = std::min(folders.find(':', i), folders.size());
    const std::string file = folders.substr(i, end - i) + "/" + name;
    if (::access(file.c_str(), X_OK) == 0) return file;
    i = end + 1;
  }
  return {};
}

std::string formatted(const std::vector<std::string>& words) {
  std::string out = "*" + std::to_string(words.size()) + "\r\n";
  for (const auto& w : words) out += "$" + std::to_string(w.size()) + "\r\n" + w + "\r\n";
  return out;
}

// Reads one answer; simple, for a server that can be trusted.
class Answer {
 public:
  explicit Answer(int fd) : fd_(fd) {}
  std::string read() {
    const std::string line = take_line();
    const long long n = line.size() > 1 ? std::atoll(line.c_str() + 1) : 0;
    if (line[0] == '+' || line[0] == ':' || line[0] == '-') return line.substr(line[0] == '-' ? 0 : 1);
    if (line[0] == '$') return n < 0 ? "" : take(static_cast<size_t>(n));
    std::string out;
    for (long long i = 0; i < n; ++i) out += (i > 0 ? "\n" : "") + read();
    return out;
  }

 private:
  char byte() {
    char c = 0;
    if (::read(fd_, &c, 1) != 1) throw std::runtime_error("redis-server closed the connection");
    return c;
  }
  std::string take_line() {
    std::string out;
    for (char c = byte(); c != '\r'; c = byte()) out += c;
    (void)byte();
    if (out.empty()) throw std::runtime_error("empty answer");
    return out;
  }
  std::string take(size_t n) {
    std::string out;
    while (out.size() < n) out += byte();
    (void)byte();
    (void)byte();
    return out;
  }
  int fd_;
};

}  // namespace

std::unique_ptr<RedisServer> RedisServer::start(const std::vector<std::string>& settings) {
  for (const char* name : {"redis-server", "valkey-server"}) {
    const std::string program = find_program(name);
    if (!program.empty()) return std::unique_ptr<RedisServer>(new RedisServer(program, settings));
  }
  std::printf("skipped: no redis-server on this machine\n");
  return nullptr;
}

RedisServer::RedisServer(std::string program, std::vector<std::string> settings)
    : program_(std::move(program)), settings_(std::move(settings)) {
  spawn();
}

void RedisServer::spawn() {
  std::vector<std::string> words = {
      program_, "--port",       "0",           "--unixsocket", socket(),    "--save",       "", "--appendonly", "no",
      "--dir",  folder_.path(), "--daemonize", "no",           "--logfile", folder_ / "log"};
  words.insert(words.end(), settings_.begin(), settings_.end());
  std::vector<char*> args;
  for (auto& w : words) args.push_back(w.data());
  args.push_back(nullptr);
  if (::posix_spawn(&pid_, program_.c_str(), nullptr, nullptr, args.data(), environ) != 0) fail(program_);
  for (int i = 0; i < 500; ++i) {
    if (const int fd = unix_socket(socket(), false); fd >= 0) {
      ::close(fd);
      return;
    }
    ::usleep(20'000);
  }
  throw std::runtime_error("redis-server does not start: " +
                           (std::filesystem::exists(folder_ / "log") ? read_all(folder_ / "log") : std::string()));
}

RedisServer::~RedisServer() { stop(); }

void RedisServer::stop() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
  std::error_code ignored;
  std::filesystem::remove(socket(), ignored);
}

void RedisServer::restart() {
  stop();
  spawn();
}

void RedisServer::hold() { ::kill(pid_, SIGSTOP); }
void RedisServer::go_on() { ::kill(pid_, SIGCONT); }

std::string RedisServer::ask(const std::vector<std::string>& words, const std::string& password) const {
  const int fd = unix_socket(socket(), false);
  if (fd < 0) fail("connect");
  struct Close {
    int fd;
    ~Close() { ::close(fd); }
  } const close{fd};
  const std::string text = (password.empty() ? "" : formatted({"AUTH", password})) + formatted(words);
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = ::send(fd, text.data() + at, text.size() - at, MSG_NOSIGNAL);
    if (n <= 0) fail("send");
    at += static_cast<size_t>(n);
  }
  Answer answer(fd);
  if (!password.empty()) (void)answer.read();
  return answer.read();
}

std::vector<std::string> RedisServer::keys(const std::string& pattern) const {
  const std::string text = ask({"KEYS", pattern});
  std::vector<std::string> out;
  for (size_t i = 0; i < text.size();) {
    const size_t end = std::min(text.find('\n', i), text.size());
    out.push_back(text.substr(i, end - i));
    i = end + 1;
  }
  return out;
}

int free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t n = sizeof address;
  if (fd < 0 || ::bind(fd, reinterpret_cast<sockaddr*>(&address), n) != 0 ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &n) != 0)
    fail("no free port");
  ::close(fd);
  return ntohs(address.sin_port);
}

FakeServer::FakeServer(std::function<void(FakeServer& server, int fd)> serve) : serve_(std::move(serve)) {
  listener_ = unix_socket(folder_ / "fake.sock", true);
  if (listener_ < 0) fail("listen");
  thread_ = std::thread([this] {
    std::vector<std::thread> serving;
    while (!stopped_) {
      pollfd p{listener_, POLLIN, 0};
      if (::poll(&p, 1, 20) <= 0) continue;
      const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd < 0) continue;
      ++connections_;
      serving.emplace_back([this, fd] {
        serve_(*this, fd);
        ::close(fd);
      });
    }
    for (auto& t : serving) t.join();
  });
}

FakeServer::~FakeServer() {
  stopped_ = true;
  thread_.join();
  ::close(listener_);
}

std::optional<std::vector<std::string>> FakeServer::command(int fd) {
  const auto byte = [&]() -> std::optional<char> {
    char c = 0;
    while (!stopped_) {
      const ssize_t n = ::recv(fd, &c, 1, 0);
      if (n == 1) return c;
      if (n == 0 || (errno != EAGAIN && errno != EINTR)) return std::nullopt;
      pollfd p{fd, POLLIN, 0};
      (void)::poll(&p, 1, 20);
    }
    return std::nullopt;
  };
  const auto number = [&]() -> std::optional<size_t> {
    std::string line;
    for (auto c = byte();; c = byte()) {
      if (!c) return std::nullopt;
      if (*c == '\n') break;
      if (*c >= '0' && *c <= '9') line += *c;
    }
    if (line.empty() || line.size() > 9) return std::nullopt;  // not the Redis protocol
    return std::stoul(line);
  };
  const auto n_words = number();
  if (!n_words) return std::nullopt;
  std::vector<std::string> words;
  for (size_t i = 0; i < *n_words; ++i) {
    const auto n = number();
    if (!n) return std::nullopt;
    std::string word;
    while (word.size() < *n + 2) {
      const auto c = byte();
      if (!c) return std::nullopt;
      word += *c;
    }
    word.resize(*n);
    words.push_back(std::move(word));
  }
  return words;
}

bool FakeServer::say(int fd, const std::string& bytes) {
  for (size_t at = 0; at < bytes.size() && !stopped_;) {
    const ssize_t n = ::send(fd, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
    if (n > 0) {
      at += static_cast<size_t>(n);
    } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
      return false;
    } else {
      pollfd p{fd, POLLOUT, 0};
      (void)::poll(&p, 1, 20);
    }
  }
  return !stopped_;
}

}  // namespace cento::test
