// The page that cento eval writes, through the real program on a tiny model.
#include <catch2/catch.hpp>

#include "cli/sandbox.h"
#include "support/xml.h"

namespace cento::test {
namespace {

TEST_CASE("cli: the page of eval draws a policy's budgets as one line, and no more lines than can be told apart",
          "[cli]") {
  const Sandbox box;
  box.add_model();
  write_all(box / "qa.jsonl",
            R"({"id":"q","question":"How many days lapse?","answers":["five"],"passages":[{"text":"Five days lapse."},)"
            R"({"text":"The key of the crane hangs in room K5."},{"text":"Spring tides follow the full moon."}]})");
  const auto page_with = [&](const std::string& ratios, const std::string& contexts) {
    const RunResult r =
        box.run({"eval", "qa.jsonl", "--out", "out", "--policy", "query,dev-kv,dev-kv-gradual", "--ratio", ratios,
                 "--context", contexts, "--answer-tokens", "3", "--own-answer-tokens", "0", "--no-progress"});
    INFO(shown(r));
    REQUIRE(r.status == 0);
    return read_all(box / "out/report.html");
  };
  const auto figure = [](const std::string& page, const std::string& title) {
    const size_t from = page.find("<figcaption>" + title + "</figcaption>");
    return from == std::string::npos ? "" : page.substr(from, page.find("</figure>", from) - from);
  };
  const std::string page = page_with("0.1,0.4,0.2", "stand-in,exact-first");
  const std::string ratios = figure(page, "Quality against the recompute ratio");
  for (const char* family : {"query", "dev-kv", "dev-kv-gradual"}) {
    const std::string line = "<th scope=\"row\">" + std::string(family);
    CHECK(count_of(ratios, line + " stand-in</th>") == 4);  // with plain reuse in front
    CHECK(count_of(ratios, line + " exact-first</th>") == 3);
  }
  CHECK(count_of(ratios, "<th scope=\"row\">none stand-in</th><td>none stand-in</td><td class=\"n\">0</td>") == 1);
  const size_t second = ratios.find("query r=0.2 stand-in</td><td class=\"n\">0.2</td>");
  CHECK((second != std::string::npos && second < ratios.find("query r=0.4 stand-in</td><td class=\"n\">0.4</td>")));
  // With one layer to choose in, gradual filtering takes 1.5 r there.
  CHECK(count_of(ratios, "dev-kv r=0.6..0.6 stand-in</td><td class=\"n\">0.6</td>") == 1);

  const std::string rows = figure(page, "Distance along the answer, at the middle budget of each");
  for (const char* name : {"none stand-in", "query r=0.2 stand-in", "query r=0.2 exact-first"})
    CHECK(count_of(rows, "<th scope=\"row\">" + std::string(name) + "</th>") > 0);
  for (const char* name : {"query r=0.1 stand-in", "query r=0.4 exact-first"}) CHECK(count_of(rows, name) == 0);
  CHECK(count_of(figure(page_with("0.1", "stand-in"), "Distance along the answer"), "query r=0.1 stand-in") > 0);
}

}  // namespace
}  // namespace cento::test
