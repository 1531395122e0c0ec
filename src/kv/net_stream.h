// A connection to another machine, or to a socket on this one, that never waits longer than it is told to.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace cento {

using Deadline = std::chrono::steady_clock::time_point;
inline Deadline in_ms(int64_t ms) { return std::chrono::steady_clock::now() + std::chrono::milliseconds(ms); }

struct NetAddress {
  std::string host;  // name or number; IPv6 without brackets
  uint16_t port = 0;
  std::string unix_path;     // instead of both
  std::string text() const;  // "host:port", "[::1]:port" or the path
};

// One thread at a time. Every Error is kResource.
class NetStream {
 public:
  virtual ~NetStream() = default;
  virtual Status write(std::span<const std::byte> bytes, Deadline deadline) = 0;  // all of it, or an error
  virtual Result<size_t> read(std::span<std::byte> out, Deadline deadline) = 0;   // one byte or more
  // Whether there is something to read now; also true when the other side has closed.
  virtual bool readable() = 0;
};

// By TCP, or through the socket of `unix_path`. The name is looked up within the deadline too.
Result<std::unique_ptr<NetStream>> connect_stream(const NetAddress& address, Deadline deadline);

bool is_time_out(const Error& error);  // of a NetStream

struct TlsFiles {
  std::string ca;         // PEM of who may sign the server's certificate; "": whom the system trusts
  std::string cert, key;  // PEM of ours, if the server asks for one
};
// What the connections to one server have in common.
class TlsContext;
// Throws Error(kInput): a file that cannot be used.
std::shared_ptr<TlsContext> make_tls_context(const TlsFiles& files);
// TLS 1.2 or later over `plain`; the server's certificate must be valid for `host`.
Result<std::unique_ptr<NetStream>> start_tls(std::unique_ptr<NetStream> plain, std::shared_ptr<TlsContext> context,
                                             const std::string& host, Deadline deadline);

}  // namespace cento
