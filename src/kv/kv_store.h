// Stored KV by key: blobs in RAM, on disk and in a remote tier, under the catalogue. Any doubt is a miss with its
// reason (DESIGN 4).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "base/result.h"
#include "kv/catalogue.h"
#include "kv/cipher.h"
#include "kv/kv_block.h"
#include "kv/kv_types.h"
#include "kv/tier_disk.h"
#include "kv/tier_ram.h"

namespace cento {

struct BlobHeader;

// What identifies a stored KV and what its header must say. Spans must outlive the call only.
struct KvIdentity {
  Hash fingerprint;  // model
  Hash layout;       // kv_layout_id
  KvShape shape;
  KvKind kind = KvKind::kPrefix;
  std::span<const int32_t> prefix_ids;   // the fixed prefix
  std::span<const int32_t> context_ids;  // everything in front: prefix and stand-in context; == prefix_ids for
                                         // kChunkPrefix, empty for kPrefix
  std::span<const int32_t> ids;          // the rows stored
};
Hash kv_ids_hash(std::span<const int32_t> ids);
Hash kv_key(const KvIdentity& identity);

// An open, header-verified blob. Layers are read in any order, each verified (lengths, CRC-32C, decompressed size)
// before anything is returned. One thread at a time; independent of the catalogue's connection.
class KvReader {
 public:
  virtual ~KvReader() = default;
  virtual uint64_t n_tokens() const = 0;
  virtual const KvShape& shape() const = 0;
  virtual const Hash& key() const = 0;
  // Fills k and v, each shape.side_bytes(n_tokens) long; on an error their content is unspecified and must not be used.
  virtual Status read_layer(uint32_t layer, std::span<std::byte> k, std::span<std::byte> v) = 0;
  virtual uint64_t bytes_read() const = 0;

  // What read_layer has cost so far. Zero for KV that is in memory already.
  struct Cost {
    double read_ms = 0;    // waiting for the file's bytes
    double unpack_ms = 0;  // processor time: checksums and decompression
  };
  virtual Cost cost() const { return {}; }
  virtual const char* from() const { return "ram"; }  // the tier
  virtual bool lossy() const { return false; }        // not every value is what was computed
};

struct StoreLimits {
  uint64_t disk_bytes_max = 0;  // of all blobs; 0: as far as the disks go
  uint64_t ram_bytes_max = 0;   // 0: nothing is kept in memory
  int64_t max_age_ms = 0;       // what was not used for longer is removed; 0: nothing is
};

class KvStore {
 public:
  // A store that is encrypted stays locked until set_cipher has been given its key: nothing is found and nothing kept.
  explicit KvStore(Catalogue& catalogue, FileSystem& fs = FileSystem::real());
  ~KvStore();

  // ---- set up

  // Throws Error(kInput): the store is encrypted with another key, or holds KV that is not encrypted, or a rekey was
  // stopped in the middle. An empty store takes the key. Null: throws if the store is encrypted.
  void set_cipher(std::shared_ptr<const StoreCipher> cipher);
  void set_remote(std::unique_ptr<RemoteTier> remote) { remote_ = std::move(remote); }
  struct Evicted {
    uint64_t blobs = 0, bytes = 0;
  };
  // From now on; what is above them goes at once (not on a read-only store).
  Evicted set_limits(const StoreLimits& limits);
  const StoreLimits& limits() const { return limits_; }
  // What was stored or used since then is not evicted to make room.
  void protect_since(int64_t unix_ms) { protected_since_ms_ = unix_ms; }

  // ---- reading

  // The stored KV of exactly this identity, header checked against it in full (token ids too): from RAM, else from
  // disk, else from the remote tier. The error's message is the reason of the miss in a few words: "not stored", "file
  // missing", "header checksum mismatch", "other model", ... A damaged or mismatching file is moved to DIR/set-aside/
  // and its row removed (not on a read-only store).
  Result<std::unique_ptr<KvReader>> open(const KvIdentity& wanted);
  // Rows usable for a chunk, whatever its context: those of the catalogue, newest first, then what the remote tier
  // lists beside them. `wanted`: its kind and context are not read.
  std::vector<KvRow> find(const KvIdentity& wanted);
  // One of those. Header checked against row and `wanted`.
  Result<std::unique_ptr<KvReader>> open_row(const KvRow& row, const KvIdentity& wanted);
  // After a frame failed: a file on disk is set aside, a copy in RAM dropped.
  void give_up(const KvReader& reader, const std::string& reason);
  void set_aside(const Hash& key, const std::string& reason);

  // ---- writing

  // Writes blob, then row; then, as far as it can be done, the copies in RAM and in the remote tier. Replaces.
  // `cost_ms`: what computing it took, 0 if that is not known. Errors: over the budget (is_over_budget), disk full and
  // the like; nothing half-written is visible.
  Result<KvRow> put(const KvIdentity& identity, const KvBlock& block, KvCodec codec,
                    const std::optional<Hash>& chunk_hash, double cost_ms = 0);
  Status remove(const Hash& key);  // row, then file
  // Takes the blob of this identity from the remote tier into the store, checked in full. nullopt: it is not there, or
  // not in order.
  std::optional<KvRow> fetch(const KvIdentity& wanted, const std::optional<Hash>& chunk_hash);
  // The same for a row of find that only the remote tier has.
  std::optional<KvRow> fetch_row(const KvRow& row, const KvIdentity& wanted, const std::optional<Hash>& chunk_hash);

  // What it would take in the store; nothing is stored.
  Result<uint64_t> packed_bytes(const KvIdentity& identity, const KvBlock& block, KvCodec codec) const;
  // Puts a stored blob into the remote tier if it is not there. Whether it was put. (kv_share.cc)
  bool offer(const Hash& key);

  // Whether a blob of this size can be stored, evicting what may be evicted: of the budget, the folders and the disks.
  Status fits(uint64_t n_bytes);
  static bool is_over_budget(const Error& error);

  // A stored blob as it is on disk, but never encrypted, checked in full. Nothing is set aside.
  Result<std::vector<std::byte>> read_blob(const Hash& key);
  // Takes in a blob of another store, checked in full (header, key, every frame). False: there was one of its key
  // already, which stays. Error(kInput): damaged, or of a version that is not known.
  Result<bool> add_blob(std::span<const std::byte> bytes, const std::optional<Hash>& chunk_hash);

  // ---- keeping in order (kv_upkeep.cc)

  struct Leftovers {
    uint64_t files = 0, rows = 0, bytes = 0;
  };
  // Removes files without a row, rows without a file, rows (and files) of vanished chunks, temporary files older than
  // an hour, and what was set aside. Folders that are not there now are left alone. Throws Error: store locked or
  // read-only.
  Leftovers gc();
  struct Verified {
    uint64_t blobs = 0, bytes = 0;
    std::vector<std::pair<Hash, std::string>> bad;
    uint64_t repaired = 0;  // of those bad: set aside
    bool stopped = false;
  };
  struct Hooks {
    std::function<void(uint64_t done, uint64_t total)> progress;  // bytes; may be empty
    std::function<bool()> stop;                                   // may be empty
  };
  // Reads every frame of every blob. `repair`: what is damaged is set aside; what just cannot be read now is not.
  Verified verify(bool repair = false, const Hooks& hooks = {});
  // What goes first goes until no more than this is left.
  Evicted trim(uint64_t bytes_max);
  // A further folder for blobs; made if it is not there. One that is known gets the budget. Throws Error.
  void add_folder(const std::string& path, uint64_t bytes_max);
  // Moves its blobs to the other folders and forgets it. Throws Error(kResource): they find no room there.
  uint64_t remove_folder(const std::string& path, const Hooks& hooks);

  struct Rekeyed {
    uint64_t blobs = 0, bytes = 0, damaged = 0;
    bool stopped = false;
  };
  // Encrypts every blob anew; null: decrypts. Can be stopped anywhere and goes on when it is called again with the same
  // two keys (the old one is that of `from`; null: not encrypted). Throws Error.
  Rekeyed rekey(std::shared_ptr<const StoreCipher> from, std::shared_ptr<const StoreCipher> to, const Hooks& hooks);

  // ---- for those who show it

  std::string path_of(const Hash& key) const { return disk_.path_of(name_of(key)); }  // in the store's own folder
  Catalogue& catalogue() { return *catalogue_; }
  DiskTier& disk() { return disk_; }
  RamTier* ram() { return ram_.get(); }
  RemoteTier* remote() { return remote_.get(); }
  bool encrypted() const { return cipher_ != nullptr; }
  Hash name_of(const Hash& key) const { return cipher_ ? cipher_->name(key) : key; }  // in the tiers

 private:
  struct Packed;  // a blob as the tiers take it
  Packed pack(std::vector<std::byte> plain) const;
  Result<std::unique_ptr<File>> unsealed(std::unique_ptr<File> file, const std::string& where) const;
  Result<std::unique_ptr<KvReader>> open_checked(const KvRow& row, const BlobHeader& wanted);
  Result<std::unique_ptr<KvReader>> open_in(Tier& tier, const KvRow& row, const BlobHeader& wanted);
  std::optional<size_t> remove_rows(const std::function<std::vector<Hash>()>& which);
  void reconcile(const Hash& key);
  void reconcile(KvRow row);
  Result<std::unique_ptr<KvReader>> open_remote(const Hash& name, const BlobHeader& wanted);
  std::optional<KvRow> take_in(const Hash& name, const BlobHeader& wanted, bool any_context,
                               const std::optional<Hash>& chunk_hash);
  void share(const BlobHeader& header, const Packed& packed, double cost_ms);
  std::string why_not_stored(const BlobHeader& wanted);
  void touch(const Hash& key);
  void forget(const Hash& key);
  void require_unlocked() const;
  void require_writable() const;
  Status write(KvRow row, const Packed& packed);
  Status write_to(const DiskFolder& folder, const KvRow& row, std::span<const std::byte> bytes);
  void discard(const Hash& key, const std::string& path, bool in_place);
  Status make_room(uint64_t n_bytes, const Hash& for_key);
  Result<const DiskFolder*> choose_folder(uint64_t n_bytes);
  uint64_t evictable_bytes();
  Evicted evict_to(uint64_t bytes_max, int64_t used_before_ms, const Hash* except);
  Status verify_blob(const Hash& key);

  Catalogue* catalogue_;
  FileSystem* fs_;
  DiskTier disk_;
  std::unique_ptr<RamTier> ram_;
  std::unique_ptr<RemoteTier> remote_;
  std::shared_ptr<const StoreCipher> cipher_;
  std::string locked_;  // why nothing may be read or written; "": it may
  StoreLimits limits_;
  int64_t protected_since_ms_ = 0;  // 0: nothing is
};

}  // namespace cento
