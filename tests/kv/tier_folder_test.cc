#include "kv/tier_folder.h"

#include <catch2/catch.hpp>

#include <chrono>
#include <filesystem>

#include "kv/cipher.h"
#include "kv/kv_store.h"
#include "kv/remote.h"
#include "support/fake_clock.h"
#include "support/faulty_fs.h"
#include "support/kv_samples.h"
#include "support/posix.h"
#include "support/shared_data.h"

using namespace cento;
using namespace cento::test;
using Mode = Db::Mode;
namespace fs = std::filesystem;

namespace {

constexpr int64_t kDayMs = 86'400'000;

struct Share {
  TempDir dir;
  Share() { fs::create_directory(dir / "cento"); }
  std::unique_ptr<FolderTier> tier(int64_t ttl_ms = 7 * kDayMs) const {
    return std::make_unique<FolderTier>(FileSystem::real(), dir.path(), ttl_ms);
  }
};

struct Store {
  TempDir dir;
  Catalogue catalogue{dir / "store", Mode::kReadWrite};
  KvStore kv{catalogue};
  explicit Store(const std::string& remote) { kv.set_remote(open_remote(remote)); }
};

std::string why_not(KvStore& kv, const SampleIdentity& identity, const KvBlock& block, std::string* from = nullptr) {
  auto reader = kv.open(identity.get());
  if (!reader.ok()) return reader.error().message();
  if (from != nullptr) *from = (*reader)->from();
  auto back = read_all_layers(**reader);
  if (!back.ok()) return back.error().message();
  return same_bytes(*back, block) ? "" : "other data";
}

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::string text_in(Tier& tier, const Hash& name) {
  const auto file = tier.open(name);
  if (!file.ok()) return "(" + file.error().message() + ")";
  std::string text(*(*file)->size(), '\0');
  return (*file)->read_at(0, std::as_writable_bytes(std::span(text))).ok() ? text : "(unreadable)";
}

void make_older(const std::string& path, int64_t ms) {
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::milliseconds(ms));
}

size_t n_files(const std::string& folder) {
  size_t n = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) n += entry.is_regular_file();
  return n;
}

}  // namespace

TEST_CASE("folder tier: what is put is there for another, replaced and evicted", "[kv]") {
  const Share share;
  const auto a = share.tier(), b = share.tier();
  const Hash name = hash_filled(0xab);
  CHECK(text_in(*b, name) == "(not in the remote tier)");
  REQUIRE(a->put(name, {bytes_of("one"), {}, 0}).ok());
  CHECK(text_in(*b, name) == "one");
  CHECK(a->path_of(name) == share.dir / "cento/b/ab/" + name.hex() + ".kv");
  const auto open = b->open(name);
  REQUIRE(open.ok());
  REQUIRE(a->put(name, {bytes_of("two"), {}, 0}).ok());
  CHECK(text_in(*b, name) == "two");
  std::string old(3, '\0');  // what is open stays whole
  CHECK(((*open)->read_at(0, std::as_writable_bytes(std::span(old))).ok() && old == "one"));
  CHECK(n_files(share.dir.path()) == 1);
  CHECK(b->contains(name));
  CHECK(b->evict(name).ok());
  CHECK(!a->contains(name));
  CHECK(a->evict(name).ok());
  CHECK((a->counters().puts == 2 && b->counters().hits == 3 && b->counters().misses == 1));
  CHECK(a->check().ok());
  CHECK(n_files(share.dir.path()) == 0);
}

TEST_CASE("folder tier: a folder that is not there, or not mounted, is a miss and is not written to", "[kv]") {
  const TempDir dir;
  for (const std::string& path : {dir.path(), dir / "none"}) {
    FolderTier tier(FileSystem::real(), path, kDayMs);
    const Hash name = hash_filled(1);
    CHECK(tier.open(name).error().code() == Code::kResource);
    CHECK(!tier.contains(name));
    const Status s = tier.put(name, {bytes_of("x"), {}, 0});
    REQUIRE(!s.ok());
    CHECK(s.error().code() == Code::kResource);
    CHECK_THAT(s.error().hint(), Catch::Contains("mkdir " + path + "/cento"));
    CHECK(!tier.list(name, {name, KvKind::kPrefix}).ok());
    CHECK(tier.find(name).empty());
    CHECK(!tier.check().ok());
  }
  CHECK(fs::is_empty(dir.path()));
}

TEST_CASE("folder tier: what is listed is found, as long as its blob is there", "[kv]") {
  const Share share;
  const auto tier = share.tier();
  const Hash group = hash_filled(7);
  CHECK(tier->find(group).empty());
  const RemoteTier::Listed one{hash_filled(1), KvKind::kChunkStandIn}, two{hash_filled(2), KvKind::kPrefix};
  for (const auto& item : {one, two}) {
    REQUIRE(tier->put(item.name, {bytes_of("x"), {}, 0}).ok());
    REQUIRE(tier->list(group, item).ok());
    REQUIRE(tier->list(group, item).ok());
  }
  const std::string folder = share.dir / "cento/g/07/" + group.hex();
  write_all(folder + "/notes.txt", "");
  write_all(folder + "/9-" + one.name.hex(), "");
  write_all(folder + "/2-short", "");
  CHECK(tier->find(group) == std::vector<RemoteTier::Listed>{two, one});
  REQUIRE(tier->evict(one.name).ok());
  CHECK(tier->find(group) == std::vector<RemoteTier::Listed>{two});
  CHECK(!fs::exists(folder + "/2-" + one.name.hex()));  // taken away by who noticed
  for (int i = 0; i < 300; ++i) {
    const Hash name = Hasher("n").add_u64(static_cast<uint64_t>(i)).finish();
    if (i < 100) REQUIRE(tier->put(name, {bytes_of("x"), {}, 0}).ok());
    if (!tier->list(group, {name, KvKind::kPrefix}).ok()) CHECK(i >= 2 * static_cast<int>(RemoteTier::kListedMax) - 5);
  }
  CHECK(tier->find(group).size() == RemoteTier::kListedMax);
}

TEST_CASE("folder tier: what was not used for its time to live is gone, and use renews it", "[kv]") {
  const Share share;
  const auto tier = share.tier(7 * kDayMs);
  // All in one folder, so that a put there comes across the others.
  const auto name = [](uint8_t n) {
    Hash hash = hash_filled(0xab);
    hash.bytes[31] = n;
    return hash;
  };
  for (uint8_t n = 0; n < 6; ++n) REQUIRE(tier->put(name(n), {bytes_of("x"), {}, 0}).ok());
  make_older(tier->path_of(name(0)), 8 * kDayMs);
  CHECK(!tier->contains(name(0)));
  CHECK(text_in(*tier, name(0)) == "(not in the remote tier)");
  CHECK(!fs::exists(tier->path_of(name(0))));

  make_older(tier->path_of(name(1)), 6 * kDayMs);
  CHECK(text_in(*tier, name(1)) == "x");
  CHECK(FileSystem::real().modified_ms(tier->path_of(name(1))).value() > Clock::system().unix_ms() - 60'000);
  make_older(tier->path_of(name(2)), kDayMs / 48);  // half an hour: not worth a write
  CHECK(text_in(*tier, name(2)) == "x");
  CHECK(FileSystem::real().modified_ms(tier->path_of(name(2))).value() < Clock::system().unix_ms() - 60'000);

  make_older(tier->path_of(name(3)), 8 * kDayMs);
  const std::string folder = share.dir / "cento/b/ab";
  write_all(folder + "/" + name(9).hex() + ".kv.tmp-1-1", "x");
  write_all(folder + "/" + name(9).hex() + ".kv.tmp-1-2", "x");
  write_all(folder + "/notes.txt", "x");
  make_older(folder + "/" + name(9).hex() + ".kv.tmp-1-1", 2 * kDayMs);
  make_older(folder + "/notes.txt", 100 * kDayMs);
  REQUIRE(tier->put(name(8), {bytes_of("x"), {}, 0}).ok());
  CHECK(!fs::exists(tier->path_of(name(3))));
  CHECK(!fs::exists(folder + "/" + name(9).hex() + ".kv.tmp-1-1"));
  CHECK(fs::exists(folder + "/" + name(9).hex() + ".kv.tmp-1-2"));  // somebody may be writing it
  CHECK(fs::exists(folder + "/notes.txt"));                         // not ours
  CHECK(n_files(share.dir.path()) == 7);

  const auto for_ever = share.tier(0);
  make_older(tier->path_of(name(4)), 1000 * kDayMs);
  CHECK(text_in(*for_ever, name(4)) == "x");
  CHECK(for_ever->contains(name(4)));
}

TEST_CASE("folder tier: files are for their owner, or for the group of a folder that its group may write to", "[kv]") {
  const Umask umask(0);
  const bool shared = GENERATE(false, true);
  const Share share;
  fs::permissions(share.dir / "cento", static_cast<fs::perms>(shared ? 02770 : 0755));
  const auto tier = share.tier();
  const Hash name = hash_filled(0xab);
  REQUIRE(tier->put(name, {bytes_of("x"), {}, 0}).ok());
  REQUIRE(tier->list(name, {name, KvKind::kPrefix}).ok());
  const auto mode = [&](const std::string& path) { return mode_of(path) & 0777; };
  CHECK(mode(tier->path_of(name)) == (shared ? 0660 : 0600));
  CHECK(mode(share.dir / "cento/g/ab/" + name.hex() + "/0-" + name.hex()) == (shared ? 0660 : 0600));
  for (const char* folder : {"cento/b", "cento/b/ab", "cento/g", "cento/g/ab"})
    CHECK(mode(share.dir / folder) == (shared ? 0770 : 0700));
}

TEST_CASE("folder tier: a folder that may not be read or written is a miss", "[kv]") {
  const Share share;
  const Hash name = hash_filled(1);
  REQUIRE(share.tier()->put(name, {bytes_of("x"), {}, 0}).ok());
  const std::string said = in_child(
      [&]() -> std::string {
        const auto tier = share.tier();
        const bool miss = !tier->open(name).ok(), no_put = !tier->put(hash_filled(2), {bytes_of("x"), {}, 0}).ok();
        return miss && no_put && tier->find(name).empty() && !tier->check().ok() ? "away" : "served";
      },
      true);
  CHECK(said == "away");
}

TEST_CASE("folder tier: two stores share their work, and any damage is a miss or the right data", "[kv]") {
  const bool sealed = GENERATE(false, true);
  CAPTURE(sealed);
  const Share share;
  Store a(share.dir.path()), b("file://" + share.dir.path());
  const Hash secret = hash_filled(5);
  const auto cipher = std::make_shared<StoreCipher>(SecretKey(std::as_bytes(std::span(secret.bytes))));
  if (sealed) {
    a.kv.set_cipher(cipher);
    b.kv.set_cipher(cipher);
  }
  SampleIdentity identity, other;
  other.ids.push_back(77);
  const KvBlock block = identity.block(1);
  CHECK(why_not(b.kv, identity, block) == "not stored");
  REQUIRE(a.kv.put(identity.get(), block, KvCodec::kLossless, std::nullopt).ok());
  REQUIRE(a.kv.put(other.get(), other.block(2), KvCodec::kLossless, std::nullopt).ok());
  std::string from;
  CHECK(why_not(b.kv, identity, block, &from).empty());
  CHECK(from == "remote");
  const auto rows = b.kv.find(identity.get());
  REQUIRE(rows.size() == 1);
  CHECK(b.kv.open_row(rows[0], identity.get()).ok());
  CHECK(b.kv.fetch_row(rows[0], identity.get(), std::nullopt).has_value());
  CHECK(why_not(b.kv, identity, block, &from).empty());
  CHECK(from == "disk");
  b.kv.remove(kv_key(identity.get())).or_throw();

  const FolderTier tier(FileSystem::real(), share.dir.path(), 0);
  const std::string path = tier.path_of(a.kv.name_of(kv_key(identity.get())));
  const std::string good = read_all(path), others = read_all(tier.path_of(a.kv.name_of(kv_key(other.get()))));
  size_t n_misses = 0;
  const auto with = [&](const std::string& bytes) {
    CAPTURE(bytes.size());
    write_all(path, bytes);
    const std::string reason = why_not(b.kv, identity, block);
    CHECK(reason != "other data");
    n_misses += !reason.empty();
    CHECK(b.kv.fetch(identity.get(), std::nullopt).has_value() == reason.empty());
    if (reason.empty()) b.kv.remove(kv_key(identity.get())).or_throw();
  };
  for (size_t i = 0; i < good.size(); i += 1 + good.size() / 60) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    with(bad);
  }
  for (size_t n = 0; n < good.size(); n += 1 + good.size() / 60) with(good.substr(0, n));
  with(good + "x");
  with(others);
  CHECK(n_misses > 100);
  fs::remove(path);
  fs::create_directory(path);
  CHECK(!why_not(b.kv, identity, block).empty());
  fs::remove(path);
  fs::create_symlink("/dev/zero", path);
  CHECK(!why_not(b.kv, identity, block).empty());
  fs::remove(path);
  write_all(path, good);
  CHECK(why_not(b.kv, identity, block).empty());
}

TEST_CASE("folder tier: a put whose n-th disk operation fails leaves the old blob or the new one, whole",
          "[kv][crash]") {
  const Fault fault = GENERATE(Fault::kOnce, Fault::kShortWrite, Fault::kForGood);
  int n = 1;
  for (bool failed = true; failed; ++n) {
    CAPTURE(n);
    REQUIRE(n < 100);
    const Share share;
    FakeClock clock;
    FaultyFs faulty(clock, share.dir.path());
    REQUIRE(faulty.make_folders(share.dir / "cento").ok());
    FolderTier tier(faulty, share.dir.path(), 0, clock);
    const Hash name = hash_filled(1);
    REQUIRE(tier.put(name, {bytes_of("old"), {}, 0}).ok());
    faulty.fail_at(n, fault);
    const bool put = tier.put(name, {bytes_of("newer"), {}, 0}).ok();
    failed = faulty.failed();
    faulty.fail_at(0, Fault::kOnce);
    const std::string text = text_in(tier, name);
    CHECK((text == "newer" || (!put && text == "old")));
  }
  CHECK(n > (fault == Fault::kShortWrite ? 2 : 4));  // that one meets writes alone
}
