// The store's catalogue: one SQLite file that alone says what exists (DESIGN 5). This class opens and migrates it and
// keeps models and KV blobs; the documents' tables in it are kept by docs/doc_store.h over the same connection.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/hash.h"
#include "base/mapped_file.h"
#include "kv/kv_types.h"
#include "kv/sqlite.h"
#include "kv/tier_disk.h"

namespace cento {

struct KvRow {
  Hash key;          // file name and identity
  Hash fingerprint;  // model
  Hash layout;
  Hash prefix_id;                  // hash of the fixed prefix's token ids
  Hash ids_hash;                   // hash of the chunk's own token ids
  Hash context_id;                 // hash of all ids in front of the chunk when it was computed
  std::optional<Hash> chunk_hash;  // text identity in `chunks`; none for a fixed prefix
  KvKind kind = KvKind::kPrefix;
  std::string codec;
  uint64_t n_tokens = 0, n_bytes = 0;
  int64_t created_ms = 0, last_used_ms = 0;
  uint64_t hits = 0;
  int64_t folder = 0;                             // DiskFolder::id
  double cost_ms = 0;                             // what computing it took, or would take; 0: not known
  std::optional<std::array<uint8_t, 16>> cipher;  // CipherId; none: not encrypted
  std::optional<Hash> remote_name;                // it is known from the remote tier alone; `key` is not known then
};

// How much is stored.
struct KvTotals {
  uint64_t n_blobs = 0, n_tokens = 0, n_bytes = 0;
};

class Catalogue {
 public:
  static constexpr int kSchemaVersion = 2;

  // Opens DIR/catalogue.sqlite, creating folder (0700) and file in kReadWrite. Older schemas are migrated in one
  // transaction each; a newer one, or a file that is not ours, throws Error(kInput) that says so.
  // kReadOnly: throws Error(kInput) when there is no store.
  Catalogue(const std::string& store_dir, Db::Mode mode, const Clock& clock = Clock::system());

  Db& db() { return db_; }
  const std::string& dir() const { return dir_; }
  const Clock& clock() const { return *clock_; }

  // Content hashes of model files, so that a file is hashed once: those of files with this size and time, whatever
  // their device and inode.
  struct RememberedModel {
    FileStamp stamp;
    int64_t ctime_ns = 0;
    Hash fingerprint, sample;  // model_fingerprint, model_sample
  };
  std::vector<RememberedModel> remembered_models(uint64_t size, int64_t mtime_ns);
  void remember_model(const RememberedModel& model);
  void put_model(const Hash& fingerprint, const std::string& name, const std::string& architecture,
                 uint64_t kv_bytes_per_token);

  void put_kv(const KvRow& row);  // replaces a row of the same key; counts as a use for the order of eviction
  std::optional<KvRow> kv(const Hash& key);
  // Rows usable for a chunk: same model, layout, prefix and ids; newest first.
  std::vector<KvRow> find_kv(const Hash& fingerprint, const Hash& layout, const Hash& prefix_id, const Hash& ids_hash);
  std::vector<KvRow> kv_of_ids(const Hash& ids_hash);  // of any model, layout, prefix and context
  std::vector<KvRow> all_kv();
  std::vector<Hash> kv_keys();
  void remove_kv(const Hash& key);
  void touch_kv(const Hash& key);  // last use and hits; silently nothing on a read-only store
  // Kept up to date by triggers: asking does not depend on how much there is.
  KvTotals kv_totals(std::optional<int64_t> folder = std::nullopt);
  uint64_t kv_bytes_total() { return kv_totals().n_bytes; }
  // Keys of rows whose chunk_hash is no longer in `chunks`.
  std::vector<Hash> orphaned_kv();

  uint64_t kv_bytes_unused_since(int64_t unix_ms);  // of rows last used before then
  // What computing so much KV of a model would cost, in ms: from what is known of rows of that model, else by its size.
  double typical_cost_ms(const Hash& fingerprint, uint64_t n_tokens, uint64_t n_bytes);
  // In the order in which they go to make room (kv/eviction.h), fixed prefixes last; those used since `used_before_ms`
  // are left out. At most `limit`.
  std::vector<KvRow> next_to_evict(int64_t used_before_ms, size_t limit);
  std::vector<KvRow> unused_since(int64_t unix_ms);  // longest unused first; no fixed prefixes
  // After one of them went to make room: what is stored or used from now on outlives it.
  void raise_eviction_floor(const Hash& evicted);

  std::vector<DiskFolder> kv_folders();
  int64_t add_kv_folder(const DiskFolder& folder);  // its id
  void set_kv_folder_budget(int64_t id, uint64_t bytes_max);
  void remove_kv_folder(int64_t id);  // no row may lie in it

  std::optional<std::string> setting(const std::string& key);
  void set_setting(const std::string& key, const std::string& value);
  void note_setting(const std::string& key, const std::string& value);  // as touch_kv: a statistic, waits for nobody
  // Runs it without waiting for other processes, nor (outside a transaction) for the disk: for what may be left out.
  // False: it was, the store being busy or the disk full.
  bool without_waiting(const std::function<void()>& write);
  void remove_setting(const std::string& key);

 private:
  double eviction_floor();
  std::string dir_;
  const Clock* clock_;
  Db db_;
};

// Schema version 1. Paths are BLOBs: file names are bytes. Chunks are content-addressed by their text.
inline constexpr const char* kSchema1 = R"sql(
CREATE TABLE collections(
  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, chunk_tokens INTEGER NOT NULL, tokenizer TEXT NOT NULL DEFAULT '');
CREATE TABLE roots(
  collection_id INTEGER NOT NULL REFERENCES collections(id) ON DELETE CASCADE, path BLOB NOT NULL,
  options TEXT NOT NULL DEFAULT '{}', PRIMARY KEY(collection_id, path)) WITHOUT ROWID;
CREATE TABLE sources(
  id INTEGER PRIMARY KEY, collection_id INTEGER NOT NULL REFERENCES collections(id) ON DELETE CASCADE,
  path BLOB NOT NULL, device INTEGER NOT NULL, inode INTEGER NOT NULL, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL,
  content_hash BLOB NOT NULL, format TEXT NOT NULL, title TEXT NOT NULL, indexed_ms INTEGER NOT NULL,
  UNIQUE(collection_id, path));
CREATE INDEX sources_by_content ON sources(collection_id, content_hash);
CREATE TABLE chunks(
  id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, header TEXT NOT NULL, body TEXT NOT NULL, n_tokens INTEGER NOT NULL);
CREATE TABLE source_chunks(
  source_id INTEGER NOT NULL REFERENCES sources(id) ON DELETE CASCADE, seq INTEGER NOT NULL,
  chunk_id INTEGER NOT NULL REFERENCES chunks(id), line_from INTEGER NOT NULL, line_to INTEGER NOT NULL,
  PRIMARY KEY(source_id, seq)) WITHOUT ROWID;
CREATE INDEX source_chunks_by_chunk ON source_chunks(chunk_id);
CREATE TABLE skipped(
  collection_id INTEGER NOT NULL REFERENCES collections(id) ON DELETE CASCADE, path BLOB NOT NULL, reason TEXT NOT NULL,
  device INTEGER NOT NULL DEFAULT 0, inode INTEGER NOT NULL DEFAULT 0, size INTEGER NOT NULL DEFAULT 0, mtime_ns INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY(collection_id, path)) WITHOUT ROWID;
CREATE TABLE stand_ins(
  collection_id INTEGER NOT NULL REFERENCES collections(id) ON DELETE CASCADE, seq INTEGER NOT NULL,
  chunk_id INTEGER NOT NULL REFERENCES chunks(id) ON DELETE CASCADE, PRIMARY KEY(collection_id, seq)) WITHOUT ROWID;
CREATE VIRTUAL TABLE chunk_words USING fts5(header, body, content='chunks', content_rowid='id', tokenize='unicode61 remove_diacritics 2');
CREATE VIRTUAL TABLE chunk_trigrams USING fts5(header, body, content='chunks', content_rowid='id', tokenize='trigram');
CREATE TRIGGER chunks_insert AFTER INSERT ON chunks BEGIN
  INSERT INTO chunk_words(rowid, header, body) VALUES (new.id, new.header, new.body);
  INSERT INTO chunk_trigrams(rowid, header, body) VALUES (new.id, new.header, new.body);
END;
CREATE TRIGGER chunks_delete AFTER DELETE ON chunks BEGIN
  INSERT INTO chunk_words(chunk_words, rowid, header, body) VALUES ('delete', old.id, old.header, old.body);
  INSERT INTO chunk_trigrams(chunk_trigrams, rowid, header, body) VALUES ('delete', old.id, old.header, old.body);
END;
CREATE TABLE models(
  id INTEGER PRIMARY KEY, fingerprint BLOB NOT NULL UNIQUE, name TEXT NOT NULL, architecture TEXT NOT NULL,
  kv_bytes_per_token INTEGER NOT NULL, last_seen_ms INTEGER NOT NULL);
CREATE TABLE model_files(
  device INTEGER NOT NULL, inode INTEGER NOT NULL, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL,
  fingerprint BLOB NOT NULL, PRIMARY KEY(device, inode, size, mtime_ns)) WITHOUT ROWID;
CREATE TABLE kv_blobs(
  key BLOB PRIMARY KEY, fingerprint BLOB NOT NULL, layout BLOB NOT NULL, prefix_id BLOB NOT NULL, ids_hash BLOB NOT NULL,
  context_id BLOB NOT NULL, chunk_hash BLOB, kind INTEGER NOT NULL, codec TEXT NOT NULL, n_tokens INTEGER NOT NULL,
  n_bytes INTEGER NOT NULL, created_ms INTEGER NOT NULL, last_used_ms INTEGER NOT NULL, hits INTEGER NOT NULL DEFAULT 0)
  WITHOUT ROWID;
CREATE INDEX kv_blobs_by_ids ON kv_blobs(ids_hash, fingerprint);
CREATE INDEX kv_blobs_by_chunk ON kv_blobs(chunk_hash);
CREATE TABLE settings(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
)sql";

// Schema version 2: where a blob lies, what it is worth, how it is encrypted; totals that need no counting.
inline constexpr const char* kSchema2 = R"sql(
DROP TABLE model_files;
CREATE TABLE model_files(
  device INTEGER NOT NULL, inode INTEGER NOT NULL, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL,
  ctime_ns INTEGER NOT NULL, fingerprint BLOB NOT NULL, sample BLOB NOT NULL, PRIMARY KEY(size, mtime_ns, device, inode))
  WITHOUT ROWID;
ALTER TABLE kv_blobs ADD COLUMN folder INTEGER NOT NULL DEFAULT 0;
ALTER TABLE kv_blobs ADD COLUMN cost_ms REAL NOT NULL DEFAULT 0;
ALTER TABLE kv_blobs ADD COLUMN priority REAL NOT NULL DEFAULT 0;
ALTER TABLE kv_blobs ADD COLUMN cipher BLOB;
CREATE INDEX kv_blobs_by_priority ON kv_blobs(priority, last_used_ms, key);
CREATE TABLE kv_folders(
  id INTEGER PRIMARY KEY AUTOINCREMENT, path BLOB NOT NULL UNIQUE, mark TEXT NOT NULL, bytes_max INTEGER NOT NULL);
CREATE TABLE kv_totals(
  folder INTEGER PRIMARY KEY, n_blobs INTEGER NOT NULL, n_tokens INTEGER NOT NULL, n_bytes INTEGER NOT NULL);
INSERT INTO kv_totals SELECT folder, count(*), sum(n_tokens), sum(n_bytes) FROM kv_blobs GROUP BY folder;
CREATE TRIGGER kv_blobs_insert AFTER INSERT ON kv_blobs BEGIN
  INSERT INTO kv_totals VALUES(new.folder, 1, new.n_tokens, new.n_bytes) ON CONFLICT DO UPDATE SET
    n_blobs = n_blobs + 1, n_tokens = n_tokens + new.n_tokens, n_bytes = n_bytes + new.n_bytes;
END;
CREATE TRIGGER kv_blobs_delete AFTER DELETE ON kv_blobs BEGIN
  UPDATE kv_totals SET n_blobs = n_blobs - 1, n_tokens = n_tokens - old.n_tokens, n_bytes = n_bytes - old.n_bytes
    WHERE folder = old.folder;
END;
CREATE TRIGGER kv_blobs_update AFTER UPDATE OF folder, n_tokens, n_bytes ON kv_blobs BEGIN
  UPDATE kv_totals SET n_blobs = n_blobs - 1, n_tokens = n_tokens - old.n_tokens, n_bytes = n_bytes - old.n_bytes
    WHERE folder = old.folder;
  INSERT INTO kv_totals VALUES(new.folder, 1, new.n_tokens, new.n_bytes) ON CONFLICT DO UPDATE SET
    n_blobs = n_blobs + 1, n_tokens = n_tokens + new.n_tokens, n_bytes = n_bytes + new.n_bytes;
END;
)sql";

}  // namespace cento
