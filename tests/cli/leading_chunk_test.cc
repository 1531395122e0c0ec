// A chunk that stands right behind the fixed prefix: computed there once, then reused as it is.
#include <catch2/catch.hpp>

#include "cli/sandbox.h"

namespace cento::test {
namespace {

TEST_CASE("cli: a chunk that stands alone is computed once, kept, and exact from then on", "[cli]") {
  const Sandbox box;
  box.add_model();
  box.add_documents();
  // Enough text of the kind for a stand-in context.
  std::string more = "# Harbour\n\n";
  for (int i = 0; i < 160; ++i)
    more += "The boat with number " + std::to_string(i) + " lies at the quay and waits for the tide.\n\n";
  write_all(box / "docs/harbour.md", more);
  REQUIRE(box.run({"index", "docs"}).status == 0);
  REQUIRE(box.run({"precompute", "-q"}).status == 0);
  const Json any = box.json({"query", "annual leave carried over", "--json", "--max-tokens", "1", "--prefill", "full"});
  REQUIRE_FALSE(any["citations"].empty());
  const std::string id = any["citations"][0]["chunk"];
  const auto ask = [&](const std::vector<std::string>& more_flags) {
    std::vector<std::string> args = {
        "query", "annual leave carried over", "--chunk", id, "--json", "--max-tokens", "4", "--verify"};
    args.insert(args.end(), more_flags.begin(), more_flags.end());
    return box.json(args);
  };
  const auto stored_of = [&] {
    int n = 0;
    const Json list = box.json({"cache", "list", "--json"});
    for (const Json& blob : list["blobs"]) {
      if (blob["kind"] != "prefix" && blob.dump().find(id) != std::string::npos) ++n;
    }
    return n;
  };
  // Plain reuse is what it says, stand-in KV or not.
  CHECK(ask({"--prefill", "reuse"})["cache"]["chunks"][0]["from"] == "disk");
  const int before = stored_of();
  const Json first = ask({});
  INFO(first.dump(1));
  CHECK(first["cache"]["chunks"][0]["from"] == "computed");
  CHECK(first["cache"]["chunks"][0]["reason"] == "stands first");
  CHECK(first["verify"]["kl_max"] == 0);
  CHECK(stored_of() == before + 1);
  const Json second = ask({"--prefill", "blend"});
  INFO(second.dump(1));
  CHECK(second["cache"]["chunks"][0]["from"] == "disk");
  CHECK(second["cache"]["tokens"]["reused"] == 0);
  CHECK(second["cache"]["tokens"]["exact"].get<int>() > first["cache"]["chunks"][0]["tokens"].get<int>());
  CHECK(second["cache"]["charged"].get<double>() < first["cache"]["charged"].get<double>());
  CHECK(second["verify"]["kl_max"] == 0);
  CHECK(second["answer"] == first["answer"]);
  CHECK(stored_of() == before + 1);
}

}  // namespace
}  // namespace cento::test
