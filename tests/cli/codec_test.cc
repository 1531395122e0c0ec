// How stored KV is packed, as a person sees it.
#include "cli/sandbox.h"

namespace cento::test {
namespace {

const std::string kQuestion = "May annual leave be carried over?";

Json chunk_codecs(const Sandbox& box) {
  Json out = Json::array();
  const Json list = box.json({"cache", "list", "--json"});
  for (const auto& blob : list["blobs"]) {
    if (blob["kind"] != "prefix" && !std::count(out.begin(), out.end(), blob["codec"])) out.push_back(blob["codec"]);
  }
  return out;
}

uint64_t stored_bytes(const Sandbox& box) { return box.json({"cache", "status", "--json"})["kv"]["bytes"]; }

}  // namespace

TEST_CASE("cli: a codec that is named replaces what is stored with another, and its KV is used like any", "[cli]") {
  const Sandbox box;
  box.add_model();
  box.add_documents();
  REQUIRE(box.run({"index", "docs"}).status == 0);
  const Json first = box.json({"precompute", "--codec", "lossless", "--json"});
  const int n = first["chunks"]["made"];
  REQUIRE(n >= 3);
  CHECK(chunk_codecs(box) == Json::array({"lossless"}));
  const uint64_t lossless_bytes = stored_bytes(box);

  // Nothing is computed: what is lossless is packed anew.
  const Json dry = box.json({"precompute", "--codec", "int8", "--dry-run", "--json"});
  CHECK((dry["chunks"]["present"] == 0 && dry["bytes"].get<uint64_t>() > 0));
  const Json packed = box.json({"precompute", "--codec", "int8", "--json"});
  CHECK((packed["chunks"]["recoded"] == n && packed["chunks"]["present"] == n && packed["chunks"]["made"] == 0));
  CHECK(chunk_codecs(box) == Json::array({"int8"}));
  CHECK(stored_bytes(box) < lossless_bytes);
  CHECK(box.json({"cache", "verify", "--json"})["bad"].empty());

  // Any codec will do where none is named, for precompute and for a question.
  const Json again = box.json({"precompute", "--json"});
  CHECK((again["chunks"]["present"] == n && again["chunks"]["made"] == 0 && again["chunks"]["recoded"] == 0));
  const Json answer = box.json({"query", kQuestion, "--prefill", "reuse", "--max-tokens", "4", "--json"});
  CHECK(answer["cache"]["bytes_loaded"].get<uint64_t>() > 0);

  // What has lost something is computed again.
  const Json back = box.json({"precompute", "--codec", "lossless", "--json"});
  CHECK((back["chunks"]["made"] == n && back["chunks"]["recoded"] == 0));
  CHECK(chunk_codecs(box) == Json::array({"lossless"}));
  CHECK(stored_bytes(box) == lossless_bytes);
}

TEST_CASE("cli: cache status and list say the codec", "[cli]") {
  const Sandbox box;
  box.add_model();
  box.add_documents();
  REQUIRE(box.run({"index", "docs"}).status == 0);
  REQUIRE(box.run({"precompute", "-q", "--codec", "k8v4", "--only", "leave.md"}).status == 0);
  REQUIRE(box.run({"precompute", "-q", "--codec", "int4", "--only", "harbour.md"}).status == 0);
  const Json codecs = box.json({"cache", "status", "--json"})["models"][0]["codecs"];
  REQUIRE(codecs.size() == 3);  // by name; the fixed prefix is never lossy
  CHECK((codecs[0]["codec"] == "int4" && codecs[1]["codec"] == "k8v4" && codecs[2]["codec"] == "lossless"));
  CHECK((codecs[2]["blobs"] == 1 && codecs[0]["bytes"].get<int>() > 0 && codecs[0]["tokens"].get<int>() > 0));
  CHECK_THAT(box.run({"cache", "status"}).out, Catch::Contains(" int4 ") && Catch::Contains(" k8v4 "));
  CHECK_THAT(box.run({"cache", "list"}).out, Catch::Contains("  int4  ") && Catch::Contains("  lossless  "));
}

TEST_CASE("cli: lossy codecs and single precision exclude each other", "[cli]") {
  const Sandbox box;
  box.add_model();
  box.add_documents();
  REQUIRE(box.run({"index", "docs"}).status == 0);
  const RunResult refused = box.run({"precompute", "--codec", "int8", "--precision", "f32"});
  INFO(shown(refused));
  CHECK(refused.status == 2);
  CHECK_THAT(refused.err, Catch::Contains("codec int8 holds KV of half precision only"));
  CHECK(box.run({"precompute", "-q", "--precision", "f32"}).status == 0);
  CHECK(chunk_codecs(box) == Json::array({"lossless"}));
}

}  // namespace cento::test
