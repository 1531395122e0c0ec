// Budgets, folders and encryption of the store through the real program.
#include <sys/stat.h>

#include <filesystem>

#include "cli/sandbox.h"
#include "support/posix.h"

namespace cento::test {
namespace {

void write_key(const std::string& path, const std::string& text) {
  write_all(path, text);
  REQUIRE(::chmod(path.c_str(), 0600) == 0);
}

std::vector<std::string> with(std::vector<std::string> args, const std::vector<std::string>& more) {
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

TEST_CASE("cli: a store is encrypted, used, rekeyed and decrypted, and serves the same all along", "[cli]") {
  const Sandbox box;
  add_harbour(box);
  REQUIRE(box.run({"precompute", "-q"}).status == 0);
  const Json open = box.json(kAskHarbour);
  REQUIRE(open["cache"]["mode"] == "blend");
  const Json first = box.json({"cache", "rekey", "--new-key-file", "key", "--json"});
  CHECK(first["encrypted"] == true);
  CHECK(first["blobs"].get<int>() > 3);
  CHECK(mode_of(box / "key") == 0600);
  CHECK(read_all(box / "key").size() == 65);
  check_error(box.run(kAskHarbour), 3, "encrypted");
  check_error(box.run({"cache", "status"}), 3, "encrypted");
  write_key(box / "wrong", std::string(64, '5'));
  check_error(box.run(with(kAskHarbour, {"--key-file", "wrong"})), 3, "another key");
  write_key(box / "short", "abc");
  check_error(box.run(with(kAskHarbour, {"--key-file", "short"})), 2, "not a key");
  check_error(box.run(with(kAskHarbour, {"--key-file", "missing"})), 3, "missing");

  const Json sealed = box.json(with(kAskHarbour, {"--key-file", "key"}));
  CHECK(sealed["answer"] == open["answer"]);
  for (const Json& chunk : sealed["cache"]["chunks"]) CHECK(chunk["from"] == "disk");
  CHECK(box.json({"cache", "verify", "--json", "--key-file", "key"})["bad"].empty());
  CHECK(box.json({"precompute", "--json", "-q", "--key-file", "key"})["chunks"]["made"] == 0);
  CHECK(box.json({"cache", "status", "--json", "--key-file", "key"})["encrypted"] == true);

  REQUIRE(box.run({"cache", "rekey", "--key-file", "key", "--new-key-file", "key2"}).status == 0);
  check_error(box.run(with(kAskHarbour, {"--key-file", "key"})), 3, "another key");
  CHECK(box.json(with(kAskHarbour, {"--key-file", "key2"}))["answer"] == open["answer"]);
  check_error(box.run({"cache", "rekey", "--decrypt"}), 3, "another key");
  REQUIRE(box.run({"cache", "rekey", "--key-file", "key2", "--decrypt"}).status == 0);
  CHECK(box.json(kAskHarbour)["answer"] == open["answer"]);
  CHECK(box.json({"cache", "gc", "--json"})["files"] == 0);
  check_error(box.run({"cache", "rekey"}), 2, "--new-key-file");
  REQUIRE(::chmod((box / "key").c_str(), 0644) == 0);
  CHECK_THAT(box.run({"cache", "rekey", "--new-key-file", "key"}).err, Catch::Contains("can be read by others"));
}

TEST_CASE("cli: precompute stays within --max-disk and names what found no room", "[cli]") {
  const Sandbox box;
  add_harbour(box);
  const Json all = box.json({"precompute", "--json", "-q"});
  const auto bytes = box.json({"cache", "status", "--json"})["kv"]["bytes"].get<uint64_t>();
  REQUIRE(box.run({"cache", "trim", "--max-bytes", "0"}).status == 0);
  const std::string half = std::to_string(bytes / 2);
  const RunResult r = box.run({"precompute", "--json", "--max-disk", half});
  INFO(shown(r));
  CHECK(r.status == 5);
  const Json part = Json::parse(r.out);
  CHECK(part["chunks"]["made"].get<uint64_t>() + part["chunks"]["skipped"].get<uint64_t>() == all["chunks"]["made"]);
  CHECK(part["chunks"]["made"].get<int>() > 0);
  REQUIRE(!part["skipped"].empty());
  CHECK_THAT(part["skipped"][0]["path"].get<std::string>(), Catch::Contains("harbour.md:"));
  CHECK_THAT(part["skipped"][0]["reason"].get<std::string>(), Catch::Contains("the store"));
  CHECK(box.json({"cache", "status", "--json"})["kv"]["bytes"].get<uint64_t>() <= bytes / 2);
  // A smaller budget at the start of any command that may write.
  const RunResult less = box.run({"cache", "gc", "--max-disk", std::to_string(bytes / 4)});
  CHECK(less.status == 0);
  CHECK_THAT(less.err, Catch::Contains("are removed"));
  CHECK(box.json({"cache", "status", "--json"})["kv"]["bytes"].get<uint64_t>() <= bytes / 4);
}

TEST_CASE("cli: a dry run foretells bytes within 5 per cent, before anything is stored and after", "[cli]") {
  const Sandbox box;
  add_harbour(box);
  const std::string codec = GENERATE("lossless", "int8");
  CAPTURE(codec);
  const auto foretold = box.json({"precompute", "--json", "-q", "--dry-run", "--codec", codec})["bytes"].get<double>();
  CHECK(box.json({"cache", "status", "--json"})["kv"]["blobs"] == 0);
  const auto real = box.json({"precompute", "--json", "-q", "--codec", codec})["bytes"].get<double>();
  CHECK(std::abs(foretold - real) <= 0.05 * real);
}

TEST_CASE("cli: cache status tells what lies where", "[cli]") {
  const Sandbox box;
  add_harbour(box);
  REQUIRE(box.run({"precompute", "-q"}).status == 0);
  REQUIRE(box.run(kAskHarbour).status == 0);
  const Json more = box.json({"cache", "folder", "more", "--max-bytes", "1GiB", "--json"});
  CHECK(more["max_bytes"] == uint64_t{1} << 30);
  const Json status = box.json({"cache", "status", "--json", "--max-ram", "10MiB"});
  REQUIRE(status["stored"].size() == 2);  // the fixed prefix, and the collection
  CHECK(status["stored"][0]["collection"].is_null());
  const Json& stored = status["stored"][1];
  CHECK(stored["collection"] == "default");
  CHECK(stored["codec"] == "int8");
  CHECK(stored["chunks"].get<int>() > 3);
  CHECK(stored["hits"].get<int>() > 0);
  CHECK(stored["ratio"].get<double>() > 0.1);
  CHECK(stored["ratio"].get<double>() < 1.3);
  CHECK(stored["bytes"].get<uint64_t>() + status["stored"][0]["bytes"].get<uint64_t>() == status["kv"]["bytes"]);
  REQUIRE(status["tiers"].size() == 3);
  CHECK(status["tiers"][0]["tier"] == "ram");
  CHECK(status["tiers"][0]["max_bytes"] == 10 << 20);
  CHECK(status["tiers"][1]["bytes"] == status["kv"]["bytes"]);
  CHECK(status["tiers"][2]["available"] == true);
  CHECK(status["tiers"][2]["max_bytes"] == uint64_t{1} << 30);
  const RunResult text = box.run({"cache", "status"});
  CHECK_THAT(text.out, Catch::Contains("collection") && Catch::Contains("default") && Catch::Contains("last use"));
  std::filesystem::rename(box / "more", box / "away");
  CHECK(box.json({"cache", "status", "--json"})["tiers"][1]["available"] == false);
  CHECK(box.run(kAskHarbour).status == 0);
  check_error(box.run({"cache", "folder", "nowhere", "--remove"}), 2, "not a folder of this store");
  std::filesystem::rename(box / "away", box / "more");
  CHECK(box.json({"cache", "folder", "more", "--remove", "--json"})["moved"] == 0);
}

}  // namespace
}  // namespace cento::test
