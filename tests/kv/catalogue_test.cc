#include "kv/catalogue.h"

#include <catch2/catch.hpp>
#include <filesystem>

#include "kv/migrations.h"
#include "support/fake_clock.h"
#include "support/posix.h"
#include "support/shared_data.h"

using namespace cento;
using namespace cento::test;
using Mode = Db::Mode;

namespace {

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

Hash some_hash(uint8_t n) {
  Hash hash;
  hash.bytes.fill(n);
  return hash;
}

KvRow some_row(uint8_t n) {
  KvRow row;
  row.key = some_hash(n);
  row.fingerprint = some_hash(100);
  row.layout = some_hash(101);
  row.prefix_id = some_hash(102);
  row.ids_hash = some_hash(103);
  row.context_id = some_hash(n);
  row.chunk_hash = some_hash(104);
  row.kind = KvKind::kChunkStandIn;
  row.codec = "lossless";
  row.n_tokens = 256;
  row.n_bytes = 1000u + n;
  row.created_ms = 5;
  row.last_used_ms = 6;
  row.hits = 7;
  return row;
}

bool equal(const KvRow& a, const KvRow& b) {
  return a.key == b.key && a.fingerprint == b.fingerprint && a.layout == b.layout && a.prefix_id == b.prefix_id &&
         a.ids_hash == b.ids_hash && a.context_id == b.context_id && a.chunk_hash == b.chunk_hash && a.kind == b.kind &&
         a.codec == b.codec && a.n_tokens == b.n_tokens && a.n_bytes == b.n_bytes && a.created_ms == b.created_ms &&
         a.last_used_ms == b.last_used_ms && a.hits == b.hits;
}

void insert_chunk(Db& db, const Hash& hash, const std::string& body) {
  Stmt s = db.prepare("INSERT INTO chunks(hash, header, body, n_tokens) VALUES(?, '', ?, 1)");
  s.bind_hash(1, hash).bind_text(2, body).run();
}

}  // namespace

TEST_CASE("catalogue: the folder is 0700 and the file 0600 under umask 000", "[kv]") {
  const TempDir dir;
  const Umask umask(0);
  const Catalogue catalogue(dir / "deep/store", Mode::kReadWrite);
  CHECK(mode_of(dir / "deep/store") == 0700);
  CHECK(mode_of(dir / "deep") == 0700);
  CHECK(mode_of(dir / "deep/store/catalogue.sqlite") == 0600);
}

TEST_CASE("catalogue: a store's folder is closed to others, a folder with other things is left alone", "[kv]") {
  const TempDir dir;
  const auto open_to_all = std::filesystem::perms(0755);
  { const Catalogue catalogue(dir / "store", Mode::kReadWrite); }
  std::filesystem::permissions(dir / "store", open_to_all);
  write_all(dir / "home/letter.txt", "x");
  std::filesystem::permissions(dir / "home", open_to_all);
  const Catalogue store(dir / "store", Mode::kReadWrite), home(dir / "home", Mode::kReadWrite);
  CHECK(mode_of(dir / "store") == 0700);
  CHECK(mode_of(dir / "home") == 0755);
  CHECK(mode_of(dir / "home/catalogue.sqlite") == 0600);
}

TEST_CASE("catalogue: reading where there is no store says so and creates nothing", "[kv]") {
  const TempDir dir;
  const auto open = [&] { const Catalogue catalogue(dir / "store", Mode::kReadOnly); };
  CHECK_THAT(error_of(open, Code::kInput), Catch::Contains("there is no store"));
  CHECK(!std::filesystem::exists(dir / "store"));
  write_all(dir / "store/catalogue.sqlite", "");
  CHECK_THAT(error_of(open, Code::kInput), Catch::Contains("there is no store"));
}

TEST_CASE("catalogue: an empty file becomes a store, a file of others is refused", "[kv]") {
  const TempDir dir;
  const auto open = [&] { const Catalogue catalogue(dir / "store", Mode::kReadWrite); };
  SECTION("empty") {
    write_all(dir / "store/catalogue.sqlite", "");
    CHECK(error_of(open, Code::kInput).empty());
  }
  SECTION("text") {
    write_all(dir / "store/catalogue.sqlite", "these are not the bytes of a database, but of a letter");
    CHECK_THAT(error_of(open, Code::kInput), Catch::Contains("not a SQLite file"));
  }
  SECTION("another program's database") {
    std::filesystem::create_directory(dir / "store");
    Db(dir / "store/catalogue.sqlite", Mode::kReadWrite).exec("CREATE TABLE t(a)");
    CHECK_THAT(error_of(open, Code::kInput), Catch::Contains("not a cento store"));
  }
}

TEST_CASE("catalogue: a newer schema is refused with both versions and left as it is", "[kv]") {
  const TempDir dir;
  {
    Catalogue catalogue(dir / "store", Mode::kReadWrite);
    CHECK(catalogue.db().pragma("user_version") == Catalogue::kSchemaVersion);
    catalogue.db().exec("PRAGMA user_version=7");
  }
  const auto mode = GENERATE(Mode::kReadWrite, Mode::kReadOnly);
  const std::string error = error_of([&] { const Catalogue catalogue(dir / "store", mode); }, Code::kInput);
  CHECK_THAT(error, Catch::Contains("version 7,") &&
                        Catch::Contains("up to " + std::to_string(Catalogue::kSchemaVersion)) &&
                        Catch::Contains("newer cento"));
  CHECK(Db(dir / "store/catalogue.sqlite", Mode::kReadOnly).pragma("user_version") == 7);
}

TEST_CASE("migrations: each step is taken once, in order, in its own transaction", "[kv]") {
  const TempDir dir;
  Db db(dir / "a.sqlite", Mode::kReadWrite);
  const std::array<const char*, 2> steps = {kSchema1,
                                            "ALTER TABLE settings ADD COLUMN note TEXT; "
                                            "INSERT INTO settings(key, value, note) VALUES('a', 'b', 'c')"};
  migrate(db, std::span(steps).first(1), 17);
  CHECK(db.pragma("user_version") == 1);
  CHECK(db.pragma("application_id") == 17);
  CHECK(db.pragma("foreign_keys") == 1);
  db.exec("INSERT INTO settings VALUES('kept', 'yes')");
  migrate(db, steps, 17);
  migrate(db, steps, 17);
  CHECK(db.pragma("user_version") == 2);
  CHECK(db.pragma("foreign_keys") == 1);
  Stmt s = db.prepare("SELECT value, note FROM settings ORDER BY key");
  REQUIRE(s.step());
  CHECK(s.text(1) == "c");
  REQUIRE(s.step());
  CHECK(s.text(0) == "yes");
  CHECK(!s.step());
}

TEST_CASE("migrations: a step that fails leaves the version before it", "[kv]") {
  const TempDir dir;
  Db db(dir / "a.sqlite", Mode::kReadWrite);
  const std::array<const char*, 1> first = {
      "CREATE TABLE p(id INTEGER PRIMARY KEY); CREATE TABLE c(p REFERENCES p(id)); "
      "INSERT INTO p VALUES(1); INSERT INTO c VALUES(1)"};
  migrate(db, first, 17);
  const auto fails = [&](const char* step, Code code) {
    const std::array<const char*, 2> steps = {first[0], step};
    const std::string error = error_of([&] { migrate(db, steps, 17); }, code);
    CHECK(db.pragma("user_version") == 1);
    CHECK(db.pragma("foreign_keys") == 1);
    CHECK(!db.in_transaction());
    CHECK(!db.prepare("SELECT 1 FROM sqlite_schema WHERE name='extra'").step());
    return error;
  };
  CHECK_THAT(fails("CREATE TABLE extra(a); INSERT INTO p VALUES(1)", Code::kInput), Catch::Contains("UNIQUE"));
  CHECK_THAT(fails("CREATE TABLE extra(a); DELETE FROM p", Code::kInput), Catch::Contains("rows refer to others"));
}

TEST_CASE("migrations: a table can be rebuilt without its references going", "[kv]") {
  const TempDir dir;
  Db db(dir / "a.sqlite", Mode::kReadWrite);
  const std::array<const char*, 2> steps = {
      "CREATE TABLE p(id INTEGER PRIMARY KEY); CREATE TABLE c(p REFERENCES p(id) ON DELETE CASCADE); "
      "INSERT INTO p VALUES(1); INSERT INTO c VALUES(1)",
      "CREATE TABLE q(id INTEGER PRIMARY KEY, more); INSERT INTO q(id) SELECT id FROM p; DROP TABLE p; "
      "ALTER TABLE q RENAME TO p"};
  migrate(db, steps, 17);
  CHECK(db.prepare("SELECT 1 FROM c JOIN p ON p.id = c.p WHERE p.more IS NULL").step());
}

TEST_CASE("migrations: an older store is not changed by reading, and damage is named", "[kv]") {
  const TempDir dir;
  const std::array<const char*, 2> steps = {"CREATE TABLE a(x)", "CREATE TABLE b(x)"};
  {
    Db db(dir / "a.sqlite", Mode::kReadWrite);
    migrate(db, std::span(steps).first(1), 17);
  }
  {
    Db db(dir / "a.sqlite", Mode::kReadOnly);
    CHECK_THAT(error_of([&] { migrate(db, steps, 17); }, Code::kInput),
               Catch::Contains("version 1, version 2 is needed"));
  }
  Db db(dir / "a.sqlite", Mode::kReadWrite);
  db.exec("PRAGMA user_version=-3");
  CHECK_THAT(error_of([&] { migrate(db, steps, 17); }, Code::kInput), Catch::Contains("damaged"));
}

TEST_CASE("migrations: two processes that create a store at once both get it", "[kv]") {
  for (int round = 0; round < 10; ++round) {
    const TempDir dir;
    const auto work = [&] {
      Catalogue catalogue(dir / "store", Mode::kReadWrite);
      catalogue.set_setting("a", "b");
      return catalogue.setting("a").value_or("none");
    };
    CHECK(in_children({work, work, work}) == std::vector<std::string>(3, "b"));
  }
}

TEST_CASE("catalogue: a store on a read-only disk is read and not written", "[kv]") {
  const auto disk = SmallDisk::mount(4 << 20);
  if (!disk) return;
  {
    Catalogue catalogue(disk->path() + "/store", Mode::kReadWrite);
    catalogue.put_kv(some_row(1));
  }
  disk->make_read_only();
  Catalogue catalogue(disk->path() + "/store", Mode::kReadOnly);
  REQUIRE(catalogue.kv(some_hash(1)));
  catalogue.touch_kv(some_hash(1));
  CHECK(catalogue.kv(some_hash(1))->hits == 7);
  CHECK_THAT(error_of([&] { catalogue.set_setting("a", "b"); }, Code::kInput), Catch::Contains("cannot be written"));
}

TEST_CASE("catalogue: KV rows come back as they were put, replaced and removed by key", "[kv]") {
  const TempDir dir;
  FakeClock clock;
  Catalogue catalogue(dir / "store", Mode::kReadWrite, clock);
  KvRow a = some_row(1), b = some_row(2);
  b.chunk_hash.reset();
  b.kind = KvKind::kPrefix;
  catalogue.put_kv(b);
  catalogue.put_kv(a);
  REQUIRE(catalogue.kv(a.key));
  CHECK(equal(*catalogue.kv(a.key), a));
  CHECK(equal(*catalogue.kv(b.key), b));
  CHECK(!catalogue.kv(some_hash(3)));
  CHECK(catalogue.kv_bytes_total() == a.n_bytes + b.n_bytes);

  a.n_bytes = 5;
  a.codec = "raw";
  catalogue.put_kv(a);
  CHECK(catalogue.all_kv().size() == 2);
  CHECK(equal(catalogue.all_kv()[0], a));
  catalogue.remove_kv(a.key);
  catalogue.remove_kv(a.key);
  CHECK(!catalogue.kv(a.key));
  CHECK(catalogue.kv_bytes_total() == b.n_bytes);
}

TEST_CASE("catalogue: find_kv asks for model, layout, prefix and ids, and gives the newest first", "[kv]") {
  const TempDir dir;
  Catalogue catalogue(dir / "store", Mode::kReadWrite);
  const KvRow base = some_row(0);
  for (uint8_t n = 1; n <= 3; ++n) {
    KvRow row = some_row(n);
    row.created_ms = n == 2 ? 9 : 5;
    catalogue.put_kv(row);
  }
  const auto find = [&](const KvRow& r) { return catalogue.find_kv(r.fingerprint, r.layout, r.prefix_id, r.ids_hash); };
  const auto found = find(base);
  REQUIRE(found.size() == 3);
  CHECK(found[0].key == some_hash(2));
  CHECK(found[1].key == some_hash(1));
  CHECK(found[2].key == some_hash(3));
  for (Hash KvRow::*field : {&KvRow::fingerprint, &KvRow::layout, &KvRow::prefix_id, &KvRow::ids_hash}) {
    KvRow other = base;
    other.*field = some_hash(9);
    CHECK(find(other).empty());
  }
}

TEST_CASE("catalogue: touching counts a use and never waits for another process", "[kv]") {
  const TempDir dir;
  FakeClock clock;
  Catalogue catalogue(dir / "store", Mode::kReadWrite, clock);
  catalogue.put_kv(some_row(1));
  clock.advance_ms(50);
  catalogue.touch_kv(some_hash(1));
  CHECK(catalogue.kv(some_hash(1))->hits == 8);
  CHECK(catalogue.kv(some_hash(1))->last_used_ms == clock.unix_ms());
  {
    Db other(dir / "store/catalogue.sqlite", Mode::kReadWrite);
    const Transaction transaction(other);
    const Stopwatch waited;
    catalogue.touch_kv(some_hash(1));
    CHECK(waited.ms() < 1000);  // the time-out would be 5000
  }
  CHECK(catalogue.kv(some_hash(1))->hits == 8);
  CHECK(catalogue.db().pragma("busy_timeout") == Db::kBusyTimeoutMs);
  CHECK(catalogue.db().pragma("synchronous") == 2);
}

TEST_CASE("catalogue: rows of chunks that are gone are named", "[kv]") {
  const TempDir dir;
  Catalogue catalogue(dir / "store", Mode::kReadWrite);
  insert_chunk(catalogue.db(), some_hash(104), "text");
  KvRow prefix = some_row(2);
  prefix.chunk_hash.reset();
  catalogue.put_kv(some_row(1));
  catalogue.put_kv(prefix);
  CHECK(catalogue.orphaned_kv().empty());
  catalogue.db().exec("DELETE FROM chunks");
  CHECK(catalogue.orphaned_kv() == std::vector<Hash>{some_hash(1)});
}

TEST_CASE("catalogue: the text indexes follow the chunks", "[kv]") {
  const TempDir dir;
  Catalogue catalogue(dir / "store", Mode::kReadWrite);
  insert_chunk(catalogue.db(), some_hash(1), "Annual leave may be carried over");
  const auto found = [&](const char* table, const char* query) {
    Stmt s = catalogue.db().prepare(std::string("SELECT 1 FROM ") + table + " WHERE " + table + " MATCH ?");
    return s.bind_text(1, query).step();
  };
  CHECK(found("chunk_words", "leave"));
  CHECK(!found("chunk_words", "eav"));
  CHECK(found("chunk_trigrams", "eav"));
  catalogue.db().exec("DELETE FROM chunks");
  CHECK(!found("chunk_words", "leave"));
  CHECK(!found("chunk_trigrams", "eav"));
}

TEST_CASE("catalogue: model files are remembered by their stamp, found by size and time", "[kv]") {
  const TempDir dir;
  Catalogue catalogue(dir / "store", Mode::kReadWrite);
  const FileStamp stamp{UINT64_MAX, UINT64_MAX - 1, 3, -4}, copy{1, 2, 3, -4};
  CHECK(catalogue.remembered_models(3, -4).empty());
  catalogue.remember_model({stamp, 10, some_hash(1), some_hash(8)});
  catalogue.remember_model({stamp, 11, some_hash(2), some_hash(9)});
  catalogue.remember_model({copy, 12, some_hash(3), some_hash(9)});
  const auto models = catalogue.remembered_models(3, -4);
  REQUIRE(models.size() == 2);
  const auto& first = models[0].stamp == stamp ? models[0] : models[1];
  CHECK(first.stamp == stamp);
  CHECK(first.ctime_ns == 11);
  CHECK(first.fingerprint == some_hash(2));
  CHECK(first.sample == some_hash(9));
  CHECK(catalogue.remembered_models(4, -4).empty());
  CHECK(catalogue.remembered_models(3, 4).empty());
}

TEST_CASE("catalogue: models and settings are replaced by their keys", "[kv]") {
  const TempDir dir;
  FakeClock clock;
  Catalogue catalogue(dir / "store", Mode::kReadWrite, clock);
  catalogue.put_model(some_hash(1), "old", "llama", 10);
  catalogue.put_model(some_hash(1), "new", "qwen2", 20);
  Stmt s = catalogue.db().prepare("SELECT name, architecture, kv_bytes_per_token, last_seen_ms FROM models");
  REQUIRE(s.step());
  CHECK(s.text(0) == "new");
  CHECK(s.text(1) == "qwen2");
  CHECK(s.integer(2) == 20);
  CHECK(s.integer(3) == clock.unix_ms());
  CHECK(!s.step());

  CHECK(!catalogue.setting("a"));
  catalogue.set_setting("a", "1");
  catalogue.set_setting("a", "2");
  CHECK(catalogue.setting("a") == "2");
}

TEST_CASE("catalogue: a row with impossible values is damage, not a crash", "[kv]") {
  const TempDir dir;
  Catalogue catalogue(dir / "store", Mode::kReadWrite);
  catalogue.put_kv(some_row(1));
  const auto damage = GENERATE("kind=9", "kind=-1", "n_tokens=-1", "n_bytes=-5", "hits=-1", "ids_hash=x'00'");
  CAPTURE(damage);
  catalogue.db().exec(std::string("UPDATE kv_blobs SET ") + damage);
  CHECK_THAT(error_of([&] { (void)catalogue.kv(some_hash(1)); }, Code::kInput), Catch::Contains("store is damaged"));
}
