#include "kv/tier_ram.h"

#include <new>

#include "base/text.h"
#include "kv/bytes_file.h"

namespace cento {
namespace {

// Keeps the bytes, so that an eviction in mid-read changes nothing.
template <class Bytes>
class RamFile final : public File {
 public:
  RamFile(Bytes bytes, std::atomic<uint64_t>& bytes_read)
      : bytes_(std::move(bytes)), file_(*bytes_), bytes_read_(&bytes_read) {}
  Status write(std::span<const std::byte> bytes) override { return file_.write(bytes); }
  Status sync() override { return file_.sync(); }
  Result<uint64_t> size() const override { return file_.size(); }
  Status read_at(uint64_t offset, std::span<std::byte> out) const override {
    *bytes_read_ += out.size();
    return file_.read_at(offset, out);
  }

 private:
  Bytes bytes_;
  BytesFile file_;
  std::atomic<uint64_t>* bytes_read_;
};

}  // namespace

Result<std::unique_ptr<File>> RamTier::open(const Hash& name) {
  const std::lock_guard lock(mutex_);
  const auto found = blobs_.find(name);
  if (found == blobs_.end()) {
    ++counters_.misses;
    return Error{Code::kInput, "not in memory"};
  }
  const int64_t now = clock_->unix_ms();
  (void)index_.use(name, now);
  used(name, now);
  ++counters_.hits;
  return std::unique_ptr<File>(std::make_unique<RamFile<Bytes>>(found->second, counters_.bytes_read));
}

bool RamTier::contains(const Hash& name) {
  const std::lock_guard lock(mutex_);
  return blobs_.contains(name);
}

Status RamTier::put(const Hash& name, const BlobView& blob) {
  try {
    std::vector<std::byte> bytes(blob.bytes.begin(), blob.bytes.end());
    const std::lock_guard lock(mutex_);
    return put_locked(name, std::move(bytes), blob.cost_ms);
  } catch (const std::bad_alloc&) {
    return Error{Code::kResource, "not enough memory to keep stored KV in memory"};
  }
}

Status RamTier::put_pinned(const Hash& name, std::vector<std::byte> bytes, double cost_ms) {
  try {
    const std::lock_guard lock(mutex_);
    if (!blobs_.contains(name)) {
      if (auto s = put_locked(name, std::move(bytes), cost_ms); !s) return s;
    }
    (void)index_.pin(name);
    return Status::done();
  } catch (const std::bad_alloc&) {
    return Error{Code::kResource, "not enough memory to keep stored KV in memory"};
  }
}

void RamTier::used(const Hash& name, int64_t now_ms) {
  duel_.access(name, index_.facts(name).value_or(EvictionFacts{}), now_ms);
  index_.set_by_age(duel_.by_age());
}

Status RamTier::put_locked(const Hash& name, std::vector<std::byte> bytes, double cost_ms) {
  const uint64_t n = bytes.size();
  const auto old = index_.facts(name);
  const uint64_t others = index_.bytes() - (old ? old->n_bytes : 0);
  if (n > bytes_max_) {
    return Error{Code::kResource, size_text(n) + " are more than the " + size_text(bytes_max_) + " kept in memory"};
  }
  const int64_t now = clock_->unix_ms();
  if (others > bytes_max_ - n) {
    // The one that is replaced is not to be the victim: its pins would be lost.
    if (old) (void)index_.pin(name);
    const auto gone = index_.evict(others - (bytes_max_ - n), now);
    if (old) (void)index_.unpin(name);
    if (!gone) return Error{Code::kResource, "the memory for stored KV is taken by what waits for its turn"};
    for (const Hash& victim : *gone) blobs_.erase(victim);
    counters_.evictions += gone->size();
  }
  blobs_[name] = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  (void)index_.insert(name, {n, cost_ms, 0}, now);
  used(name, now);
  ++counters_.puts;
  counters_.bytes_written += n;
  return Status::done();
}

Status RamTier::evict(const Hash& name) {
  const std::lock_guard lock(mutex_);
  if (blobs_.erase(name) > 0) ++counters_.evictions;
  (void)index_.erase(name);
  return Status::done();
}

uint64_t RamTier::bytes() {
  const std::lock_guard lock(mutex_);
  return index_.bytes();
}

bool RamTier::pin(const Hash& name) {
  const std::lock_guard lock(mutex_);
  return index_.pin(name);
}

void RamTier::unpin(const Hash& name) {
  const std::lock_guard lock(mutex_);
  (void)index_.unpin(name);
}

}  // namespace cento
