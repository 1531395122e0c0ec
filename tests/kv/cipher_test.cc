#include "kv/cipher.h"

#include <catch2/catch.hpp>

#include "kv/blob_identity.h"
#include "kv/bytes_file.h"
#include "kv/kv_store.h"
#include "support/fake_clock.h"
#include "support/kv_samples.h"
#include "support/memory_file.h"
#include "support/shared_data.h"

using namespace cento;
using namespace cento::test;

namespace {

StoreCipher cipher_of(char digit) {
  std::string text(64, digit);
  return StoreCipher(parse_secret_key(text, "test"));
}

std::vector<std::byte> sample_bytes(size_t n) {
  std::vector<std::byte> bytes(n);
  Rng rng(7);
  for (std::byte& b : bytes) b = static_cast<std::byte>(rng.next());
  return bytes;
}

const std::vector<uint64_t> kParts = {100, 33, 1, 200};  // 334 in all

std::string why_not(const StoreCipher& cipher, std::span<const std::byte> sealed, std::span<const std::byte> plain) {
  auto file = cipher.open(std::make_unique<BytesFile>(sealed), "there");
  if (!file.ok()) return file.error().message();
  const auto back = read_whole(**file, "there");
  if (!back.ok()) return back.error().message();
  return std::ranges::equal(*back, plain) ? "" : "other data";
}

}  // namespace

TEST_CASE("cipher: what was sealed is read back, whole, by part and across parts", "[kv]") {
  const StoreCipher cipher = cipher_of('a');
  const auto plain = sample_bytes(334);
  const auto sealed = cipher.seal({plain, kParts});
  uint64_t sum = 0;
  for (const uint64_t n : sealed.parts) sum += n;
  CHECK(sealed.parts.size() == kParts.size());
  CHECK(sum == sealed.bytes.size());
  CHECK(is_sealed(BytesFile(sealed.bytes)));
  CHECK_FALSE(is_sealed(BytesFile(plain)));
  const auto file = std::move(cipher.open(std::make_unique<BytesFile>(sealed.bytes), "there")).or_throw();
  CHECK(file->size().or_throw() == plain.size());
  for (const size_t from : {size_t{0}, size_t{1}, size_t{99}, size_t{100}, size_t{133}, size_t{134}, size_t{333}}) {
    for (const size_t n : {size_t{0}, size_t{1}, size_t{34}, size_t{100}, size_t{334}}) {
      CAPTURE(from, n);
      std::vector<std::byte> out(n);
      const Status s = file->read_at(from, out);
      CHECK(s.ok() == (from + n <= plain.size()));
      if (s.ok()) CHECK(std::equal(out.begin(), out.end(), plain.begin() + static_cast<ptrdiff_t>(from)));
    }
  }
}

TEST_CASE("cipher: no run of eight bytes of the content is in the sealed file, and no two sealings are alike", "[kv]") {
  const StoreCipher cipher = cipher_of('b');
  const std::vector<std::byte> plain(334, std::byte{0x41});
  const auto one = cipher.seal({plain, kParts}), two = cipher.seal({plain, kParts});
  CHECK(one.bytes != two.bytes);
  const std::vector<std::byte> run(8, std::byte{0x41});
  CHECK(std::search(one.bytes.begin(), one.bytes.end(), run.begin(), run.end()) == one.bytes.end());
}

TEST_CASE("cipher: a flipped byte, a cut and an added byte are all found out", "[kv]") {
  const StoreCipher cipher = cipher_of('c');
  const auto plain = sample_bytes(334);
  const auto sealed = cipher.seal({plain, kParts});
  REQUIRE(why_not(cipher, sealed.bytes, plain).empty());
  for (size_t i = 0; i < sealed.bytes.size(); ++i) {
    auto bytes = sealed.bytes;
    bytes[i] ^= std::byte{0x10};
    CAPTURE(i);
    const std::string why = why_not(cipher, bytes, plain);
    CHECK(!why.empty());
    CHECK(why != "other data");
  }
  for (size_t n = 0; n < sealed.bytes.size(); ++n) {
    CAPTURE(n);
    CHECK_FALSE(why_not(cipher, std::span(sealed.bytes).first(n), plain).empty());
  }
  auto longer = sealed.bytes;
  longer.push_back(std::byte{0});
  CHECK_FALSE(why_not(cipher, longer, plain).empty());
}

TEST_CASE("cipher: parts of two files of one key cannot be exchanged", "[kv]") {
  const StoreCipher cipher = cipher_of('d');
  const auto plain = sample_bytes(334);
  const auto one = cipher.seal({plain, kParts}), two = cipher.seal({plain, kParts});
  auto mixed = one.bytes;
  std::copy(two.bytes.end() - 216, two.bytes.end(), mixed.end() - 216);  // the last part with its tag
  CHECK(why_not(cipher, mixed, plain) == "damaged, or changed by somebody without the key");
}

TEST_CASE("cipher: another key is told apart before anything is opened", "[kv]") {
  const StoreCipher one = cipher_of('1'), same = cipher_of('1'), other = cipher_of('2');
  const auto plain = sample_bytes(334);
  const auto sealed = one.seal({plain, kParts});
  CHECK(one.id() == same.id());
  CHECK(one.id() != other.id());
  CHECK(one.name(hash_filled(1)) == same.name(hash_filled(1)));
  CHECK(one.name(hash_filled(1)) != other.name(hash_filled(1)));
  CHECK(one.name(hash_filled(1)) != hash_filled(1));
  CHECK(one.name(hash_filled(1)) != one.name(hash_filled(2)));
  CHECK(why_not(same, sealed.bytes, plain).empty());
  CHECK(why_not(other, sealed.bytes, plain) == "encrypted with another key");
  CHECK(why_not(one, plain, plain) == "not encrypted");
}

TEST_CASE("cipher: keys as people write them", "[kv]") {
  std::string digits(64, 'e'), spaced = "  " + digits + "\n", upper(64, 'E'), raw(32, '\x07');
  const CipherId id = StoreCipher(parse_secret_key(digits, "t")).id();
  CHECK(digits == std::string(64, '\0'));  // zeroed
  CHECK(StoreCipher(parse_secret_key(spaced, "t")).id() == id);
  CHECK(StoreCipher(parse_secret_key(upper, "t")).id() == id);
  CHECK(StoreCipher(parse_secret_key(raw, "t")).id() != id);
  for (std::string bad :
       {std::string(), std::string(63, 'a'), std::string(65, 'a'), std::string(64, 'g'), std::string(31, 'x'),
        std::string(33, 'x'), std::string("password"), std::string(32, 'a') + "\n"}) {
    CAPTURE(bad);
    CHECK_THROWS_WITH(parse_secret_key(bad, "the file"), Catch::Contains("not a key") && Catch::Contains("the file"));
  }
  const std::string a = random_hex(16), b = random_hex(16);
  CHECK(a.size() == 32);
  CHECK(a != b);
}

namespace {

struct Sealed {
  TempDir dir;
  FakeClock clock;
  Catalogue catalogue{dir / "store", Db::Mode::kReadWrite, clock};
  KvStore kv{catalogue};
  SampleIdentity identity(int32_t n) const {
    SampleIdentity i;
    i.ids[0] = n;
    return i;
  }
  void fill(int32_t n) {
    for (int32_t i = 0; i < n; ++i) {
      const auto id = identity(i);
      std::move(kv.put(id.get(), id.block(static_cast<uint64_t>(i)), KvCodec::kLossless, std::nullopt)).or_throw();
    }
  }
};

std::string serves(KvStore& kv, const SampleIdentity& id, uint64_t seed) {
  auto reader = kv.open(id.get());
  if (!reader.ok()) return reader.error().message();
  auto back = read_all_layers(**reader);
  if (!back.ok()) return back.error().message();
  return same_bytes(*back, id.block(seed)) ? "" : "other data";
}

std::shared_ptr<const StoreCipher> shared_cipher(char digit) {
  return std::make_shared<const StoreCipher>(cipher_of(digit));
}

}  // namespace

TEST_CASE("kv store: an encrypted store serves with its key and with no other", "[kv]") {
  Sealed s;
  s.kv.set_cipher(shared_cipher('1'));
  s.fill(3);
  const auto id = s.identity(1);
  CHECK(serves(s.kv, id, 1).empty());
  const Hash key = kv_key(id.get());
  CHECK(s.kv.path_of(key).find(key.hex()) == std::string::npos);
  CHECK(s.kv.verify().bad.empty());
  CHECK(s.kv.gc().files == 0);
  // Nothing of the tokens is in the file.
  const std::string file = read_all(s.kv.path_of(key));
  const std::string ids(reinterpret_cast<const char*>(id.ids.data()), 4 * id.ids.size());
  CHECK(file.find(ids) == std::string::npos);
  CHECK(file.find(std::string(reinterpret_cast<const char*>(key.bytes.data()), 32)) == std::string::npos);

  KvStore locked(s.catalogue);
  CHECK(serves(locked, id, 1) == "store is encrypted");
  CHECK_FALSE(locked.put(id.get(), id.block(1), KvCodec::kRaw, std::nullopt).ok());
  CHECK_THROWS_WITH(locked.gc(), Catch::Contains("encrypted"));
  CHECK_THROWS_WITH(locked.set_cipher(shared_cipher('2')), Catch::Contains("another key"));
  CHECK_THROWS_WITH(locked.set_cipher(nullptr), Catch::Contains("encrypted"));
  CHECK(serves(locked, id, 1) == "store is encrypted");
  locked.set_cipher(shared_cipher('1'));
  CHECK(serves(locked, id, 1).empty());
}

TEST_CASE("kv store: a store that holds open KV takes no key but by rekey", "[kv]") {
  Sealed s;
  s.fill(1);
  CHECK_THROWS_WITH(s.kv.set_cipher(shared_cipher('1')), Catch::Contains("not encrypted") && Catch::Contains("rekey"));
  CHECK(serves(s.kv, s.identity(0), 0).empty());
}

TEST_CASE("kv store: a rekey that is stopped after any blob goes on, and nothing is lost", "[kv]") {
  constexpr int32_t kBlobs = 4;
  const std::string keys = GENERATE("02", "10", "12");  // '0': not encrypted
  const char from_key = keys[0], to_key = keys[1];
  const auto cipher = [](char c) { return c == '0' ? nullptr : shared_cipher(c); };
  for (int stop_after = 0; stop_after <= kBlobs; ++stop_after) {
    CAPTURE(from_key, to_key, stop_after);
    Sealed s;
    s.kv.set_cipher(cipher(from_key));
    s.fill(kBlobs);
    int seen = 0;
    KvStore::Hooks hooks;
    hooks.stop = [&] { return seen++ == stop_after; };
    const auto first = s.kv.rekey(cipher(from_key), cipher(to_key), hooks);
    CHECK(first.stopped == (stop_after < kBlobs));
    if (first.stopped) {
      KvStore other(s.catalogue);
      CHECK_FALSE(serves(other, s.identity(0), 0).empty());
      CHECK_THROWS_WITH(other.set_cipher(cipher(from_key)), Catch::Contains("rekey"));
      CHECK_THROWS_WITH(other.rekey(cipher(from_key), shared_cipher('7'), {}), Catch::Contains("another rekey"));
      CHECK_THROWS(other.rekey(shared_cipher('7'), cipher(to_key), {}));
      const auto rest = other.rekey(cipher(from_key), cipher(to_key), {});
      CHECK_FALSE(rest.stopped);
      CHECK(first.blobs + rest.blobs == kBlobs);
    }
    KvStore after(s.catalogue);
    after.set_cipher(cipher(to_key));
    for (int32_t i = 0; i < kBlobs; ++i) CHECK(serves(after, s.identity(i), static_cast<uint64_t>(i)).empty());
    CHECK(after.verify().blobs == kBlobs);
    CHECK(after.verify().bad.empty());
    CHECK(after.gc().files == 0);
  }
}

TEST_CASE("kv store: whoever had the store open with the old key loses nothing of it", "[kv]") {
  Sealed s;
  s.fill(3);
  KvStore old(s.catalogue);
  CHECK(serves(old, s.identity(0), 0).empty());
  (void)s.kv.rekey(nullptr, shared_cipher('3'), {});
  CHECK(serves(old, s.identity(0), 0) == "encrypted with another key");
  CHECK_THROWS_WITH(old.gc(), Catch::Contains("key was changed"));
  CHECK_FALSE(old.put(s.identity(9).get(), s.identity(9).block(9), KvCodec::kRaw, std::nullopt).ok());
  CHECK_FALSE(old.remove(kv_key(s.identity(1).get())).ok());
  for (int32_t i = 0; i < 3; ++i) CHECK(serves(s.kv, s.identity(i), static_cast<uint64_t>(i)).empty());
  CHECK(s.kv.verify().blobs == 3);
  CHECK(s.kv.verify().bad.empty());
}

TEST_CASE("kv store: rekey leaves out what is damaged, and says so", "[kv]") {
  Sealed s;
  s.fill(3);
  std::string bytes = read_all(s.kv.path_of(kv_key(s.identity(1).get())));
  bytes[bytes.size() / 2] ^= 1;
  write_all(s.kv.path_of(kv_key(s.identity(1).get())), bytes);
  const auto done = s.kv.rekey(nullptr, shared_cipher('3'), {});
  CHECK(done.blobs == 2);
  CHECK(done.damaged == 1);
  CHECK(serves(s.kv, s.identity(0), 0).empty());
  CHECK(serves(s.kv, s.identity(1), 1) == "not stored");
  CHECK(s.kv.gc().files == 0);
}
