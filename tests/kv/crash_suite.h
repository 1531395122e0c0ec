// The crash suite: a command runs on a store whose n-th disk operation fails, for n = 1, 2, ... until none does;
// catalogue and blobs share one counter. After each the store is opened again and has to hold what DESIGN 1 promises:
// never a wrong reuse, never lost work. A new command needs a CrashCommand and a TEST_CASE that calls survive().
#pragma once

#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/log.h"
#include "kv/blob_codec.h"
#include "kv/bytes_file.h"
#include "kv/kv_store.h"
#include "support/fake_clock.h"
#include "support/faults.h"
#include "support/faulty_fs.h"
#include "support/faulty_vfs.h"
#include "support/shared_data.h"

namespace cento::test {

// The disk under one store: SQLite's files are real ones, blobs are in memory.
class CrashDisk {
 public:
  CrashDisk() : log_level_(log_level()) { set_log_level(LogLevel::kQuiet); }  // thousands of warnings, all wanted
  ~CrashDisk() { set_log_level(log_level_); }
  CrashDisk(const CrashDisk&) = delete;
  CrashDisk& operator=(const CrashDisk&) = delete;

  std::string store() const { return dir_ / "store"; }
  std::string operator/(const std::string& name) const { return dir_ / name; }  // beside the store; never fails

  // What is there now, all of it synced, is what every run starts from. No connection may be open.
  void keep() {
    fs.crash(AfterCrash::kAllNames);
    kept_.clear();
    if (std::filesystem::exists(store())) {
      for (const auto& entry : std::filesystem::directory_iterator(store())) {
        const std::string name = entry.path().filename().string();
        if (!name.ends_with("-shm")) kept_[name] = read_all(entry.path().string());
      }
    }
    blobs_ = fs.saved();
    kept_clock_ = clock;
  }
  void go_back() {
    std::filesystem::remove_all(store());
    for (const auto& [name, bytes] : kept_) write_all(store() + "/" + name, bytes);
    vfs.forget();
    fs.restore(blobs_);
    clock = kept_clock_;
    stored.clear();
  }
  void cut_power(AfterCrash after, uint64_t seed) {
    vfs.crash(after, seed);
    fs.crash(after);
  }

 private:
  TempDir dir_;

 public:
  FakeClock clock;
  Faults faults;
  FaultyVfs vfs{faults};
  FaultyFs fs{clock, store(), &faults};
  std::vector<Hash> stored;  // keys that the command was told are stored

 private:
  std::map<std::string, std::string> kept_;
  FaultyFs::Saved blobs_;
  FakeClock kept_clock_;
  LogLevel log_level_;
};

struct CrashStore {
  explicit CrashStore(CrashDisk& disk)
      : catalogue(disk.store(), Db::Mode::kReadWrite, disk.clock), kv(catalogue, disk.fs) {}
  Catalogue catalogue;
  KvStore kv;
};

struct CrashKind {
  const char* name;
  Fault fault;
  std::optional<AfterCrash> cut;
};
inline constexpr CrashKind kErrorOnce{"error once", Fault::kOnce, {}},
    kHalfWrite{"short write", Fault::kShortWrite, {}}, kNoRoom{"disk full", Fault::kDiskFull, {}},
    kKilled{"killed", Fault::kForGood, {}},
    kCutSynced{"power cut, what was synced", Fault::kForGood, AfterCrash::kSyncedNames},
    kCutNames{"power cut, and all names", Fault::kForGood, AfterCrash::kAllNames},
    kCutSome{"power cut, and some writes", Fault::kForGood, AfterCrash::kSomeWrites};
inline const std::vector<CrashKind> kCrashKinds = {kErrorOnce, kHalfWrite, kNoRoom, kKilled,
                                                   kCutSynced, kCutNames,  kCutSome};

struct CrashCommand {
  std::string name;
  std::function<void(CrashDisk&)> run;               // opens the store itself; may throw Error
  std::function<void(Catalogue&)> halfway = {};      // more that has to hold wherever it stopped
  std::function<std::string(Catalogue&)> more = {};  // more that a finished run has to reach
};

// One line a row.
inline std::string rows_as_text(Db& db, const std::string& sql) {
  std::string out;
  Stmt q = db.prepare(sql);
  while (q.step()) out += q.text(0) + "\n";
  return out;
}

// All that a store holds and that does not depend on when and in which order it came to be.
inline std::string contents(Catalogue& catalogue, KvStore& kv, const FaultyFs& fs) {
  static const std::vector<std::string> kQueries = {
      "SELECT 'collection ' || name || ' ' || chunk_tokens || ' ' || tokenizer FROM collections ORDER BY name",
      "SELECT 'root ' || hex(path) || ' ' || options FROM roots ORDER BY path",
      "SELECT 'source ' || cast(path AS TEXT) || ' ' || size || ' ' || hex(content_hash) || ' ' || format || ' ' || "
      "title "
      "FROM sources ORDER BY path",
      "SELECT 'chunk ' || hex(hash) || ' ' || n_tokens || ' ' || header || '|' || body FROM chunks ORDER BY hash",
      "SELECT 'place ' || cast(s.path AS TEXT) || ' ' || p.seq || ' ' || hex(c.hash) || ' ' || p.line_from || '-' || "
      "p.line_to FROM source_chunks p JOIN sources s ON s.id = p.source_id JOIN chunks c ON c.id = p.chunk_id "
      "ORDER BY s.path, p.seq",
      "SELECT 'skipped ' || cast(path AS TEXT) || ' ' || reason FROM skipped ORDER BY path",
      "SELECT 'passage ' || s.seq || ' ' || hex(c.hash) FROM stand_ins s JOIN chunks c ON c.id = s.chunk_id ORDER BY "
      "s.seq",
      "SELECT 'model ' || hex(fingerprint) || ' ' || name || ' ' || architecture FROM models ORDER BY fingerprint",
      "SELECT 'model file ' || size || ' ' || hex(fingerprint) FROM model_files ORDER BY fingerprint, size",
      // Not the values, nor the speeds that a run measured: a run that finds all done measures none.
      "SELECT 'setting ' || key FROM settings WHERE key NOT LIKE 'speed/%' ORDER BY key",
  };
  std::string out;
  for (const std::string& sql : kQueries) out += rows_as_text(catalogue.db(), sql);
  for (const KvRow& row : catalogue.all_kv()) {
    const auto* bytes = fs.bytes(kv.path_of(row.key));
    out += "kv " + row.key.hex() + " " + row.fingerprint.hex() + " " + row.codec + " " + std::to_string(row.n_tokens) +
           " " + std::to_string(row.n_bytes) + " " + (row.chunk_hash ? row.chunk_hash->hex() : "-") + " " +
           kv_kind_name(row.kind) + " " + (bytes == nullptr ? "no file" : Hasher("test").add(*bytes).finish().hex()) +
           "\n";
  }
  return out;
}

// Runs `run` for n = 1, 2, ... until no operation fails any more, and `after(done)` behind each; `done`: it threw no
// Error. The number of points at which it was stopped.
inline int at_each_point(CrashDisk& disk, const std::string& name, const CrashKind& kind,
                         const std::function<void(CrashDisk&)>& run, const std::function<void(bool done)>& after) {
  int points = 0;
  for (int n = 1;; ++n, ++points) {
    REQUIRE(n < 100'000);
    disk.go_back();
    disk.faults.fail_at(n, kind.fault);
    bool done = true;
    std::string said;
    try {
      run(disk);
    } catch (const Error& error) {
      done = false;
      said = error.what();
      CHECK(code_name(error.code()) != std::string("internal"));
    }
    const int failed_at = disk.faults.failed_at();
    disk.faults.fail_at(0, Fault::kOnce);
    CAPTURE(name, kind.name, n, failed_at, done, said);
    if (failed_at == 0) {
      CHECK(done);
      break;
    }
    n = failed_at;  // the operations before it were not of the kind that fails
    if (kind.cut) disk.cut_power(*kind.cut, static_cast<uint64_t>(n));
    after(done);
  }
  std::printf("crash: %-16s %-28s %5d points survived\n", name.c_str(), kind.name, points);
  std::fflush(stdout);
  return points;
}

class Survival {
 public:
  Survival(CrashDisk& disk, const CrashCommand& command, const CrashKind& kind)
      : disk_(disk), command_(command), kind_(kind) {}

  int run() {
    learn();
    return at_each_point(disk_, command_.name, kind_, command_.run, [&](bool done) {
      holds(done);
      finishes();
    });
  }

 private:
  using Bytes = std::vector<std::byte>;

  // What the store holds before and after a run that nothing disturbs.
  void learn() {
    std::set<Hash> before;
    disk_.go_back();
    {
      CrashStore s(disk_);
      for (const KvRow& row : s.catalogue.all_kv()) {
        (note_blob(s, row) ? before : damaged_).insert(row.key);
      }
    }
    disk_.go_back();
    command_.run(disk_);
    CrashStore s(disk_);
    for (const KvRow& row : s.catalogue.all_kv()) note_blob(s, row);
    collect(s);
    for (const Hash& key : s.catalogue.kv_keys()) {
      after_.insert(key);
      if (before.contains(key)) stays_.insert(key);
    }
    finished_ = all(s);
  }

  // False for one that is damaged: it may go, and never come back.
  bool note_blob(CrashStore& s, const KvRow& row) {
    if (!s.kv.read_blob(row.key).ok()) return false;
    known_[row.key].insert(*disk_.fs.bytes(s.kv.path_of(row.key)));
    return true;
  }

  void collect(CrashStore& s) {
    disk_.clock.advance_ms(2 * 3'600'000);
    (void)s.kv.gc();
  }

  std::string all(CrashStore& s) {
    return contents(s.catalogue, s.kv, disk_.fs) + (command_.more ? command_.more(s.catalogue) : std::string());
  }

  void holds(bool done) {
    CrashStore s(disk_);
    Db& db = s.catalogue.db();
    CHECK(rows_as_text(db, "PRAGMA integrity_check") == "ok\n");
    CHECK(rows_as_text(db, "PRAGMA foreign_key_check").empty());
    db.exec("INSERT INTO chunk_words(chunk_words, rank) VALUES('integrity-check', 1)");
    db.exec("INSERT INTO chunk_trigrams(chunk_trigrams, rank) VALUES('integrity-check', 1)");
    if (command_.halfway) command_.halfway(s.catalogue);
    check_blobs(s);
    collect(s);
    check_blobs(s);
    for (const auto& [key, reason] : s.kv.verify().bad) CHECK(damaged_.contains(key));
    check_no_orphans(s);
    if (done) CHECK(all(s) == finished_);  // it said so
  }

  void check_blobs(CrashStore& s) {
    std::set<Hash> there;
    for (const KvRow& row : s.catalogue.all_kv()) {
      const Bytes* bytes = disk_.fs.bytes(s.kv.path_of(row.key));
      if (bytes == nullptr || !s.kv.read_blob(row.key).ok()) {
        // A miss that the command met with; it makes none, except where only the file's room lets the row go.
        CHECK((damaged_.contains(row.key) || kind_.fault == Fault::kDiskFull));
        continue;
      }
      CHECK(known_[row.key].contains(*bytes));
      there.insert(row.key);
    }
    for (const Hash& key : stays_) CHECK(there.contains(key));
    for (const Hash& key : disk_.stored) CHECK((there.contains(key) || !after_.contains(key)));
  }

  void check_no_orphans(CrashStore& s) {
    std::set<std::string> wanted, found;
    for (const KvRow& row : s.catalogue.all_kv()) {
      wanted.insert(s.kv.path_of(row.key));
      const Bytes* bytes = disk_.fs.bytes(s.kv.path_of(row.key));
      if (bytes == nullptr || damaged_.contains(row.key)) continue;
      const auto header = read_blob_header(BytesFile(*bytes), "");
      REQUIRE(header.ok());
      CHECK(row.n_bytes == bytes->size());
      CHECK(row.codec == kv_codec_name(header->codecs.back()));
    }
    for (const std::string& path : disk_.fs.files()) {
      if (path.starts_with(disk_.store() + "/kv/") || path.starts_with(disk_.store() + "/set-aside/"))
        found.insert(path);
    }
    CHECK(found == wanted);
  }

  void finishes() {
    disk_.stored.clear();
    command_.run(disk_);
    CrashStore s(disk_);
    collect(s);
    CHECK(all(s) == finished_);
  }

  CrashDisk& disk_;
  const CrashCommand& command_;
  const CrashKind kind_;
  std::map<Hash, std::set<Bytes>> known_;  // what a blob of this key may hold
  std::set<Hash> stays_, after_;           // there before and after; there after
  std::set<Hash> damaged_;                 // before: their file too, or not there
  std::string finished_;
};

// The number of points at which the command was stopped, all of which were survived.
inline int survive(CrashDisk& disk, const CrashCommand& command, const CrashKind& kind) {
  return Survival(disk, command, kind).run();
}

}  // namespace cento::test
