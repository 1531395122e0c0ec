// cento model check through the real program, on a tiny model.
#include <signal.h>

#include <filesystem>

#include "cli/sandbox.h"
#include "kv/catalogue.h"

namespace cento::test {
namespace {

// What the store remembers under names that begin with `prefix`.
std::vector<std::string> remembered(const Sandbox& box, const std::string& prefix) {
  Db db(box.store() + "/catalogue.sqlite", Db::Mode::kReadOnly);
  std::vector<std::string> out;
  auto rows = db.prepare("SELECT key, value FROM settings ORDER BY key");
  while (rows.step()) {
    if (rows.text(0).starts_with(prefix)) out.push_back(rows.text(1));
  }
  return out;
}

TEST_CASE("cli: model check passes a model, records what it measured, and query uses it", "[cli]") {
  const Sandbox box;
  box.add_model();
  const Json report = box.json({"model", "check", "--json"});
  CHECK(report["passed"] == true);
  std::vector<std::string> names;
  for (const Json& check : report["checks"]) {
    names.push_back(check["name"]);
    CHECK(check["passed"] == true);
    CHECK(check["figure"].get<double>() <= check["limit"].get<double>());
  }
  CHECK(names == std::vector<std::string>{"re-position", "100 % blend", "own place", "save and load", "resume",
                                          "fast against float32"});
  const Json& record = report["calibration"]["record"];
  const double ratio = record["ratio"];
  CHECK((ratio >= 0.05 && ratio <= 0.25));
  CHECK(report["calibration"]["settings"].size() == 9);
  CHECK(remembered(box, "gate/") == std::vector<std::string>{"passed"});
  REQUIRE(remembered(box, "record/").size() == 1);
  CHECK(Json::parse(remembered(box, "record/")[0])["ratio"] == ratio);

  // The ratio of a blend is the recorded one.
  box.add_documents();
  REQUIRE(box.run({"index", "docs"}).status == 0);
  REQUIRE(box.run({"precompute"}).status == 0);
  const Json answer = box.json({"query", "--json", "--prefill", "blend", "--top-k", "3", "--max-tokens", "2",
                                "Which key hangs in room K5 and how many days of leave may be carried over?"});
  CHECK(answer["cache"]["mode"] == "blend");
  const double rows =
      answer["cache"]["tokens"]["reused"].get<double>() + answer["cache"]["tokens"]["recomputed"].get<double>();
  REQUIRE(rows > 0);
  CHECK(answer["cache"]["ratio"].get<double>() == Approx(ratio).margin(0.5 / rows + 1e-4));  // whole rows, 4 digits
}

TEST_CASE("cli: model check --no-calibrate checks only, in words too, and keeps an earlier record", "[cli]") {
  const Sandbox box;
  box.add_model();
  const RunResult r = box.run({"model", "check", "--no-calibrate", "tiny"});
  INFO(shown(r));
  CHECK(r.status == 0);
  CHECK(r.out.find("100 % blend") != std::string::npos);
  CHECK(r.out.find("FAILED") == std::string::npos);
  CHECK(r.out.find("recorded") == std::string::npos);
  CHECK(remembered(box, "record/").empty());
}

TEST_CASE("cli: model check of a file that is none, and stopped while it calibrates", "[cli]") {
  const Sandbox box;
  check_error(box.run({"model", "check", "nothing.gguf"}), 3, "no model \"nothing.gguf\"");
  CHECK_FALSE(std::filesystem::exists(box.store()));
  box.add_model();
  RunSpec spec = box.spec({"model", "check", "--no-progress", "--target", "ref"});
  spec.signal = SIGINT;
  spec.signal_after = "fast against float32";  // the last line before the calibration, which takes minutes here
  const RunResult r = box.run(spec);
  INFO(shown(r));
  CHECK_FALSE(r.timed_out);
  CHECK(r.status == 130);
  CHECK(remembered(box, "record/").empty());
}

}  // namespace
}  // namespace cento::test
