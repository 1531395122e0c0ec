#include "kv/sqlite.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"

namespace cento {
namespace {

// The write-ahead log is cut back to this after it has grown (an index run writes it in large transactions).
constexpr const char* kWalBytesKept = "PRAGMA journal_size_limit=67108864";

Error sqlite_error(sqlite3* db, int rc, const std::string& path, const std::string& doing) {
  const int system_errno = db != nullptr ? sqlite3_system_errno(db) : 0;
  const std::string detail = db != nullptr ? sqlite3_errmsg(db) : sqlite3_errstr(rc);
  switch (rc & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return {Code::kResource, "store is locked by another process", path,
              "run it again when the other command is done"};
    case SQLITE_FULL:
      return {Code::kResource, "disk full", path, "free disk space, then run it again"};
    case SQLITE_NOMEM:
      return {Code::kResource, "not enough memory for the store", path, "close other programs"};
    case SQLITE_NOTADB:
      return {Code::kInput, "not a SQLite file", path, "give another --store, or move this file away"};
    case SQLITE_CORRUPT:
      return {Code::kInput, "store is damaged: " + detail, path, "remove the store; `cento index` builds it again"};
    case SQLITE_READONLY:
      return {Code::kInput, "store cannot be written", path, "check owner and permissions"};
    case SQLITE_CONSTRAINT:
      return {Code::kInput, "store refuses a row: " + detail, path};
    case SQLITE_TOOBIG:
      return {Code::kInput, "text or value too large for the store", path};
    case SQLITE_IOERR:
      if (system_errno == ENOSPC || system_errno == EDQUOT) {
        return {Code::kResource, "disk full", path, "free disk space, then run it again"};
      }
      if (rc == SQLITE_IOERR_NOMEM) return {Code::kResource, "not enough memory for the store", path};
      return system_error("cannot read or write the store", path, system_errno != 0 ? system_errno : EIO);
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      if (system_errno == 0)
        return {Code::kInput, "cannot open the store: " + detail, path, "check owner and permissions"};
      return system_error("cannot open the store", path, system_errno);
    case SQLITE_ERROR:
      // The schema's version said that the table is there, so the file is not what it says.
      if (detail.starts_with("no such table") || detail.starts_with("no such column")) {
        return {Code::kInput, "store is damaged: " + detail, path, "remove the store; `cento index` builds it again"};
      }
      break;
    default:
      break;
  }
  return {Code::kInternal, "SQLite: " + detail + " (" + doing + ")", path};
}

// Path as a URI, so that no character of it has a meaning: "file:" of SQLite takes %XX and "?options".
std::string as_uri(const std::string& path, const char* query) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string uri = path.starts_with('/') ? "file://" : "file:";
  for (const char c : path) {
    const auto u = static_cast<unsigned char>(c);
    const bool plain = (u >= 'a' && u <= 'z') || (u >= 'A' && u <= 'Z') || (u >= '0' && u <= '9') ||
                       std::strchr("/._-~", c) != nullptr;
    if (plain) {
      uri += c;
    } else {
      uri += {'%', kDigits[u >> 4], kDigits[u & 15]};
    }
  }
  return uri + query;
}

// Creates the file with its permissions. An existing one is not opened here: closing any descriptor of it would drop
// the locks that other connections of this process hold on it (fcntl(2), "Record locking").
void create_if_absent(const std::string& path) {
  const FileHandle created(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (created.open()) {
    if (::fchmod(created.get(), 0600) != 0) throw system_error("cannot set permissions of", path, errno);
    return;
  }
  if (errno != EEXIST) throw system_error("cannot create the store", path, errno);
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) throw system_error("cannot open the store", path, errno);
  const bool others_may = (st.st_mode & 077) != 0;
  if (others_may && S_ISREG(st.st_mode) && st.st_uid == ::geteuid() && ::chmod(path.c_str(), 0600) != 0) {
    throw system_error("cannot set permissions of", path, errno);
  }
}

// Opening a fifo would wait for ever, and SQLite's message for a folder says little.
void require_regular(const std::string& path) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) throw system_error("cannot open the store", path, errno);
  if (!S_ISREG(st.st_mode)) throw Error{Code::kInput, "not a regular file", path, "give another --store"};
}

}  // namespace

// ---- Stmt

Stmt::Stmt(Db& db, std::string_view sql) : db_(&db) {
  CHECK(sql.size() <= INT_MAX);
  const int rc = sqlite3_prepare_v2(db.db_, sql.data(), static_cast<int>(sql.size()), &stmt_, nullptr);
  if (rc != SQLITE_OK) db.fail(rc, std::string(sql.substr(0, 80)));
  CHECK(stmt_ != nullptr);
}

// The result of sqlite3_finalize repeats the error of the latest step, which has been thrown already.
Stmt::~Stmt() { (void)sqlite3_finalize(stmt_); }

Stmt::Stmt(Stmt&& other) noexcept : db_(other.db_), stmt_(std::exchange(other.stmt_, nullptr)) {}

Stmt& Stmt::operator=(Stmt&& other) noexcept {
  if (this != &other) {
    (void)sqlite3_finalize(stmt_);
    db_ = other.db_;
    stmt_ = std::exchange(other.stmt_, nullptr);
  }
  return *this;
}

void Stmt::check(int rc) const {
  if (rc != SQLITE_OK) db_->fail(rc, sqlite3_sql(stmt_));
}

Stmt& Stmt::bind(int index, int64_t value) {
  check(sqlite3_bind_int64(stmt_, index, value));
  return *this;
}

Stmt& Stmt::bind(int index, double value) {
  check(sqlite3_bind_double(stmt_, index, value));
  return *this;
}

// A null pointer would bind NULL; an empty view may have one.
Stmt& Stmt::bind_text(int index, std::string_view text) {
  const char* data = text.empty() ? "" : text.data();
  check(sqlite3_bind_text64(stmt_, index, data, text.size(), SQLITE_TRANSIENT, SQLITE_UTF8));
  return *this;
}

Stmt& Stmt::bind_blob(int index, std::span<const std::byte> bytes) {
  const void* data = bytes.empty() ? static_cast<const void*>("") : bytes.data();
  check(sqlite3_bind_blob64(stmt_, index, data, bytes.size(), SQLITE_TRANSIENT));
  return *this;
}

Stmt& Stmt::bind_hash(int index, const Hash& hash) { return bind_blob(index, std::as_bytes(std::span(hash.bytes))); }

Stmt& Stmt::bind_null(int index) {
  check(sqlite3_bind_null(stmt_, index));
  return *this;
}

bool Stmt::step() {
  const int rc = sqlite3_step(stmt_);
  if (rc == SQLITE_ROW) return true;
  if (rc == SQLITE_DONE) return false;
  const Error error = db_->error(rc, sqlite3_sql(stmt_));
  (void)sqlite3_reset(stmt_);  // the same error once more; the statement must not keep its transaction open
  throw error;
}

void Stmt::run() {
  while (step()) {
  }
  reset();
}

// The result of sqlite3_reset repeats the error of the latest step, which has been thrown already.
void Stmt::reset() { (void)sqlite3_reset(stmt_); }

void Stmt::check_column(int column) const { CHECK(column >= 0 && column < sqlite3_data_count(stmt_)); }

int64_t Stmt::integer(int column) const {
  check_column(column);
  return sqlite3_column_int64(stmt_, column);
}

double Stmt::number(int column) const {
  check_column(column);
  return sqlite3_column_double(stmt_, column);
}

std::string Stmt::text(int column) const {
  check_column(column);
  if (sqlite3_column_type(stmt_, column) == SQLITE_NULL) return {};
  const unsigned char* data = sqlite3_column_text(stmt_, column);
  if (data == nullptr) db_->fail(SQLITE_NOMEM, sqlite3_sql(stmt_));
  return {reinterpret_cast<const char*>(data), static_cast<size_t>(sqlite3_column_bytes(stmt_, column))};
}

std::vector<std::byte> Stmt::blob(int column) const {
  check_column(column);
  const auto* data = static_cast<const std::byte*>(sqlite3_column_blob(stmt_, column));
  const auto n_bytes = static_cast<size_t>(sqlite3_column_bytes(stmt_, column));
  // An empty blob has a null pointer too.
  if (data == nullptr && n_bytes > 0) db_->fail(SQLITE_NOMEM, sqlite3_sql(stmt_));
  return data == nullptr ? std::vector<std::byte>{} : std::vector<std::byte>(data, data + n_bytes);
}

Hash Stmt::hash(int column) const {
  const std::vector<std::byte> bytes = blob(column);
  Hash hash;
  if (bytes.size() != hash.bytes.size()) {
    throw Error{Code::kInput, "store is damaged: a hash has " + std::to_string(bytes.size()) + " bytes, not 32",
                db_->path_, "remove the store; `cento index` builds it again"};
  }
  std::memcpy(hash.bytes.data(), bytes.data(), hash.bytes.size());
  return hash;
}

bool Stmt::is_null(int column) const {
  check_column(column);
  return sqlite3_column_type(stmt_, column) == SQLITE_NULL;
}

// ---- Db

Db::Db(const std::string& path, Mode mode, int32_t application_id) : path_(path), read_only_(mode == Mode::kReadOnly) {
  try {
    if (read_only_) {
      open_read_only();
    } else {
      open_read_write();
    }
    if (application_id != 0) refuse_foreign(application_id);
    if (!read_only_) use_wal();
    exec("PRAGMA foreign_keys=ON");
    // FULL: a commit survives a power cut. A blob whose row is lost would be work lost.
    if (!read_only_) exec("PRAGMA synchronous=FULL");
  } catch (...) {
    close();
    throw;
  }
}

Db::~Db() { close(); }

Error Db::error(int rc, const std::string& doing) const {
  latest_error_ = rc & 0xff;
  return sqlite_error(db_, rc, path_, doing);
}

void Db::fail(int rc, const std::string& doing) const { throw error(rc, doing); }

// sqlite3_close fails only when a statement outlives its connection: our own mistake.
void Db::close() noexcept { CHECK(sqlite3_close(std::exchange(db_, nullptr)) == SQLITE_OK); }

void Db::connect(int flags, const char* uri_query) {
  require_regular(path_);
  const int rc = sqlite3_open_v2(as_uri(path_, uri_query).c_str(), &db_, flags | SQLITE_OPEN_URI, nullptr);
  if (rc != SQLITE_OK) fail(rc, "open");
  const auto check = [this](int result) {
    if (result != SQLITE_OK) fail(result, "configure");
  };
  check(sqlite3_extended_result_codes(db_, 1));
  set_busy_timeout_ms(kBusyTimeoutMs);
  // The file may come from anywhere: plain SQL must not reach its schema or shadow tables. (trusted_schema=OFF would
  // forbid the triggers that keep the text indexes: SQLite 3.40 does not count FTS5 as harmless.)
  check(sqlite3_db_config(db_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr));
  exec("PRAGMA cell_size_check=ON");
}

void Db::open_read_write() {
  {
    // Creation closes a descriptor: no other connection of this process may come between creation and that.
    static std::mutex creating;
    const std::lock_guard lock(creating);
    create_if_absent(path_);
    connect(SQLITE_OPEN_READWRITE, "");
  }
  // SQLite falls back to read-only by itself when the file cannot be written.
  if (sqlite3_db_readonly(db_, "main") != 0) fail(SQLITE_READONLY, "open");
}

// Reading a WAL database needs its shared-memory file. Where that cannot be created, the file is complete by itself if
// no log is beside it, and may be read as immutable: nobody writes it through this folder. A log with content holds
// commits that the file lacks, and the file may be half checkpointed: reading around it would give wrong rows.
// (A writer with more rights than we have may still change the file under an immutable reader. What is read through it
// is checked against each blob's own header before it is used.)
void Db::open_read_only() {
  connect(SQLITE_OPEN_READONLY, "");
  try {
    (void)pragma("schema_version");
    return;
  } catch (const Error&) {
    if (latest_error_ != SQLITE_CANTOPEN && latest_error_ != SQLITE_READONLY) throw;
    struct stat st {};
    if (::stat(path_.c_str(), &st) != 0 || ::access(path_.c_str(), R_OK) != 0) throw;
    if (::stat((path_ + "-wal").c_str(), &st) == 0 && st.st_size > 0) {
      throw Error{Code::kInput, "store has changes of an interrupted run and its folder cannot be written", path_,
                  "run any cento command on it once where it can be written"};
    }
  }
  close();
  connect(SQLITE_OPEN_READONLY, "?immutable=1");
  (void)pragma("schema_version");
}

void Db::refuse_foreign(int32_t application_id) {
  const auto found = static_cast<int32_t>(pragma("application_id"));
  if (found == application_id) return;
  Stmt any = prepare("SELECT 1 FROM sqlite_schema LIMIT 1");
  if (found == 0 && !any.step()) return;  // new and empty
  any.reset();
  // Another process may have made the store between the two looks; it writes schema and id in one transaction.
  if (found == 0 && static_cast<int32_t>(pragma("application_id")) == application_id) return;
  throw Error{Code::kInput, "a SQLite file, but not a cento store", path_,
              "give another --store, or move this file away"};
}

// Switching to WAL needs the file alone for a moment, and SQLite does not wait for that by itself.
void Db::use_wal() {
  const Stopwatch waited;
  for (;;) {
    try {
      Stmt set = prepare("PRAGMA journal_mode=WAL");
      if (!set.step() || set.text(0) != "wal") {
        throw Error{Code::kInput, "this file system has no shared memory for the store's write-ahead log", path_,
                    "put the store on a local file system"};
      }
      break;
    } catch (const Error&) {
      if (latest_error_ != SQLITE_BUSY || waited.ms() > kBusyTimeoutMs) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  exec(kWalBytesKept);
}

void Db::exec(std::string_view sql) {
  const int rc = sqlite3_exec(db_, std::string(sql).c_str(), nullptr, nullptr, nullptr);
  if (rc != SQLITE_OK) fail(rc, std::string(sql.substr(0, 80)));
}

Stmt Db::prepare(std::string_view sql) { return Stmt(*this, sql); }

int64_t Db::last_row_id() const { return sqlite3_last_insert_rowid(db_); }

int64_t Db::changes() const { return sqlite3_changes64(db_); }

int64_t Db::pragma(std::string_view name) {
  Stmt stmt = prepare("PRAGMA " + std::string(name));
  return stmt.step() ? stmt.integer(0) : 0;
}

bool Db::in_transaction() const { return sqlite3_get_autocommit(db_) == 0; }

void Db::set_busy_timeout_ms(int ms) {
  const int rc = sqlite3_busy_timeout(db_, ms);
  if (rc != SQLITE_OK) fail(rc, "busy time-out");
}

// ---- Transaction

Transaction::Transaction(Db& db) : db_(&db) { db.exec("BEGIN IMMEDIATE"); }

Transaction::~Transaction() {
  // After some errors (full disk, memory) SQLite has rolled back already.
  if (!open_ || !db_->in_transaction()) return;
  try {
    db_->exec("ROLLBACK");
  } catch (const Error&) {
    // Nothing is committed in any case; the next statement meets the same error and tells it.
  }
}

void Transaction::commit() {
  db_->exec("COMMIT");
  open_ = false;
}

}  // namespace cento
