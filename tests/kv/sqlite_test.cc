#include "kv/sqlite.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "base/clock.h"
#include "support/posix.h"
#include "support/shared_data.h"

using namespace cento;
using namespace cento::test;
using Mode = Db::Mode;

namespace {

// The Error that `work` throws, as text; "" if it throws none.
template <class Work>
std::string error_of(Work work, Code code) {
  try {
    work();
  } catch (const Error& error) {
    CHECK(code_name(error.code()) == std::string(code_name(code)));
    return error.what();
  }
  return "";
}

const char* kLocked = "store is locked by another process";

}  // namespace

TEST_CASE("sqlite: every type comes back as it was bound, empty values are not NULL", "[kv]") {
  const TempDir dir;
  Db db(dir / "a.sqlite", Mode::kReadWrite);
  db.exec("CREATE TABLE t(i, d, s, b, h, n)");
  const std::string text("a\0b\xff", 4);
  const std::vector<std::byte> blob = {std::byte{0}, std::byte{255}};
  Hash hash;
  hash.bytes[31] = 7;
  Stmt put = db.prepare("INSERT INTO t VALUES(?,?,?,?,?,?)");
  put.bind(1, INT64_MIN).bind(2, -0.1).bind_text(3, text).bind_blob(4, blob).bind_hash(5, hash).bind_null(6).run();
  CHECK(db.changes() == 1);
  CHECK(db.last_row_id() == 1);
  put.bind(1, INT64_MAX).bind_text(3, {}).bind_blob(4, {}).run();

  Stmt get = db.prepare("SELECT * FROM t ORDER BY rowid");
  REQUIRE(get.step());
  CHECK(get.integer(0) == INT64_MIN);
  CHECK(get.number(1) == -0.1);
  CHECK(get.text(2) == text);
  CHECK(get.blob(3) == blob);
  CHECK(get.hash(4) == hash);
  CHECK(get.is_null(5));
  CHECK(get.text(5).empty());
  REQUIRE(get.step());
  CHECK(get.integer(0) == INT64_MAX);
  CHECK(!get.is_null(2));
  CHECK(!get.is_null(3));
  CHECK(get.text(2).empty());
  CHECK(get.blob(3).empty());
  CHECK(!get.step());
}

TEST_CASE("sqlite: a hash column of another length is an error", "[kv]") {
  const TempDir dir;
  Db db(dir / "a.sqlite", Mode::kReadWrite);
  Stmt s = db.prepare("SELECT x'0102'");
  REQUIRE(s.step());
  CHECK_THAT(error_of([&] { (void)s.hash(0); }, Code::kInput), Catch::Contains("2 bytes, not 32"));
}

TEST_CASE("sqlite: the file and its log are 0600 under any umask", "[kv]") {
  const TempDir dir;
  const Umask umask(GENERATE(mode_t{0}, mode_t{022}));
  Db db(dir / "a.sqlite", Mode::kReadWrite);
  db.exec("CREATE TABLE t(a); INSERT INTO t VALUES(1)");
  CHECK(mode_of(dir / "a.sqlite") == 0600);
  CHECK(mode_of(dir / "a.sqlite-wal") == 0600);
  CHECK(mode_of(dir / "a.sqlite-shm") == 0600);
}

TEST_CASE("sqlite: permissions of a file that is there are taken from others", "[kv]") {
  const TempDir dir;
  { const Db db(dir / "a.sqlite", Mode::kReadWrite); }
  std::filesystem::permissions(dir / "a.sqlite", std::filesystem::perms(0644));
  const Db db(dir / "a.sqlite", Mode::kReadWrite);
  CHECK(mode_of(dir / "a.sqlite") == 0600);
}

TEST_CASE("sqlite: no character of a path has a meaning", "[kv]") {
  const TempDir dir;
  const std::string path = dir / "a?mode=ro#b%41 \xc3\xa9'\".sqlite";
  {
    Db db(path, Mode::kReadWrite);
    db.exec("CREATE TABLE t(a)");
  }
  CHECK(std::filesystem::file_size(path) > 0);
  Db db(path, Mode::kReadOnly);
  CHECK(!db.prepare("SELECT * FROM t").step());
}

TEST_CASE("sqlite: foreign keys are on and a refused row is an input error", "[kv]") {
  const TempDir dir;
  Db db(dir / "a.sqlite", Mode::kReadWrite);
  db.exec("CREATE TABLE p(id INTEGER PRIMARY KEY); CREATE TABLE c(p REFERENCES p(id))");
  CHECK_THAT(error_of([&] { db.exec("INSERT INTO c VALUES(1)"); }, Code::kInput), Catch::Contains("FOREIGN KEY"));
}

TEST_CASE("sqlite: a statement of ours that is wrong is an internal error, a missing table a damaged store", "[kv]") {
  const TempDir dir;
  Db db(dir / "a.sqlite", Mode::kReadWrite);
  CHECK_THAT(error_of([&] { db.exec("SELEKT"); }, Code::kInternal), Catch::Contains("syntax"));
  CHECK_THAT(error_of([&] { db.prepare("SELECT * FROM t"); }, Code::kInput), Catch::Contains("store is damaged"));
}

TEST_CASE("sqlite: a transaction is rolled back unless it is committed", "[kv]") {
  const TempDir dir;
  Db db(dir / "a.sqlite", Mode::kReadWrite);
  db.exec("CREATE TABLE t(a UNIQUE)");
  const auto count = [&] {
    Stmt s = db.prepare("SELECT count(*) FROM t");
    REQUIRE(s.step());
    return s.integer(0);
  };
  {
    Transaction transaction(db);
    db.exec("INSERT INTO t VALUES(1)");
    CHECK(db.in_transaction());
  }
  CHECK(count() == 0);
  {
    Transaction transaction(db);
    db.exec("INSERT INTO t VALUES(1)");
    transaction.commit();
  }
  CHECK(count() == 1);
  CHECK_THAT(error_of(
                 [&] {
                   Transaction transaction(db);
                   db.exec("INSERT INTO t VALUES(2)");
                   db.exec("INSERT INTO t VALUES(1)");
                 },
                 Code::kInput),
             Catch::Contains("UNIQUE"));
  CHECK(count() == 1);
  CHECK(!db.in_transaction());
}

TEST_CASE("sqlite: a store locked by another process is a resource error after the time-out", "[kv]") {
  const TempDir dir;
  Db db(dir / "a.sqlite", Mode::kReadWrite);
  db.exec("CREATE TABLE t(a)");
  std::string answer;
  {
    const Transaction transaction(db);
    answer = in_child([&]() -> std::string {
      Db other(dir / "a.sqlite", Mode::kReadWrite);
      other.set_busy_timeout_ms(100);
      const Stopwatch waited;
      try {
        other.exec("INSERT INTO t VALUES(1)");
      } catch (const Error& error) {
        return code_name(error.code()) + std::string(waited.ms() >= 100 ? " late " : " early ") + error.what();
      }
      return "written";
    });
  }
  CHECK_THAT(answer, Catch::StartsWith("resource late") && Catch::Contains(kLocked));
  CHECK(in_child([&] {
          Db other(dir / "a.sqlite", Mode::kReadWrite);
          other.exec("INSERT INTO t VALUES(1)");
          return std::string("written");
        }) == "written");
}

TEST_CASE("sqlite: opening waits for a process that holds the file alone", "[kv]") {
  const TempDir dir;
  // Rollback mode and an exclusive lock, as during another process's switch to WAL.
  Db holder(dir / "a.sqlite", Mode::kReadWrite);
  holder.exec("PRAGMA journal_mode=DELETE; CREATE TABLE t(a); BEGIN EXCLUSIVE");
  const std::string waiting = in_child([&]() -> std::string {
    const Stopwatch waited;
    try {
      const Db other(dir / "a.sqlite", Mode::kReadWrite);
    } catch (const Error& error) {
      return (waited.ms() >= 4900 ? "late " : "early ") + std::string(error.what());
    }
    return "opened";
  });
  CHECK_THAT(waiting, Catch::StartsWith("late") && Catch::Contains(kLocked));
}

TEST_CASE("sqlite: two processes that open a new store at once both succeed", "[kv]") {
  for (int round = 0; round < 8; ++round) {
    const TempDir dir;
    const auto work = [&](const char* answer) {
      Db db(dir / "a.sqlite", Mode::kReadWrite);
      db.exec("CREATE TABLE IF NOT EXISTS t(a); INSERT INTO t VALUES(1)");
      return std::string(answer);
    };
    const auto answers = in_children({[&] { return work("one"); }, [&] { return work("two"); }});
    CHECK(answers == std::vector<std::string>{"one", "two"});
    Db db(dir / "a.sqlite", Mode::kReadWrite);
    Stmt count = db.prepare("SELECT count(*) FROM t");
    REQUIRE(count.step());
    CHECK(count.integer(0) == 2);
  }
}

TEST_CASE("sqlite: what is not a database is refused and left as it is", "[kv]") {
  const TempDir dir;
  const std::string path = dir / "a.sqlite";
  const auto mode = GENERATE(Mode::kReadWrite, Mode::kReadOnly);
  SECTION("text") {
    const std::string text(5000, 'x');
    write_all(path, text);
    CHECK_THAT(error_of([&] { Db(path, mode, 1); }, Code::kInput), Catch::Contains("not a SQLite file"));
    CHECK(read_all(path) == text);
  }
  SECTION("a database of another program, in rollback mode") {
    {
      Db other(path, Mode::kReadWrite);
      other.exec("CREATE TABLE bookmarks(a); PRAGMA journal_mode=DELETE");
    }
    const std::string before = read_all(path);
    CHECK_THAT(error_of([&] { Db(path, mode, 1); }, Code::kInput), Catch::Contains("not a cento store"));
    CHECK(read_all(path) == before);
  }
  SECTION("a folder") {
    std::filesystem::create_directory(path);
    CHECK_THAT(error_of([&] { Db(path, mode, 1); }, Code::kInput), Catch::Contains("not a regular file"));
  }
  SECTION("a fifo") {
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    CHECK_THAT(error_of([&] { Db(path, mode, 1); }, Code::kInput), Catch::Contains("not a regular file"));
  }
  SECTION("a damaged database") {
    {
      Db db(path, Mode::kReadWrite);
      db.exec("PRAGMA application_id=1; CREATE TABLE t(a); INSERT INTO t VALUES(zeroblob(20000))");
    }
    std::string bytes = read_all(path);
    std::fill(bytes.begin() + 100, bytes.end(), '\x55');
    write_all(path, bytes);
    CHECK_THAT(error_of(
                   [&] {
                     Db db(path, mode, 1);
                     while (db.prepare("SELECT * FROM t").step()) {
                     }
                   },
                   Code::kInput),
               Catch::Contains("store is damaged"));
  }
}

TEST_CASE("sqlite: a read-only connection refuses to write and does not create", "[kv]") {
  const TempDir dir;
  CHECK_THAT(error_of([&] { Db(dir / "a.sqlite", Mode::kReadOnly); }, Code::kInput), Catch::Contains("cannot open"));
  CHECK(!std::filesystem::exists(dir / "a.sqlite"));
  {
    Db db(dir / "a.sqlite", Mode::kReadWrite);
    db.exec("CREATE TABLE t(a)");
  }
  const std::string before = read_all(dir / "a.sqlite");
  Db db(dir / "a.sqlite", Mode::kReadOnly);
  CHECK_THAT(error_of([&] { db.exec("INSERT INTO t VALUES(1)"); }, Code::kInput), Catch::Contains("cannot be written"));
  CHECK(read_all(dir / "a.sqlite") == before);
}

TEST_CASE("sqlite: a file that may not be written is refused for writing", "[kv]") {
  const TempDir dir;
  { const Db db(dir / "a.sqlite", Mode::kReadWrite); }
  std::filesystem::permissions(dir / "a.sqlite", std::filesystem::perms(0444));
  std::filesystem::permissions(dir.path(), std::filesystem::perms(0755));
  if (::geteuid() != 0) return;  // the owner of a file gives itself the permission again
  CHECK_THAT(in_child(
                 [&] {
                   const Db db(dir / "a.sqlite", Mode::kReadWrite);
                   return std::string("opened");
                 },
                 true),
             Catch::Contains("cannot be written"));
}

// A store in a folder that cannot be written, as its reader sees it.
TEST_CASE("sqlite: a folder that cannot be written is read without its log, and refused with a log left over", "[kv]") {
  const TempDir dir;
  std::filesystem::permissions(dir.path(), std::filesystem::perms(0755));
  std::filesystem::create_directory(dir / "ro");
  const std::string from = dir / "a.sqlite", path = dir / "ro/a.sqlite";
  {
    Db db(from, Mode::kReadWrite);
    db.exec("CREATE TABLE t(a); INSERT INTO t VALUES(1); PRAGMA wal_checkpoint(TRUNCATE)");
    std::filesystem::copy_file(from, path);
    db.exec("INSERT INTO t VALUES(2)");
    // As if the process had been killed here: a log with a commit that the file does not have.
    std::filesystem::copy_file(from + "-wal", dir / "left-over");
  }
  give_to_unprivileged(path);
  const auto count = [&] {
    Db db(path, Mode::kReadOnly);
    Stmt s = db.prepare("SELECT count(*) FROM t");
    s.step();
    return std::to_string(s.integer(0));
  };
  const auto count_without_rights = [&] {
    const auto all = std::filesystem::perms(0777), read = std::filesystem::perms(0555);
    std::filesystem::permissions(dir / "ro", read);
    const std::string answer = in_child(count, true);
    std::filesystem::permissions(dir / "ro", all);
    return answer;
  };
  SECTION("no log") { CHECK(count_without_rights() == "1"); }
  SECTION("an empty log") {
    write_all(path + "-wal", "");
    CHECK(count_without_rights() == "1");
  }
  SECTION("a log with content") {
    std::filesystem::copy_file(dir / "left-over", path + "-wal");
    give_to_unprivileged(path + "-wal");
    const std::string before = read_all(path);
    CHECK_THAT(count_without_rights(), Catch::Contains("interrupted run"));
    CHECK(read_all(path) == before);
    CHECK(in_child(count) == "2");  // where the folder can be written, the log counts
  }
}

TEST_CASE("sqlite: a store on a read-only disk is read", "[kv]") {
  const auto disk = SmallDisk::mount(1 << 20);
  if (!disk) return;
  const std::string path = disk->path() + "/a.sqlite";
  {
    Db db(path, Mode::kReadWrite);
    db.exec("CREATE TABLE t(a); INSERT INTO t VALUES(1)");
  }
  disk->make_read_only();
  Db db(path, Mode::kReadOnly);
  CHECK(db.prepare("SELECT * FROM t").step());
  CHECK_THAT(error_of([&] { Db(path, Mode::kReadWrite); }, Code::kInput), Catch::Contains("cannot be written"));
}

TEST_CASE("sqlite: a full disk is a resource error and loses nothing that was committed", "[kv]") {
  const auto disk = SmallDisk::mount(1 << 20);
  if (!disk) return;
  Db db(disk->path() + "/a.sqlite", Mode::kReadWrite);
  db.exec("CREATE TABLE t(a)");
  int64_t n_written = 0;
  const std::string error = error_of(
      [&] {
        for (; n_written < 100; ++n_written) {
          Transaction transaction(db);
          db.exec("INSERT INTO t VALUES(zeroblob(50000))");
          transaction.commit();
        }
      },
      Code::kResource);
  CHECK_THAT(error, Catch::Contains("disk full"));
  Stmt count = db.prepare("SELECT count(*) FROM t");
  REQUIRE(count.step());
  CHECK(count.integer(0) == n_written);
  CHECK(n_written > 0);
}
