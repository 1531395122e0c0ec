#include "docs/doc_store.h"

#include <algorithm>
#include <array>
#include <span>
#include <unordered_map>

#include "base/check.h"

namespace cento {
namespace {

std::span<const std::byte> bytes_of(const std::string& s) { return std::as_bytes(std::span(s)); }

std::string path_at(const Stmt& stmt, int column) {
  const std::vector<std::byte> bytes = stmt.blob(column);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

int64_t as_signed(uint64_t value) { return static_cast<int64_t>(value); }

void bind_stamp(Stmt& stmt, int first, const FileStamp& stamp) {
  stmt.bind(first, as_signed(stamp.device)).bind(first + 1, as_signed(stamp.inode));
  stmt.bind(first + 2, as_signed(stamp.size)).bind(first + 3, stamp.mtime_ns);
}

FileStamp stamp_at(const Stmt& stmt, int first) {
  return {static_cast<uint64_t>(stmt.integer(first)), static_cast<uint64_t>(stmt.integer(first + 1)),
          static_cast<uint64_t>(stmt.integer(first + 2)), stmt.integer(first + 3)};
}

// A prepared statement in use; ready for the next use when this goes.
class Use {
 public:
  explicit Use(Stmt& stmt) : stmt_(&stmt) {}
  ~Use() { stmt_->reset(); }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  Stmt* operator->() const { return stmt_; }
  Stmt& operator*() const { return *stmt_; }

 private:
  Stmt* stmt_;
};

Collection collection_at(const Stmt& stmt) {
  return {stmt.integer(0), stmt.text(1), static_cast<uint32_t>(stmt.integer(2)), stmt.text(3)};
}

ChunkRow chunk_at(const Stmt& stmt) {
  return {stmt.integer(0), stmt.hash(1), stmt.text(2), stmt.text(3), static_cast<uint32_t>(stmt.integer(4))};
}

constexpr const char* kChunkColumns = "SELECT c.id, c.hash, c.header, c.body, c.n_tokens FROM chunks c ";

}  // namespace

// Statements by their text. The text's address is the key: each is one literal in this file.
struct DocStore::Statements {
  explicit Statements(Db& database) : db(&database) {}
  Use use(const char* sql) {
    auto found = by_text.find(sql);
    if (found == by_text.end()) found = by_text.emplace(sql, db->prepare(sql)).first;
    return Use(found->second);
  }
  Db* db;
  std::unordered_map<const char*, Stmt> by_text;
};

std::string ChunkRow::prompt_text() const { return header.empty() ? body + "\n" : header + "\n" + body + "\n"; }

Hash chunk_text_hash(const std::string& header, const std::string& body) {
  return hash_of_text("cento chunk text", header.empty() ? body + "\n" : header + "\n" + body + "\n");
}

DocStore::DocStore(Catalogue& catalogue)
    : catalogue_(&catalogue), statements_(std::make_unique<Statements>(catalogue.db())) {}
DocStore::~DocStore() = default;

DocStore::Batch::Batch(DocStore& store) : store_(&store) {
  CHECK(!store.in_batch_);
  store.in_batch_ = true;
}

DocStore::Batch::~Batch() {
  store_->batch_.reset();
  store_->in_batch_ = false;
}

void DocStore::Batch::commit() {
  if (!store_->batch_) return;
  store_->batch_->commit();
  store_->batch_.reset();
}

template <class Work>
auto DocStore::in_transaction(Work&& work) {
  if (in_batch_) {
    if (!batch_) batch_ = std::make_unique<Transaction>(catalogue_->db());
    return work();
  }
  Transaction transaction(catalogue_->db());
  if constexpr (std::is_void_v<decltype(work())>) {
    work();
    transaction.commit();
  } else {
    auto result = work();
    transaction.commit();
    return result;
  }
}

// ---- collections and their folders

std::optional<Collection> DocStore::find_collection(const std::string& name) {
  const Use q = statements_->use("SELECT id, name, chunk_tokens, tokenizer FROM collections WHERE name = ?1");
  q->bind_text(1, name);
  if (!q->step()) return std::nullopt;
  return collection_at(*q);
}

Collection DocStore::open_collection(const std::string& name, uint32_t chunk_tokens, const std::string& tokenizer) {
  {
    const Use insert = statements_->use(
        "INSERT INTO collections(name, chunk_tokens, tokenizer) VALUES (?1, ?2, ?3) ON CONFLICT(name) DO NOTHING");
    insert->bind_text(1, name).bind(2, int64_t{chunk_tokens}).bind_text(3, tokenizer);
    insert->run();
  }
  return *find_collection(name);
}

std::vector<Collection> DocStore::collections() {
  const Use q = statements_->use("SELECT id, name, chunk_tokens, tokenizer FROM collections ORDER BY name");
  std::vector<Collection> list;
  while (q->step()) list.push_back(collection_at(*q));
  return list;
}

void DocStore::set_collection_tokens(int64_t collection_id, uint32_t chunk_tokens, const std::string& tokenizer) {
  const Use q = statements_->use("UPDATE collections SET chunk_tokens = ?2, tokenizer = ?3 WHERE id = ?1");
  q->bind(1, collection_id).bind(2, int64_t{chunk_tokens}).bind_text(3, tokenizer);
  q->run();
}

std::vector<std::string> DocStore::roots(int64_t collection_id) {
  const Use q = statements_->use("SELECT path FROM roots WHERE collection_id = ?1 ORDER BY path");
  q->bind(1, collection_id);
  std::vector<std::string> list;
  while (q->step()) list.push_back(path_at(*q, 0));
  return list;
}

void DocStore::add_root(int64_t collection_id, const std::string& path, const std::string& options_json) {
  const Use q = statements_->use(
      "INSERT INTO roots(collection_id, path, options) VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET options = "
      "excluded.options");
  q->bind(1, collection_id).bind_blob(2, bytes_of(path)).bind_text(3, options_json);
  q->run();
}

std::string DocStore::root_options(int64_t collection_id, const std::string& path) {
  const Use q = statements_->use("SELECT options FROM roots WHERE collection_id = ?1 AND path = ?2");
  q->bind(1, collection_id).bind_blob(2, bytes_of(path));
  return q->step() ? q->text(0) : "{}";
}

// ---- sources

std::vector<SourceRow> DocStore::sources(int64_t collection_id) {
  const Use q = statements_->use(
      "SELECT id, path, device, inode, size, mtime_ns, content_hash, format, title FROM sources WHERE collection_id = "
      "?1 ORDER BY path");
  q->bind(1, collection_id);
  std::vector<SourceRow> list;
  while (q->step()) {
    list.push_back({q->integer(0), path_at(*q, 1), stamp_at(*q, 2), q->hash(6), q->text(7), q->text(8)});
  }
  return list;
}

DocStore::PutCounts DocStore::put_source(int64_t collection_id, const SourceRow& source,
                                         const std::vector<NewChunk>& chunks) {
  return in_transaction([&] {
    PutCounts counts;
    int64_t source_id = 0;
    {
      const Use q = statements_->use(
          "INSERT INTO sources(collection_id, path, device, inode, size, mtime_ns, content_hash, format, title, "
          "indexed_ms) "
          "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT(collection_id, path) DO UPDATE SET device = "
          "?3, inode = ?4, "
          "size = ?5, mtime_ns = ?6, content_hash = ?7, format = ?8, title = ?9, indexed_ms = ?10 RETURNING id");
      q->bind(1, collection_id).bind_blob(2, bytes_of(source.path));
      bind_stamp(*q, 3, source.stamp);
      q->bind_hash(7, source.content_hash).bind_text(8, source.format).bind_text(9, source.title);
      q->bind(10, catalogue_->clock().unix_ms());
      q->step();
      source_id = q->integer(0);
    }
    std::vector<int64_t> old_chunks;
    {
      const Use q = statements_->use("SELECT DISTINCT chunk_id FROM source_chunks WHERE source_id = ?1");
      q->bind(1, source_id);
      while (q->step()) old_chunks.push_back(q->integer(0));
    }
    if (!old_chunks.empty()) {
      const Use q = statements_->use("DELETE FROM source_chunks WHERE source_id = ?1");
      q->bind(1, source_id);
      q->run();
    }
    for (size_t seq = 0; seq < chunks.size(); ++seq) {
      const NewChunk& chunk = chunks[seq];
      const Hash hash = chunk_text_hash(chunk.header, chunk.body);
      int64_t chunk_id = 0;
      {
        const Use q = statements_->use("SELECT id FROM chunks WHERE hash = ?1");
        q->bind_hash(1, hash);
        if (q->step()) chunk_id = q->integer(0);
      }
      if (chunk_id == 0) {
        const Use q =
            statements_->use("INSERT INTO chunks(hash, header, body, n_tokens) VALUES (?1, ?2, ?3, ?4) RETURNING id");
        q->bind_hash(1, hash).bind_text(2, chunk.header).bind_text(3, chunk.body).bind(4, int64_t{chunk.n_tokens});
        q->step();
        chunk_id = q->integer(0);
        while (q->step()) {  // to its end: the triggers have run then
        }
        ++counts.chunks_new;
      }
      const Use q = statements_->use(
          "INSERT INTO source_chunks(source_id, seq, chunk_id, line_from, line_to) VALUES (?1, ?2, ?3, ?4, ?5)");
      q->bind(1, source_id).bind(2, static_cast<int64_t>(seq)).bind(3, chunk_id);
      q->bind(4, int64_t{chunk.line_from}).bind(5, int64_t{chunk.line_to});
      q->run();
    }
    counts.chunks_removed = drop_unused(old_chunks);
    return counts;
  });
}

// Deletes those of the chunks that stand in no source any more; their rows in the text indexes go by trigger.
uint64_t DocStore::drop_unused(const std::vector<int64_t>& chunk_ids) {
  uint64_t n = 0;
  for (const int64_t id : chunk_ids) {
    const Use q = statements_->use(
        "DELETE FROM chunks WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM source_chunks WHERE chunk_id = ?1) RETURNING "
        "id");
    q->bind(1, id);
    while (q->step()) ++n;
  }
  return n;
}

void DocStore::rename_source(int64_t source_id, const std::string& new_path, const FileStamp& stamp) {
  in_transaction([&] {
    const Use q = statements_->use(
        "UPDATE sources SET path = ?2, device = ?3, inode = ?4, size = ?5, mtime_ns = ?6 WHERE id = ?1");
    q->bind(1, source_id).bind_blob(2, bytes_of(new_path));
    bind_stamp(*q, 3, stamp);
    q->run();
  });
}

void DocStore::touch_source(int64_t source_id, const FileStamp& stamp) {
  in_transaction([&] {
    const Use q =
        statements_->use("UPDATE sources SET device = ?2, inode = ?3, size = ?4, mtime_ns = ?5 WHERE id = ?1");
    q->bind(1, source_id);
    bind_stamp(*q, 2, stamp);
    q->run();
  });
}

void DocStore::forget_stamps(int64_t collection_id) {
  in_transaction([&] {
    const Use sources =
        statements_->use("UPDATE sources SET device = 0, inode = 0, size = 0, mtime_ns = 0 WHERE collection_id = ?1");
    sources->bind(1, collection_id);
    sources->run();
    const Use skips =
        statements_->use("UPDATE skipped SET device = 0, inode = 0, size = 0, mtime_ns = 0 WHERE collection_id = ?1");
    skips->bind(1, collection_id);
    skips->run();
  });
}

uint64_t DocStore::remove_source(int64_t source_id) {
  return in_transaction([&] {
    std::vector<int64_t> chunk_ids;
    {
      const Use q = statements_->use("SELECT DISTINCT chunk_id FROM source_chunks WHERE source_id = ?1");
      q->bind(1, source_id);
      while (q->step()) chunk_ids.push_back(q->integer(0));
    }
    {
      const Use q = statements_->use("DELETE FROM sources WHERE id = ?1");
      q->bind(1, source_id);
      q->run();
    }
    return drop_unused(chunk_ids);
  });
}

void DocStore::set_skipped(int64_t collection_id,
                           const std::vector<std::pair<std::string, std::string>>& path_and_reason) {
  std::vector<SkippedFile> files;
  for (const auto& [path, reason] : path_and_reason) files.push_back({path, reason, {}});
  set_skipped(collection_id, files);
}

void DocStore::set_skipped(int64_t collection_id, const std::vector<SkippedFile>& files) {
  in_transaction([&] {
    {
      const Use q = statements_->use("DELETE FROM skipped WHERE collection_id = ?1");
      q->bind(1, collection_id);
      q->run();
    }
    for (const SkippedFile& file : files) {
      const Use q = statements_->use(
          "INSERT OR REPLACE INTO skipped(collection_id, path, reason, device, inode, size, mtime_ns) VALUES (?1, ?2, "
          "?3, ?4, ?5, ?6, ?7)");
      q->bind(1, collection_id).bind_blob(2, bytes_of(file.path)).bind_text(3, file.reason);
      bind_stamp(*q, 4, file.stamp);
      q->run();
    }
  });
}

std::vector<SkippedFile> DocStore::skipped_files(int64_t collection_id) {
  const Use q = statements_->use(
      "SELECT path, reason, device, inode, size, mtime_ns FROM skipped WHERE collection_id = ?1 ORDER BY path");
  q->bind(1, collection_id);
  std::vector<SkippedFile> list;
  while (q->step()) list.push_back({path_at(*q, 0), q->text(1), stamp_at(*q, 2)});
  return list;
}

std::vector<std::pair<std::string, std::string>> DocStore::skipped(int64_t collection_id) {
  std::vector<std::pair<std::string, std::string>> list;
  for (SkippedFile& file : skipped_files(collection_id))
    list.emplace_back(std::move(file.path), std::move(file.reason));
  return list;
}

// ---- chunks

uint64_t DocStore::chunk_count(int64_t collection_id) {
  const Use q = statements_->use(
      "SELECT count(DISTINCT p.chunk_id) FROM sources s JOIN source_chunks p ON p.source_id = s.id WHERE "
      "s.collection_id = ?1");
  q->bind(1, collection_id);
  q->step();
  return static_cast<uint64_t>(q->integer(0));
}

std::optional<ChunkRow> DocStore::chunk(int64_t chunk_id) {
  static const std::string sql = std::string(kChunkColumns) + "WHERE c.id = ?1";
  const Use q = statements_->use(sql.c_str());
  q->bind(1, chunk_id);
  if (!q->step()) return std::nullopt;
  return chunk_at(*q);
}

std::optional<ChunkRow> DocStore::chunk_by_hash(const Hash& hash) {
  static const std::string sql = std::string(kChunkColumns) + "WHERE c.hash = ?1";
  const Use q = statements_->use(sql.c_str());
  q->bind_hash(1, hash);
  if (!q->step()) return std::nullopt;
  return chunk_at(*q);
}

std::optional<ChunkRow> DocStore::chunk_by_prefix(const std::string& hex_prefix) {
  if (hex_prefix.empty() || hex_prefix.size() > 64) return std::nullopt;
  const auto low = hash_from_hex(hex_prefix + std::string(64 - hex_prefix.size(), '0'));
  const auto high = hash_from_hex(hex_prefix + std::string(64 - hex_prefix.size(), 'f'));
  if (!low || !high) return std::nullopt;
  static const std::string sql = std::string(kChunkColumns) + "WHERE c.hash BETWEEN ?1 AND ?2 LIMIT 2";
  const Use q = statements_->use(sql.c_str());
  q->bind_hash(1, *low).bind_hash(2, *high);
  if (!q->step()) return std::nullopt;
  ChunkRow row = chunk_at(*q);
  if (q->step()) return std::nullopt;
  return row;
}

// CROSS JOIN keeps the order: without statistics SQLite would go through all sources for the sake of ORDER BY.
std::vector<ChunkPlace> DocStore::places(int64_t collection_id, int64_t chunk_id) {
  const Use q = statements_->use(
      "SELECT s.id, s.path, s.title, p.seq, p.line_from, p.line_to FROM source_chunks p CROSS JOIN sources s ON s.id = "
      "p.source_id "
      "WHERE p.chunk_id = ?2 AND s.collection_id = ?1 ORDER BY s.path, p.seq");
  q->bind(1, collection_id).bind(2, chunk_id);
  std::vector<ChunkPlace> list;
  while (q->step()) {
    list.push_back({q->integer(0), path_at(*q, 1), q->text(2), static_cast<uint32_t>(q->integer(3)),
                    static_cast<uint32_t>(q->integer(4)), static_cast<uint32_t>(q->integer(5))});
  }
  return list;
}

std::vector<DocStore::ChunkInOrder> DocStore::chunks_in_order(int64_t collection_id) {
  const Use q = statements_->use(
      "SELECT chunk_id, source_id, seq FROM (SELECT p.chunk_id, p.source_id, p.seq, s.path AS path, row_number() OVER "
      "(PARTITION BY p.chunk_id ORDER BY s.path, p.seq) AS nth FROM sources s JOIN source_chunks p ON p.source_id = "
      "s.id "
      "WHERE s.collection_id = ?1) WHERE nth = 1 ORDER BY path, seq");
  q->bind(1, collection_id);
  std::vector<ChunkInOrder> list;
  while (q->step()) list.push_back({q->integer(0), q->integer(1), static_cast<uint32_t>(q->integer(2))});
  return list;
}

std::vector<ChunkRow> DocStore::preceding(int64_t source_id, uint32_t seq, uint32_t n) {
  static const std::string sql =
      std::string(kChunkColumns) +
      "JOIN source_chunks p ON p.chunk_id = c.id WHERE p.source_id = ?1 AND p.seq < ?2 ORDER BY p.seq DESC LIMIT ?3";
  const Use q = statements_->use(sql.c_str());
  q->bind(1, source_id).bind(2, int64_t{seq}).bind(3, int64_t{n});
  std::vector<ChunkRow> list;
  while (q->step()) list.push_back(chunk_at(*q));
  return list;
}

std::vector<int64_t> DocStore::stand_ins(int64_t collection_id) {
  const Use q = statements_->use("SELECT chunk_id FROM stand_ins WHERE collection_id = ?1 ORDER BY seq");
  q->bind(1, collection_id);
  std::vector<int64_t> list;
  while (q->step()) list.push_back(q->integer(0));
  return list;
}

void DocStore::set_stand_ins(int64_t collection_id, const std::vector<int64_t>& chunk_ids) {
  in_transaction([&] {
    {
      const Use q = statements_->use("DELETE FROM stand_ins WHERE collection_id = ?1");
      q->bind(1, collection_id);
      q->run();
    }
    for (size_t seq = 0; seq < chunk_ids.size(); ++seq) {
      const Use q = statements_->use("INSERT INTO stand_ins(collection_id, seq, chunk_id) VALUES (?1, ?2, ?3)");
      q->bind(1, collection_id).bind(2, static_cast<int64_t>(seq)).bind(3, chunk_ids[seq]);
      q->run();
    }
  });
}

}  // namespace cento
