// L4: blobs in a server with the Redis protocol (Redis, Valkey, Kvrocks). Slow or dead, it is a miss.
//
// NS:b:NAME:h   table of parts (remote_parts.h), then the header; written last, so that who finds it finds all
// NS:b:NAME:1   the second part (K of layer 0), NS:b:NAME:2 the third, ...
// NS:g:GROUP    sorted set of "KIND:NAME", the newest kListedMax, by Unix time in seconds
// NAME and GROUP are 64 hexadecimal digits. Everything has a time to live, which use renews.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "kv/circuit_breaker.h"
#include "kv/redis_line.h"
#include "kv/remote_url.h"
#include "kv/tier.h"

namespace cento {

class RedisTier final : public RemoteTier {
 public:
  // Connects when it is first used. `clock`: for waits between attempts and for what is stored; how long an answer is
  // waited for is always real time. Throws Error(kInput): a file for TLS cannot be used.
  explicit RedisTier(RemoteUrl settings, const Clock& clock = Clock::system());
  ~RedisTier() override;

  // The tier has to outlive the file. Parts are asked for before they are wanted: the next layer's two with this
  // layer's. A read that is not of whole parts is refused, but for the first one. In all, a file is waited for no
  // longer than the time-out, and a second for each kSlowestBytesPerSecond of what has been read of it.
  Result<std::unique_ptr<File>> open(const Hash& name) override;
  bool contains(const Hash& name) override;
  Status put(const Hash& name, const BlobView& blob) override;
  Status evict(const Hash& name) override;
  uint64_t bytes() override { return 0; }  // only the server knows
  std::optional<uint64_t> bytes_max() const override { return std::nullopt; }
  std::string where() const override { return settings_.shown; }
  std::vector<Listed> find(const Hash& group) override;
  Status list(const Hash& group, const Listed& item) override;
  Status check() override;

  void set_read_ahead(size_t n_parts) { read_ahead_ = n_parts; }  // in flight; 1: none, for measurements
  static constexpr uint64_t kSlowestBytesPerSecond = 1 << 20;

 private:
  friend class RedisFile;
  static constexpr size_t kLines = 4;  // threads spread over them
  struct Place {
    std::mutex mutex;
    std::shared_ptr<RedisLine> line;
  };
  Result<std::shared_ptr<RedisLine>> line();
  Result<std::unique_ptr<RedisLine>> connect();
  // Asks and waits; what the server refuses is an Error. Tells the breaker.
  Result<std::vector<RedisAnswer>> call(std::span<const RedisCommand> commands, uint64_t n_bytes = 0);
  Error failed(Error error);
  void succeeded();
  Error refused(const RedisAnswer& answer);
  Status put_parts(const Hash& name, const BlobView& blob);
  void renew(RedisLine& line, const Hash& name, size_t n_parts);
  Deadline deadline(uint64_t n_bytes) const;
  int64_t now_ms() const { return clock_->steady_us() / 1000; }
  std::string key(const Hash& name, size_t part) const;
  std::string group_key(const Hash& group) const;

  RemoteUrl settings_;
  const Clock* clock_;
  std::shared_ptr<TlsContext> tls_;
  size_t read_ahead_ = 4;
  std::array<Place, kLines> places_;
  std::mutex mutex_;  // of what follows
  CircuitBreaker breaker_, write_breaker_;
  std::string last_failure_;
  bool warned_ = false;
};

}  // namespace cento
