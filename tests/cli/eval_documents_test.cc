// cento eval over an indexed collection through the real program: docqa files, and questions of its own making.
#include <catch2/catch.hpp>

#include <signal.h>

#include <filesystem>

#include "cli/sandbox.h"
#include "support/xml.h"

namespace cento::test {
namespace {

namespace fs = std::filesystem;

constexpr size_t kSettings = 4;  // full, no passages, plain reuse, the one asked for

std::vector<std::string> eval(const std::vector<std::string>& more) {
  std::vector<std::string> args = {"eval", "--threads", "2", "--answer-tokens", "3", "--own-answer-tokens", "4"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}
std::vector<std::string> ask(const std::vector<std::string>& more) {
  std::vector<std::string> args = eval({"--policy", "query", "--ratio", "0.2"});
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

using Groups = std::vector<std::vector<std::string>>;

Json turn(const std::string& question, const Groups& answers, const Json& evidence = Json::array()) {
  return {{"question", question}, {"answers", answers}, {"evidence", evidence}};
}
Json evidence(const std::string& file, const std::string& quote) {
  return Json::array({Json({{"file", file}, {"quote", quote}})});
}
std::string item(const std::string& id, const std::string& kind, const std::vector<Json>& turns) {
  return Json({{"id", id}, {"source", "docs"}, {"kind", kind}, {"turns", turns}}).dump() + "\n";
}

// Answerable, with and without the evidence in reach; not answerable; about nothing in the documents; a conversation.
std::string questions() {
  const Json leave = turn("How many days of annual leave may be carried over?", {{"five", "5"}},
                          evidence("leave.md", "Up to five days of annual\nleave"));
  const Json crane =
      turn("Where hangs the key of the crane?", {{"K5"}}, evidence("harbour.md", "a sentence that stands elsewhere"));
  const Json gauge = turn("Who reads the gauge of the spring tides?", {});
  const Json nothing = turn("zygote xylophone?", {{"x"}}, evidence("x.md", "x"));
  return item("leave", "single", {leave}) + item("crane", "single", {crane}) + item("gauge", "unanswerable", {gauge}) +
         item("nothing", "single", {nothing}) +
         item("talk", "followup", {leave, turn("And until when?", {{"31 March"}})});
}

Sandbox& with_documents(Sandbox& box) {
  box.add_model();
  box.add_documents();
  const RunResult r = box.run({"index", "docs"});
  INFO(shown(r));
  REQUIRE(r.status == 0);
  return box;
}

Json setting_of(const Json& set, const std::string& name) {
  for (const Json& s : set["settings"]) {
    if (s["name"] == name) return s;
  }
  return {};
}

TEST_CASE("cli: eval asks a docqa file of an indexed collection, and says what retrieval brought", "[cli]") {
  Sandbox box;
  with_documents(box);
  write_all(box / "docqa.jsonl", questions());
  const Json j = box.json(ask({"docqa.jsonl", "--json", "--out", "out"}), 5);
  REQUIRE(j["sets"].size() == 1);
  const Json& set = j["sets"][0];
  CHECK(set["items"] == 4);
  CHECK(set["retrieval"] == Json({{"asked", 5}, {"nothing_found", 1}, {"with_evidence", 4}, {"evidence_found", 2}}));
  CHECK(j["on_my_documents"].is_null());
  CHECK(j["trials"] == Json({{"measured", 3 * kSettings}, {"known", kSettings}}));  // the talk begins as the first item
  REQUIRE(j["skipped"].size() == 2);
  CHECK(j["skipped"][0]["where"] == "docqa: nothing");
  CHECK_THAT(j["skipped"][0]["reason"].get<std::string>(), Catch::StartsWith("retrieval finds nothing: "));
  CHECK(j["skipped"][1]["where"] == "docqa: talk");
  CHECK_THAT(j["skipped"][1]["reason"].get<std::string>(), Catch::Contains("need a conversation: 1 left out"));
  const Json full = setting_of(set, "full"), query = setting_of(set, "query r=0.2 stand-in");
  CHECK((full["same_answer"]["value"] == 1 && full["right_change"]["value"] == 0));
  CHECK((query["right"].is_object() && query["right_change"].is_object() && query["same_answer"].is_object()));
  CHECK((full["f1"].is_null() && full["rouge_l"].is_null()));

  // The prompt is query's, and its answer full prefill's; what the answer holds makes it right.
  const auto query_json = [&](const std::string& question) {
    return box.json({"query", question, "--json", "--threads", "2", "--prefill", "full", "--max-tokens", "4"});
  };
  const std::string said = read_all(box / "out/trials.jsonl");
  const std::string own = Json::parse(said.substr(0, said.find('\n')))["answer"];
  const Json asked = query_json("How many days of annual leave may be carried over?");
  CHECK(asked["answer"] == own);
  const auto right_if = [&](const Groups& answers) {
    write_all(box / "docqa.jsonl",
              item("leave", "single", {turn("How many days of annual leave may be carried over?", answers)}));
    const Json again = box.json(ask({"docqa.jsonl", "--json", "--out", "out"}));
    CHECK(again["trials"] == Json({{"measured", 0}, {"known", kSettings}}));
    CHECK(again["sets"][0]["tokens_mean"] == asked["usage"]["prompt_tokens"]);
    CHECK(again["sets"][0]["retrieval"]["with_evidence"] == 0);
    return setting_of(again["sets"][0], "full")["right"]["value"].get<double>();
  };
  CHECK(right_if({{"zzz", own}}) == 1);
  CHECK(right_if({{own}, {"zzz"}}) == 0);
  CHECK(right_if({}) == 0);  // that is not what it said

  // For people.
  write_all(box / "docqa.jsonl", questions());
  const RunResult r = box.run(ask({"docqa.jsonl", "--out", "out", "--no-progress"}));
  INFO(shown(r));
  CHECK(r.status == 5);
  CHECK_THAT(r.out, Catch::Contains("right [95 %]") && Catch::Contains("same answer") && !Catch::Contains(" F1 ") &&
                        Catch::Contains("retrieval: 5 questions, the evidence is among the passages in 2 of 4 (50 %), "
                                        "nothing found for 1"));
  const std::string page = read_all(box / "out/report.html");
  CHECK(XmlChecker(page).check().empty());
  CHECK_THAT(page, Catch::Contains("retrieval: 5 questions"));

  // Fewer passages, or another order, are another prompt.
  CHECK(box.json(ask({"docqa.jsonl", "--json", "--out", "out", "--top-k", "1"}), 5)["trials"]["measured"] > 0);
  CHECK(box.json(ask({"docqa.jsonl", "--json", "--out", "out", "--order", "shuffle"}), 5)["trials"]["measured"] > 0);
}

TEST_CASE("cli: without a collection eval skips docqa items and says what to do", "[cli]") {
  const Sandbox box;
  box.add_model();
  box.add_documents();
  write_all(box / "docqa.jsonl", questions());
  write_all(box / "mixed.jsonl", questions() + R"({"chunks":["The key hangs in room K5."],"question":"Where?"})"
                                               "\n");
  RunResult r = box.run(ask({"docqa.jsonl"}));
  check_error(r, 3, "no item to run: asks about documents, and there is no collection named 'default'");
  CHECK_THAT(r.err, Catch::Contains("cento index FOLDER") && Catch::Contains("docqa: leave"));
  CHECK_FALSE(fs::exists(box.store()));  // looking for one makes none
  const Json j = box.json(ask({"mixed.jsonl", "--json"}), 5);
  CHECK((j["sets"][0]["items"] == 1 && j["skipped"].size() == 5 && j["sets"][0]["retrieval"].is_null()));
  CHECK_THAT(j["skipped"][0]["reason"].get<std::string>(), Catch::Contains("cento index FOLDER"));
  REQUIRE(box.run({"index", "docs", "--collection", "papers"}).status == 0);
  check_error(box.run(ask({"docqa.jsonl"})), 3, "no collection named 'default'");
  CHECK(box.json(ask({"docqa.jsonl", "--json", "--collection", "papers"}), 5)["sets"][0]["items"] == 4);
  const Json both =
      box.json(ask({"mixed.jsonl", "docqa.jsonl", "--json", "--collection", "papers", "--items", "6"}), 5);
  CHECK(both["pooled"]["retrieval"]["asked"] == 10);
}

TEST_CASE("cli: eval --on-my-documents makes its own questions and says in how many blending agrees", "[cli]") {
  Sandbox box;
  with_documents(box);
  const Json j = box.json(eval({"--on-my-documents", "2", "--json", "--out", "out"}));
  REQUIRE(j["sets"].size() == 1);
  CHECK((j["sets"][0]["set"] == "my documents" && j["sets"][0]["items"] == 2));
  CHECK(j["sets"][0]["retrieval"] ==
        Json({{"asked", 2}, {"nothing_found", 0}, {"with_evidence", 2}, {"evidence_found", 2}}));
  const Json& mine = j["on_my_documents"];
  INFO(mine.dump(1));
  const Json blended = setting_of(j["sets"][0], "query default stand-in");
  REQUIRE(blended.is_object());
  const size_t agree = mine["agree"];
  CHECK((mine["questions"] == 2 && mine["setting"] == "query default stand-in"));
  CHECK(blended["same_answer"]["value"].get<double>() == Approx(static_cast<double>(agree) / 2).margin(1e-6));
  const std::string sentence =
      "on your documents blended answers agree with full prefill in " + std::to_string(agree) + " of 2";
  CHECK(mine["text"] == sentence);
  CHECK((mine["kl"]["mean"] == blended["kl"]["mean"]["value"] && mine["kl"]["p95"] == blended["kl"]["p95"] &&
         mine["kl"]["max"] == blended["kl"]["max"] && mine["top1"] == blended["top1"]["value"]));
  CHECK((mine["right"]["full"].is_number() && mine["right"]["blended"].is_number()));

  const RunResult r = box.run(eval({"--on-my-documents", "2", "--out", "out", "--no-progress"}));
  INFO(shown(r));
  CHECK(r.status == 0);
  CHECK_THAT(r.out, Catch::Contains("\n" + sentence + "\n") && Catch::Contains("filled in right: full prefill ") &&
                        Catch::Contains("KL to full prefill: mean "));
  CHECK_THAT(read_all(box / "out/report.html"), Catch::Contains(sentence));
  CHECK(XmlChecker(read_all(box / "out/report.html")).check().empty());
  const Json kept = Json::parse(read_all(box / "out/results.json"));
  CHECK(kept["on_my_documents"]["text"] == sentence);
  CHECK(kept["trials"] == Json({{"measured", 0}, {"known", 2 * kSettings}}));
  // One more question costs that question alone.
  const Json more = box.json(eval({"--on-my-documents", "3", "--json", "--out", "out"}));
  CHECK(more["trials"] == Json({{"measured", kSettings}, {"known", 2 * kSettings}}));
  // More than there is text for.
  const Json all = box.json(eval({"--on-my-documents", "--json", "--out", "out"}), 5);
  CHECK(all["skipped"][0]["where"] == "my documents");
  CHECK_THAT(all["skipped"][0]["reason"].get<std::string>(), Catch::Contains("of 30 questions"));
  // With a file too, and other settings.
  write_all(box / "docqa.jsonl", questions());
  const Json both = box.json(ask({"docqa.jsonl", "--on-my-documents=2", "--json", "--out", "out"}), 5);
  CHECK((both["sets"].size() == 2 && both["pooled"]["retrieval"]["asked"] == 7));
  CHECK(both["on_my_documents"]["setting"] == "query r=0.2 stand-in");
  write_all(box / "my documents.jsonl", questions());
  check_error(box.run(ask({"my documents.jsonl", "--on-my-documents=2", "--logits", "l"})), 2, "has the same name");
}

TEST_CASE("cli: eval --on-my-documents needs documents with text", "[cli]") {
  const Sandbox box;
  box.add_model();
  check_error(box.run(eval({"--on-my-documents"})), 3, "");
  CHECK_FALSE(fs::exists(box.store()));
  write_all(box / "docs/a.md", "# Few\n\nOnly few words.\n");
  REQUIRE(box.run({"index", "docs"}).status == 0);
  RunResult r = box.run(eval({"--on-my-documents"}));
  check_error(r, 3, "too little text to make questions of in collection 'default'");
  CHECK_THAT(r.err, Catch::Contains("cento index FOLDER"));
  check_error(box.run(eval({"--on-my-documents", "--collection", "none"})), 3, "no collection named 'none'");
}

TEST_CASE("cli: Ctrl-C in eval --on-my-documents leaves the sentence about what was finished", "[cli]") {
  Sandbox box;
  with_documents(box);
  std::string lines;
  for (int i = 0; i < 2000; ++i)
    lines += item(std::to_string(i), "single",
                  {turn("Where hangs the key of the crane no. " + std::to_string(i) + "?", {{"K5"}})});
  write_all(box / "large.jsonl", lines);
  const std::vector<std::string> args = {"large.jsonl", "--on-my-documents", "3", "--out", "out"};
  RunSpec spec = box.spec(eval(args));
  spec.terminal = true;
  spec.signal = SIGINT;
  spec.signal_after = "large: ";
  const RunResult cut = box.run(spec);
  INFO(shown(cut));
  REQUIRE(cut.signalled);
  CHECK(cut.status == 130);
  CHECK_THAT(cut.out, Catch::Contains("on your documents blended answers agree with full prefill in ") &&
                          Catch::Contains("the same command goes on from here"));
  const Json partial = Json::parse(read_all(box / "out/results.json"));
  CHECK((partial["partial"] == true && partial["on_my_documents"]["questions"] == 3));
  CHECK(partial["trials"]["measured"].get<size_t>() < 2003 * kSettings);
  std::vector<std::string> again = args;
  again.insert(again.end(), {"--items", "1", "--json"});
  const Json next = box.json(eval(again));
  CHECK((next["partial"] == false && next["on_my_documents"] == partial["on_my_documents"]));
  CHECK(next["trials"]["known"].get<size_t>() >= 3 * kSettings);
}

TEST_CASE("cli: what documents and their names say is shown by eval and not obeyed", "[cli]") {
  const Sandbox box;
  box.add_model();
  box.add_documents();
  const std::string name = "\x1b[41m<b>\xff.md";
  write_all(
      box / ("docs/" + name),
      "# Title \x1b]0;owned\a\n\nThe lock of <script>alert(1)</script> opens at 0730 in the morning of the day.\n\n"
      "The harbour master of the eastern basin is called Petrel, and nobody has seen the other one.\n");
  REQUIRE(box.run({"index", "docs"}).status != 3);
  RunSpec spec = box.spec(eval({"--on-my-documents", "6", "--out", "out"}));
  spec.terminal = true;
  const RunResult r = box.run(spec);
  INFO(printable(r.out));
  CHECK((r.status == 0 || r.status == 5));
  for (const char* sequence : {"\x1b[41m", "\x1b]0;", "\a", "\xff"}) CHECK(r.out.find(sequence) == std::string::npos);
  const std::string page = read_all(box / "out/report.html");
  CHECK(XmlChecker(page).check().empty());
  CHECK_THAT(page, !Catch::Contains("<script") && !Catch::Contains("<b>"));
  CHECK_FALSE(Json::parse(read_all(box / "out/results.json"))["on_my_documents"].is_null());
  CHECK_THAT(read_all(box / "out/trials.jsonl"), Catch::Contains("[41m<b>"));  // that document was asked about
}

}  // namespace
}  // namespace cento::test
