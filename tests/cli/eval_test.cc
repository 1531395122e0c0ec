// cento eval through the real program, on a tiny model.
#include <catch2/catch.hpp>

#include <signal.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "cli/sandbox.h"
#include "eval/journal.h"
#include "support/kl64.h"
#include "support/posix.h"
#include "support/xml.h"

namespace cento::test {
namespace {

namespace fs = std::filesystem;

constexpr size_t kStanding = 3;  // full, no passages, plain reuse

std::vector<std::string> eval(const std::vector<std::string>& more) {
  std::vector<std::string> args = {"eval", "--threads", "2",     "--answer-tokens", "3",  "--own-answer-tokens",
                                   "4",    "--policy",  "query", "--ratio",         "0.2"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

Json question(const std::string& id, const std::vector<std::string>& answers = {"five days"}) {
  return {{"id", id},
          {"question", "How many days of leave lapse, says " + id + "?"},
          {"answers", answers},
          {"passages", Json::array({{{"title", "Leave"}, {"text", "Up to five days may be carried over."}},
                                    {{"title", "Harbour"}, {"text", "The key of the crane hangs in room K5."}},
                                    {{"text", "Spring tides follow the full moon."}}})}};
}
std::string questions(size_t n) {
  std::string lines;
  for (size_t i = 0; i < n; ++i) lines += question("item" + std::to_string(i)).dump() + "\n";
  return lines;
}

// All settings of all sets and of the pool, with the set's name in front.
std::map<std::string, Json> settings_of(const Json& report) {
  std::map<std::string, Json> out;
  for (const Json& set : report["sets"]) {
    for (const Json& s : set["settings"]) out[set["set"].get<std::string>() + "/" + s["name"].get<std::string>()] = s;
  }
  return out;
}

bool is_estimate(const Json& j) {
  return j.is_null() ||
         (j.is_object() && j.size() == 3 && j.contains("value") && j.contains("low") && j.contains("high"));
}

struct Npy {
  size_t rows = 0, cols = 0;
  std::vector<float> values;
  std::span<const float> row(size_t r) const { return std::span(values).subspan(r * cols, cols); }
};
Npy read_npy(const std::string& path) {
  const std::string bytes = read_all(path);
  REQUIRE(bytes.substr(0, 8) == std::string("\x93NUMPY\x01\x00", 8));
  const size_t header =
      static_cast<unsigned char>(bytes[8]) + 256 * static_cast<size_t>(static_cast<unsigned char>(bytes[9]));
  const std::string about = bytes.substr(10, header);
  REQUIRE_THAT(about, Catch::Contains("'descr': '<f4'") && Catch::Contains("'fortran_order': False"));
  Npy out;
  REQUIRE(std::sscanf(about.c_str() + about.find("'shape': "), "'shape': (%zu, %zu)", &out.rows, &out.cols) == 2);
  REQUIRE(bytes.size() == 10 + header + out.rows * out.cols * sizeof(float));
  out.values.resize(out.rows * out.cols);
  std::memcpy(out.values.data(), bytes.data() + 10 + header, out.values.size() * sizeof(float));
  return out;
}

TEST_CASE("cli: eval --json has the names of the manual, and --out holds the same and a page", "[cli]") {
  const Sandbox box;
  box.add_model();
  write_all(box / "qa.jsonl", questions(2));
  write_all(box / "summ.jsonl",
            R"({"id":"s","query":"","summaries":["the crane"],"passages":[{"text":"The crane lifts twelve tonnes."}]})"
            "\n");
  const Json j = box.json(eval({"qa.jsonl", "summ.jsonl", "--json", "--out", "new/out", "--attention", "--deviation"}));
  for (const char* key : {"partial", "model", "machine", "precision", "seed", "order", "answer_tokens", "trials",
                          "sets", "pooled", "skipped"})
    CHECK(j.contains(key));
  CHECK(j["partial"] == false);
  CHECK(j["model"]["name"] == "tiny");
  CHECK((j["machine"].contains("cpu") && j["machine"].contains("target") && j["machine"]["threads"] == 2));
  CHECK((j["precision"] == "fast" && j["seed"] == 1 && j["order"] == "given" && j["answer_tokens"] == 3));
  CHECK(j["trials"] == Json({{"measured", 3 * (kStanding + 1)}, {"known", 0}}));
  CHECK(j["skipped"].empty());
  REQUIRE(j["sets"].size() == 2);
  CHECK((j["sets"][0]["set"] == "qa" && j["sets"][0]["items"] == 2 && j["sets"][1]["set"] == "summ"));
  CHECK(j["sets"][0]["tokens_mean"].get<double>() > 50);
  CHECK((j["pooled"]["set"] == "" && j["pooled"]["items"] == 3));
  for (const auto& [name, s] : settings_of(j)) {
    CAPTURE(name);
    for (const char* key : {"charged", "recomputed", "ttft_ms", "top1", "nll_change", "gap", "gap_no_context", "f1",
                            "exact_match", "rouge_l", "score_change"})
      CHECK((s.contains(key) && is_estimate(s[key])));
    CHECK((is_estimate(s["kl"]["mean"]) && s["kl"]["p95"].is_number() && s["kl"]["max"].is_number()));
    CHECK((s["worst"]["item"].is_string() && s["worst"]["kl"].is_number() && s.at("zero_f1").is_number()));
    CHECK(s["item_kl"].size() == s["items"].get<size_t>());
    CHECK((s["kl_by_row"].size() >= 1 && s["kl_by_row"].size() <= 4));
    CHECK(s.contains("policy") ==
          (name.find("full") == std::string::npos && name.find("no pass") == std::string::npos));
  }
  const auto s = settings_of(j);
  REQUIRE(s.size() == 2 * (kStanding + 1));
  CHECK(s.at("qa/full")["kl"]["mean"]["value"] == 0);
  CHECK(s.at("qa/full")["gap"].is_null());
  CHECK(s.at("qa/none stand-in")["gap"]["value"] == 0);
  CHECK(s.at("qa/none stand-in")["ratio"].is_null());
  CHECK(s.at("qa/none stand-in")["attention_shift"].size() == 2);
  const Json& deviation = s.at("qa/none stand-in")["deviation"];
  CHECK((deviation["rows"].size() == kTopRows.size() && deviation["top_share"].back() == 1));
  CHECK((deviation["next_layer"] == Json::array({nullptr}) && deviation["last_layer"] == Json::array({nullptr})));
  CHECK_FALSE(s.at("qa/full").contains("deviation"));
  const Json& query = s.at("qa/query r=0.2 stand-in");
  CHECK((query["policy"] == "query" && query["ratio"] == 0.2 && query["context"] == "stand-in" &&
         query["repair"] == "none"));

  CHECK(Json::parse(read_all(box / "new/out/results.json")) == j);
  const std::string page = read_all(box / "new/out/report.html");
  CHECK(XmlChecker(page).check().empty());
  CHECK_THAT(page, Catch::Contains("query r=0.2 stand-in") && Catch::Contains("<svg"));
  for (const char* chart :
       {"Quality against time", "Quality against the budget", "Quality against the recompute ratio",
        "Mean and worst prompt", "Distance along the answer", "Attention&#39;s output by layer", "Deviation by rank"}) {
    CAPTURE(chart);
    CHECK_THAT(page, Catch::Contains(std::string("<figcaption>") + chart + "</figcaption>"));
  }
}

TEST_CASE("cli: eval for people is a table a set, in which a summary's score is ROUGE-L", "[cli]") {
  const Sandbox box;
  box.add_model();
  write_all(box / "qa.jsonl", questions(1));
  write_all(box / "summ.jsonl",
            R"({"id":"s","query":"","summaries":["the crane"],"passages":[{"text":"The crane lifts twelve tonnes."}]})"
            "\n");
  const RunResult r = box.run(eval({"qa.jsonl", "summ.jsonl", "--no-progress"}));
  INFO(shown(r));
  REQUIRE(r.status == 0);
  CHECK(r.err.empty());
  CHECK_THAT(r.out, Catch::Contains("qa: 1 item, ") && Catch::Contains("summ: 1 item, ") &&
                        Catch::Contains("all sets: 2 items, "));
  CHECK_THAT(r.out, Catch::Contains(" F1 ") && Catch::Contains(" ROUGE-L ") && Catch::Contains(" F1 or ROUGE-L "));
  CHECK(fs::exists(box / "out") == false);
}

TEST_CASE("cli: eval with --out measures nothing twice, and another setting alone", "[cli]") {
  const Sandbox box;
  box.add_model();
  write_all(box / "qa.jsonl", questions(3));
  const Json first = box.json(eval({"qa.jsonl", "--json", "--out", "out"}));
  CHECK(first["trials"] == Json({{"measured", 3 * (kStanding + 1)}, {"known", 0}}));
  Json again = box.json(eval({"qa.jsonl", "--json", "--out", "out"}));
  CHECK(again["trials"] == Json({{"measured", 0}, {"known", 3 * (kStanding + 1)}}));
  again["trials"] = first["trials"];
  CHECK(again == first);
  const Json more = box.json(eval({"qa.jsonl", "--json", "--out", "out", "--policy", "query,none,all"}));
  CHECK(more["trials"] == Json({{"measured", 3}, {"known", 3 * (kStanding + 1)}}));
  CHECK(settings_of(more).at("qa/all stand-in")["kl"]["max"] == 0);
  const Json spread = box.json(eval({"qa.jsonl", "--json", "--out", "out", "--deviation"}));
  CHECK(spread["trials"] == Json({{"measured", 3}, {"known", 3 * kStanding}}));  // of plain reuse alone
  const Json kept = box.json(eval({"qa.jsonl", "--json", "--out", "out", "--deviation"}));
  CHECK(kept["trials"]["measured"] == 0);
  CHECK(kept["sets"] == spread["sets"]);
  CHECK(settings_of(kept).at("qa/none stand-in").contains("deviation"));
  const Json longer = box.json(eval({"qa.jsonl", "--json", "--out", "out", "--answer-tokens", "2"}));
  CHECK(longer["trials"]["known"] == 0);  // other rows: other figures

  // References are no part of what was measured: a corrected answer counts at once.
  const std::string said = read_all(box / "out/trials.jsonl");
  const std::string own = Json::parse(said.substr(0, said.find('\n')))["answer"];
  std::string lines;
  for (int i = 0; i < 3; ++i) lines += question("item" + std::to_string(i), {"zero", own}).dump() + "\n";
  write_all(box / "qa.jsonl", lines);
  const Json corrected = box.json(eval({"qa.jsonl", "--json", "--out", "out"}));
  CHECK(corrected["trials"]["measured"] == 0);
  CHECK(settings_of(corrected).at("qa/full")["exact_match"]["value"].get<double>() > 0);

  write_all(box / "out/trials.jsonl", said.substr(0, said.size() - 20));  // as a crash leaves it
  const RunResult mended = box.run(eval({"qa.jsonl", "--json", "--out", "out"}));
  INFO(shown(mended));
  CHECK(mended.status == 0);
  CHECK_THAT(mended.err, Catch::Contains("1 damaged line"));
}

TEST_CASE("cli: Ctrl-C ends eval with 130 and the report of what was finished, and the next run goes on", "[cli]") {
  const Sandbox box;
  box.add_model();
  write_all(box / "small.jsonl", questions(2));
  write_all(box / "large.jsonl", questions(2000));
  RunSpec spec = box.spec(eval({"small.jsonl", "large.jsonl", "--out", "out"}));
  spec.terminal = true;
  spec.signal = SIGINT;
  spec.signal_after = "large: ";
  const RunResult cut = box.run(spec);
  INFO(shown(cut));
  REQUIRE(cut.signalled);
  CHECK(cut.status == 130);
  CHECK_THAT(cut.out, Catch::Contains("the same command goes on from here") &&
                          Catch::Contains("stopped: the figures are those of the items that were finished"));
  const Json partial = Json::parse(read_all(box / "out/results.json"));
  CHECK(partial["partial"] == true);
  CHECK((partial["sets"][0]["set"] == "small" && partial["sets"][0]["items"] == 2));
  CHECK(XmlChecker(read_all(box / "out/report.html")).check().empty());
  const size_t measured = partial["trials"]["measured"];
  CHECK((measured >= 2 * (kStanding + 1) && measured < 2002 * (kStanding + 1)));

  const Json next = box.json(eval({"small.jsonl", "large.jsonl", "--json", "--out", "out", "--items", "2"}));
  CHECK(next["partial"] == false);
  CHECK(next["trials"]["known"].get<size_t>() >= 2 * (kStanding + 1));
  CHECK(next["trials"]["known"].get<size_t>() + next["trials"]["measured"].get<size_t>() == 4 * (kStanding + 1));

  // Stopped before the first item is finished, whose answers are long: the report that is there stays.
  RunSpec slow = box.spec(eval({"small.jsonl", "--out", "out", "--own-answer-tokens", "4000"}));
  slow.terminal = true;
  slow.signal = SIGINT;
  slow.signal_after = "eval [";
  const RunResult early = box.run(slow);
  INFO(shown(early));
  REQUIRE(early.signalled);
  CHECK(early.status == 130);
  CHECK(Json::parse(read_all(box / "out/results.json")) == next);
}

TEST_CASE("cli: eval names lines that are no items and goes on, and refuses files without any", "[cli]") {
  const Sandbox box;
  box.add_model();
  const std::string deep = std::string(5000, '[') + std::string(5000, ']');
  write_all(box / "mixed.jsonl", question("a").dump() + "\n{\"id\":\n" + deep + "\n" + question("a").dump() + "\n" +
                                     R"({"id":"d","turns":[{"question":"q","answer":[["x"]]}]})" + "\n\n" +
                                     question("z").dump());
  RunResult r = box.run(eval({"mixed.jsonl", "--json"}));
  INFO(shown(r));
  CHECK(r.status == 5);
  const Json j = Json::parse(r.out);
  CHECK(j["sets"][0]["items"] == 2);
  REQUIRE(j["skipped"].size() == 4);
  CHECK(j["skipped"][0]["where"] == "mixed.jsonl:2");
  CHECK(j["skipped"][1]["where"] == "mixed.jsonl:3");
  CHECK(j["skipped"][2]["where"] == "mixed.jsonl:4");
  CHECK_THAT(r.err, Catch::Contains("skipped: mixed.jsonl:2: ") && Catch::Contains("skipped: mixed.jsonl:4: "));

  write_all(box / "empty.jsonl", "");
  check_error(box.run(eval({"empty.jsonl"})), 3, "no item to run");
  write_all(box / "bad.jsonl", "\n\n{]\n");
  const RunResult bad = box.run(eval({"mixed.jsonl", "bad.jsonl"}));
  check_error(bad, 3, "no item to run: ");
  CHECK_THAT(bad.err, Catch::Contains("bad.jsonl:3"));  // why, and before the first file was run
  check_error(box.run(eval({"none.jsonl"})), 3, "none.jsonl");
  CHECK(box.run(eval({"."})).status == 3);
  check_error(box.run({"eval"}), 2, "a file of items is needed");

  std::string garbage;
  for (int i = 0; i < 3000; ++i) garbage += "x\n";
  write_all(box / "garbage.jsonl", garbage + question("a").dump() + "\n");
  const Json bounded = box.json(eval({"garbage.jsonl", "--json"}), 5);
  CHECK(bounded["skipped"].size() == 1001);
}

TEST_CASE("cli: an item that does not fit the model's context is skipped and named, its given answer counted",
          "[cli]") {
  const Sandbox box;
  box.add_model();
  const std::string words(9000, '!');
  const std::string long_answer = Json({{"chunks", {"One."}}, {"question", "q"}, {"answer", words}}).dump();
  const std::string long_chunk = Json({{"chunks", {words}}, {"question", "q"}}).dump();
  write_all(box / "p.jsonl", long_answer + "\n" + long_chunk + "\n" +
                                 R"({"chunks":["One.","Two."],"question":"q","answer":"a"})"
                                 "\n");
  const Json j = box.json(eval({"p.jsonl", "--json"}), 5);
  CHECK(j["sets"][0]["items"] == 1);
  REQUIRE(j["skipped"].size() == 2);
  CHECK(j["skipped"][0]["where"] == "p: p:1");
  CHECK_THAT(j["skipped"][0]["reason"].get<std::string>(), Catch::Contains("context holds 8192"));
  write_all(box / "none.jsonl", long_chunk + "\n");
  CHECK(box.json(eval({"none.jsonl", "--json"}), 6)["sets"].empty());
}

TEST_CASE("cli: eval --logits gives the rows from which the report's KL follows, the same as query's", "[cli]") {
  const Sandbox box;
  box.add_model();
  const Json prompt = {
      {"system", "Answer briefly."},
      {"chunks", {"The crane lifts twelve tonnes. Its key hangs in room K5.", "Tides follow the moon."}},
      {"question", "Where is the key?"},
      {"answer", "In K5."}};
  write_all(box / "p.json", prompt.dump());
  const Json j =
      box.json(eval({"p.json", "--json", "--logits", "l/m", "--context", "prefix", "--own-answer-tokens", "0"}));
  const Npy full = read_npy(box / "l/m/p.p.full.npy"), reuse = read_npy(box / "l/m/p.p.none_prefix.npy");
  CHECK(fs::exists(box / "l/m/p.p.no_passages.npy"));
  CHECK(fs::exists(box / "l/m/p.p.query_r=0.2_prefix.npy"));
  REQUIRE((full.rows > 2 && full.rows == reuse.rows && full.cols == reuse.cols));
  double sum = 0;
  for (size_t r = 0; r < full.rows; ++r) sum += kl64(full.row(r), reuse.row(r));
  const Json s = settings_of(j).at("p/none prefix");
  CHECK(sum > 0);
  // The report has six decimals.
  CHECK(s["item_kl"][0].get<double>() == Approx(sum / static_cast<double>(full.rows)).margin(0.6e-6));
  CHECK(s["f1"].is_null());

  const auto query = [&](const std::string& prefill, const std::string& to) {
    const RunResult r =
        box.run({"query", "--prompt", "p.json", "--prefill", prefill, "--logits", to, "--threads", "2"});
    INFO(shown(r));
    REQUIRE(r.status == 0);
    return read_npy(box / to);
  };
  CHECK(query("full", "q.npy").values == full.values);
  CHECK(query("reuse", "r.npy").values == reuse.values);

  write_all(box / "other/p.jsonl", questions(1));
  check_error(box.run(eval({"p.json", "other/p.jsonl", "--logits", "l"})), 2, "--logits: p.json has the same name");
}

TEST_CASE("cli: eval --order shuffle is the same order for the same seed, and another for another", "[cli]") {
  const Sandbox box;
  box.add_model();
  write_all(box / "qa.jsonl", questions(4));
  const auto kl = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args = {"qa.jsonl", "--json"};
    args.insert(args.end(), more.begin(), more.end());
    return settings_of(box.json(eval(args))).at("qa/none stand-in")["item_kl"];
  };
  const Json given = kl({}), shuffled = kl({"--order", "shuffle"});
  CHECK(kl({"--seed", "2"}) == given);  // a seed alone moves nothing
  CHECK(kl({"--order", "shuffle"}) == shuffled);
  CHECK(shuffled != given);
  CHECK(kl({"--order", "shuffle", "--seed", "2"}) != shuffled);
}

TEST_CASE("cli: odd names of sets and items stay in the logits folder, each in a file of its own", "[cli]") {
  const Sandbox box;
  box.add_model();
  const std::vector<std::string> ids = {
      "../../up", "a/b", "a_b", "a.b",  std::string(1000, 'x'), std::string(1000, 'x') + "y",
      "é",        "..",  ".",   "a\nb", std::string("a\0b", 3), "/tmp/z",
      "-rf",      "CON"};
  std::string lines;
  for (const std::string& id : ids) lines += question(id).dump() + "\n";
  const std::string set = "..\x1b[31m ü";
  write_all(box / ("deep/er/" + set + ".jsonl"), lines);
  const auto n_files = [&] {
    return std::distance(fs::recursive_directory_iterator(box / ""), fs::recursive_directory_iterator());
  };
  const auto before = n_files();
  const Json j = box.json(eval({"deep/er/" + set + ".jsonl", "--json", "--logits", "l"}));
  REQUIRE(j["sets"][0]["items"] == ids.size());
  size_t n = 0;
  for (const auto& entry : fs::directory_iterator(box / "l")) {
    const std::string name = entry.path().filename();
    CAPTURE(name);
    CHECK(entry.is_regular_file());
    CHECK((name.size() < 255 && name[0] != '.'));
    CHECK(std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c < 0x7f; }));
    ++n;
  }
  CHECK(n == ids.size() * (kStanding + 1));
  CHECK(n_files() == before + static_cast<long>(n) + 1);
}

TEST_CASE("cli: what data files are called and say is shown and not obeyed", "[cli]") {
  const Sandbox box;
  box.add_model();
  const std::string set = "<b>\x1b[41mset\a";
  Json odd = question("<script>alert(1)</script>\x1b[31mred\a\xe2\x80\xae");
  odd["passages"][0]["title"] = "\x1b]0;owned\a<i>";
  odd["question"] = "\x1b[2J?";
  write_all(box / (set + ".jsonl"), odd.dump() + "\n{\"id\":\"\x1b[42m\"\n");
  RunSpec spec = box.spec(eval({set + ".jsonl", "--out", "out"}));
  spec.terminal = true;
  const RunResult r = box.run(spec);
  INFO(printable(r.out));
  CHECK(r.status == 5);
  for (const char* sequence : {"\x1b[41m", "\x1b[31mred", "\x1b[42m", "\x1b]0;", "\x1b[2J", "\a"}) {
    CAPTURE(printable(sequence));
    CHECK(r.out.find(sequence) == std::string::npos);
  }
  CHECK_THAT(r.out, Catch::Contains("<b>\\x1b[41mset\\x07: 1 item"));
  const std::string page = read_all(box / "out/report.html");
  CHECK(XmlChecker(page).check().empty());
  CHECK_THAT(page, !Catch::Contains("<script") && Catch::Contains("&lt;script&gt;") && !Catch::Contains("<b>"));
  CHECK(Json::parse(read_all(box / "out/results.json"))["sets"][0]["settings"][0]["worst"]["item"] == odd["id"]);
}

TEST_CASE("cli: an --out that cannot be used ends eval before anything is measured", "[cli]") {
  const Sandbox box;
  box.add_model();
  write_all(box / "qa.jsonl", questions(1));
  write_all(box / "file", "x");
  check_error(box.run(eval({"qa.jsonl", "--out", "file"})), 3, "file");
  check_error(box.run(eval({"qa.jsonl", "--out", "file/below"})), 3, "");
  check_error(box.run(eval({"qa.jsonl", "--logits", "file"})), 3, "file");
  check_error(box.run(eval({"qa.jsonl", "--out", "/proc/none"})), 3, "");
  {
    const Journal held(box / "out");
    check_error(box.run(eval({"qa.jsonl", "--out", "out"})), 4, "another run keeps its figures there");
  }
  CHECK(box.run(eval({"qa.jsonl", "--out", "out"})).status == 0);

  fs::create_directories(box / "taken/results.json/below");
  const RunResult taken = box.run(eval({"qa.jsonl", "--out", "taken", "--no-progress"}));
  INFO(shown(taken));
  CHECK(taken.status == 3);
  CHECK_THAT(taken.out, Catch::Contains("qa: 1 item"));  // what was measured is shown all the same
  CHECK_THAT(taken.err, Catch::StartsWith("error: ") && Catch::Contains("results.json"));

  const auto disk = SmallDisk::mount(256 << 10);
  if (!disk) return;
  // Room for figures, not for full prefill's logits of each item, nor in the end for the page.
  write_all(box / "more.jsonl", questions(30));
  const RunResult full = box.run(eval({"more.jsonl", "--out", disk->path() + "/out", "--no-progress"}));
  INFO(shown(full));
  CHECK(full.status == 4);
  CHECK_THAT(full.err, Catch::Contains("No space left on device"));
  disk->make_read_only();
  check_error(box.run(eval({"qa.jsonl", "--out", disk->path() + "/other"})), 3, "");
}

TEST_CASE("cli: eval with flags that cannot be ends with 2", "[cli]") {
  const Sandbox box;
  box.add_model();
  write_all(box / "qa.jsonl", questions(1));
  for (const std::vector<std::string>& flags :
       std::vector<std::vector<std::string>>{{"--policy", "none-such"},
                                             {"--policy", "query,,none"},
                                             {"--ratio", "1.5"},
                                             {"--ratio", "nan"},
                                             {"--ratio", ""},
                                             {"--context", "x"},
                                             {"--repair", "x"},
                                             {"--items", "-1"},
                                             {"--order", "x"},
                                             {"--answer-tokens", "0"},
                                             {"--probe-depth", "0"},
                                             {"--policy", "dev-k-gradual", "--ratio", "default"}}) {
    std::vector<std::string> args = {"qa.jsonl"};
    args.insert(args.end(), flags.begin(), flags.end());
    CAPTURE(flags[0], flags[1]);
    check_error(box.run(eval(args)), 2, flags[0]);
  }
  // Odd, and still a run.
  const Json j = box.json(eval({"qa.jsonl",      "--json",
                                "--policy",      "oracle,dev-kv-gradual,dev-v,hybrid",
                                "--ratio",       "0,.9,1,default",
                                "--policy",      "oracle,dev-kv-gradual,dev-v,hybrid",
                                "--ratio",       "0,.9,1",
                                "--check-layer", "1000",
                                "--head-rows",   "100000",
                                "--smooth",      "1000",
                                "--repair",      "none,shift",
                                "--context",     "prefix,stand-in",
                                "--probe-depth", ".01"}));
  for (const auto& [name, s] : settings_of(j)) {
    CAPTURE(name);
    if (name.find(" r=1 ") != std::string::npos) CHECK(s["kl"]["max"] == 0);
  }
}

}  // namespace
}  // namespace cento::test
