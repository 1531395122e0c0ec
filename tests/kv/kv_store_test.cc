#include "kv/kv_store.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
#include <set>

#include "kv/blob_codec.h"
#include "support/fake_clock.h"
#include "support/faulty_fs.h"
#include "support/kv_samples.h"
#include "support/posix.h"
#include "support/shared_data.h"

using namespace cento;
using namespace cento::test;
using Mode = Db::Mode;

namespace {

constexpr int64_t kTwoHoursMs = 2 * 3'600'000;

// A store on the real disk.
struct Store {
  TempDir dir;
  FakeClock clock;
  Catalogue catalogue{dir / "store", Mode::kReadWrite, clock};
  KvStore kv{catalogue};
};

KvRow put(KvStore& kv, const SampleIdentity& identity, const KvBlock& block, KvCodec codec = KvCodec::kLossless) {
  auto row = kv.put(identity.get(), block, codec, std::nullopt);
  REQUIRE(row.ok());
  return *row;
}

// "" if the KV of `identity` is there and equal to `block`, else why not.
std::string why_not(Result<std::unique_ptr<KvReader>> reader, const KvBlock& block) {
  if (!reader.ok()) return reader.error().message();
  auto back = read_all_layers(**reader);
  if (!back.ok()) return back.error().message();
  return same_bytes(*back, block) ? "" : "other data";
}
std::string why_not(KvStore& kv, const SampleIdentity& identity, const KvBlock& block) {
  return why_not(kv.open(identity.get()), block);
}

// Writes a blob that says `identity` where the KV of `key` is stored.
void plant(KvStore& kv, const Hash& key, const SampleIdentity& identity) {
  const KvRow other = put(kv, identity, identity.block(99));
  const std::string bytes = read_all(kv.path_of(other.key));
  kv.remove(other.key).or_throw();
  write_all(kv.path_of(key), bytes);
}

// Every way in which one identity can differ from another, with the reason it is told by.
std::vector<std::pair<SampleIdentity, std::string>> neighbours(const SampleIdentity& of) {
  std::vector<std::pair<SampleIdentity, std::string>> all(7, {of, ""});
  all[0].first.fingerprint = hash_filled(77), all[0].second = "other model";
  all[1].first.layout = hash_filled(77), all[1].second = "other KV layout";
  all[2].first.prefix.push_back(4), all[2].second = "other prefix";
  all[3].first.ids[0] ^= 1, all[3].second = "other tokens";
  all[4].first.context.push_back(4), all[4].second = "other context";
  all[5].first.kind = KvKind::kChunkPrefix, all[5].second = "other kind";
  all[6].first.shape = {2, 6, 4, KvType::kF16}, all[6].second = "other KV layout";
  return all;
}

}  // namespace

TEST_CASE("kv store: what is put is served, by the key of its identity", "[kv]") {
  Store s;
  SampleIdentity identity;
  identity.shape.type = GENERATE(KvType::kF16, KvType::kF32);
  const KvCodec codec = GENERATE(KvCodec::kRaw, KvCodec::kLossless);
  const KvBlock block = identity.block(1, KvPattern::kRandomBits);
  CHECK(why_not(s.kv, identity, block) == "not stored");
  const auto row = s.kv.put(identity.get(), block, codec, hash_filled(9));
  REQUIRE(row.ok());
  CHECK(row->key == kv_key(identity.get()));
  CHECK(row->ids_hash == kv_ids_hash(identity.ids));
  CHECK(row->prefix_id == kv_ids_hash(identity.prefix));
  CHECK(row->context_id == kv_ids_hash(identity.context));
  CHECK(row->chunk_hash == hash_filled(9));
  CHECK(row->kind == identity.kind);
  CHECK(row->codec == kv_codec_name(codec));
  CHECK(row->n_tokens == identity.ids.size());
  CHECK(row->n_bytes == std::filesystem::file_size(s.kv.path_of(row->key)));
  CHECK(row->created_ms == s.clock.unix_ms());
  CHECK(s.kv.path_of(row->key) == s.dir / "store/kv/" + row->key.hex().substr(0, 2) + "/" + row->key.hex() + ".kv");

  s.clock.advance_ms(5);
  CHECK(why_not(s.kv, identity, block).empty());
  CHECK(s.catalogue.kv(row->key)->hits == 1);
  CHECK(s.catalogue.kv(row->key)->last_used_ms == s.clock.unix_ms());
  const auto reader = s.kv.open(identity.get());
  REQUIRE(reader.ok());
  CHECK((*reader)->key() == row->key);
  CHECK((*reader)->n_tokens() == identity.ids.size());
  CHECK((*reader)->shape() == identity.shape);
  REQUIRE(read_all_layers(**reader).ok());
  CHECK((*reader)->bytes_read() == row->n_bytes);
}

TEST_CASE("kv store: no two identities share a key, and a miss says what is stored instead", "[kv]") {
  Store s;
  const SampleIdentity identity;
  put(s.kv, identity, identity.block(1));
  std::set<Hash> keys = {kv_key(identity.get())};
  for (const auto& [other, reason] : neighbours(identity)) {
    CAPTURE(reason);
    const auto reader = s.kv.open(other.get());
    REQUIRE(!reader.ok());
    // The shape is part of the layout's hash, so that a key differs by it only if the layout does.
    const bool same_key = !(other.shape == identity.shape);
    CHECK(keys.insert(kv_key(other.get())).second == !same_key);
    CHECK(reader.error().message() == (reason == "other tokens" ? "not stored" : reason));
  }
  CHECK(why_not(s.kv, identity, identity.block(1)).empty());
}

TEST_CASE("kv store: ids that could run into each other are told apart", "[kv]") {
  SampleIdentity a, b;
  a.prefix = {1, 2}, a.context = {3}, a.ids = {4};
  b.prefix = {1}, b.context = {2, 3}, b.ids = {4};
  CHECK(kv_key(a.get()) != kv_key(b.get()));
  b.prefix = {1, 2}, b.context = {}, b.ids = {3, 4};
  CHECK(kv_key(a.get()) != kv_key(b.get()));
}

TEST_CASE("kv store: a file that is another blob's is a miss with the difference, and set aside", "[kv]") {
  Store s;
  const SampleIdentity identity;
  for (const auto& [other, reason] : neighbours(identity)) {
    CAPTURE(reason);
    const Hash key = put(s.kv, identity, identity.block(1)).key;
    if (kv_key(other.get()) == key) continue;  // its shape differs, but not its layout: no model writes that
    plant(s.kv, key, other);
    CHECK(why_not(s.kv, identity, identity.block(1)) == reason);
    CHECK(!s.catalogue.kv(key));
    CHECK(!std::filesystem::exists(s.kv.path_of(key)));
    CHECK(std::filesystem::exists(s.dir / "store/set-aside/" + key.hex() + ".kv"));
  }
}

TEST_CASE("kv store: a row of a chunk is served behind any context, and nothing else", "[kv]") {
  Store s;
  const SampleIdentity identity;
  const KvBlock block = identity.block(1);
  const KvRow row = put(s.kv, identity, block);
  SampleIdentity wanted = identity;
  wanted.context = {};
  CHECK(why_not(s.kv.open_row(row, wanted.get()), block).empty());
  for (const auto& [other, reason] : neighbours(wanted)) {
    if (reason == "other context" || reason == "other kind") continue;
    CAPTURE(reason);
    CHECK(why_not(s.kv.open_row(row, other.get()), block) == reason);
    CHECK(std::filesystem::exists(s.kv.path_of(row.key)));  // the file is what its name says: the question was wrong
  }
  CHECK(why_not(s.kv.open_row(row, wanted.get()), block).empty());

  SampleIdentity elsewhere = identity;
  elsewhere.context.push_back(60);
  plant(s.kv, row.key, elsewhere);
  CHECK(why_not(s.kv.open_row(row, wanted.get()), block) == "other context");
  CHECK(!std::filesystem::exists(s.kv.path_of(row.key)));
}

TEST_CASE("kv store: a row without its file is a miss and goes", "[kv]") {
  Store s;
  const SampleIdentity identity;
  const Hash key = put(s.kv, identity, identity.block(1)).key;
  std::filesystem::remove(s.kv.path_of(key));
  CHECK(why_not(s.kv, identity, identity.block(1)) == "file missing");
  CHECK(!s.catalogue.kv(key));
  CHECK(why_not(s.kv, identity, identity.block(1)) == "not stored");
}

TEST_CASE("kv store: a damaged file is a miss with its reason, set aside, and put again", "[kv]") {
  Store s;
  const SampleIdentity identity;
  const KvBlock block = identity.block(1);
  const Hash key = put(s.kv, identity, block).key;
  const std::string path = s.kv.path_of(key), good = read_all(path);
  const auto reason_for = [&](const std::string& bytes) {
    put(s.kv, identity, block);
    write_all(path, bytes);
    const std::string reason = why_not(s.kv, identity, block);
    CHECK(!s.catalogue.kv(key));
    CHECK(!std::filesystem::exists(path));
    CHECK(read_all(s.dir / "store/set-aside/" + key.hex() + ".kv") == bytes);
    return reason;
  };
  std::string changed = good;
  changed[30] ^= 1;
  CHECK(reason_for(changed) == "header checksum mismatch");
  changed = good;
  changed[8] = 7;
  CHECK(reason_for(changed) == "unknown version 7");
  CHECK(reason_for(good.substr(0, good.size() - 1)) == "file cut short");
  CHECK(reason_for("") == "file cut short");
  CHECK(reason_for("GGUF and so on") == "not a KV blob");
  put(s.kv, identity, block);
  CHECK(why_not(s.kv, identity, block).empty());
}

TEST_CASE("kv store: a damaged frame is an error of its layer only, and can be set aside", "[kv]") {
  Store s;
  const SampleIdentity identity;
  const KvBlock block = identity.block(1);
  const Hash key = put(s.kv, identity, block).key;
  std::string bytes = read_all(s.kv.path_of(key));
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_all(s.kv.path_of(key), bytes);
  {
    const auto reader = s.kv.open(identity.get());
    REQUIRE(reader.ok());
    KvBlock out(identity.shape, identity.ids.size());
    CHECK((*reader)->read_layer(0, out.k(0), out.v(0)).ok());
    const Status bad = (*reader)->read_layer(1, out.k(1), out.v(1));
    REQUIRE(!bad.ok());
    CHECK(bad.error().message() == "checksum mismatch in V of layer 1");
    CHECK_THAT(bad.error().where(), Catch::StartsWith(s.kv.path_of(key) + ", byte "));
  }
  const auto verified = s.kv.verify();
  CHECK(verified.blobs == 1);
  REQUIRE(verified.bad.size() == 1);
  CHECK(verified.bad[0] == std::pair(key, std::string("checksum mismatch in V of layer 1")));
  s.kv.set_aside(key, verified.bad[0].second);
  CHECK(why_not(s.kv, identity, block) == "not stored");
  CHECK(s.kv.verify().blobs == 0);
}

TEST_CASE("kv store: verify names each bad blob and leaves everything where it is", "[kv]") {
  Store s;
  std::vector<Hash> keys;
  for (int32_t n = 0; n < 4; ++n) {
    SampleIdentity identity;
    identity.ids.push_back(n);
    keys.push_back(put(s.kv, identity, identity.block(1)).key);
  }
  CHECK(s.kv.verify().bad.empty());
  std::filesystem::remove(s.kv.path_of(keys[1]));
  std::filesystem::remove(s.kv.path_of(keys[2]));
  std::filesystem::copy_file(s.kv.path_of(keys[3]), s.kv.path_of(keys[2]));
  const auto verified = s.kv.verify();
  CHECK(verified.blobs == 4);
  const std::map<Hash, std::string> bad(verified.bad.begin(), verified.bad.end());
  CHECK(bad == std::map<Hash, std::string>{{keys[1], "file missing"}, {keys[2], "other key"}});
  CHECK(s.catalogue.kv_keys().size() == 4);
}

TEST_CASE("kv store: files are 0600 and folders 0700 under umask 000", "[kv]") {
  const Umask umask(0);
  Store s;
  const SampleIdentity identity;
  const std::string path = s.kv.path_of(put(s.kv, identity, identity.block(1)).key);
  CHECK(mode_of(path) == 0600);
  CHECK(mode_of(path.substr(0, path.find_last_of('/'))) == 0700);
  CHECK(mode_of(s.dir / "store/kv") == 0700);
  s.kv.set_aside(kv_key(identity.get()), "test");
  CHECK(mode_of(s.dir / "store/set-aside") == 0700);
}

TEST_CASE("kv store: remove takes row and file, also of what is not there", "[kv]") {
  Store s;
  const SampleIdentity identity;
  const Hash key = put(s.kv, identity, identity.block(1)).key;
  CHECK(s.kv.remove(key).ok());
  CHECK(!s.catalogue.kv(key));
  CHECK(!std::filesystem::exists(s.kv.path_of(key)));
  CHECK(s.kv.remove(key).ok());
}

TEST_CASE("kv store: gc takes what nothing refers to and leaves the rest", "[kv]") {
  const TempDir dir;
  FakeClock clock;
  Catalogue catalogue(dir / "store", Mode::kReadWrite, clock);
  FaultyFs fs(clock, dir / "store");
  KvStore kv(catalogue, fs);
  CHECK(kv.gc().files == 0);
  const auto stored = [&](int32_t n, const std::optional<Hash>& chunk) {
    SampleIdentity identity;
    identity.ids.push_back(n);
    return std::move(kv.put(identity.get(), identity.block(1), KvCodec::kRaw, chunk)).or_throw();
  };
  catalogue.db().exec("INSERT INTO chunks(hash, header, body, n_tokens) VALUES(zeroblob(32), '', 'text', 1)");
  const Hash kept = stored(1, std::nullopt).key, of_chunk = stored(2, Hash{}).key;
  const Hash orphan = stored(3, hash_filled(5)).key, fileless = stored(4, std::nullopt).key;
  const KvRow rowless = stored(5, std::nullopt);
  const Hash aside = stored(6, std::nullopt).key;
  catalogue.remove_kv(rowless.key);
  fs.remove(kv.path_of(fileless)).or_throw();
  kv.set_aside(aside, "test");
  const auto write = [&](const std::string& path) {
    const std::string folder = path.substr(0, path.find_last_of('/'));
    fs.make_folders(folder).or_throw();
    std::move(fs.create(path)).or_throw();
  };
  write(dir / "store/kv/ab/" + hash_filled(0xab).hex() + ".kv.tmp-1-1");
  clock.advance_ms(kTwoHoursMs);
  write(dir / "store/kv/ab/" + hash_filled(0xab).hex() + ".kv.tmp-1-2");  // young: somebody may be writing it
  write(dir / "store/kv/ab/notes.txt");                                   // not ours
  write(dir / "store/kv/cd/" + kept.hex() + ".kv");                       // not where its key belongs
  clock.advance_ms(60'000);

  const auto removed = kv.gc();
  CHECK(removed.rows == 2);
  CHECK(removed.files == 5);  // orphan's, rowless, set aside, old temporary, misplaced
  CHECK(removed.bytes == 3 * rowless.n_bytes);
  CHECK(catalogue.kv_keys().size() == 2);
  CHECK(catalogue.kv(kept));
  CHECK(catalogue.kv(of_chunk));
  CHECK(!catalogue.kv(orphan));
  CHECK(fs.files().size() == 4);
  CHECK(kv.gc().files == 0);
  CHECK(kv.verify().bad.empty());
}

TEST_CASE("kv store: a read-only store serves and is not changed", "[kv]") {
  const TempDir dir;
  const SampleIdentity identity;
  const KvBlock block = identity.block(1);
  SampleIdentity damaged = identity;
  damaged.ids.push_back(1);
  std::string bad_path;
  {
    Catalogue catalogue(dir / "store", Mode::kReadWrite);
    KvStore kv(catalogue);
    put(kv, identity, block);
    bad_path = kv.path_of(put(kv, damaged, damaged.block(1)).key);
    write_all(bad_path, "x");
  }
  Catalogue catalogue(dir / "store", Mode::kReadOnly);
  KvStore kv(catalogue);
  CHECK(why_not(kv, identity, block).empty());
  CHECK(catalogue.kv(kv_key(identity.get()))->hits == 0);
  CHECK(why_not(kv, damaged, damaged.block(1)) == "not a KV blob");
  CHECK(std::filesystem::exists(bad_path));
  kv.set_aside(kv_key(identity.get()), "test");
  CHECK(why_not(kv, identity, block).empty());
  CHECK(kv.put(identity.get(), block, KvCodec::kRaw, std::nullopt).error().message() == "store cannot be written");
  CHECK(kv.remove(kv_key(identity.get())).error().message() == "store cannot be written");
  write_all(kv.path_of(hash_filled(8)), "garbage");
  CHECK_THROWS_WITH(kv.gc(), Catch::Contains("store cannot be written"));
  CHECK(std::filesystem::exists(kv.path_of(hash_filled(8))));
  CHECK(kv.verify().bad.size() == 1);
  CHECK(!std::filesystem::exists(dir / "store/set-aside"));
}

TEST_CASE("kv store: a locked catalogue makes put an error that leaves no file", "[kv]") {
  Store s;
  const SampleIdentity identity;
  s.catalogue.db().set_busy_timeout_ms(20);
  {
    Db other(s.dir / "store/catalogue.sqlite", Mode::kReadWrite);
    const Transaction transaction(other);
    const auto row = s.kv.put(identity.get(), identity.block(1), KvCodec::kRaw, std::nullopt);
    REQUIRE(!row.ok());
    CHECK(row.error().code() == Code::kResource);
    CHECK(row.error().message() == "store is locked by another process");
  }
  CHECK(why_not(s.kv, identity, identity.block(1)) == "not stored");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(s.dir / "store/kv"))
    CHECK(entry.is_directory());
}

TEST_CASE("kv store: two processes that write the same and other KV at once both succeed", "[kv]") {
  const TempDir dir;
  { const Catalogue catalogue(dir / "store", Mode::kReadWrite); }
  const auto work = [&](int32_t first) -> std::string {
    Catalogue catalogue(dir / "store", Mode::kReadWrite);
    KvStore kv(catalogue);
    for (int32_t n = first; n < first + 12; ++n) {
      SampleIdentity identity;
      identity.ids.push_back(n);
      auto row = kv.put(identity.get(), identity.block(static_cast<uint64_t>(n)), KvCodec::kLossless, std::nullopt);
      if (!row.ok()) return row.error().what();
      if (n % 5 == 0) (void)kv.gc();
    }
    return "done";
  };
  CHECK(in_children({[&] { return work(0); }, [&] { return work(6); }}) == std::vector<std::string>(2, "done"));
  Catalogue catalogue(dir / "store", Mode::kReadWrite);
  KvStore kv(catalogue);
  CHECK(catalogue.kv_keys().size() == 18);
  for (int32_t n = 0; n < 18; ++n) {
    SampleIdentity identity;
    identity.ids.push_back(n);
    CHECK(why_not(kv, identity, identity.block(static_cast<uint64_t>(n))).empty());
  }
  CHECK(kv.gc().files == 0);
}

TEST_CASE("kv store: a KV whose shape is not that of its tokens is not stored", "[kv]") {
  Store s;
  SampleIdentity identity;
  const KvBlock block = identity.block(1);
  identity.ids.clear();
  CHECK_THAT(s.kv.put(identity.get(), block, KvCodec::kRaw, std::nullopt).error().message(),
             Catch::Contains("0 tokens"));
  identity.ids = {1};
  CHECK_THAT(s.kv.put(identity.get(), block, KvCodec::kRaw, std::nullopt).error().message(),
             Catch::Contains("its shape"));
  CHECK(s.catalogue.kv_keys().empty());
}

// DESIGN 1: never a wrong reuse, never lost work, wherever it stops.
TEST_CASE("kv store: a put whose n-th disk operation fails leaves old or new, whole", "[kv][crash]") {
  const Fault fault = GENERATE(Fault::kOnce, Fault::kShortWrite, Fault::kForGood);
  const bool replaces = GENERATE(false, true), crashes = GENERATE(false, true);
  const auto after = crashes ? GENERATE(AfterCrash::kSyncedNames, AfterCrash::kAllNames) : AfterCrash::kSyncedNames;
  CAPTURE(static_cast<int>(fault), replaces, crashes, static_cast<int>(after));
  const SampleIdentity identity;
  const KvBlock old_block = identity.block(1), new_block = identity.block(2);  // of one identity in this test only
  int n = 1;
  for (bool failed = true; failed; ++n) {
    CAPTURE(n);
    REQUIRE(n < 100);
    const TempDir dir;
    FakeClock clock;
    FaultyFs fs(clock, dir / "store");
    bool put_ok = false;
    {
      Catalogue catalogue(dir / "store", Mode::kReadWrite, clock);
      KvStore kv(catalogue, fs);
      if (replaces) put(kv, identity, old_block, KvCodec::kRaw);
      fs.fail_at(n, fault);
      put_ok = kv.put(identity.get(), new_block, KvCodec::kLossless, std::nullopt).ok();
      failed = fs.failed();
      CHECK(put_ok == !failed);
      fs.fail_at(0, Fault::kOnce);
      if (crashes) fs.crash(after);
    }
    Catalogue catalogue(dir / "store", Mode::kReadWrite, clock);
    KvStore kv(catalogue, fs);
    const std::string as_new = why_not(kv, identity, new_block), as_old = why_not(kv, identity, old_block);
    if (put_ok) CHECK(as_new.empty());
    if (replaces) CHECK((as_new.empty() || as_old.empty()));
    if (!replaces) CHECK((as_new.empty() || as_new == "not stored"));
    clock.advance_ms(kTwoHoursMs);
    (void)kv.gc();
    CHECK(fs.files().size() == catalogue.kv_keys().size());
    CHECK(kv.verify().bad.empty());
    CHECK(put(kv, identity, new_block).n_tokens == identity.ids.size());
    CHECK(why_not(kv, identity, new_block).empty());
  }
  CHECK(n > 3);  // there were operations to fail
}

TEST_CASE("kv store: an open whose n-th disk operation fails is a miss, and loses no row", "[kv][crash]") {
  const SampleIdentity identity;
  const KvBlock block = identity.block(1);
  int n = 1;
  for (bool failed = true; failed; ++n) {
    CAPTURE(n);
    const TempDir dir;
    FakeClock clock;
    FaultyFs fs(clock, dir / "store");
    Catalogue catalogue(dir / "store", Mode::kReadWrite, clock);
    KvStore kv(catalogue, fs);
    put(kv, identity, block);
    fs.fail_at(n, Fault::kOnce);
    const std::string reason = why_not(kv, identity, block);
    failed = fs.failed();
    CHECK(reason.empty() == !failed);
    fs.fail_at(0, Fault::kOnce);
    CHECK(why_not(kv, identity, block).empty());  // no space, no handles: nothing was wrong with the file
  }
  CHECK(n > 5);
}

TEST_CASE("kv store: a gc or remove that stops anywhere leaves a store that can be read", "[kv][crash]") {
  const bool by_gc = GENERATE(true, false);
  const SampleIdentity identity;
  const KvBlock block = identity.block(1);
  SampleIdentity gone = identity;
  gone.ids.push_back(1);
  for (int n = 1, failed = 1; failed; ++n) {
    CAPTURE(n, by_gc);
    const TempDir dir;
    FakeClock clock;
    FaultyFs fs(clock, dir / "store");
    Catalogue catalogue(dir / "store", Mode::kReadWrite, clock);
    KvStore kv(catalogue, fs);
    put(kv, identity, block);
    const KvRow row =
        std::move(kv.put(gone.get(), gone.block(1), KvCodec::kRaw, hash_filled(5))).or_throw();  // no such chunk
    fs.fail_at(n, Fault::kForGood);
    if (by_gc) {
      try {
        (void)kv.gc();
      } catch (const Error&) {
      }
    } else {
      (void)kv.remove(row.key).ok();
    }
    failed = fs.failed();
    fs.crash(AfterCrash::kAllNames);
    CHECK(why_not(kv, identity, block).empty());
    (void)kv.gc();
    CHECK(catalogue.kv_keys().size() == 1);
    CHECK(fs.files().size() == 1);
  }
}

TEST_CASE("kv store: a full disk is a resource error, keeps what is stored, and goes on when there is room", "[kv]") {
  const auto disk = SmallDisk::mount(1 << 20);
  if (!disk) return;
  Catalogue catalogue(disk->path() + "/store", Mode::kReadWrite);
  KvStore kv(catalogue);
  kv.disk().set_free_bytes_min(0);  // the disk itself is to refuse
  SampleIdentity identity;
  identity.shape = {2, 4, 64, KvType::kF16};
  identity.ids.assign(64, 1);  // 128 KiB a block, incompressible
  int32_t n_stored = 0;
  for (bool full = false; !full; ++n_stored) {
    REQUIRE(n_stored < 16);
    identity.ids[0] = n_stored;
    const auto row =
        kv.put(identity.get(), identity.block(1, KvPattern::kRandomBits), KvCodec::kLossless, std::nullopt);
    full = !row.ok();
    if (full) {
      CHECK(row.error().code() == Code::kResource);
      CHECK_THAT(std::string(row.error().what()), Catch::Contains("free disk space"));
    }
  }
  --n_stored;
  CHECK(catalogue.kv_keys().size() == static_cast<size_t>(n_stored));
  CHECK(kv.verify().bad.empty());
  CHECK(kv.gc().files == 0);  // the half-written file went with the error
  CHECK(n_stored > 2);
  for (int32_t n = 0; n < 2; ++n) {  // the catalogue's log takes some of the room of one
    identity.ids[0] = n;
    REQUIRE(kv.remove(kv_key(identity.get())).ok());
  }
  REQUIRE(kv.put(identity.get(), identity.block(1, KvPattern::kRandomBits), KvCodec::kLossless, std::nullopt).ok());
}

TEST_CASE("kv store: gc makes room on a full disk", "[kv]") {
  const auto disk = SmallDisk::mount(1 << 20);
  if (!disk) return;
  Catalogue catalogue(disk->path() + "/store", Mode::kReadWrite);
  KvStore kv(catalogue);
  kv.disk().set_free_bytes_min(0);
  SampleIdentity identity;
  identity.shape = {2, 4, 64, KvType::kF16};
  identity.ids.assign(64, 1);
  const auto put_orphan = [&](int32_t n) {  // of a chunk that is not there
    identity.ids[0] = n;
    return kv.put(identity.get(), identity.block(1, KvPattern::kRandomBits), KvCodec::kLossless, hash_filled(1)).ok();
  };
  int32_t n_stored = 0;
  while (put_orphan(n_stored)) ++n_stored;
  REQUIRE(n_stored > 2);
  // The rest of the room goes too.
  const auto filler = std::move(FileSystem::real().create(disk->path() + "/filler")).or_throw();
  while (filler->write(std::vector<std::byte>(4096)).ok()) {
  }
  const auto removed = kv.gc();
  CHECK(removed.rows == static_cast<uint64_t>(n_stored));
  CHECK(removed.files >= static_cast<uint64_t>(n_stored));
  CHECK(put_orphan(0));
}
