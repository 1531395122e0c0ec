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

TEST_CASE("cli: of several chunks one that has stood first before is kept exact, and stands first again", "[cli]") {
  const Sandbox box;
  box.add_model();
  std::string text = "# Harbour\n\n";
  for (int i = 0; i < 400; ++i)
    text += "The boat with number " + std::to_string(i) + " lies at the quay and waits for the tide.\n\n";
  write_all(box / "docs/harbour.md", text);
  REQUIRE(box.run({"index", "docs"}).status == 0);
  REQUIRE(box.run({"precompute", "-q"}).status == 0);
  const Json any = box.json({"query", "boat number quay tide", "--json", "--max-tokens", "1", "--top-k", "5"});
  std::vector<std::string> ids;
  for (const Json& c : any["citations"]) ids.push_back(c["chunk"]);
  REQUIRE(ids.size() == 5);
  // Ranks are as given: the first is the best and stands last.
  const auto ask = [&](const std::vector<size_t>& ranks) {
    std::vector<std::string> args = {"query", "boats", "--json", "--max-tokens", "2", "--verify", "--prefill", "blend"};
    for (const size_t i : ranks) args.insert(args.end(), {"--chunk", ids[i]});
    return box.json(args)["cache"];
  };
  const auto leader = [](const Json& cache) { return cache["chunks"][0]["id"].get<std::string>(); };
  const auto exact = [](const Json& cache) { return cache["tokens"]["exact"].get<int>(); };
  // The first query has used all five once; the next that a chunk leads makes its copy, behind the answer.
  const Json first = ask({0, 1, 2, 3});
  CHECK(leader(first) == ids[3]);
  const Json second = ask({0, 1, 2, 3});
  CHECK(leader(second) == ids[3]);
  CHECK(exact(second) == exact(first) + second["chunks"][0]["tokens"].get<int>());
  CHECK(second["charged"].get<double>() <= first["charged"].get<double>());
  // Whatever its rank but the best it goes in front, where it is exact.
  const Json third = ask({0, 3, 2, 1, 4});
  CHECK(leader(third) == ids[3]);
  CHECK(exact(third) == exact(second));
  const Json best = ask({3, 0, 1, 2});
  CHECK(leader(best) == ids[2]);
  CHECK(best["chunks"][3]["id"] == ids[3]);
}

TEST_CASE("cli: precompute --context both stores exact copies, and the first prompt uses one", "[cli]") {
  const Sandbox box;
  box.add_model();
  std::string text = "# Harbour\n\n";
  for (int i = 0; i < 400; ++i)
    text += "The boat with number " + std::to_string(i) + " lies at the quay and waits for the tide.\n\n";
  write_all(box / "docs/harbour.md", text);
  REQUIRE(box.run({"index", "docs"}).status == 0);
  const Json once = box.json({"precompute", "-q", "--json"});
  const Json both = box.json({"precompute", "-q", "--json", "--context", "both"});
  const int n = once["chunks"]["wanted"];
  REQUIRE(n > 5);
  CHECK(both["chunks"]["wanted"] == 2 * n);
  CHECK(both["chunks"]["present"] == n);
  CHECK(both["chunks"]["made"] == n);
  CHECK(both["chunks"]["evicted"] == 0);
  const Json again = box.json({"precompute", "-q", "--json", "--context", "both"});
  CHECK(again["chunks"]["present"] == 2 * n);
  const Json cache =
      box.json({"query", "boat number quay tide", "--json", "--max-tokens", "1", "--prefill", "blend"})["cache"];
  int prefix = cache["tokens"]["exact"];
  prefix -= cache["chunks"][0]["tokens"].get<int>();
  CHECK(prefix > 0);  // the fixed prefix is exact too
  int stored = 0;
  for (size_t i = 1; i < cache["chunks"].size(); ++i) stored += cache["chunks"][i]["tokens"].get<int>();
  CHECK(cache["tokens"]["reused"].get<int>() + cache["tokens"]["recomputed"].get<int>() == stored);
}

}  // namespace
}  // namespace cento::test
