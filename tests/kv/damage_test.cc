// Damage and company: blobs that are not what was written, files that change under a reader, other processes.
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>

#include "base/clock.h"
#include "kv/blob_format.h"
#include "kv/kv_store.h"
#include "support/fake_clock.h"
#include "support/faulty_fs.h"
#include "support/kv_samples.h"
#include "support/posix.h"
#include "support/shared_data.h"

using namespace cento;
using namespace cento::test;
using Mode = Db::Mode;

namespace {

SampleIdentity numbered(int32_t n, size_t n_tokens = 5) {
  SampleIdentity identity;
  identity.ids.assign(n_tokens, 3);
  identity.ids.front() = n;
  return identity;
}

KvRow put(KvStore& kv, const SampleIdentity& identity, uint64_t seed, KvCodec codec = KvCodec::kLossless) {
  return std::move(kv.put(identity.get(), identity.block(seed), codec, std::nullopt)).or_throw();
}

// "right", "wrong", or why it is a miss.
std::string served(KvStore& kv, const SampleIdentity& identity, const KvBlock& right) {
  const auto reader = kv.open(identity.get());
  if (!reader.ok()) return reader.error().message();
  const auto back = read_all_layers(**reader);
  if (!back.ok()) return back.error().message();
  return same_bytes(*back, right) ? "right" : "wrong";
}

}  // namespace

TEST_CASE("damage: every byte of a stored blob flipped and every length cut is a miss, with every codec",
          "[kv][crash]") {
  const KvCodec codec = GENERATE(from_range(kKvCodecs));
  const TempDir dir;
  FakeClock clock;
  FaultyFs fs(clock, dir / "store");
  SampleIdentity identity = numbered(1, 70);
  identity.shape = {2, 1, 8, KvType::kF16};
  std::string path;
  KvBlock right;
  {
    Catalogue catalogue(dir / "store", Mode::kReadWrite, clock);
    KvStore kv(catalogue, fs);
    const KvRow row = put(kv, identity, 1, codec);
    path = kv.path_of(row.key);
    right = *read_all_layers(**kv.open(identity.get()));
  }
  CHECK(same_bytes(right, identity.block(1)) == !is_lossy(codec));
  // Read-only, so that nothing is set aside and each damage is met by the same store.
  Catalogue catalogue(dir / "store", Mode::kReadOnly, clock);
  KvStore kv(catalogue, fs);
  REQUIRE(served(kv, identity, right) == "right");
  const std::vector<std::byte> good = *fs.bytes(path);
  size_t n_flips = 0;
  for (size_t at = 0; at < good.size(); ++at) {
    for (const int mask : {0x01, 0x80, 0xff}) {
      auto bytes = good;
      bytes[at] ^= static_cast<std::byte>(mask);
      fs.set_bytes(path, std::move(bytes));
      const std::string answer = served(kv, identity, right);
      if (answer == "right" || answer == "wrong") FAIL_CHECK(answer << " with byte " << at << " flipped by " << mask);
      ++n_flips;
    }
  }
  for (size_t size = 0; size <= good.size() + 1; ++size) {
    auto bytes = good;
    bytes.resize(size);
    fs.set_bytes(path, std::move(bytes));
    const std::string answer = served(kv, identity, right);
    if ((answer == "right") != (size == good.size()) || answer == "wrong") FAIL_CHECK(answer << " with size " << size);
  }
  CHECK(n_flips == 3 * good.size());
  std::printf("damage: %-9s %5zu bytes flipped, %5zu lengths cut\n", kv_codec_name(codec), n_flips, good.size() + 1);
}

TEST_CASE("damage: a file that changes under its reader gives the right data or an error", "[kv][crash]") {
  const KvCodec codec = GENERATE(from_range(kKvCodecs));
  const TempDir dir;
  Catalogue catalogue(dir / "store", Mode::kReadWrite);
  KvStore kv(catalogue);
  const SampleIdentity mine = numbered(1, 70), other = numbered(2, 70);
  const std::string path = kv.path_of(put(kv, mine, 1, codec).key),
                    other_path = kv.path_of(put(kv, other, 2, codec).key);
  const KvBlock right = *read_all_layers(**kv.open(mine.get()));
  auto reader = std::move(kv.open(mine.get())).or_throw();
  KvBlock out(mine.shape, mine.ids.size());
  REQUIRE(reader->read_layer(0, out.k(0), out.v(0)).ok());
  const auto size = std::filesystem::file_size(path);
  bool may_fail = true;
  SECTION("removed") {
    REQUIRE(std::filesystem::remove(path));
    may_fail = false;
  }
  SECTION("another file put in its place") {
    REQUIRE(std::filesystem::copy_file(other_path, path + ".new"));
    std::filesystem::rename(path + ".new", path);
    may_fail = false;
  }
  SECTION("its bytes overwritten by another blob's") {
    REQUIRE(std::filesystem::copy_file(other_path, path, std::filesystem::copy_options::overwrite_existing));
  }
  SECTION("cut to its header") {
    REQUIRE(size > 300);
    std::filesystem::resize_file(path, 300);
  }
  SECTION("cut by a byte") {
    REQUIRE(size > 300);
    std::filesystem::resize_file(path, size - 1);
  }
  SECTION("emptied") {
    REQUIRE(size > 300);
    std::filesystem::resize_file(path, 0);
  }
  const Status s = reader->read_layer(1, out.k(1), out.v(1));
  if (s.ok()) {
    CHECK(std::ranges::equal(out.k(1), right.k(1)));
    CHECK(std::ranges::equal(out.v(1), right.v(1)));
  } else {
    CHECK(may_fail);
    CHECK(s.error().code() == Code::kInput);
  }
  // Whoever comes next has a miss, and it can be stored again.
  CHECK(served(kv, mine, right) != "wrong");
  CHECK(served(kv, other, *read_all_layers(**kv.open(other.get()))) == "right");
  put(kv, mine, 1, codec);
  CHECK(served(kv, mine, right) == "right");
  (void)kv.gc();
  CHECK(kv.verify().bad.empty());
}

TEST_CASE("damage: what is no file in a blob's place is a miss", "[kv][crash]") {
  const TempDir dir;
  Catalogue catalogue(dir / "store", Mode::kReadWrite);
  KvStore kv(catalogue);
  const SampleIdentity mine = numbered(1);
  const std::string path = kv.path_of(put(kv, mine, 1).key);
  std::filesystem::remove(path);
  SECTION("a folder") { REQUIRE(std::filesystem::create_directory(path)); }
  SECTION("a fifo, which must not block") { REQUIRE(::mkfifo(path.c_str(), 0600) == 0); }
  SECTION("a link to nothing") { REQUIRE(::symlink("/nonexistent", path.c_str()) == 0); }
  SECTION("a link to itself") { REQUIRE(::symlink(path.c_str(), path.c_str()) == 0); }
  const std::string answer = served(kv, mine, mine.block(1));
  CHECK(answer != "right");
  CHECK(answer != "wrong");
  CHECK(kv.verify().bad.size() == 1);
}

TEST_CASE("damage: blobs of other format versions are refused by their number", "[kv][crash]") {
  const uint32_t version = GENERATE(0u, 2u, 99u, UINT32_MAX);
  const TempDir dir;
  Catalogue catalogue(dir / "store", Mode::kReadWrite);
  KvStore kv(catalogue);
  const SampleIdentity mine = numbered(1);
  const std::string path = kv.path_of(put(kv, mine, 1).key);
  std::string bytes = read_all(path);
  for (size_t i = 0; i < 4; ++i) bytes[blob::kVersionAt + i] = static_cast<char>(version >> (8 * i));
  write_all(path, bytes);
  const std::string reason = "unknown version " + std::to_string(version);
  CHECK(kv.verify().bad.at(0).second == reason);
  CHECK(kv.add_blob(std::as_bytes(std::span(bytes)), std::nullopt).error().message() == reason);
  CHECK(served(kv, mine, mine.block(1)) == reason);
  CHECK(served(kv, mine, mine.block(1)) == "not stored");
  CHECK(read_all(dir / "store/set-aside/" + kv_key(mine.get()).hex() + ".kv") == bytes);  // a newer cento may want it
  put(kv, mine, 1);
  CHECK(served(kv, mine, mine.block(1)) == "right");
}

TEST_CASE("damage: a catalogue that says an older version than it is, is refused", "[kv][crash]") {
  const TempDir dir;
  {
    Catalogue catalogue(dir / "store", Mode::kReadWrite);
    catalogue.set_setting("a", "b");
    catalogue.db().exec("PRAGMA user_version=0");
  }
  const std::string before = read_all(dir / "store/catalogue.sqlite");
  try {
    const Catalogue catalogue(dir / "store", Mode::kReadWrite);
    FAIL("opened");
  } catch (const Error& error) {
    CHECK(error.code() == Code::kInput);
    CHECK_THAT(std::string(error.what()), Catch::Contains("schema version 0") && Catch::Contains("try:"));
  }
  CHECK(read_all(dir / "store/catalogue.sqlite") == before);
}

// Processes of their own: locks of one process do not keep it from itself.
TEST_CASE("company: readers while others evict, store and collect see right data or a miss", "[kv][crash]") {
  constexpr int32_t kPieces = 6;
  const TempDir dir;
  {
    Catalogue catalogue(dir / "store", Mode::kReadWrite);
    KvStore kv(catalogue);
    for (int32_t n = 0; n < kPieces; ++n) put(kv, numbered(n, 40), static_cast<uint64_t>(n));
  }
  const auto reads = [&](Mode mode) -> std::string {
    Catalogue catalogue(dir / "store", mode);
    KvStore kv(catalogue);
    size_t n_right = 0;
    const Stopwatch watch;
    for (int32_t n = 0; watch.ms() < 1500; n = (n + 1) % kPieces) {
      const SampleIdentity identity = numbered(n, 40);
      const std::string answer = served(kv, identity, identity.block(static_cast<uint64_t>(n)));
      if (answer == "right") ++n_right;
      if (answer != "right" && answer != "not stored" && answer != "file missing") return answer;
    }
    return n_right > 0 ? "done" : "never there";
  };
  const auto writes = [&](bool evicts) -> std::string {
    Catalogue catalogue(dir / "store", Mode::kReadWrite);
    KvStore kv(catalogue);
    const Stopwatch watch;
    for (int32_t n = 0; watch.ms() < 1500; n = (n + 1) % kPieces) {
      const SampleIdentity identity = numbered(n, 40);
      if (evicts) {
        kv.remove(kv_key(identity.get())).or_throw();
        if (n == 3) (void)kv.gc();
        if (n == 5) (void)kv.trim(2000);
      } else {
        put(kv, identity, static_cast<uint64_t>(n), n % 2 == 0 ? KvCodec::kLossless : KvCodec::kRaw);
      }
    }
    return "done";
  };
  const auto answers =
      in_children({[&] { return reads(Mode::kReadWrite); }, [&] { return reads(Mode::kReadOnly); },
                   [&] { return writes(true); }, [&] { return writes(false); }, [&] { return writes(false); }});
  CHECK(answers == std::vector<std::string>(5, "done"));
  Catalogue catalogue(dir / "store", Mode::kReadWrite);
  KvStore kv(catalogue);
  CHECK(kv.verify().bad.empty());
  (void)kv.gc();
  size_t n_files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir / "store/kv"))
    n_files += entry.is_regular_file();
  CHECK(n_files == catalogue.kv_keys().size());
  for (const KvRow& row : catalogue.all_kv()) CHECK(row.n_bytes == std::filesystem::file_size(kv.path_of(row.key)));
}
