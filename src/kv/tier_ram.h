// L2: blobs in memory, as they are at rest.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "kv/eviction.h"
#include "kv/tier.h"

namespace cento {

class RamTier final : public Tier {
 public:
  explicit RamTier(uint64_t bytes_max, const Clock& clock = Clock::system())
      : bytes_max_(bytes_max), clock_(&clock), duel_(bytes_max) {}

  const char* name() const override { return "ram"; }
  Result<std::unique_ptr<File>> open(const Hash& name) override;  // a use, for the order of eviction
  bool contains(const Hash& name) override;
  // Evicts others to make room, never pinned ones.
  Status put(const Hash& name, const BlobView& blob) override;
  Status evict(const Hash& name) override;  // pinned or not
  uint64_t bytes() override;
  std::optional<uint64_t> bytes_max() const override { return bytes_max_; }

  // Keeps it until unpin was called as often. False: it is not here.
  bool pin(const Hash& name);
  void unpin(const Hash& name);
  // put and pin in one step, so that nobody evicts it in between. One that is there is only pinned.
  Status put_pinned(const Hash& name, std::vector<std::byte> bytes, double cost_ms);

 private:
  using Bytes = std::shared_ptr<const std::vector<std::byte>>;
  void used(const Hash& name, int64_t now_ms);
  Status put_locked(const Hash& name, std::vector<std::byte> bytes, double cost_ms);

  uint64_t bytes_max_;
  const Clock* clock_;
  std::mutex mutex_;  // of all below
  std::map<Hash, Bytes> blobs_;
  EvictionIndex index_;
  EvictionDuel duel_;  // says whether index_ goes by priority or by age
};

}  // namespace cento
