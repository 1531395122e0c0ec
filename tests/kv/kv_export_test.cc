#include "kv/kv_export.h"

#include <catch2/catch.hpp>
#include <filesystem>

#include "support/kv_samples.h"
#include "support/shared_data.h"

using namespace cento;
using namespace cento::test;

namespace {

const KvShape kShape = {3, 2, 8, KvType::kF16};

struct Box {
  explicit Box(const std::string& name) : catalogue(dir / name, Db::Mode::kReadWrite), store(catalogue) {}
  TempDir dir;
  Catalogue catalogue;
  KvStore store;
};

struct Piece {
  std::vector<int32_t> ids;
  KvBlock block;
  std::optional<Hash> chunk;
};

KvIdentity identity_of(const Piece& piece) {
  static const std::vector<int32_t> prefix = {1, 2, 3}, context = {1, 2, 3, 50, 51};
  KvIdentity id;
  id.fingerprint = hash_filled(1);
  id.layout = hash_filled(2);
  id.shape = kShape;
  id.kind = piece.chunk ? KvKind::kChunkStandIn : KvKind::kPrefix;
  id.prefix_ids = prefix;
  if (piece.chunk) id.context_ids = context;
  id.ids = piece.ids;
  return id;
}

std::vector<Piece> pieces() {
  std::vector<Piece> out;
  for (int32_t n = 1; n <= 4; ++n) {
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < 5 * n; ++i) ids.push_back(100 * n + i);
    KvBlock block = sample_block(kShape, ids.size(), n == 2 ? KvPattern::kRandomBits : KvPattern::kNormal,
                                 static_cast<uint64_t>(n));
    out.push_back(
        {ids, std::move(block), n == 1 ? std::nullopt : std::optional<Hash>(hash_filled(static_cast<uint8_t>(n)))});
  }
  return out;
}

void fill(KvStore& store) {
  for (const Piece& p : pieces()) std::move(store.put(identity_of(p), p.block, KvCodec::kLossless, p.chunk)).or_throw();
}

void check_holds(KvStore& store, size_t n_wanted) {
  size_t n = 0;
  for (const Piece& p : pieces()) {
    auto reader = store.open(identity_of(p));
    if (!reader.ok()) continue;
    ++n;
    std::vector<std::byte> k(kShape.side_bytes(p.ids.size())), v(k.size());
    for (uint32_t l = 0; l < kShape.n_layers; ++l) {
      REQUIRE(reader.value()->read_layer(l, k, v).ok());
      CHECK(std::equal(k.begin(), k.end(), p.block.k(l).begin()));
      CHECK(std::equal(v.begin(), v.end(), p.block.v(l).begin()));
    }
    const auto row = store.catalogue().kv(kv_key(identity_of(p)));
    REQUIRE(row);
    CHECK(row->chunk_hash == p.chunk);
    CHECK(row->codec == "lossless");
  }
  CHECK(n == n_wanted);
}

std::string exported(Box& box) {
  const std::string path = box.dir / "all.cento";
  const ExportReport report = export_kv(box.store, box.catalogue.all_kv(), path, {});
  REQUIRE(report.blobs == 4);
  REQUIRE(report.skipped.empty());
  CHECK(std::filesystem::file_size(path) == report.bytes);
  return path;
}

}  // namespace

TEST_CASE("export: another store takes in all of it, and the second time nothing", "[kv]") {
  Box from("a"), to("b");
  fill(from.store);
  const std::string path = exported(from);
  const ImportReport first = import_kv(to.store, path, {});
  CHECK((first.imported == 4 && first.present == 0 && first.refused.empty()));
  check_holds(to.store, 4);
  CHECK(to.catalogue.kv_bytes_total() == first.bytes);
  CHECK(to.store.verify().bad.empty());
  const ImportReport second = import_kv(to.store, path, {});
  CHECK((second.imported == 0 && second.present == 4));
  // A row whose file is gone does not keep the blob out.
  std::filesystem::remove(to.store.path_of(kv_key(identity_of(pieces()[2]))));
  CHECK(import_kv(to.store, path, {}).imported == 1);
  check_holds(to.store, 4);
}

TEST_CASE("export: a damaged piece is left out and named, and no half file is left behind", "[kv]") {
  Box from("a");
  fill(from.store);
  const Hash damaged = kv_key(identity_of(pieces()[1]));
  std::string bytes = read_all(from.store.path_of(damaged));
  bytes[bytes.size() - 3] ^= 1;
  write_all(from.store.path_of(damaged), bytes);
  const std::string path = from.dir / "all.cento";
  const ExportReport report = export_kv(from.store, from.catalogue.all_kv(), path, {});
  CHECK(report.blobs == 3);
  REQUIRE(report.skipped.size() == 1);
  CHECK(report.skipped[0].first == damaged);
  CHECK(from.catalogue.kv(damaged).has_value());  // looking does not change the store

  write_all(path, "an earlier one");
  ExportHooks hooks;
  size_t polls = 0;
  hooks.stop = [&] { return ++polls > 1; };
  CHECK(export_kv(from.store, from.catalogue.all_kv(), path, hooks).stopped);
  CHECK(read_all(path) == "an earlier one");
  for (const auto& entry : std::filesystem::directory_iterator(from.dir.path()))
    CHECK(entry.path().string().find(".tmp-") == std::string::npos);
  CHECK_THROWS_AS(export_kv(from.store, from.catalogue.all_kv(), from.dir / "no/such/folder/x", {}), Error);
}

TEST_CASE("import: whatever byte is flipped, what comes in is right", "[kv]") {
  Box from("a");
  fill(from.store);
  const std::string path = exported(from), good = read_all(path), bad_path = from.dir / "bad.cento";
  for (size_t at = 0; at < good.size(); at += 1 + at / 97) {  // every byte of the first record's head, fewer later
    CAPTURE(at);
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
    write_all(bad_path, bytes);
    Box to("b");
    if (at < kExportMagic.size()) {
      CHECK_THROWS_AS(import_kv(to.store, bad_path, {}), Error);
      continue;
    }
    const ImportReport report = import_kv(to.store, bad_path, {});
    CHECK_FALSE(report.refused.empty());
    CHECK(report.imported < 5);
    check_holds(to.store, report.imported);
  }
}

TEST_CASE("import: a file that is cut anywhere gives what stands whole in front of the cut", "[kv]") {
  Box from("a");
  fill(from.store);
  const std::string path = exported(from), good = read_all(path), cut_path = from.dir / "cut.cento";
  uint64_t before = 0;
  for (size_t size = 0; size < good.size(); size += 1 + size / 61) {
    CAPTURE(size);
    write_all(cut_path, good.substr(0, size));
    Box to("b");
    if (size < kExportMagic.size()) {
      CHECK_THROWS_AS(import_kv(to.store, cut_path, {}), Error);
      continue;
    }
    const ImportReport report = import_kv(to.store, cut_path, {});
    CHECK(report.refused.size() == 1);
    CHECK(report.imported >= before);
    before = report.imported;
    check_holds(to.store, report.imported);
  }
  CHECK(before >= 3);
  write_all(cut_path, good + "x");
  Box to("b");
  CHECK(import_kv(to.store, cut_path, {}).refused.size() == 1);
}
