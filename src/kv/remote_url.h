// Where a remote tier is, as people write it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kv/net_stream.h"

namespace cento {

struct RemoteUrl {
  enum class Kind { kRedis, kFolder } kind = Kind::kRedis;
  std::string shown;  // for people: no password in it

  // kRedis
  NetAddress address;
  bool tls = false;
  TlsFiles tls_files;
  std::string user, password;
  uint32_t db = 0;
  std::string ns = "cento";    // begins every key
  int64_t connect_ms = 500;    // time-out of the connection
  int64_t timeout_ms = 2'000;  // of a command; what is large gets more (tier_redis.h)

  std::string folder;  // kFolder

  int64_t ttl_ms = int64_t{7} * 24 * 3'600'000;  // what was not used for longer is gone; 0: nothing is
};

//   redis://[USER:PASSWORD@]HOST[:PORT][/DB][?ns=NAME&ttl=7d&timeout=2s&connect=500ms]
//   rediss://...                       the same over TLS; also ca=FILE, cert=FILE and key=FILE
//   redis+unix://[USER:PASSWORD@]/PATH[?db=N&...]
//   file:///PATH[?ttl=7d], or just a path
// Throws Error(kUsage) that names what is wrong, and no password.
RemoteUrl parse_remote_url(std::string_view text);

// The same URL with "***" for user and password, however wrong the rest of it is.
std::string without_password(std::string_view url);

}  // namespace cento
