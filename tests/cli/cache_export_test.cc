// cento cache export, import and verify --repair through the real program.
#include <filesystem>

#include "cli/sandbox.h"

namespace cento::test {
namespace {

TEST_CASE("cli: KV that one machine exported is used by another, which never computed it", "[cli]") {
  const Sandbox one, other;
  add_harbour(one);
  REQUIRE(one.run({"precompute", "-q"}).status == 0);
  const Json exported = one.json({"cache", "export", "kv.cento", "--json"});
  CHECK(exported["blobs"].get<int>() > 3);
  CHECK(exported["bytes"] == std::filesystem::file_size(one / "kv.cento"));
  add_harbour(other);
  std::filesystem::copy_file(one / "kv.cento", other / "kv.cento");
  const Json imported = other.json({"cache", "import", "kv.cento", "--json"});
  CHECK(imported["imported"] == exported["blobs"]);
  CHECK(imported["skipped"].empty());
  CHECK(other.json({"cache", "import", "kv.cento", "--json"})["present"] == exported["blobs"]);
  CHECK(other.json({"cache", "gc", "--json"})["rows"] == 0);
  const Json here = one.json(kAskHarbour), there = other.json(kAskHarbour);
  CHECK(there["cache"]["mode"] == "blend");
  for (const Json& chunk : there["cache"]["chunks"]) CHECK(chunk["from"] == "disk");
  CHECK(there["answer"] == here["answer"]);
  CHECK(other.json({"precompute", "-q", "--json"})["chunks"]["made"] == 0);
}

TEST_CASE("cli: cache import of what is no export, and of a damaged one", "[cli]") {
  const Sandbox box;
  add_harbour(box);
  write_all(box / "no.cento", "hello, world");
  check_error(box.run({"cache", "import", "no.cento"}), 3, "not an export of stored KV");
  check_error(box.run({"cache", "import", "missing.cento"}), 3, "missing.cento");
  check_error(box.run({"cache", "export"}), 2, "FILE");
  check_error(box.run({"cache", "export", "kv.cento"}), 3, "nothing is stored yet");
  REQUIRE(box.run({"precompute", "-q"}).status == 0);
  REQUIRE(box.run({"cache", "export", "kv.cento"}).status == 0);
  std::string bytes = read_all(box / "kv.cento");
  bytes[bytes.size() / 2] ^= 1;
  write_all(box / "kv.cento", bytes);
  const Sandbox other;
  add_harbour(other);
  write_all(other / "kv.cento", bytes);
  const RunResult r = other.run({"cache", "import", "kv.cento"});
  INFO(shown(r));
  CHECK(r.status == 5);
  CHECK(r.err.find("refused: record") != std::string::npos);
}

TEST_CASE("cli: cache verify --repair takes damaged pieces out, and precompute makes them again", "[cli]") {
  const Sandbox box;
  add_harbour(box);
  REQUIRE(box.run({"precompute", "-q"}).status == 0);
  const Json list = box.json({"cache", "list", "--json"})["blobs"];
  const std::string id = list[list.size() - 1]["id"];
  const std::string path = box.store() + "/kv/" + id.substr(0, 2) + "/" + id + ".kv";
  std::string bytes = read_all(path);
  bytes.back() ^= 1;
  write_all(path, bytes);
  CHECK(box.json({"cache", "verify", "--json"}, 3)["bad"].size() == 1);
  CHECK(box.json({"cache", "verify", "--repair", "--json"}, 3)["repaired"] == 1);
  CHECK(box.json({"cache", "verify", "--json"})["blobs"] == list.size() - 1);
  CHECK(box.json({"precompute", "-q", "--json"})["chunks"]["made"] == 1);
  CHECK(box.json({"cache", "verify", "--json"})["blobs"] == list.size());
}

}  // namespace
}  // namespace cento::test
