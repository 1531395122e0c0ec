#include "kv/remote_url.h"

#include <catch2/catch.hpp>

#include "base/error.h"
#include "kv/remote_parts.h"
#include "support/shared_data.h"

using namespace cento;

TEST_CASE("remote url: what is written is understood", "[kv]") {
  const auto plain = parse_remote_url("redis://cache.lan");
  CHECK((plain.kind == RemoteUrl::Kind::kRedis && plain.address.host == "cache.lan" && plain.address.port == 6379));
  CHECK((!plain.tls && plain.user.empty() && plain.password.empty() && plain.db == 0 && plain.ns == "cento"));
  CHECK((plain.connect_ms == 500 && plain.timeout_ms == 2'000 && plain.ttl_ms == 7 * 86'400'000));

  const auto full =
      parse_remote_url("rediss://ann:p%40ss%2F@[::1]:7000/3?ns=team.a&ttl=2h&timeout=250ms&connect=1s&ca=%2Fca.pem");
  CHECK((full.tls && full.address.host == "::1" && full.address.port == 7000 && full.db == 3));
  CHECK((full.user == "ann" && full.password == "p@ss/" && full.ns == "team.a"));
  CHECK((full.ttl_ms == 7'200'000 && full.timeout_ms == 250 && full.connect_ms == 1'000));
  CHECK(full.tls_files.ca == "/ca.pem");
  CHECK(full.shown.find("p%40ss") == std::string::npos);
  CHECK(full.shown.find("ann") == std::string::npos);
  CHECK(full.address.text() == "[::1]:7000");

  CHECK(parse_remote_url("redis://:a@b@h").password == "a@b");
  CHECK(parse_remote_url("redis://ann:@h").user == "ann");  // the password comes from elsewhere
  CHECK(parse_remote_url("REDIS://h/").address.host == "h");
  CHECK(parse_remote_url("redis://h?ttl=0").ttl_ms == 0);
  const auto unix_socket = parse_remote_url("redis+unix:///run/redis%20a.sock?db=2");
  CHECK((unix_socket.address.unix_path == "/run/redis a.sock" && unix_socket.db == 2));
  CHECK(parse_remote_url("redis+unix://:pw@/run/r.sock").password == "pw");

  for (const char* folder : {"/mnt/share", "./share", "share?a=b", "/mnt/a@b"}) {
    const auto f = parse_remote_url(folder);
    CHECK((f.kind == RemoteUrl::Kind::kFolder && f.folder == folder && f.shown == folder));
  }
  CHECK(parse_remote_url("file:///mnt/a%20b?ttl=30d").folder == "/mnt/a b");
  CHECK(parse_remote_url("file://localhost/mnt").folder == "/mnt");
}

TEST_CASE("remote url: what is wrong is named, and no password is", "[kv]") {
  const std::pair<const char*, const char*> rows[] = {
      {"", "no address"},
      {"http://h", "unknown kind \"http\""},
      {"redis://", "no host"},
      {"redis://:secret@", "no host"},
      {"redis://h:0", "not a port"},
      {"redis://h:65536", "not a port"},
      {"redis://h:", "not a port"},
      {"redis://h:12x", "not a port"},
      {"redis://::1", "IPv6"},
      {"redis://[::1", "']' is missing"},
      {"redis://[::1]6379", "only :PORT"},
      {"redis://h/x", "number of a database"},
      {"redis://h/-1", "number of a database"},
      {"redis://h/99999999999", "number of a database"},
      {"redis://h/1/2", "number of a database"},
      {"redis://secret@h", "a user without a password"},
      {"redis://:@h", "empty password"},
      {"redis://:secret%@h", "'%'"},
      {"redis://:secret%0@h", "'%'"},
      {"redis://:secret%00@h", "'%'"},
      {"redis://:secret%zz@h", "'%'"},
      {"redis://:secret@h?ns=", "ns has no value"},
      {"redis://h?ns=a:b", "ns takes"},
      {"redis://h?ns", "NAME=VALUE"},
      {"redis://h?ttl=soon", "ttl is not a time"},
      {"redis://h?ttl=10ms", "ttl is not a time"},
      {"redis://h?timeout=0s", "timeout is not a time"},
      {"redis://h?timeout=1d", "timeout is not a time"},
      {"redis://h?color=red", "no parameter \"color\""},
      {"redis://h?ca=/x", "no parameter \"ca\""},
      {"redis://h?db=1", "no parameter \"db\""},
      {"rediss://h?cert=/x", "cert and key"},
      {"redis://h#x", "'#'"},
      {"redis://a b", "not the name of a host"},
      {"redis+unix://run/r.sock", "begins with '/'"},
      {"redis+unix:///", "no socket"},
      {"redis+unix://:secret@run/x", "begins with '/'"},
      {"file://server/share", "mount what is elsewhere"},
      {"file:///x?ns=a", "no parameter \"ns\""},
      {"redis://:secret@h:bad", "not a port"},
  };
  for (const auto& [url, said] : rows) {
    INFO(url);
    try {
      (void)parse_remote_url(url);
      FAIL_CHECK("taken");
    } catch (const Error& e) {
      CHECK(e.code() == Code::kUsage);
      CHECK_THAT(e.message(), Catch::Contains(said));
      CHECK_THAT(std::string(e.what()), !Catch::Contains("secret"));
    }
  }
}

TEST_CASE("remote url: the password is hidden however wrong the rest is", "[kv]") {
  CHECK(without_password("redis://u:p@h/1?ns=a") == "redis://***@h/1?ns=a");
  CHECK(without_password("redis://u:p@a@h") == "redis://***@h");
  CHECK(without_password("redis://u:p/q@h") == "redis://***@h");
  CHECK(without_password("redis+unix:///run/a@b") == "redis+unix:///run/a@b");
  CHECK(without_password("/mnt/a@b") == "/mnt/a@b");
  CHECK(without_password("redis://h") == "redis://h");
}

TEST_CASE("remote parts: any change to a table is found, or changes nothing", "[kv]") {
  const std::vector<uint64_t> lengths = {5, 100, 0, uint64_t{1} << 29};
  const auto text = remote_parts_text(lengths);
  REQUIRE(text.ok());
  const std::string good = *text + "12345";
  const auto parse = [](const std::string& s) { return parse_remote_parts(std::as_bytes(std::span(s))); };
  const auto parts = parse(good);
  REQUIRE(parts.ok());
  CHECK((parts->lengths == lengths && good.substr(parts->header_at) == "12345"));
  for (size_t n = 0; n < good.size(); ++n) CHECK(!parse(good.substr(0, n)).ok());
  CHECK(!parse(good + "6").ok());
  for (size_t i = 0; i < text->size(); ++i) {
    for (const int bit : {0, 7}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
      INFO(i);
      CHECK(!parse(bad).ok());
    }
  }
  CHECK(!remote_parts_text({}).ok());
  CHECK(!remote_parts_text(std::vector<uint64_t>(kRemotePartsMax + 1, 1)).ok());
  CHECK(!remote_parts_text(std::vector<uint64_t>{1, kRemotePartBytesMax + 1}).ok());
  CHECK(!remote_parts_text(std::vector<uint64_t>{kRemoteHeaderBytesMax + 1}).ok());
}
