// Commands of the store that stop anywhere (crash_suite.h).
#include <algorithm>
#include <array>

#include "kv/crash_suite.h"
#include "kv/kv_export.h"
#include "kv/migrations.h"
#include "support/kv_samples.h"

using namespace cento;
using namespace cento::test;

namespace {

struct Piece {
  SampleIdentity identity;
  KvBlock block;
  std::optional<Hash> chunk;
};

// The first is a fixed prefix, the others are of the chunks 1, 2, 3, ...
std::vector<Piece> pieces(int32_t n) {
  std::vector<Piece> out(static_cast<size_t>(n));
  for (int32_t i = 0; i < n; ++i) {
    Piece& p = out[static_cast<size_t>(i)];
    p.identity.ids.push_back(i);
    if (i == 0) {
      p.identity.kind = KvKind::kPrefix;
      p.identity.context.clear();
    } else {
      p.chunk = hash_filled(static_cast<uint8_t>(i));
    }
    p.block = p.identity.block(static_cast<uint64_t>(i) + 1);
  }
  return out;
}

void put(CrashDisk& disk, KvStore& kv, const Piece& p, KvCodec codec = KvCodec::kLossless) {
  disk.stored.push_back(std::move(kv.put(p.identity.get(), p.block, codec, p.chunk)).or_throw().key);
}

void add_chunk(Catalogue& catalogue, uint8_t n) {
  Stmt s = catalogue.db().prepare("INSERT INTO chunks(hash, header, body, n_tokens) VALUES(?, '', ?, 1)");
  s.bind_hash(1, hash_filled(n)).bind_text(2, "The text of chunk " + std::to_string(n)).run();
}

// Five pieces, the fixed prefix among them; the chunk of the last one is gone.
void fill(CrashDisk& disk) {
  CrashStore s(disk);
  const auto all = pieces(5);
  for (uint8_t n = 1; n < 4; ++n) add_chunk(s.catalogue, n);
  for (const Piece& p : all) {
    disk.clock.advance_ms(1000);
    put(disk, s.kv, p);
  }
}

// "" if it is not there, "right" or "wrong".
std::string what_is_served(KvStore& kv, const Piece& p) {
  const auto reader = kv.open(p.identity.get());
  if (!reader.ok()) return "";
  const auto back = read_all_layers(**reader);
  if (!back.ok()) return "";
  return same_bytes(*back, p.block) ? "right" : "wrong";
}

const CrashKind& any_kind() { return kCrashKinds[static_cast<size_t>(GENERATE(range(0, 7)))]; }

}  // namespace

TEST_CASE("crash: KV is put, new and over what is there", "[kv][crash]") {
  const CrashKind& kind = any_kind();
  CrashDisk disk;
  fill(disk);
  disk.keep();
  const CrashCommand command{"put", [](CrashDisk& d) {
                               CrashStore s(d);
                               put(d, s.kv, {pieces(6)[5].identity, pieces(6)[5].block, std::nullopt});
                               put(d, s.kv, pieces(6)[1], KvCodec::kRaw);
                             }};
  CHECK(survive(disk, command, kind) > 20);
}

TEST_CASE("crash: what is opened is right or a miss", "[kv][crash]") {
  const CrashKind& kind = any_kind();
  CrashDisk disk;
  fill(disk);
  disk.keep();
  const CrashCommand command{"open", [](CrashDisk& d) {
                               CrashStore s(d);
                               size_t n_right = 0;
                               for (const Piece& p : pieces(5)) {
                                 const std::string served = what_is_served(s.kv, p);
                                 CHECK(served != "wrong");
                                 n_right += served == "right";
                               }
                               // One that failed is one that was missed.
                               CHECK((n_right >= 4 || d.faults.failed()));  // gc takes the fifth
                             }};
  CHECK(survive(disk, command, kind) >= (kind.fault == Fault::kOnce ? 20 : 5));
}

TEST_CASE("crash: gc", "[kv][crash]") {
  const CrashKind& kind = any_kind();
  CrashDisk disk;
  fill(disk);
  {
    CrashStore s(disk);
    const auto all = pieces(9);
    for (size_t i = 5; i < 9; ++i) put(disk, s.kv, {all[i].identity, all[i].block, std::nullopt}, KvCodec::kRaw);
    s.catalogue.remove_kv(kv_key(all[5].identity.get()));                    // a file without a row
    disk.fs.remove(s.kv.path_of(kv_key(all[6].identity.get()))).or_throw();  // a row without a file
    s.kv.set_aside(kv_key(all[7].identity.get()), "test");
    disk.fs.set_bytes(s.kv.path_of(hash_filled(0)) + ".tmp-1-1", {});  // nobody's any more, hours later
    disk.clock.advance_ms(2 * 3'600'000);
  }
  disk.keep();
  const CrashCommand command{"gc", [](CrashDisk& d) {
                               CrashStore s(d);
                               (void)s.kv.gc();
                             }};
  CHECK(survive(disk, command, kind) > 10);
}

TEST_CASE("crash: gc behind a run that was killed", "[kv][crash]") {
  const CrashKind& kind = any_kind();
  CrashDisk disk;
  fill(disk);
  disk.keep();
  {
    // Its connection ends without a word: the log stays behind, and has to be brought in first.
    CrashStore s(disk);
    put(disk, s.kv, {pieces(6)[5].identity, pieces(6)[5].block, std::nullopt});
    disk.faults.fail_at(1, Fault::kForGood);
  }
  disk.faults.fail_at(0, Fault::kOnce);
  REQUIRE(std::filesystem::file_size(disk.store() + "/catalogue.sqlite-wal") > 0);
  disk.keep();
  const CrashCommand command{"gc after a kill", [](CrashDisk& d) {
                               CrashStore s(d);
                               (void)s.kv.gc();
                             }};
  CHECK(survive(disk, command, kind) > 5);
}

TEST_CASE("crash: cache trim and rm", "[kv][crash]") {
  const CrashKind& kind = any_kind();
  CrashDisk disk;
  fill(disk);
  {
    CrashStore s(disk);
    add_chunk(s.catalogue, 4);  // the gc of the suite must not do some of the work
  }
  disk.keep();
  const bool trims = GENERATE(true, false);
  const uint64_t half = CrashStore(disk).catalogue.kv_bytes_total() / 2;
  const CrashCommand trim{"trim", [half](CrashDisk& d) {
                            CrashStore s(d);
                            (void)s.kv.trim(half);
                          }};
  const CrashCommand rm{"rm", [](CrashDisk& d) {
                          CrashStore s(d);
                          for (size_t i : {1, 3}) s.kv.remove(kv_key(pieces(5)[i].identity.get())).or_throw();
                        }};
  CHECK(survive(disk, trims ? trim : rm, kind) > 10);
  CrashStore s(disk);
  CHECK(s.catalogue.kv_keys().size() == (trims ? 2 : 3));
  CHECK((!trims || s.catalogue.kv(kv_key(pieces(1)[0].identity.get()))));  // a prefix goes last
}

TEST_CASE("crash: verify --repair takes out what is damaged and nothing else", "[kv][crash]") {
  const CrashKind& kind = any_kind();
  CrashDisk disk;
  fill(disk);
  {
    CrashStore s(disk);
    const auto all = pieces(5);
    for (const size_t i : {1, 2}) {
      const std::string path = s.kv.path_of(kv_key(all[i].identity.get()));
      auto bytes = *disk.fs.bytes(path);
      bytes[i == 1 ? 30 : bytes.size() - 1] ^= std::byte{1};
      disk.fs.set_bytes(path, bytes);
    }
  }
  disk.keep();
  const CrashCommand command{"verify --repair", [](CrashDisk& d) {
                               CrashStore s(d);
                               const auto verified = s.kv.verify(true);
                               CHECK((verified.repaired == verified.bad.size() || d.faults.failed()));
                               if (verified.repaired < verified.bad.size()) throw Error{Code::kResource, "not all"};
                             }};
  CHECK(survive(disk, command, kind) > 10);
}

TEST_CASE("crash: export and import", "[kv][crash]") {
  const CrashKind& kind = any_kind();
  const bool imports = GENERATE(true, false);
  CrashDisk disk;
  fill(disk);
  const std::string path = disk.store() + "/all.cento";
  if (imports) {
    CrashStore s(disk);
    (void)export_kv(s.kv, s.catalogue.all_kv(), path, {}, disk.fs);
    for (const size_t i : {0, 2}) s.kv.remove(kv_key(pieces(5)[i].identity.get())).or_throw();
  }
  disk.keep();
  std::vector<std::byte> good;
  bool exported = false;
  const CrashCommand import{"import", [&](CrashDisk& d) {
                              CrashStore s(d);
                              const ImportReport report = import_kv(s.kv, path, {}, d.fs);
                              // A piece that just could not be read or stored was not refused.
                              CHECK(report.refused.empty());
                            }};
  const CrashCommand whole{"export",
                           [&](CrashDisk& d) {
                             exported = false;
                             CrashStore s(d);
                             const ExportReport report = export_kv(s.kv, s.catalogue.all_kv(), path, {}, d.fs);
                             CHECK((report.skipped.empty() || d.faults.failed()));
                             if (good.empty()) good = *d.fs.bytes(path);
                             if (report.skipped.empty()) exported = true;
                           },
                           [&](Catalogue&) {
                             const auto* bytes = disk.fs.bytes(path);
                             if (bytes != nullptr) CHECK((*bytes == good || !exported));
                             if (exported) CHECK(bytes != nullptr);
                           }};
  CHECK(survive(disk, imports ? import : whole, kind) > 5);
}

TEST_CASE("crash: a store is made", "[kv][crash]") {
  const CrashKind& kind = any_kind();
  CrashDisk disk;
  disk.keep();
  const CrashCommand command{"new store", [](CrashDisk& d) {
                               CrashStore s(d);
                               s.catalogue.set_setting("a", "b");
                             }};
  CHECK(survive(disk, command, kind) > 20);
}

// Steps as a later version might have them: a column more, and a table built anew that others refer to.
TEST_CASE("crash: an older store is brought to a newer schema", "[kv][crash]") {
  const CrashKind& kind = any_kind();
  const std::array<const char*, 4> steps = {
      kSchema1, kSchema2, "ALTER TABLE kv_blobs ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0",
      "CREATE TABLE chunks2(id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, header TEXT NOT NULL, body TEXT NOT "
      "NULL, "
      "n_tokens INTEGER NOT NULL, language TEXT);"
      "INSERT INTO chunks2(id, hash, header, body, n_tokens) SELECT id, hash, header, body, n_tokens FROM chunks;"
      "DROP TABLE chunks; ALTER TABLE chunks2 RENAME TO chunks"};
  CrashDisk disk;
  fill(disk);
  disk.keep();
  const std::string path = disk.store() + "/catalogue.sqlite";
  constexpr int32_t kId = 0x43656e74;
  const auto upgrade = [&](CrashDisk&) {
    Db db(path, Db::Mode::kReadWrite, kId);
    migrate(db, steps, kId);
  };
  const auto rows = [](Db& db) {
    return rows_as_text(db, "SELECT hex(key) || codec || n_bytes FROM kv_blobs ORDER BY key") +
           rows_as_text(db, "SELECT hex(hash) || body FROM chunks ORDER BY id");
  };
  std::string before;
  {
    Db db(path, Db::Mode::kReadWrite);
    before = rows(db);
  }
  CHECK(at_each_point(disk, "migrate", kind, upgrade, [&](bool done) {
          {
            Db db(path, Db::Mode::kReadWrite, kId);
            const int64_t version = db.pragma("user_version");
            CHECK((version == 4 || (!done && version >= Catalogue::kSchemaVersion)));
            CHECK(rows(db) == before);
            CHECK(rows_as_text(db, "PRAGMA integrity_check") == "ok\n");
          }
          upgrade(disk);
          Db db(path, Db::Mode::kReadWrite, kId);
          CHECK(db.pragma("user_version") == 4);
          CHECK(rows(db) == before);
          CHECK(rows_as_text(db, "SELECT 'x' || count(pinned) FROM kv_blobs") == "x5\n");
          CHECK(rows_as_text(db, "PRAGMA integrity_check") == "ok\n");
        }) > 20);
}
