// RAM and disk tiers, look-ahead, budgets and folders of the store.
#include <catch2/catch.hpp>
#include <filesystem>

#include "kv/kv_store.h"
#include "kv/look_ahead.h"
#include "kv/tier_disk.h"
#include "kv/tier_ram.h"
#include "support/fake_clock.h"
#include "support/kv_samples.h"
#include "support/posix.h"
#include "support/shared_data.h"

using namespace cento;
using namespace cento::test;

namespace {

std::vector<std::byte> bytes_of(size_t n, uint8_t value) { return std::vector<std::byte>(n, std::byte{value}); }

Status put(Tier& tier, uint8_t name, size_t n, double cost_ms = 0) {
  const auto bytes = bytes_of(n, name);
  const std::vector<uint64_t> parts = {n};
  return tier.put(hash_filled(name), {bytes, parts, cost_ms});
}

// "" if the tier gives the bytes that `put` gave it.
std::string why_not(Tier& tier, uint8_t name, size_t n) {
  const auto file = tier.open(hash_filled(name));
  if (!file.ok()) return file.error().message();
  std::vector<std::byte> out((*file)->size().or_throw());
  (*file)->read_at(0, out).or_throw();
  return out == bytes_of(n, name) ? "" : "other data";
}

struct Store {
  TempDir dir;
  FakeClock clock;
  Catalogue catalogue{dir / "store", Db::Mode::kReadWrite, clock};
  KvStore kv{catalogue};

  static SampleIdentity identity(int32_t n) {
    SampleIdentity i;
    i.ids[0] = n;
    return i;
  }
  Result<KvRow> put(int32_t n, double cost_ms = 1) {
    clock.advance_ms(10);
    const auto id = identity(n);
    return kv.put(id.get(), id.block(static_cast<uint64_t>(n)), KvCodec::kRaw, std::nullopt, cost_ms);
  }
  std::string serves(int32_t n) {
    clock.advance_ms(10);
    const auto id = identity(n);
    auto reader = kv.open(id.get());
    if (!reader.ok()) return reader.error().message();
    from = (*reader)->from();
    auto back = read_all_layers(**reader);
    if (!back.ok()) return back.error().message();
    return same_bytes(*back, id.block(static_cast<uint64_t>(n))) ? "" : "other data";
  }
  std::string from;
};

}  // namespace

TEST_CASE("ram tier: stays within its budget, evicts the longest unused, counts", "[kv]") {
  FakeClock clock;
  RamTier ram(100, clock);
  REQUIRE(put(ram, 1, 40).ok());
  clock.advance_ms(1);
  REQUIRE(put(ram, 2, 40).ok());
  clock.advance_ms(1);
  CHECK(why_not(ram, 1, 40).empty());
  clock.advance_ms(1);
  REQUIRE(put(ram, 3, 40).ok());
  CHECK(ram.bytes() == 80);
  CHECK(why_not(ram, 2, 40) == "not in memory");
  CHECK(why_not(ram, 1, 40).empty());
  CHECK(why_not(ram, 3, 40).empty());
  CHECK(ram.counters().evictions == 1);
  CHECK(ram.counters().hits == 3);
  CHECK(ram.counters().misses == 1);
  CHECK(put(ram, 4, 101).error().code() == Code::kResource);
  CHECK(ram.bytes() == 80);
  REQUIRE(put(ram, 1, 60).ok());  // replaced by a longer one
  CHECK(why_not(ram, 1, 60).empty());
  CHECK(ram.bytes() == 100);
  REQUIRE(ram.evict(hash_filled(1)).ok());
  CHECK_FALSE(ram.contains(hash_filled(1)));
  CHECK(ram.bytes() == 40);
}

TEST_CASE("ram tier: pinned blobs stay, and what is open stays whole after its eviction", "[kv]") {
  RamTier ram(100);
  REQUIRE(ram.put_pinned(hash_filled(1), bytes_of(60, 1), 0).ok());
  CHECK(put(ram, 2, 50).error().code() == Code::kResource);
  REQUIRE(put(ram, 3, 40).ok());
  const auto open = std::move(ram.open(hash_filled(3))).or_throw();
  REQUIRE(put(ram, 4, 40).ok());  // 3 goes
  CHECK_FALSE(ram.contains(hash_filled(3)));
  std::vector<std::byte> out(40);
  open->read_at(0, out).or_throw();
  CHECK(out == bytes_of(40, 3));
  CHECK(ram.contains(hash_filled(1)));
  ram.unpin(hash_filled(1));
  REQUIRE(put(ram, 2, 50).ok());
  CHECK_FALSE(ram.contains(hash_filled(1)));
}

TEST_CASE("ram tier: what is dear to compute stays once that has been seen to pay", "[kv]") {
  FakeClock clock;
  RamTier ram(100, clock);
  // One dear blob that comes back again and again, behind cheap ones that never do: by age it would go each time.
  bool kept = false;
  for (int round = 0; round < 400 && !kept; ++round) {
    clock.advance_ms(1);
    kept = ram.contains(hash_filled(1));
    if (kept && round < 40) kept = false;
    if (!ram.open(hash_filled(1)).ok()) REQUIRE(put(ram, 1, 40, 400).ok());
    for (uint8_t n = 0; n < 3; ++n) {
      clock.advance_ms(1);
      REQUIRE(put(ram, static_cast<uint8_t>(2 + (3 * round + n) % 200), 30, 1).ok());
    }
  }
  CHECK(kept);
}

TEST_CASE("look-ahead: what waits for its turn is in memory and stays until it is over", "[kv]") {
  const TempDir dir;
  FakeClock clock;
  DiskTier disk(FileSystem::real(), dir / "kv", clock);
  for (uint8_t n = 1; n <= 4; ++n) put(disk, n, 40).or_throw();
  RamTier ram(100, clock);
  LookAhead ahead(ram, {&disk});
  const auto first = ahead.fetch({{hash_filled(1)}, {hash_filled(9)}, {hash_filled(2)}});  // 9 is nowhere
  ahead.wait_until_idle();
  CHECK(ahead.fetched() == 2);
  CHECK(ram.contains(hash_filled(1)));
  CHECK(ram.contains(hash_filled(2)));
  const auto second = ahead.fetch({{hash_filled(3)}, {hash_filled(2)}});  // no room for 3; 2 is there
  ahead.wait_until_idle();
  CHECK_FALSE(ram.contains(hash_filled(3)));
  ahead.release(first);
  REQUIRE(put(ram, 4, 40).ok());
  CHECK_FALSE(ram.contains(hash_filled(1)));
  CHECK(ram.contains(hash_filled(2)));  // the second still waits
  ahead.release(second);
  ahead.release(second);  // once more does no harm
  REQUIRE(put(ram, 5, 90).ok());
  CHECK_FALSE(ram.contains(hash_filled(2)));
}

TEST_CASE("look-ahead: ends in the middle of its work, and lets go of everything", "[kv]") {
  const TempDir dir;
  FakeClock clock;
  DiskTier disk(FileSystem::real(), dir / "kv", clock);
  for (uint8_t n = 1; n <= 20; ++n) put(disk, n, 1000).or_throw();
  RamTier ram(1'000'000, clock);
  for (int round = 0; round < 20; ++round) {
    LookAhead ahead(ram, {&disk});
    std::vector<LookAhead::Wanted> all;
    for (uint8_t n = 1; n <= 20; ++n) all.push_back({hash_filled(n)});
    const auto ticket = ahead.fetch(all);
    if (round % 2 == 0) ahead.release(ticket);
  }
  REQUIRE(put(ram, 99, 1'000'000).ok());  // nothing is pinned any more
  CHECK(ram.bytes() == 1'000'000);
}

TEST_CASE("disk tier: refuses before it writes when the disk is nearly full", "[kv]") {
  const auto disk = SmallDisk::mount(4 << 20);
  if (!disk) return;
  FakeClock clock;
  DiskTier tier(FileSystem::real(), disk->path() + "/kv", clock);
  const auto refused = put(tier, 1, 1000);
  CHECK(refused.error().code() == Code::kResource);
  CHECK_THAT(refused.error().message(), Catch::Contains("nearly full"));
  CHECK_FALSE(std::filesystem::exists(disk->path() + "/kv"));
  tier.set_free_bytes_min(1 << 20);
  CHECK(put(tier, 1, 1000).ok());
  CHECK_FALSE(put(tier, 2, 3 << 20).ok());
  CHECK(why_not(tier, 1, 1000).empty());
  CHECK(tier.counters().bytes_written == 1000);
}

TEST_CASE("kv store: RAM serves first, disk behind it, and a damaged copy in RAM does no harm", "[kv]") {
  Store s;
  StoreLimits limits;
  limits.ram_bytes_max = 1 << 20;
  (void)s.kv.set_limits(limits);
  const auto row = std::move(s.put(1)).or_throw();
  CHECK(s.serves(1).empty());
  CHECK(s.from == "ram");
  s.kv.ram()->evict(row.key).or_throw();
  CHECK(s.serves(1).empty());
  CHECK(s.from == "disk");
  const auto wrong = bytes_of(200, 7);
  const std::vector<uint64_t> parts = {200};
  s.kv.ram()->put(row.key, {wrong, parts}).or_throw();
  CHECK(s.serves(1).empty());
  CHECK(s.from == "disk");
  CHECK_FALSE(s.kv.ram()->contains(row.key));
  CHECK(s.kv.verify().bad.empty());
}

TEST_CASE("kv store: a removed blob is in no tier", "[kv]") {
  Store s;
  StoreLimits limits;
  limits.ram_bytes_max = 1 << 20;
  (void)s.kv.set_limits(limits);
  const auto row = std::move(s.put(1)).or_throw();
  s.kv.remove(row.key).or_throw();
  CHECK(s.serves(1) == "not stored");
  s.put(2).or_throw();
  s.kv.set_aside(kv_key(Store::identity(2).get()), "test");
  CHECK(s.serves(2) == "not stored");
}

TEST_CASE("kv store: the budget holds before each write, and the least useful goes", "[kv]") {
  Store s;
  const uint64_t one = std::move(s.put(0)).or_throw().n_bytes;
  StoreLimits limits;
  limits.disk_bytes_max = 3 * one;
  (void)s.kv.set_limits(limits);
  s.put(1).or_throw();
  s.put(2).or_throw();
  CHECK(s.serves(0).empty());  // used: 1 is the longest unused now
  s.put(3).or_throw();
  CHECK(s.catalogue.kv_bytes_total() == 3 * one);
  CHECK(s.serves(1) == "not stored");
  CHECK(s.serves(0).empty());
  CHECK(s.serves(3).empty());
  // One that would never fit is refused by name and evicts nobody.
  SampleIdentity large = Store::identity(9);
  large.ids.resize(500, 3);
  const auto refused = s.kv.put(large.get(), large.block(1), KvCodec::kRaw, std::nullopt);
  REQUIRE_FALSE(refused.ok());
  CHECK(KvStore::is_over_budget(refused.error()));
  CHECK_FALSE(KvStore::is_over_budget(Error{Code::kResource, "disk full"}));
  CHECK(s.catalogue.kv_totals().n_blobs == 3);
  CHECK(s.kv.gc().files == 0);
}

TEST_CASE("kv store: a run does not evict what it made or used itself", "[kv]") {
  Store s;
  const uint64_t one = std::move(s.put(0)).or_throw().n_bytes;
  s.put(1).or_throw();
  StoreLimits limits;
  limits.disk_bytes_max = 3 * one;
  (void)s.kv.set_limits(limits);
  s.clock.advance_ms(1000);
  s.kv.protect_since(s.clock.unix_ms());
  CHECK(s.kv.fits(one).ok());
  s.put(2).or_throw();
  CHECK(s.serves(1).empty());
  s.put(3).or_throw();  // 0 goes
  CHECK(s.serves(0) == "not stored");
  CHECK(KvStore::is_over_budget(s.kv.fits(one).error()));
  CHECK(KvStore::is_over_budget(s.put(4).error()));
  for (const int32_t n : {1, 2, 3}) CHECK(s.serves(n).empty());
}

TEST_CASE("kv store: a smaller budget and an age limit take effect when they are set", "[kv]") {
  Store s;
  for (int32_t n = 0; n < 6; ++n) s.put(n).or_throw();
  const uint64_t one = s.catalogue.kv_bytes_total() / 6;
  StoreLimits limits;
  limits.disk_bytes_max = 4 * one;
  const auto gone = s.kv.set_limits(limits);
  CHECK(gone.blobs == 2);
  CHECK(gone.bytes == 2 * one);
  CHECK(s.serves(0) == "not stored");
  CHECK(s.serves(1) == "not stored");
  CHECK(s.serves(2).empty());
  s.clock.advance_ms(60'000);
  CHECK(s.serves(5).empty());
  limits.max_age_ms = 30'000;
  CHECK(s.kv.set_limits(limits).blobs == 3);
  CHECK(s.serves(5).empty());
  CHECK(s.catalogue.kv_totals().n_blobs == 1);
  CHECK(s.kv.gc().files == 0);
}

TEST_CASE("kv store: the fixed prefix goes last of all", "[kv]") {
  Store s;
  SampleIdentity prefix;
  prefix.kind = KvKind::kPrefix;
  prefix.context.clear();
  prefix.ids = prefix.prefix;
  REQUIRE(s.kv.put(prefix.get(), prefix.block(1), KvCodec::kRaw, std::nullopt, 0.001).ok());
  for (int32_t n = 0; n < 3; ++n) s.put(n, 1000).or_throw();
  const uint64_t small = s.catalogue.kv(kv_key(prefix.get()))->n_bytes;
  CHECK(s.kv.trim(small).blobs == 3);
  CHECK(s.catalogue.kv(kv_key(prefix.get())));
  CHECK(s.kv.trim(0).blobs == 1);
}

TEST_CASE("kv store: totals are right after any sequence of puts, replacements and removals", "[kv]") {
  Store s;
  Rng rng(11);
  const uint64_t seed = 11;
  CAPTURE(seed);
  for (int step = 0; step < 300; ++step) {
    const auto n = static_cast<int32_t>(rng.below(12));
    if (rng.below(3) == 0) {
      s.kv.remove(kv_key(Store::identity(n).get())).or_throw();
    } else {
      const auto id = Store::identity(n);
      const KvCodec codec = rng.below(2) == 0 ? KvCodec::kRaw : KvCodec::kLossless;
      std::move(s.kv.put(id.get(), id.block(rng.next()), codec, std::nullopt)).or_throw();
    }
    KvTotals sum;
    for (const KvRow& row : s.catalogue.all_kv()) {
      ++sum.n_blobs;
      sum.n_tokens += row.n_tokens;
      sum.n_bytes += row.n_bytes;
    }
    const KvTotals kept = s.catalogue.kv_totals();
    REQUIRE((kept.n_blobs == sum.n_blobs && kept.n_tokens == sum.n_tokens && kept.n_bytes == sum.n_bytes));
  }
}

TEST_CASE("kv store: a further folder takes blobs, goes away, comes back, and is given up", "[kv]") {
  Store s;
  const uint64_t one = std::move(s.put(0)).or_throw().n_bytes;
  const std::string folder = s.dir / "more";
  s.kv.add_folder(folder, 2 * one);
  // The same disk on both sides: the store's own folder comes first unless the other has more room, so its room is
  // taken away.
  for (int32_t n = 1; n < 4; ++n) s.put(n).or_throw();
  const auto in_folder = [&] { return s.catalogue.kv_totals(1).n_blobs; };
  CHECK(in_folder() == 0);
  // Into the folder by hand, as if the own disk had been full.
  const KvRow row = *s.catalogue.kv(kv_key(Store::identity(1).get()));
  const DiskFolder further = s.kv.disk().folders()[1];
  std::filesystem::create_directories(std::filesystem::path(s.kv.disk().path_in(further, row.key)).parent_path());
  std::filesystem::rename(s.kv.path_of(row.key), s.kv.disk().path_in(further, row.key));
  KvRow moved = row;
  moved.folder = further.id;
  s.catalogue.put_kv(moved);
  CHECK(in_folder() == 1);
  CHECK(s.serves(1).empty());
  CHECK(s.kv.gc().files == 0);
  CHECK(s.kv.verify().bad.empty());

  // Its disk is away: a miss with a reason, and nothing is forgotten.
  std::filesystem::rename(folder, folder + "-away");
  CHECK(s.serves(1) == "a folder of the store is not there");
  CHECK(s.kv.gc().rows == 0);
  CHECK(s.serves(2).empty());
  std::filesystem::create_directory(folder);  // an empty mount point
  CHECK(s.serves(1) == "a folder of the store is not there");
  CHECK(s.kv.gc().rows == 0);
  std::filesystem::remove(folder);
  std::filesystem::rename(folder + "-away", folder);
  CHECK(s.serves(1).empty());

  {  // another store may not take it
    Catalogue other(s.dir / "other", Db::Mode::kReadWrite, s.clock);
    KvStore kv(other);
    CHECK_THROWS_WITH(kv.add_folder(folder, 0), Catch::Contains("another store"));
  }
  KvStore again(s.catalogue);  // remembered
  CHECK(again.disk().folders().size() == 2);
  CHECK(s.kv.remove_folder(folder, {}) == one);
  CHECK(s.serves(1).empty());
  CHECK(s.catalogue.kv_folders().empty());
  CHECK(s.catalogue.kv_totals(0).n_blobs == 4);
  CHECK(s.kv.gc().files == 0);
  CHECK_THROWS_WITH(s.kv.remove_folder(folder, {}), Catch::Contains("not a folder of this store"));
}

TEST_CASE("catalogue: a store of schema 1 is taken over, its totals counted", "[kv]") {
  const TempDir dir;
  std::filesystem::create_directories(dir / "store");
  {
    Db db(dir / "store/catalogue.sqlite", Db::Mode::kReadWrite);
    db.exec("PRAGMA application_id=1130720884");
    db.exec(kSchema1);
    db.exec(
        "INSERT INTO kv_blobs VALUES(zeroblob(32), zeroblob(32), zeroblob(32), zeroblob(32), zeroblob(32), "
        "zeroblob(32), "
        "NULL, 1, 'raw', 7, 700, 1, 2, 3)");
    db.exec("PRAGMA user_version=1");
  }
  Catalogue catalogue(dir / "store", Db::Mode::kReadWrite);
  const KvTotals totals = catalogue.kv_totals();
  CHECK(totals.n_blobs == 1);
  CHECK(totals.n_tokens == 7);
  CHECK(totals.n_bytes == 700);
  const auto rows = catalogue.all_kv();
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].hits == 3);
  CHECK(rows[0].folder == 0);
  CHECK(rows[0].cost_ms == 0);
  CHECK_FALSE(rows[0].cipher);
  catalogue.remove_kv(rows[0].key);
  CHECK(catalogue.kv_totals().n_blobs == 0);
  CHECK(catalogue.kv_totals().n_bytes == 0);
}
