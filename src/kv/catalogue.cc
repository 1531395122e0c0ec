#include "kv/catalogue.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/file.h"
#include "kv/eviction.h"
#include "kv/migrations.h"

namespace cento {
namespace {

constexpr int32_t kApplicationId = 0x43656e74;  // "Cent", at byte 68 of the file (SQLite file format, 1.3)

// Step i takes schema version i to i + 1.
constexpr std::array<const char*, Catalogue::kSchemaVersion> kSteps = {kSchema1, kSchema2};

constexpr const char* kColumns =
    "key, fingerprint, layout, prefix_id, ids_hash, context_id, chunk_hash, kind, codec, n_tokens, n_bytes, "
    "created_ms, last_used_ms, hits, folder, cost_ms, cipher";
constexpr const char* kFloorSetting = "eviction/floor";

std::string under(const std::string& dir, const char* name) {
  return (dir.empty() ? "." : dir) + (dir.ends_with('/') ? "" : "/") + name;
}

// The store's folder is 0700. A folder that was there and holds other things is the person's own: it is left as it is,
// and what we put into it is 0600 all the same.
void prepare_folder(const std::string& dir) {
  FileSystem& fs = FileSystem::real();
  const bool was_there = fs.exists(dir);
  fs.make_folders(dir).or_throw();
  struct stat st {};
  if (::stat(dir.c_str(), &st) != 0) throw system_error("cannot open folder", dir, errno);
  if ((st.st_mode & 07777) == 0700 || (st.st_mode & S_ISVTX) != 0 || st.st_uid != ::geteuid()) return;
  if (was_there) {
    const auto names = fs.list(dir);
    const bool ours = names.ok() && (names->empty() || fs.exists(under(dir, "catalogue.sqlite")));
    if (!ours) return;
  }
  if (::chmod(dir.c_str(), 0700) != 0) throw system_error("cannot set permissions of", dir, errno);
}

std::string prepared_path(const std::string& dir, Db::Mode mode) {
  const std::string path = under(dir, "catalogue.sqlite");
  if (mode == Db::Mode::kReadWrite) {
    prepare_folder(dir);
    return path;
  }
  struct stat st {};
  const bool there = ::stat(path.c_str(), &st) == 0;
  if (!there && errno != ENOENT && errno != ENOTDIR) throw system_error("cannot open the store", path, errno);
  // An empty file: stopped between its creation and its first transaction.
  if (!there || st.st_size == 0)
    throw Error{Code::kInput, "there is no store", dir, "create it with `cento index FOLDER`"};
  return path;
}

void require_fts5(Db& db) {
  Stmt find = db.prepare("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'");
  if (find.step()) return;
  Stmt version = db.prepare("SELECT sqlite_version()");
  const std::string number = version.step() ? version.text(0) : "?";
  throw Error{Code::kInternal, "the SQLite library in use (" + number + ") was built without FTS5", "libsqlite3",
              "use the distribution's SQLite package"};
}

uint64_t count_of(const Stmt& row, int column, const std::string& path) {
  const int64_t value = row.integer(column);
  if (value < 0) {
    throw Error{Code::kInput, "store is damaged: a count is negative", path,
                "remove the store; `cento index` builds it again"};
  }
  return static_cast<uint64_t>(value);
}

KvRow row_of(const Stmt& s, const std::string& path) {
  KvRow row;
  row.key = s.hash(0);
  row.fingerprint = s.hash(1);
  row.layout = s.hash(2);
  row.prefix_id = s.hash(3);
  row.ids_hash = s.hash(4);
  row.context_id = s.hash(5);
  if (!s.is_null(6)) row.chunk_hash = s.hash(6);
  const int64_t kind = s.integer(7);
  if (kind < 0 || kind > static_cast<int64_t>(KvKind::kChunkStandIn)) {
    throw Error{Code::kInput, "store is damaged: kind " + std::to_string(kind) + " of a stored KV", path,
                "remove the store; `cento index` builds it again"};
  }
  row.kind = static_cast<KvKind>(kind);
  row.codec = s.text(8);
  row.n_tokens = count_of(s, 9, path);
  row.n_bytes = count_of(s, 10, path);
  row.created_ms = s.integer(11);
  row.last_used_ms = s.integer(12);
  row.hits = count_of(s, 13, path);
  row.folder = s.integer(14);
  row.cost_ms = s.number(15);
  if (!s.is_null(16)) {
    const std::vector<std::byte> id = s.blob(16);
    row.cipher.emplace();
    if (id.size() != row.cipher->size()) {
      throw Error{Code::kInput, "store is damaged: key id of a stored KV", path,
                  "remove the store; `cento index` builds it again"};
    }
    std::memcpy(row.cipher->data(), id.data(), id.size());
  }
  return row;
}

std::vector<KvRow> rows_of(Stmt& s, const std::string& path) {
  std::vector<KvRow> rows;
  while (s.step()) rows.push_back(row_of(s, path));
  return rows;
}

std::vector<Hash> hashes_of(Stmt s) {
  std::vector<Hash> hashes;
  while (s.step()) hashes.push_back(s.hash(0));
  return hashes;
}

// Device and inode are unsigned 64-bit, SQLite's integers signed: the same bits, compared for equality only.
Stmt& bind_stamp(Stmt& s, const FileStamp& stamp) {
  return s.bind(1, static_cast<int64_t>(stamp.device))
      .bind(2, static_cast<int64_t>(stamp.inode))
      .bind(3, static_cast<int64_t>(stamp.size))
      .bind(4, stamp.mtime_ns);
}

// While it lives, a statement outside a transaction waits neither for another process nor for the disk.
class NoWaiting {
 public:
  explicit NoWaiting(Db& db) : db_(&db), active_(!db.in_transaction()) {
    if (active_) db.exec("PRAGMA busy_timeout=0; PRAGMA synchronous=NORMAL");
  }
  ~NoWaiting() {
    if (!active_) return;
    try {
      db_->exec("PRAGMA synchronous=FULL");
      db_->set_busy_timeout_ms(Db::kBusyTimeoutMs);
    } catch (const Error&) {
      // Flags of the connection: setting them fails for want of memory only.
    }
  }
  NoWaiting(const NoWaiting&) = delete;
  NoWaiting& operator=(const NoWaiting&) = delete;

 private:
  Db* db_;
  bool active_;
};

}  // namespace

Catalogue::Catalogue(const std::string& store_dir, Db::Mode mode, const Clock& clock)
    : dir_(store_dir), clock_(&clock), db_(prepared_path(store_dir, mode), mode, kApplicationId) {
  require_fts5(db_);
  migrate(db_, kSteps, kApplicationId);
}

// ---- models

std::vector<Catalogue::RememberedModel> Catalogue::remembered_models(uint64_t size, int64_t mtime_ns) {
  Stmt s = db_.prepare(
      "SELECT device, inode, ctime_ns, fingerprint, sample FROM model_files WHERE size=? AND mtime_ns=? "
      "ORDER BY device, inode");
  s.bind(1, static_cast<int64_t>(size)).bind(2, mtime_ns);
  std::vector<RememberedModel> models;
  while (s.step()) {
    models.push_back({{static_cast<uint64_t>(s.integer(0)), static_cast<uint64_t>(s.integer(1)), size, mtime_ns},
                      s.integer(2),
                      s.hash(3),
                      s.hash(4)});
  }
  return models;
}

void Catalogue::remember_model(const RememberedModel& model) {
  Stmt s = db_.prepare(
      "INSERT INTO model_files(device, inode, size, mtime_ns, ctime_ns, fingerprint, sample) VALUES(?,?,?,?,?,?,?) "
      "ON CONFLICT DO UPDATE SET ctime_ns=excluded.ctime_ns, fingerprint=excluded.fingerprint, sample=excluded.sample");
  bind_stamp(s, model.stamp).bind(5, model.ctime_ns).bind_hash(6, model.fingerprint).bind_hash(7, model.sample).run();
}

void Catalogue::put_model(const Hash& fingerprint, const std::string& name, const std::string& architecture,
                          uint64_t kv_bytes_per_token) {
  Stmt s = db_.prepare(
      "INSERT INTO models(fingerprint, name, architecture, kv_bytes_per_token, last_seen_ms) VALUES(?,?,?,?,?) "
      "ON CONFLICT(fingerprint) DO UPDATE SET name=excluded.name, architecture=excluded.architecture, "
      "kv_bytes_per_token=excluded.kv_bytes_per_token, last_seen_ms=excluded.last_seen_ms");
  s.bind_hash(1, fingerprint).bind_text(2, name).bind_text(3, architecture);
  s.bind(4, static_cast<int64_t>(kv_bytes_per_token)).bind(5, clock_->unix_ms()).run();
}

// ---- KV blobs

// Not REPLACE: that would delete the old row without telling the triggers.
void Catalogue::put_kv(const KvRow& row) {
  Stmt s = db_.prepare(
      "INSERT INTO kv_blobs(" + std::string(kColumns) +
      ", priority) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO UPDATE SET "
      "fingerprint=excluded.fingerprint, layout=excluded.layout, prefix_id=excluded.prefix_id, "
      "ids_hash=excluded.ids_hash, context_id=excluded.context_id, chunk_hash=excluded.chunk_hash, kind=excluded.kind, "
      "codec=excluded.codec, n_tokens=excluded.n_tokens, n_bytes=excluded.n_bytes, created_ms=excluded.created_ms, "
      "last_used_ms=excluded.last_used_ms, hits=excluded.hits, folder=excluded.folder, cost_ms=excluded.cost_ms, "
      "cipher=excluded.cipher, priority=excluded.priority");
  s.bind_hash(1, row.key).bind_hash(2, row.fingerprint).bind_hash(3, row.layout).bind_hash(4, row.prefix_id);
  s.bind_hash(5, row.ids_hash).bind_hash(6, row.context_id);
  if (row.chunk_hash) {
    s.bind_hash(7, *row.chunk_hash);
  } else {
    s.bind_null(7);
  }
  s.bind(8, static_cast<int64_t>(row.kind)).bind_text(9, row.codec);
  s.bind(10, static_cast<int64_t>(row.n_tokens)).bind(11, static_cast<int64_t>(row.n_bytes));
  s.bind(12, row.created_ms).bind(13, row.last_used_ms).bind(14, static_cast<int64_t>(row.hits));
  s.bind(15, row.folder).bind(16, row.cost_ms);
  if (row.cipher) {
    s.bind_blob(17, std::as_bytes(std::span(*row.cipher)));
  } else {
    s.bind_null(17);
  }
  s.bind(18, eviction_priority(eviction_floor(), {row.n_bytes, row.cost_ms, row.hits})).run();
}

std::optional<KvRow> Catalogue::kv(const Hash& key) {
  Stmt s = db_.prepare("SELECT " + std::string(kColumns) + " FROM kv_blobs WHERE key=?");
  if (!s.bind_hash(1, key).step()) return std::nullopt;
  return row_of(s, db_.path());
}

std::vector<KvRow> Catalogue::find_kv(const Hash& fingerprint, const Hash& layout, const Hash& prefix_id,
                                      const Hash& ids_hash) {
  // The key as second criterion: equal times must not give a different order from run to run.
  Stmt s = db_.prepare("SELECT " + std::string(kColumns) +
                       " FROM kv_blobs WHERE ids_hash=? AND fingerprint=? AND layout=? AND prefix_id=? "
                       "ORDER BY created_ms DESC, key");
  s.bind_hash(1, ids_hash).bind_hash(2, fingerprint).bind_hash(3, layout).bind_hash(4, prefix_id);
  return rows_of(s, db_.path());
}

std::vector<KvRow> Catalogue::kv_of_ids(const Hash& ids_hash) {
  Stmt s = db_.prepare("SELECT " + std::string(kColumns) + " FROM kv_blobs WHERE ids_hash=? ORDER BY key");
  return rows_of(s.bind_hash(1, ids_hash), db_.path());
}

std::vector<Hash> Catalogue::kv_keys() { return hashes_of(db_.prepare("SELECT key FROM kv_blobs ORDER BY key")); }

std::vector<KvRow> Catalogue::all_kv() {
  Stmt s = db_.prepare("SELECT " + std::string(kColumns) + " FROM kv_blobs ORDER BY key");
  return rows_of(s, db_.path());
}

void Catalogue::remove_kv(const Hash& key) {
  Stmt s = db_.prepare("DELETE FROM kv_blobs WHERE key=?");
  s.bind_hash(1, key).run();
}

// A statistic must not delay an answer: it does not wait for a lock, nor (outside a transaction) for the disk, and what
// it cannot write it leaves out.
void Catalogue::touch_kv(const Hash& key) {
  if (db_.read_only()) return;
  (void)without_waiting([&] {
    const auto row = kv(key);
    if (!row) return;
    Stmt s = db_.prepare("UPDATE kv_blobs SET last_used_ms=?, hits=hits+1, priority=? WHERE key=?");
    s.bind(1, clock_->unix_ms());
    s.bind(2, eviction_priority(eviction_floor(), {row->n_bytes, row->cost_ms, row->hits + 1}));
    s.bind_hash(3, key).run();
  });
}

KvTotals Catalogue::kv_totals(std::optional<int64_t> folder) {
  Stmt s = db_.prepare(
      "SELECT coalesce(sum(n_blobs), 0), coalesce(sum(n_tokens), 0), coalesce(sum(n_bytes), 0) FROM kv_totals" +
      std::string(folder ? " WHERE folder=?" : ""));
  if (folder) s.bind(1, *folder);
  if (!s.step()) return {};
  return {count_of(s, 0, db_.path()), count_of(s, 1, db_.path()), count_of(s, 2, db_.path())};
}

// ---- what goes first

double Catalogue::eviction_floor() {
  const auto text = setting(kFloorSetting);
  if (!text) return 0;
  const double floor = std::strtod(text->c_str(), nullptr);
  return std::isfinite(floor) ? floor : 0;
}

void Catalogue::raise_eviction_floor(const Hash& evicted) {
  double priority = 0;
  {  // its end lets go of what it reads: a write beside a read of old state is refused
    Stmt s = db_.prepare("SELECT priority FROM kv_blobs WHERE key=?");
    if (!s.bind_hash(1, evicted).step()) return;
    priority = s.number(0);
  }
  if (!(priority > eviction_floor())) return;
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%.17g", priority);
  set_setting(kFloorSetting, text.data());
}

std::vector<KvRow> Catalogue::next_to_evict(int64_t used_before_ms, size_t limit) {
  std::vector<KvRow> rows;
  for (const char* kinds : {"kind<>0", "kind=0"}) {
    if (rows.size() >= limit) break;
    Stmt s = db_.prepare("SELECT " + std::string(kColumns) + " FROM kv_blobs WHERE " + kinds +
                         " AND last_used_ms<? ORDER BY priority, last_used_ms, key LIMIT ?");
    s.bind(1, used_before_ms).bind(2, static_cast<int64_t>(limit - rows.size()));
    for (KvRow& row : rows_of(s, db_.path())) rows.push_back(std::move(row));
  }
  return rows;
}

uint64_t Catalogue::kv_bytes_unused_since(int64_t unix_ms) {
  Stmt s = db_.prepare("SELECT coalesce(sum(n_bytes), 0) FROM kv_blobs WHERE last_used_ms<?");
  return s.bind(1, unix_ms).step() ? count_of(s, 0, db_.path()) : 0;
}

double Catalogue::typical_cost_ms(const Hash& fingerprint, uint64_t n_tokens, uint64_t n_bytes) {
  // One model's rows cost about the same a token, so any of them will do.
  Stmt s =
      db_.prepare("SELECT cost_ms, n_tokens FROM kv_blobs WHERE fingerprint=? AND cost_ms>0 AND n_tokens>0 LIMIT 1");
  if (s.bind_hash(1, fingerprint).step())
    return s.number(0) / static_cast<double>(s.integer(1)) * static_cast<double>(n_tokens);
  constexpr double kMsPerByte = 5e-5;  // about 1 ms for the 20 KB a token of a small model
  return kMsPerByte * static_cast<double>(n_bytes);
}

std::vector<KvRow> Catalogue::unused_since(int64_t unix_ms) {
  Stmt s = db_.prepare("SELECT " + std::string(kColumns) +
                       " FROM kv_blobs WHERE kind<>0 AND last_used_ms<? ORDER BY last_used_ms, key");
  return rows_of(s.bind(1, unix_ms), db_.path());
}

// ---- folders of blobs

std::vector<DiskFolder> Catalogue::kv_folders() {
  Stmt s = db_.prepare("SELECT id, path, mark, bytes_max FROM kv_folders ORDER BY id");
  std::vector<DiskFolder> folders;
  while (s.step()) {
    const std::vector<std::byte> path = s.blob(1);
    DiskFolder folder;
    folder.id = s.integer(0);
    folder.path.assign(reinterpret_cast<const char*>(path.data()), path.size());
    folder.mark = s.text(2);
    folder.bytes_max = count_of(s, 3, db_.path());
    folders.push_back(std::move(folder));
  }
  return folders;
}

int64_t Catalogue::add_kv_folder(const DiskFolder& folder) {
  Stmt s = db_.prepare("INSERT INTO kv_folders(path, mark, bytes_max) VALUES(?,?,?)");
  s.bind_blob(1, std::as_bytes(std::span(folder.path))).bind_text(2, folder.mark);
  s.bind(3, static_cast<int64_t>(folder.bytes_max)).run();
  return db_.last_row_id();
}

void Catalogue::set_kv_folder_budget(int64_t id, uint64_t bytes_max) {
  Stmt s = db_.prepare("UPDATE kv_folders SET bytes_max=? WHERE id=?");
  s.bind(1, static_cast<int64_t>(bytes_max)).bind(2, id).run();
}

void Catalogue::remove_kv_folder(int64_t id) {
  Stmt s = db_.prepare("DELETE FROM kv_folders WHERE id=? AND NOT EXISTS (SELECT 1 FROM kv_blobs WHERE folder=?)");
  s.bind(1, id).bind(2, id).run();
}

std::vector<Hash> Catalogue::orphaned_kv() {
  return hashes_of(
      db_.prepare("SELECT key FROM kv_blobs WHERE chunk_hash IS NOT NULL "
                  "AND NOT EXISTS (SELECT 1 FROM chunks WHERE chunks.hash = kv_blobs.chunk_hash) ORDER BY key"));
}

// ---- settings

std::optional<std::string> Catalogue::setting(const std::string& key) {
  Stmt s = db_.prepare("SELECT value FROM settings WHERE key=?");
  if (!s.bind_text(1, key).step()) return std::nullopt;
  return s.text(0);
}

void Catalogue::set_setting(const std::string& key, const std::string& value) {
  Stmt s =
      db_.prepare("INSERT INTO settings(key, value) VALUES(?,?) ON CONFLICT(key) DO UPDATE SET value=excluded.value");
  s.bind_text(1, key).bind_text(2, value).run();
}

void Catalogue::note_setting(const std::string& key, const std::string& value) {
  if (!db_.read_only()) (void)without_waiting([&] { set_setting(key, value); });
}

bool Catalogue::without_waiting(const std::function<void()>& write) {
  const NoWaiting no_waiting(db_);
  try {
    write();
    return true;
  } catch (const Error& error) {
    if (error.code() != Code::kResource || db_.in_transaction()) throw;
    return false;
  }
}

void Catalogue::remove_setting(const std::string& key) {
  Stmt s = db_.prepare("DELETE FROM settings WHERE key=?");
  s.bind_text(1, key).run();
}

}  // namespace cento
