// A thin, checked wrapper over SQLite. The SQLite header stops in sqlite.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/hash.h"

struct sqlite3;
struct sqlite3_stmt;

namespace cento {

class Db;

// A prepared statement. Parameters are bound by position from 1; columns are read by index from 0.
class Stmt {
 public:
  ~Stmt();
  Stmt(Stmt&&) noexcept;
  Stmt& operator=(Stmt&&) noexcept;

  Stmt& bind(int index, int64_t value);
  Stmt& bind(int index, double value);
  Stmt& bind_text(int index, std::string_view text);
  Stmt& bind_blob(int index, std::span<const std::byte> bytes);
  Stmt& bind_hash(int index, const Hash& hash);
  Stmt& bind_null(int index);

  bool step();   // true: a row is there; false: done. Throws Error
  void run();    // steps to the end and resets
  void reset();  // for the next use; parameters stay bound

  int64_t integer(int column) const;
  double number(int column) const;
  std::string text(int column) const;
  std::vector<std::byte> blob(int column) const;
  Hash hash(int column) const;  // throws Error(kInput) unless the value has 32 bytes
  bool is_null(int column) const;

 private:
  friend class Db;
  Stmt(Db& db, std::string_view sql);
  void check(int rc) const;
  void check_column(int column) const;
  Db* db_;
  sqlite3_stmt* stmt_ = nullptr;
};

// One connection, used by one thread at a time. Errors: busy for longer than the time-out, full disk and memory are
// kResource; a damaged or foreign file and constraint failures are kInput.
class Db {
 public:
  enum class Mode { kReadWrite, kReadOnly };
  static constexpr int kBusyTimeoutMs = 5000;
  // kReadWrite creates the file (0600, whatever the umask) and its folder's WAL files; foreign keys on, busy time-out 5
  // s, a commit is on the disk when it returns. kReadOnly changes no byte of the database; where the folder cannot be
  // written it is read as immutable, unless a write-ahead log with content is left beside it: that is Error(kInput).
  // `application_id`: if not 0, a file that has content but another id is refused before anything in it is changed.
  Db(const std::string& path, Mode mode, int32_t application_id = 0);
  ~Db();
  Db(const Db&) = delete;
  Db& operator=(const Db&) = delete;

  void exec(std::string_view sql);  // one or more statements without parameters
  Stmt prepare(std::string_view sql);
  int64_t last_row_id() const;
  int64_t changes() const;                // rows changed by the latest INSERT, UPDATE or DELETE
  int64_t pragma(std::string_view name);  // value of a pragma that is a number
  bool in_transaction() const;
  void set_busy_timeout_ms(int ms);
  const std::string& path() const { return path_; }
  bool read_only() const { return read_only_; }
  sqlite3* raw() const { return db_; }

 private:
  friend class Stmt;
  void open_read_write();
  void open_read_only();
  void connect(int flags, const char* uri_query);
  void close() noexcept;
  void refuse_foreign(int32_t application_id);
  void use_wal();
  Error error(int rc, const std::string& doing) const;
  [[noreturn]] void fail(int rc, const std::string& doing) const;
  sqlite3* db_ = nullptr;
  std::string path_;
  bool read_only_ = false;
  mutable int latest_error_ = 0;  // primary SQLite code of the latest Error thrown
};

// BEGIN IMMEDIATE ... COMMIT; rolled back when it is destroyed without commit(). Not nested.
class Transaction {
 public:
  explicit Transaction(Db& db);
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit();

 private:
  Db* db_;
  bool open_ = true;
};

}  // namespace cento
