#include "kv/net_stream.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/file.h"

namespace cento {
namespace {

constexpr const char* kTimeOut = "no answer in time";

Error away(std::string what, const std::string& where) { return {Code::kResource, std::move(what), where}; }
Error time_out(const std::string& where) { return away(kTimeOut, where); }

int64_t left_ms(Deadline deadline) {
  const auto left = deadline - std::chrono::steady_clock::now();
  return std::max<int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(left).count());
}

class SocketStream final : public NetStream {
 public:
  SocketStream(FileHandle handle, std::string where) : handle_(std::move(handle)), where_(std::move(where)) {}

  Status write(std::span<const std::byte> bytes, Deadline deadline) override {
    while (!bytes.empty()) {
      const ssize_t n = ::send(handle_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n >= 0) {
        bytes = bytes.subspan(static_cast<size_t>(n));
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        if (auto s = wait(POLLOUT, deadline); !s) return s;
      } else if (errno != EINTR) {
        return away("the connection broke: " + errno_text(errno), where_);
      }
    }
    return Status::done();
  }

  Result<size_t> read(std::span<std::byte> out, Deadline deadline) override {
    for (;;) {
      const ssize_t n = ::recv(handle_.get(), out.data(), out.size(), 0);
      if (n > 0) return static_cast<size_t>(n);
      if (n == 0) return away("the server closed the connection", where_);
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        if (auto s = wait(POLLIN, deadline); !s) return s.error();
      } else if (errno != EINTR) {
        return away("the connection broke: " + errno_text(errno), where_);
      }
    }
  }

  bool readable() override {
    pollfd p{handle_.get(), POLLIN, 0};
    return ::poll(&p, 1, 0) > 0;
  }

  Status connected(Deadline deadline) {
    if (auto s = wait(POLLOUT, deadline); !s) return s;
    int error = 0;
    socklen_t n = sizeof error;
    if (::getsockopt(handle_.get(), SOL_SOCKET, SO_ERROR, &error, &n) != 0) error = errno;
    if (error != 0) return away("cannot connect: " + errno_text(error), where_);
    return Status::done();
  }

 private:
  Status wait(short event, Deadline deadline) {
    for (;;) {
      pollfd p{handle_.get(), event, 0};
      const int64_t left = left_ms(deadline);
      if (left == 0) return time_out(where_);
      const int n = ::poll(&p, 1, static_cast<int>(std::min<int64_t>(left, 60'000)));
      if (n > 0) return Status::done();
      if (n < 0 && errno != EINTR) return away("the connection broke: " + errno_text(errno), where_);
    }
  }

  FileHandle handle_;
  std::string where_;
};

Result<std::unique_ptr<NetStream>> connect_to(const sockaddr* address, socklen_t n_bytes, Deadline deadline,
                                              const std::string& where) {
  FileHandle handle(::socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!handle.open()) return away("cannot connect: " + errno_text(errno), where);
  if (address->sa_family != AF_UNIX) {
    const int on = 1;  // neither is needed for it to work
    (void)::setsockopt(handle.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)::setsockopt(handle.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  }
  const bool at_once = ::connect(handle.get(), address, n_bytes) == 0;
  if (!at_once && errno != EINPROGRESS && errno != EINTR) return away("cannot connect: " + errno_text(errno), where);
  auto stream = std::make_unique<SocketStream>(std::move(handle), where);
  if (!at_once) {
    if (auto s = stream->connected(deadline); !s) return s.error();
  }
  return std::unique_ptr<NetStream>(std::move(stream));
}

Result<std::unique_ptr<NetStream>> connect_unix(const std::string& path, Deadline deadline) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return away("the path of the socket is too long", path);
  std::memcpy(address.sun_path, path.data(), path.size());
  return connect_to(reinterpret_cast<const sockaddr*>(&address), sizeof address, deadline, path);
}

// A look-up that outlasts its deadline goes on in the C library's own thread, so what it writes to stays with it.
struct LookUp {
  std::string host, port;
  addrinfo hints{};
  gaicb request{};
  LookUp() = default;
  LookUp(const LookUp&) = delete;
  LookUp& operator=(const LookUp&) = delete;
  ~LookUp() {
    if (request.ar_result != nullptr) ::freeaddrinfo(request.ar_result);
  }
};

Result<std::unique_ptr<LookUp>> look_up(const NetAddress& address, Deadline deadline) {
  auto query = std::make_unique<LookUp>();
  query->host = address.host;
  query->port = std::to_string(address.port);
  query->hints.ai_family = AF_UNSPEC;
  query->hints.ai_socktype = SOCK_STREAM;
  query->hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  if (::getaddrinfo(query->host.c_str(), query->port.c_str(), &query->hints, &query->request.ar_result) == 0)
    return query;
  query->hints.ai_flags = AI_NUMERICSERV;
  query->request = {};
  query->request.ar_name = query->host.c_str();
  query->request.ar_service = query->port.c_str();
  query->request.ar_request = &query->hints;
  gaicb* list[] = {&query->request};
  const auto failed = [&](int code) {
    return away(std::string("cannot look up the host: ") + ::gai_strerror(code), address.text());
  };
  if (const int code = ::getaddrinfo_a(GAI_NOWAIT, list, 1, nullptr); code != 0) return failed(code);
  for (;;) {
    const int code = ::gai_error(&query->request);
    if (code == 0) return query;
    if (code != EAI_INPROGRESS) return failed(code);
    const int64_t left = left_ms(deadline);
    if (left == 0) {
      if (::gai_cancel(&query->request) == EAI_NOTCANCELED && ::gai_error(&query->request) == EAI_INPROGRESS)
        (void)query.release();
      return time_out(address.text());
    }
    const timespec wait{left / 1000, left % 1000 * 1'000'000};
    (void)::gai_suspend(list, 1, &wait);  // whatever it says, gai_error knows
  }
}

}  // namespace

std::string NetAddress::text() const {
  if (!unix_path.empty()) return unix_path;
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

bool is_time_out(const Error& error) { return error.message() == kTimeOut; }

Result<std::unique_ptr<NetStream>> connect_stream(const NetAddress& address, Deadline deadline) {
  if (!address.unix_path.empty()) return connect_unix(address.unix_path, deadline);
  const auto found = look_up(address, deadline);
  if (!found) return found.error();
  const addrinfo* first = (*found)->request.ar_result;
  int64_t n_left = 0;
  for (const addrinfo* a = first; a != nullptr; a = a->ai_next) ++n_left;
  Error last = away("cannot connect: the host has no address", address.text());
  // Each gets its share of what is left: a network that swallows one family must not hide the other.
  for (const addrinfo* a = first; a != nullptr; a = a->ai_next, --n_left) {
    const Deadline share = std::min(deadline, in_ms(std::max<int64_t>(1, left_ms(deadline) / n_left)));
    auto stream = connect_to(a->ai_addr, a->ai_addrlen, share, address.text());
    if (stream.ok()) return stream;
    last = stream.error();
  }
  return last;
}

}  // namespace cento
