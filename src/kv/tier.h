// One place where blobs are kept, whole and as they are at rest: RAM, disk, remote (DESIGN 6). A tier that fails is a
// miss, never an error of the request; nothing that comes out of one is trusted before its reader has checked it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "base/result.h"
#include "kv/kv_types.h"

namespace cento {

// A blob's bytes and the lengths of the parts that its reader asks for one after the other: header, K of layer 0, V of
// layer 0, K of layer 1, ... They make up the whole.
struct BlobView {
  std::span<const std::byte> bytes;
  std::span<const uint64_t> parts;
  double cost_ms = 0;  // what computing it anew would take; 0: not known
};

// Since the process started.
struct TierCounters {
  std::atomic<uint64_t> hits{0}, misses{0}, failures{0};  // of open
  std::atomic<uint64_t> puts{0}, evictions{0};
  std::atomic<uint64_t> bytes_read{0}, bytes_written{0};
};

// `name` is a blob's key, or what the store's cipher makes of it. Several threads may call.
class Tier {
 public:
  virtual ~Tier() = default;
  virtual const char* name() const = 0;  // "ram", "disk", "remote"

  // The blob as a file that may only be read, by one thread at a time; it stays whole while it is open, evicted or not.
  // Error(kInput): it is not there. Any other: the tier failed.
  virtual Result<std::unique_ptr<File>> open(const Hash& name) = 0;
  virtual bool contains(const Hash& name) = 0;  // false also when it cannot be told
  // Replaces. Error(kResource): over the budget, disk full, remote away; then nothing half-written is left.
  virtual Status put(const Hash& name, const BlobView& blob) = 0;
  virtual Status evict(const Hash& name) = 0;  // one that is not there is no error

  virtual uint64_t bytes() = 0;                           // held now, as far as it is known
  virtual std::optional<uint64_t> bytes_max() const = 0;  // nullopt: no budget of its own
  const TierCounters& counters() const { return counters_; }

 protected:
  TierCounters counters_;
};

// A tier that other machines share. It has no catalogue, so it lists what there is of a chunk itself.
class RemoteTier : public Tier {
 public:
  struct Listed {
    Hash name;
    KvKind kind = KvKind::kChunkPrefix;
    bool operator==(const Listed&) const = default;
  };
  const char* name() const override { return "remote"; }
  virtual std::string where() const = 0;  // for people; no password in it
  // What was listed under `group`, a hash of model, layout, prefix and token ids; empty also when the tier fails. May
  // name blobs that are gone. At most kListedMax.
  virtual std::vector<Listed> find(const Hash& group) = 0;
  virtual Status list(const Hash& group, const Listed& item) = 0;
  virtual Status check() { return Status::done(); }  // whether it can be read and written now
  static constexpr size_t kListedMax = 64;
};

}  // namespace cento
