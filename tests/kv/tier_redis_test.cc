#include "kv/tier_redis.h"

#include <catch2/catch.hpp>

#include <sys/socket.h>

#include <filesystem>
#include <thread>

#include "kv/cipher.h"
#include "kv/kv_store.h"
#include "kv/remote.h"
#include "kv/remote_parts.h"
#include "support/fake_clock.h"
#include "support/kv_samples.h"
#include "support/redis_server.h"

using namespace cento;
using namespace cento::test;
using Mode = Db::Mode;

namespace {

// Counts as the one assertion of a test that cannot run.
std::unique_ptr<RedisServer> redis(const std::vector<std::string>& settings = {}) {
  auto server = RedisServer::start(settings);
  if (!server) SUCCEED("skipped: no redis-server");
  return server;
}

struct Blob {
  std::vector<std::byte> bytes;
  std::vector<uint64_t> parts;
  BlobView view() const { return {bytes, parts, 0}; }
};

Blob sample_blob(uint64_t seed, std::vector<uint64_t> parts = {40, 1000, 900, 1, 0, 70'000, 300}) {
  Blob blob;
  Rng rng(seed);
  for (const uint64_t n : parts) {
    for (uint64_t i = 0; i < n; ++i) blob.bytes.push_back(static_cast<std::byte>(rng.next()));
  }
  blob.parts = std::move(parts);
  return blob;
}

std::string key_of(const Hash& name, const std::string& part) { return "cento:b:" + name.hex() + ":" + part; }

// Part by part, as a reader of blobs does; nullopt on any error.
std::optional<std::vector<std::byte>> read_parts(const File& file, const std::vector<uint64_t>& parts) {
  const auto size = file.size();
  uint64_t sum = 0;
  for (const uint64_t n : parts) sum += n;
  if (!size.ok() || *size != sum) return std::nullopt;
  std::vector<std::byte> out(*size);
  uint64_t at = 0;
  for (const uint64_t n : parts) {
    if (!file.read_at(at, std::span(out).subspan(at, n)).ok()) return std::nullopt;
    at += n;
  }
  return out;
}

bool serves(Tier& tier, const Hash& name, const Blob& blob) {
  const auto file = tier.open(name);
  return file.ok() && read_parts(**file, blob.parts) == blob.bytes;
}

std::string why_not(Tier& tier, const Hash& name) {
  const auto file = tier.open(name);
  return file.ok() ? "" : file.error().message();
}

std::unique_ptr<RedisTier> tier_of(const std::string& url, const Clock& clock = Clock::system()) {
  return std::make_unique<RedisTier>(parse_remote_url(url), clock);
}

struct Store {
  TempDir dir;
  Catalogue catalogue{dir / "store", Mode::kReadWrite};
  KvStore kv{catalogue};
  explicit Store(const std::string& remote) { kv.set_remote(open_remote(remote)); }
};

// "" if `kv` serves this KV, bit for bit; else why not.
std::string why_not(KvStore& kv, const SampleIdentity& identity, const KvBlock& block, std::string* from = nullptr) {
  auto reader = kv.open(identity.get());
  if (!reader.ok()) return reader.error().message();
  if (from != nullptr) *from = (*reader)->from();
  auto back = read_all_layers(**reader);
  if (!back.ok()) return back.error().message();
  return same_bytes(*back, block) ? "" : "other data";
}

std::shared_ptr<const StoreCipher> cipher(uint8_t n) {
  const Hash key = hash_filled(n);
  return std::make_shared<StoreCipher>(SecretKey(std::as_bytes(std::span(key.bytes))));
}

}  // namespace

TEST_CASE("redis tier: what is put is there for another process, whole or by parts, until it is evicted", "[kv]") {
  const auto server = redis();
  if (!server) return;
  const auto a = tier_of(server->url()), b = tier_of(server->url());
  const Hash name = hash_filled(1);
  const Blob blob = sample_blob(1);
  CHECK(why_not(*b, name) == "not in the remote tier");
  CHECK(!b->contains(name));
  REQUIRE(a->put(name, blob.view()).ok());
  CHECK(b->contains(name));
  CHECK(serves(*b, name, blob));
  const auto file = b->open(name);
  REQUIRE(file.ok());
  std::vector<std::byte> whole(blob.bytes.size());
  CHECK((*file)->read_at(0, whole).ok());
  CHECK((whole == blob.bytes));
  std::vector<std::byte> some(39);
  CHECK((*file)->read_at(1, some).ok());  // within the header
  CHECK(std::equal(some.begin(), some.end(), blob.bytes.begin() + 1));
  CHECK(!(*file)->read_at(41, some).ok());  // a piece of another part
  CHECK(!(*file)->read_at(whole.size() - 1, some).ok());
  CHECK((*file)->size().value() == blob.bytes.size());

  const Blob other = sample_blob(2, {10, 20});
  REQUIRE(a->put(name, other.view()).ok());  // replaced
  CHECK(serves(*b, name, other));
  REQUIRE(b->evict(name).ok());
  CHECK(!a->contains(name));
  CHECK(server->ask({"EXISTS", key_of(name, "1")}) == "0");
  CHECK(a->evict(hash_filled(9)).ok());
  CHECK((a->counters().puts == 2 && b->counters().hits == 3 && b->counters().misses == 1));
  CHECK(b->check().ok());
}

TEST_CASE("redis tier: parts may be read in any order and again", "[kv]") {
  const auto server = redis();
  if (!server) return;
  const auto tier = tier_of(server->url());
  const Hash name = hash_filled(1);
  const Blob blob = sample_blob(3, {40, 10, 20, 30, 40, 50, 60, 70, 80});
  REQUIRE(tier->put(name, blob.view()).ok());
  const auto file = tier->open(name);
  REQUIRE(file.ok());
  std::vector<uint64_t> from;
  uint64_t at = 0;
  for (const uint64_t n : blob.parts) from.push_back(std::exchange(at, at + n));
  Rng rng(5);
  for (int i = 0; i < 100; ++i) {
    const size_t part = rng.below(blob.parts.size());
    std::vector<std::byte> out(blob.parts[part]);
    REQUIRE((*file)->read_at(from[part], out).ok());
    CHECK(std::equal(out.begin(), out.end(), blob.bytes.begin() + static_cast<ptrdiff_t>(from[part])));
  }
}

TEST_CASE("redis tier: everything has a time to live, which use renews, and a namespace keeps others out", "[kv]") {
  const auto server = redis();
  if (!server) return;
  const auto tier = tier_of(server->url("ttl=100s&ns=mine"));
  const Hash name = hash_filled(1), group = hash_filled(2);
  const Blob blob = sample_blob(1, {40, 10, 20});
  REQUIRE(tier->put(name, blob.view()).ok());
  REQUIRE(tier->list(group, {name, KvKind::kPrefix}).ok());
  const auto keys = server->keys();
  CHECK(keys.size() == 4);
  for (const auto& key : keys) {
    INFO(key);
    CHECK(key.starts_with("mine:"));
    const int ttl = std::stoi(server->ask({"TTL", key}));
    CHECK((ttl >= 98 && ttl <= 160));
    CHECK(server->ask({"EXPIRE", key, "30"}) == "1");
  }
  CHECK(!tier_of(server->url("ns=yours"))->contains(name));
  CHECK(serves(*tier, name, blob));
  CHECK(tier->find(group).size() == 1);
  CHECK(tier->contains(name));  // answered after what nobody waited for
  for (const auto& key : keys) CHECK(std::stoi(server->ask({"TTL", key})) >= 98);
  REQUIRE(tier_of(server->url("ttl=0&ns=ever"))->put(name, blob.view()).ok());
  for (const auto& key : server->keys("ever:*")) CHECK(server->ask({"TTL", key}) == "-1");
}

TEST_CASE("redis tier: a group lists the newest, and no more than it may", "[kv]") {
  const auto server = redis();
  if (!server) return;
  FakeClock clock;
  const auto tier = tier_of(server->url(), clock);
  const Hash group = hash_filled(1);
  CHECK(tier->find(group).empty());
  for (uint8_t n = 0; n < 100; ++n) {
    clock.advance_ms(1'000);
    REQUIRE(tier->list(group, {hash_filled(n), KvKind::kChunkStandIn}).ok());
  }
  const auto found = tier->find(group);
  REQUIRE(found.size() == RemoteTier::kListedMax);
  CHECK(found.front() == RemoteTier::Listed{hash_filled(99), KvKind::kChunkStandIn});
  CHECK(found.back() == RemoteTier::Listed{hash_filled(36), KvKind::kChunkStandIn});
  CHECK(server->ask({"ZCARD", "cento:g:" + group.hex()}) == "64");
  // What others write there is left out, and a list of the wrong size or kind is none.
  server->ask({"ZADD", "cento:g:" + group.hex(), "9999999999", "7:" + hash_filled(1).hex(), "9999999999", "x",
               "9999999999", "1:short", "9999999999", ""});
  CHECK(tier->find(group).size() == RemoteTier::kListedMax - 4);
  server->ask({"ZADD", "cento:g:" + group.hex(), "9999999999", std::string(100'000, 'x')});
  CHECK(tier->find(group).empty());
  server->ask({"SET", "cento:g:" + group.hex(), "x"});
  CHECK(tier->find(group).empty());
  CHECK(tier_of(server->url())->find(group).empty());
}

TEST_CASE("redis tier: several threads use one at once", "[kv]") {
  const auto server = redis();
  if (!server) return;
  const auto tier = tier_of(server->url());
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (uint8_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 20; ++i) {
        const Blob blob = sample_blob(100 * t + i);
        const bool put = tier->put(hash_filled(t), blob.view()).ok();
        if (put && serves(*tier, hash_filled(t), blob)) ++good;
      }
    });
  }
  for (auto& t : threads) t.join();
  CHECK(good == 160);
}

TEST_CASE("redis tier: two stores share their work", "[kv]") {
  const auto server = redis();
  if (!server) return;
  const bool sealed = GENERATE(false, true);
  CAPTURE(sealed);
  Store a(server->url()), b(server->url()), c(server->url());
  if (sealed) {
    a.kv.set_cipher(cipher(1));
    b.kv.set_cipher(cipher(1));
    c.kv.set_cipher(cipher(2));
  }
  SampleIdentity identity;
  identity.ids = {1234567, 1234568, 1234569, 1234570, 1234571, 1234572};
  const KvBlock block = identity.block(1);
  CHECK(why_not(b.kv, identity, block) == "not stored");
  REQUIRE(a.kv.put(identity.get(), block, KvCodec::kLossless, std::nullopt).ok());

  std::string from;
  CHECK(why_not(b.kv, identity, block, &from).empty());
  CHECK(from == "remote");
  const auto rows = b.kv.find(identity.get());
  REQUIRE(rows.size() == 1);
  CHECK((rows[0].remote_name && rows[0].kind == identity.kind));
  SampleIdentity other_context = identity;
  other_context.context = {1, 2, 3};
  auto reader = b.kv.open_row(rows[0], other_context.get());
  REQUIRE(reader.ok());
  const auto back = read_all_layers(**reader);
  CHECK((back.ok() && same_bytes(*back, block)));
  CHECK(b.kv.fetch_row(rows[0], other_context.get(), std::nullopt).has_value());
  CHECK(why_not(b.kv, identity, block, &from).empty());
  CHECK(from == "disk");  // it is its own now
  CHECK(b.kv.fetch(identity.get(), std::nullopt).has_value());

  const std::string ids(reinterpret_cast<const char*>(identity.ids.data()), 4 * identity.ids.size());
  size_t with_ids = 0;
  for (const auto& key : server->keys("cento:b:*"))
    with_ids += server->ask({"GET", key}).find(ids) != std::string::npos;
  CHECK(with_ids == (sealed ? 0 : 1));
  if (!sealed) return;
  CHECK(why_not(c.kv, identity, block) == "not stored");
  CHECK(c.kv.find(identity.get()).empty());  // not even that there is something is told without the key
  for (const auto& key : server->keys("cento:b:*")) CHECK(key.find(kv_key(identity.get()).hex()) == std::string::npos);
}

TEST_CASE("redis tier: what was stored before there was a remote tier is offered, unless it is damaged", "[kv]") {
  const auto server = redis();
  if (!server) return;
  const TempDir dir;
  Catalogue catalogue(dir / "store", Mode::kReadWrite);
  KvStore kv(catalogue);
  const bool sealed = GENERATE(false, true);
  if (sealed) kv.set_cipher(cipher(1));
  SampleIdentity identity, damaged;
  damaged.ids.push_back(5);
  const KvBlock block = identity.block(1);
  REQUIRE(kv.put(identity.get(), block, KvCodec::kLossless, std::nullopt).ok());
  REQUIRE(kv.put(damaged.get(), damaged.block(1), KvCodec::kLossless, std::nullopt).ok());
  CHECK(!kv.offer(kv_key(identity.get())));
  kv.set_remote(open_remote(server->url()));
  CHECK(kv.offer(kv_key(identity.get())));
  CHECK(!kv.offer(kv_key(identity.get())));  // it is there
  CHECK(!kv.offer(hash_filled(3)));          // there is no such thing
  const std::string path = kv.path_of(kv_key(damaged.get()));
  std::string bytes = read_all(path);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_all(path, bytes);
  CHECK(!kv.offer(kv_key(damaged.get())));
  Store other(server->url());
  if (sealed) other.kv.set_cipher(cipher(1));
  CHECK(why_not(other.kv, identity, block).empty());
  CHECK(other.kv.find(identity.get()).size() == 1);
  CHECK(other.kv.find(damaged.get()).empty());
}

// DESIGN 1: never a wrong reuse, whoever can write to the server.
TEST_CASE("redis tier: any damage to any value is a miss or the right data", "[kv]") {
  const auto server = redis();
  if (!server) return;
  const bool sealed = GENERATE(false, true);
  CAPTURE(sealed);
  Store a(server->url()), b(server->url());
  if (sealed) {
    a.kv.set_cipher(cipher(1));
    b.kv.set_cipher(cipher(1));
  }
  SampleIdentity identity, other;
  other.ids.push_back(77);
  const KvBlock block = identity.block(1);
  REQUIRE(a.kv.put(identity.get(), block, KvCodec::kLossless, std::nullopt).ok());
  REQUIRE(a.kv.put(other.get(), other.block(2), KvCodec::kLossless, std::nullopt).ok());
  const Hash name = a.kv.name_of(kv_key(identity.get())), other_name = a.kv.name_of(kv_key(other.get()));
  const std::vector<std::string> parts = {"h", "1", "2", "3", "4"};
  size_t n_misses = 0, n_tried = 0;
  const auto check = [&] {
    const std::string reason = why_not(b.kv, identity, block);
    CHECK(reason != "other data");
    n_misses += !reason.empty();
    ++n_tried;
    const auto fetched = b.kv.fetch(identity.get(), std::nullopt);
    CHECK(fetched.has_value() == reason.empty());
    if (fetched) b.kv.remove(kv_key(identity.get())).or_throw();
  };
  for (const auto& part : parts) {
    const std::string key = key_of(name, part), good = server->ask({"GET", key});
    REQUIRE(!good.empty());
    const auto with = [&](const std::string& value) {
      CAPTURE(part, value.size());
      server->ask({"SET", key, value});
      check();
      server->ask({"SET", key_of(name, "h"), part == "h" ? good : server->ask({"GET", key_of(name, "h")})});
    };
    for (size_t i = 0; i < good.size(); i += 1 + good.size() / 40) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ 0x10);
      with(bad);
    }
    for (size_t n = 0; n < good.size(); n += 1 + good.size() / 15) with(good.substr(0, n));
    with(good + "x");
    with(std::string(10'000, 'x'));
    for (const auto& p : parts) {
      if (p != part) with(server->ask({"GET", key_of(name, p)}));
      with(server->ask({"GET", key_of(other_name, p)}));
    }
    server->ask({"DEL", key});
    server->ask({"LPUSH", key, "a", "b"});  // of another type
    check();
    server->ask({"DEL", key});
    const std::string header = server->ask({"GET", key_of(name, "h")});
    check();
    if (part != "h") {
      CHECK(server->ask({"EXISTS", key_of(name, "h")}) == "0");  // of no use to anybody
      server->ask({"SET", key_of(name, "h"), header});
    }
    server->ask({"SET", key, good});
    CHECK(why_not(b.kv, identity, block).empty());
  }
  CHECK(n_misses > 200);
  CHECK(n_misses <= n_tried);
  CHECK(b.kv.remote()->counters().failures < n_tried);
}

TEST_CASE("redis tier: a header that lies about lengths makes nobody wait or allocate", "[kv]") {
  const auto server = redis();
  if (!server) return;
  const auto tier = tier_of(server->url());
  const Hash name = hash_filled(1);
  const Blob blob = sample_blob(1, {40, 1000, 1000});
  const auto lie = [&](const std::vector<uint64_t>& lengths) {
    REQUIRE(tier->put(name, blob.view()).ok());
    const std::string header(reinterpret_cast<const char*>(blob.bytes.data()), 40);
    server->ask({"SET", key_of(name, "h"), *remote_parts_text(lengths) + header});
    auto file = tier->open(name);
    REQUIRE(file.ok());
    std::vector<std::byte> out(1000);
    return (*file)->read_at(40, out).ok();
  };
  CHECK(lie({40, 1000, 1000}));
  CHECK(!lie({40, 1001, 999}));                  // longer than asked for
  CHECK(!lie({40, 999, 1001}));                  // there is more
  CHECK(!lie({40, kRemotePartBytesMax, 1000}));  // not even asked for: the reader has room for 1000
  CHECK(lie({40, 1000, kRemotePartBytesMax}));
  // More parts than there are: the second is asked for ahead, is missing, and nobody minds until it is wanted.
  CHECK(lie({40, 1000, 1000, 1000}));
}

TEST_CASE("redis tier: passwords, right and wrong, and a database of one's own", "[kv]") {
  const auto server = redis({"--requirepass", "s3cret/@", "--user", "ann", "on", ">annpw", "~*", "+@all"});
  if (!server) return;
  const Hash name = hash_filled(1);
  const Blob blob = sample_blob(1);
  const std::string at = "redis+unix://", path = "@" + server->socket();
  REQUIRE(tier_of(at + ":s3cret%2F%40" + path)->put(name, blob.view()).ok());
  CHECK(tier_of(at + "ann:annpw" + path)->contains(name));
  CHECK(open_remote(server->url(), "s3cret/@")->contains(name));  // from the environment
  CHECK(open_remote(at + "ann:" + path, "annpw")->contains(name));
  CHECK(!tier_of(at + "ann:annpw" + path + "?db=1")->contains(name));
  const auto none = tier_of(server->url());
  CHECK_THAT(why_not(*none, name), Catch::Contains("NOAUTH"));
  const auto wrong = tier_of(at + ":wrong" + path);
  CHECK_THAT(why_not(*wrong, name), Catch::Contains("WRONGPASS"));
  CHECK_THAT(wrong->check().error().what(), !Catch::Contains("wrong@"));
  CHECK(!wrong->put(name, blob.view()).ok());
  CHECK_THAT(why_not(*tier_of(at + ":s3cret%2F%40" + path + "?db=99"), name), Catch::Contains("DB index"));
}

TEST_CASE("redis tier: a server that goes and comes back is a miss and then is not", "[kv]") {
  const auto server = redis();
  if (!server) return;
  FakeClock clock;
  const auto tier = tier_of(server->url(), clock);
  const Hash name = hash_filled(1);
  const Blob blob = sample_blob(1);
  REQUIRE(tier->put(name, blob.view()).ok());
  auto file = tier->open(name);
  REQUIRE(file.ok());
  server->stop();
  CHECK(!read_parts(**file, blob.parts));
  for (int i = 0; i < 4; ++i) CHECK(!tier->contains(name));
  CHECK_THAT(why_not(*tier, name), Catch::StartsWith("away: "));
  CHECK(!tier->put(name, blob.view()).ok());
  server->restart();
  CHECK_THAT(why_not(*tier, name), Catch::StartsWith("away: "));  // nobody has asked yet
  clock.advance_ms(1'000);
  CHECK(why_not(*tier, name) == "not in the remote tier");
  clock.advance_ms(10'000);
  REQUIRE(tier->put(name, blob.view()).ok());
  CHECK(serves(*tier, name, blob));
  // A connection that the server has closed in the meantime costs nothing, also with answers nobody waits for in it.
  const uint64_t failures = tier->counters().failures;
  server->ask({"CLIENT", "KILL", "TYPE", "normal"});
  CHECK(serves(*tier, name, blob));
  CHECK(tier->open(name).ok());
  server->ask({"CLIENT", "KILL", "TYPE", "normal"});
  CHECK(serves(*tier, name, blob));
  CHECK(tier->counters().failures == failures);
}

TEST_CASE("redis tier: a server that says nothing is waited for once", "[kv]") {
  const auto server = redis();
  if (!server) return;
  FakeClock clock;
  const auto tier = tier_of(server->url("timeout=300ms"), clock);
  const Hash name = hash_filled(1);
  const Blob blob = sample_blob(1);
  REQUIRE(tier->put(name, blob.view()).ok());
  server->hold();
  const Stopwatch watch;
  CHECK(why_not(*tier, name) == "no answer in time");
  for (int i = 0; i < 20; ++i) CHECK_THAT(why_not(*tier, name), Catch::StartsWith("away: no answer in time"));
  CHECK(watch.ms() >= 299);
  CHECK(watch.ms() < 900);  // one time-out; twenty would be six seconds
  server->go_on();
  clock.advance_ms(1'000);
  CHECK(serves(*tier, name, blob));
}

TEST_CASE("redis tier: a server that is full still serves what it has", "[kv]") {
  const auto server = redis({"--maxmemory", "3mb", "--maxmemory-policy", "noeviction"});
  if (!server) return;
  FakeClock clock;
  const auto tier = tier_of(server->url(), clock);
  const Blob blob = sample_blob(1, {40, 300'000, 300'000});
  REQUIRE(tier->put(hash_filled(0), blob.view()).ok());
  uint8_t n = 1;
  while (tier->put(hash_filled(n), blob.view()).ok()) REQUIRE(++n < 20);
  const Status again = tier->put(hash_filled(n), blob.view());
  CHECK_THAT(again.error().message(), Catch::StartsWith("away for writing"));
  CHECK(again.error().code() == Code::kResource);
  CHECK(serves(*tier, hash_filled(0), blob));
  CHECK(!tier->contains(hash_filled(n)));  // nothing half-written
  server->ask({"CONFIG", "SET", "maxmemory", "0"});
  clock.advance_ms(10'000);
  CHECK(tier->put(hash_filled(n), blob.view()).ok());
}

namespace {

// Answers GETs, PTTL and the rest as a server with one value under every key would, but `twist` may answer first.
void serve(FakeServer& server, int fd, const std::string& value,
           const std::function<bool(const std::vector<std::string>& words)>& twist) {
  while (const auto words = server.command(fd)) {
    if (twist && twist(*words)) continue;
    const std::string& verb = words->at(0);
    if (verb == "GET") {
      server.say(fd, "$" + std::to_string(value.size()) + "\r\n" + value + "\r\n");
    } else if (verb == "SET" || verb == "AUTH" || verb == "SELECT") {
      server.say(fd, "+OK\r\n");
    } else {
      server.say(fd, ":1\r\n");
    }
  }
}

}  // namespace

TEST_CASE("redis tier: whatever a server says to a request, it is a miss in time", "[kv]") {
  const Blob blob = sample_blob(1, {4, 1000});
  const std::string header = *remote_parts_text(blob.parts) + "head";
  struct Row {
    const char* what;
    std::string said;  // to GET
    bool closes = false;
  };
  const Row rows[] = {
      {"an error", "-ERR unknown command\r\n"},
      {"no password", "-NOAUTH Authentication required.\r\n"},
      {"loading", "-LOADING Redis is loading the dataset in memory\r\n"},
      {"elsewhere", "-MOVED 3999 127.0.0.1:6381\r\n"},
      {"nothing", ""},
      {"the end", "", true},
      {"half a length", "$10", true},
      {"half a value", "$1000\r\nabc", true},
      {"half a value, and then silence", "$1000\r\nabc"},
      {"another protocol", "HTTP/1.1 400 Bad Request\r\n\r\n"},
      {"rubbish", std::string("\0\xff\x01garbage\r\n\r\n", 14)},
      {"a length that is none", "$abc\r\n"},
      {"a negative length", "$-2\r\nx\r\n"},
      {"a huge length", "$999999999999\r\n"},
      {"a length beyond 64 bits", "$99999999999999999999999999\r\n"},
      {"a length without end", "$" + std::string(1000, '1')},
      {"a line without end", "+" + std::string(100'000, 'a')},
      {"a list", "*2\r\n$1\r\na\r\n$1\r\nb\r\n"},
      {"a huge list", "*2147483647\r\n"},
      {"a list of lists", "*1\r\n*1\r\n*1\r\n$1\r\na\r\n"},
      {"a number", ":42\r\n"},
      {"a status", "+OK\r\n"},
      {"no line end behind the value", "$4\r\nabcdXX"},
      {"more than was asked for", "$4\r\nabcd\r\n:1\r\n:1\r\n:1\r\n:1\r\n"},
      {"an empty value", "$0\r\n\r\n"},
      {"a table with too many parts", "$12\r\nCKR1\xff\xff\xff\xff\xff\xff\xff\xff\r\n"},
  };
  for (const Row& row : rows) {
    DYNAMIC_SECTION(row.what) {
      FakeServer server([&](FakeServer& s, int fd) {
        bool closed = false;
        serve(s, fd, header, [&](const std::vector<std::string>& words) {
          if (closed || words[0] != "GET") return closed;
          s.say(fd, row.said);
          if (row.closes) ::shutdown(fd, SHUT_RDWR);
          closed = true;
          return true;
        });
      });
      const auto tier = tier_of(server.url("timeout=200ms"));
      const Stopwatch watch;
      CHECK(!serves(*tier, hash_filled(1), blob));
      CHECK(watch.ms() < 1'000);
    }
    DYNAMIC_SECTION(row.what << ", to a part") {
      FakeServer server([&](FakeServer& s, int fd) {
        bool closed = false;
        serve(s, fd, header, [&](const std::vector<std::string>& words) {
          if (closed || words[0] != "GET" || !words[1].ends_with(":1")) return closed;
          s.say(fd, row.said);
          if (row.closes) ::shutdown(fd, SHUT_RDWR);
          closed = true;
          return true;
        });
      });
      const auto tier = tier_of(server.url("timeout=200ms"));
      const Stopwatch watch;
      auto file = tier->open(hash_filled(1));
      if (file.ok()) CHECK(!read_parts(**file, blob.parts));
      CHECK(watch.ms() < 1'000);
    }
  }
}

TEST_CASE("redis tier: a server that drips is given up when the time for the whole file is over", "[kv]") {
  const Blob blob = sample_blob(1, {4, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000});
  const std::string header = *remote_parts_text(blob.parts) + "head";
  // Each part comes within the time of a command, but slowly; all of them would take 1.2 s.
  FakeServer server([&](FakeServer& s, int fd) {
    serve(s, fd, header, [&](const std::vector<std::string>& words) {
      if (words[0] != "GET" || words[1].ends_with(":h")) return false;
      s.say(fd, "$1000\r\n");
      for (int i = 0; i < 10 && !s.stopped(); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(15));
        s.say(fd, std::string(100, 'x'));
      }
      s.say(fd, "\r\n");
      return true;
    });
  });
  const auto tier = tier_of(server.url("timeout=400ms"));
  const auto file = tier->open(hash_filled(1));
  REQUIRE(file.ok());
  const Stopwatch watch;
  CHECK(!read_parts(**file, blob.parts));
  CHECK(watch.ms() < 1'000);  // 400 ms and 8 KB at 1 MiB/s
  CHECK(watch.ms() > 300);
}

TEST_CASE("redis tier: a server that sends without end fills no memory", "[kv]") {
  std::atomic<uint64_t> sent{0};
  FakeServer server([&](FakeServer& s, int fd) {
    serve(s, fd, "", [&](const std::vector<std::string>&) {
      const std::string much(1 << 20, 'x');
      s.say(fd, "$999999\r\n");
      for (int i = 0; i < 1000 && s.say(fd, much); ++i) sent += much.size();
      return true;
    });
  });
  const auto tier = tier_of(server.url("timeout=300ms"));
  CHECK(!tier->contains(hash_filled(1)));  // an answer of 999999 bytes to EXISTS
  CHECK(sent < (16u << 20));               // what the sockets hold between them
}

TEST_CASE("redis tier: reading ahead asks for the next layer before this one is wanted", "[kv]") {
  const Blob blob = sample_blob(1, {4, 10, 10, 10, 10, 10, 10, 10, 10});
  const std::string header = *remote_parts_text(blob.parts) + "head";
  std::atomic<int> highest{0};
  FakeServer server([&](FakeServer& s, int fd) {
    serve(s, fd, std::string(10, 'x'), [&](const std::vector<std::string>& words) {
      if (words[0] != "GET") return false;
      if (words[1].ends_with(":h")) {
        s.say(fd, "$" + std::to_string(header.size()) + "\r\n" + header + "\r\n");
        return true;
      }
      highest = std::max(highest.load(), std::stoi(words[1].substr(words[1].rfind(':') + 1)));
      return false;
    });
  });
  const auto tier = tier_of(server.url());
  const auto file = tier->open(hash_filled(1));
  REQUIRE(file.ok());
  const auto read = [&](size_t part) {
    std::vector<std::byte> out(10);
    return (*file)->read_at(4 + 10 * (part - 1), out).ok();
  };
  const auto reaches = [&](int part) {
    for (int i = 0; i < 200 && highest != part; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return highest == part;
  };
  CHECK(reaches(2));  // the first layer with the header
  CHECK((read(1) && reaches(4)));
  CHECK((read(2) && reaches(5)));
  CHECK((read(3) && reaches(6)));
  for (size_t p = 4; p <= 8; ++p) CHECK(read(p));
  CHECK(server.connections() == 1);
}

TEST_CASE("redis tier: an address that does not answer, and a host that is not there, are misses in time", "[kv]") {
  const Stopwatch watch;
  // 192.0.2.0/24 is for documentation (RFC 5737): either no route, or silence.
  CHECK(!tier_of("redis://192.0.2.1?connect=200ms")->contains(hash_filled(1)));
  CHECK(!tier_of("redis://no-such-host.invalid?connect=200ms")->contains(hash_filled(1)));
  CHECK(!tier_of("redis://127.0.0.1:" + std::to_string(free_port()))->contains(hash_filled(1)));
  CHECK(!tier_of("redis+unix:///nowhere/redis.sock")->contains(hash_filled(1)));
  CHECK(!tier_of("redis+unix:///" + std::string(500, 'x'))->contains(hash_filled(1)));
  CHECK(watch.ms() < 2'000);
}

TEST_CASE("redis tier: over TCP, by name and by number", "[kv]") {
  const std::string port = std::to_string(free_port());
  const auto server = redis({"--port", port});
  if (!server) return;
  const Hash name = hash_filled(1);
  const Blob blob = sample_blob(1);
  REQUIRE(tier_of("redis://127.0.0.1:" + port)->put(name, blob.view()).ok());
  const auto tier = tier_of("redis://localhost:" + port);
  CHECK(serves(*tier, name, blob));
}

namespace {

// A certificate authority, a server's certificate for localhost and 127.0.0.1, and one of a client. False, with the
// reason printed, where there is no openssl to make them.
bool make_certificates(const TempDir& dir) {
  const std::string go = "cd '" + dir.path() + "' && ";
  const auto run = [&](const std::string& line) { return std::system((go + line + " > log 2>&1").c_str()) == 0; };
  write_all(dir / "ext", "subjectAltName=DNS:localhost,IP:127.0.0.1");
  const bool made =
      run("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem -days 2 "
          "-subj /CN=test-ca -addext basicConstraints=critical,CA:TRUE") &&
      run("openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout server.key -out server.csr "
          "-subj /CN=server") &&
      run("openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext "
          "-out server.pem") &&
      run("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout other.key -out other.pem "
          "-days 2 -subj /CN=other-ca");
  if (!made) std::printf("skipped: no openssl to make certificates with\n");
  return made;
}

}  // namespace

TEST_CASE("redis tier: TLS, with a certificate that is checked", "[kv]") {
  const TempDir dir;
  if (!make_certificates(dir)) {
    SUCCEED("skipped: no openssl");
    return;
  }
  const std::string port = std::to_string(free_port());
  const auto server =
      redis({"--tls-port", port, "--tls-cert-file", dir / "server.pem", "--tls-key-file", dir / "server.key",
             "--tls-ca-cert-file", dir / "ca.pem", "--tls-auth-clients", "optional"});
  if (!server) return;
  const Hash name = hash_filled(1);
  const Blob blob = sample_blob(1, {40, 3'000'000, 900, 2'000'000});
  const std::string ca = "?ca=" + dir / "ca.pem";
  const auto tier = tier_of("rediss://localhost:" + port + ca);
  REQUIRE(tier->put(name, blob.view()).ok());
  CHECK(serves(*tier, name, blob));
  CHECK(serves(*tier_of("rediss://127.0.0.1:" + port + ca), name, blob));
  server->ask({"CLIENT", "KILL", "TYPE", "normal"});
  CHECK(serves(*tier, name, blob));
  // Client certificates.
  server->ask({"CONFIG", "SET", "tls-auth-clients", "yes"});
  CHECK(!tier_of("rediss://localhost:" + port + ca)->contains(name));
  CHECK(tier_of("rediss://localhost:" + port + ca + "&cert=" + dir / "server.pem" + "&key=" + dir / "server.key")
            ->contains(name));
  server->ask({"CONFIG", "SET", "tls-auth-clients", "no"});
  // Not signed by whom we trust; another name than that of the certificate; not TLS at all, either way.
  CHECK_THAT(why_not(*tier_of("rediss://localhost:" + port + "?ca=" + dir / "other.pem"), name),
             Catch::Contains("certificate"));
  CHECK_THAT(why_not(*tier_of("rediss://localhost:" + port), name), Catch::Contains("certificate"));
  CHECK_THAT(why_not(*tier_of("rediss://127.0.0.2:" + port + ca), name), Catch::Contains("certificate"));
  CHECK(!tier_of("redis://localhost:" + port)->contains(name));
  CHECK_THROWS_WITH(tier_of("rediss://h?ca=" + dir / "none.pem"), Catch::Contains("cannot be used for TLS"));
  CHECK_THROWS_WITH(tier_of("rediss://h?ca=" + dir / "ca.key"), Catch::Contains("cannot be used for TLS"));
}

TEST_CASE("redis tier: TLS to a server that talks nonsense is a miss in time", "[kv]") {
  for (const auto& said : {std::string("HTTP/1.1 200 OK\r\n\r\n"), std::string(100, '\x16'), std::string()}) {
    FakeServer server([&](FakeServer& s, int fd) {
      s.say(fd, said);
      (void)s.command(fd);
    });
    RemoteUrl url = parse_remote_url(server.url("timeout=200ms"));
    url.tls = true;
    url.address.host = "localhost";
    RedisTier tier(url);
    const Stopwatch watch;
    CHECK(!tier.contains(hash_filled(1)));
    CHECK(watch.ms() < 1'000);
  }
}
