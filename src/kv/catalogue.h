// The store's catalogue: one SQLite file that alone says what exists (DESIGN 5). This class opens and migrates it and
// keeps models and KV blobs; the documents' tables in it are kept by docs/doc_store.h over the same connection.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/hash.h"
#include "base/mapped_file.h"
#include "kv/kv_types.h"
#include "kv/sqlite.h"

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
};

class Catalogue {
 public:
  static constexpr int kSchemaVersion = 1;

  // Opens DIR/catalogue.sqlite, creating folder (0700) and file in kReadWrite. Older schemas are migrated in one
  // transaction each; a newer one, or a file that is not ours, throws Error(kInput) that says so.
  // kReadOnly: throws Error(kInput) when there is no store.
  Catalogue(const std::string& store_dir, Db::Mode mode, const Clock& clock = Clock::system());

  Db& db() { return db_; }
  const std::string& dir() const { return dir_; }
  const Clock& clock() const { return *clock_; }

  // Content hash of a model file remembered by stamp, so that a file is hashed once.
  std::optional<Hash> remembered_fingerprint(const FileStamp& stamp);
  void remember_fingerprint(const FileStamp& stamp, const Hash& fingerprint);
  void put_model(const Hash& fingerprint, const std::string& name, const std::string& architecture,
                 uint64_t kv_bytes_per_token);

  void put_kv(const KvRow& row);  // replaces a row of the same key
  std::optional<KvRow> kv(const Hash& key);
  // Rows usable for a chunk: same model, layout, prefix and ids; newest first.
  std::vector<KvRow> find_kv(const Hash& fingerprint, const Hash& layout, const Hash& prefix_id, const Hash& ids_hash);
  std::vector<KvRow> kv_of_ids(const Hash& ids_hash);  // of any model, layout, prefix and context
  std::vector<KvRow> all_kv();
  std::vector<Hash> kv_keys();
  void remove_kv(const Hash& key);
  void touch_kv(const Hash& key);  // last use and hits; silently nothing on a read-only store
  uint64_t kv_bytes_total();
  // Keys of rows whose chunk_hash is no longer in `chunks`.
  std::vector<Hash> orphaned_kv();

  std::optional<std::string> setting(const std::string& key);
  void set_setting(const std::string& key, const std::string& value);
  void note_setting(const std::string& key, const std::string& value);  // as touch_kv: a statistic, waits for nobody

 private:
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

}  // namespace cento
