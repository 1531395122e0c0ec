// Stored KV by key: blobs on disk under the catalogue. Any doubt is a miss with its reason (DESIGN 4).
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
#include "kv/kv_block.h"
#include "kv/kv_types.h"

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
};

class KvStore {
 public:
  explicit KvStore(Catalogue& catalogue, FileSystem& fs = FileSystem::real());

  // The stored KV of exactly this identity, header checked against it in full (token ids too). The error's message is
  // the reason of the miss in a few words: "not stored", "file missing", "header checksum mismatch", "other model", ...
  // A damaged or mismatching file is moved to DIR/set-aside/ and its row removed (not on a read-only store).
  Result<std::unique_ptr<KvReader>> open(const KvIdentity& wanted);
  // For a chunk whose context may be any: the row as find_kv gave it. Header checked against row and `ids`.
  Result<std::unique_ptr<KvReader>> open_row(const KvRow& row, const KvIdentity& wanted);
  // After a frame of an opened blob failed: sets the file aside.
  void set_aside(const Hash& key, const std::string& reason);

  // Writes blob, then row. Replaces. Errors: disk full and the like; nothing half-written is visible.
  Result<KvRow> put(const KvIdentity& identity, const KvBlock& block, KvCodec codec,
                    const std::optional<Hash>& chunk_hash);
  Status remove(const Hash& key);  // row, then file

  // A stored blob as it is on disk, checked in full. Nothing is set aside.
  Result<std::vector<std::byte>> read_blob(const Hash& key);
  // Takes in a blob of another store, checked in full (header, key, every frame). False: there was one of its key
  // already, which stays. Error(kInput): damaged, or of a version that is not known.
  Result<bool> add_blob(std::span<const std::byte> bytes, const std::optional<Hash>& chunk_hash);

  struct Leftovers {
    uint64_t files = 0, rows = 0, bytes = 0;
  };
  // Removes files without a row, rows without a file, rows (and files) of vanished chunks, temporary files older than
  // an hour, and what was set aside. Throws Error: store locked or read-only.
  Leftovers gc();
  struct Verified {
    uint64_t blobs = 0;
    std::vector<std::pair<Hash, std::string>> bad;
    uint64_t repaired = 0;  // of those bad: set aside
  };
  // Reads every frame of every blob. `repair`: what is damaged is set aside; what just cannot be read now is not.
  Verified verify(bool repair = false);
  std::string path_of(const Hash& key) const;  // DIR/kv/ab/abcdef....kv
  Catalogue& catalogue() { return *catalogue_; }

 private:
  Result<std::unique_ptr<KvReader>> open_checked(const KvRow& row, const BlobHeader& wanted);
  std::optional<size_t> remove_rows(const std::function<std::vector<Hash>()>& which);
  void reconcile(const Hash& key);
  void reconcile(KvRow row);
  std::string why_not_stored(const BlobHeader& wanted);
  void touch(const Hash& key);
  void forget(const Hash& key);
  void require_writable() const;
  Status write(const KvRow& row, std::span<const std::byte> bytes);
  void discard(const Hash& key, const std::string& path);
  void for_each_file(const std::function<void(const std::string& path, const std::string& name)>& visit);
  bool is_old_temporary(const std::string& path, const std::string& name);
  Status verify_blob(const Hash& key);

  Catalogue* catalogue_;
  FileSystem* fs_;
};

}  // namespace cento
