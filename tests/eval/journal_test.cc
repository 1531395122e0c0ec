#include "eval/journal.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "support/posix.h"
#include "support/shared_data.h"

namespace cento::test {
namespace {

using Json = nlohmann::json;

TrialRecord sample(const std::string& name = "first") {
  TrialRecord r;
  r.key = hash_of_text("test", name);
  r.set = "qa";
  r.item = "item \"1\"\n\t\x01";
  r.setting = "query r=0.15 stand-in";
  r.outcome.charged = 0.1 + 0.2;  // needs all its digits
  r.outcome.n_tokens = 4321;
  r.outcome.n_recomputed = 17;
  r.outcome.ttft_ms = 12.5;
  r.outcome.kl = {0, 1e-300, 3.25};
  r.outcome.same_top = {1, 0, 1};
  r.outcome.nll = 1.0 / 3;
  r.outcome.nll_full = -0.0;
  r.outcome.attention_shift = {0.5, 0.25};
  r.outcome.residual = Residual{0.125, 1.0 / 7, 0.5, 1e-300, 3, 0.1 + 0.2};
  r.outcome.deviation = DeviationProfile{std::vector<double>(kTopRows.size(), 0.1), {NAN, 0.75}, {NAN, -0.5}};
  r.scores = {true, false, 2.0 / 3, 1, 0.125};
  r.answer = "Déjà vu — 深い \\ \" \n";
  return r;
}

bool same_number(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }
bool same_numbers(const std::vector<double>& a, const std::vector<double>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_number);
}

void check_same(const TrialRecord& a, const TrialRecord& b) {
  CHECK(a.key == b.key);
  CHECK((a.set == b.set && a.item == b.item && a.setting == b.setting && a.answer == b.answer));
  CHECK((a.outcome.charged == b.outcome.charged && a.outcome.ttft_ms == b.outcome.ttft_ms));
  CHECK((a.outcome.n_tokens == b.outcome.n_tokens && a.outcome.n_recomputed == b.outcome.n_recomputed));
  CHECK(same_numbers(a.outcome.kl, b.outcome.kl));
  CHECK(a.outcome.same_top == b.outcome.same_top);
  CHECK((same_number(a.outcome.nll, b.outcome.nll) && same_number(a.outcome.nll_full, b.outcome.nll_full)));
  CHECK(same_numbers(a.outcome.attention_shift, b.outcome.attention_shift));
  REQUIRE(a.outcome.residual.has_value() == b.outcome.residual.has_value());
  if (a.outcome.residual) {
    const Residual &x = *a.outcome.residual, &y = *b.outcome.residual;
    CHECK((x.unselected == y.unselected && x.entropy == y.entropy && x.chunk_mass == y.chunk_mass));
    CHECK((x.moved == y.moved && x.shift == y.shift && x.open == y.open));
  }
  REQUIRE(a.outcome.deviation.has_value() == b.outcome.deviation.has_value());
  if (a.outcome.deviation) {
    CHECK(same_numbers(a.outcome.deviation->top_share, b.outcome.deviation->top_share));
    CHECK(same_numbers(a.outcome.deviation->next_layer, b.outcome.deviation->next_layer));
    CHECK(same_numbers(a.outcome.deviation->last_layer, b.outcome.deviation->last_layer));
  }
  CHECK((a.scores.scored == b.scores.scored && a.scores.summary == b.scores.summary));
  CHECK((a.scores.judged == b.scores.judged && a.scores.right == b.scores.right));
  CHECK((a.scores.f1 == b.scores.f1 && a.scores.exact == b.scores.exact && a.scores.rouge_l == b.scores.rouge_l));
}

TrialRecord read_back(const TrialRecord& r) {
  const std::string line = journal_line(r);
  REQUIRE(std::count(line.begin(), line.end(), '\n') == 1);
  REQUIRE(line.back() == '\n');
  auto parsed = parse_journal_line(line.substr(0, line.size() - 1));
  REQUIRE(parsed.ok());
  return std::move(parsed).value();
}

TEST_CASE("journal: a line holds all of a record", "[eval]") {
  TrialRecord r = sample();
  check_same(read_back(r), r);
  r.scores = {true, true, 0, 0, 1};
  check_same(read_back(r), r);
  r.scores.judged = r.scores.right = true;
  check_same(read_back(r), r);
  r.scores = {};
  r.scores.judged = true;
  check_same(read_back(r), r);
  r.scores = {};
  r.answer.clear();
  r.outcome.attention_shift.clear();
  r.outcome.deviation->top_share.clear();  // there was nothing to be shared
  check_same(read_back(r), r);
  r.outcome.deviation.reset();
  check_same(read_back(r), r);
  r.outcome.kl = {NAN, 0.5};
  r.outcome.same_top = {0, 1};
  r.outcome.nll = NAN;
  check_same(read_back(r), r);
}

TEST_CASE("journal: infinity comes back as no number, and bytes that are no UTF-8 as a sign for that", "[eval]") {
  TrialRecord r = sample();
  r.outcome.kl = {std::numeric_limits<double>::infinity()};
  r.outcome.same_top = {1};
  r.answer = "a\xff";
  r.item = "caf\xe9";
  const TrialRecord back = read_back(r);
  CHECK(std::isnan(back.outcome.kl[0]));
  CHECK(back.answer == "a\xef\xbf\xbd");
  CHECK(back.item == "caf\xef\xbf\xbd");
}

TEST_CASE("journal: a line that is cut anywhere is refused", "[eval]") {
  const std::string line = journal_line(sample());
  for (size_t n = 0; n + 1 < line.size(); ++n) {
    CAPTURE(n);
    CHECK_FALSE(parse_journal_line(line.substr(0, n)).ok());
  }
}

TEST_CASE("journal: a line with a missing field, another type or a number without bounds is refused", "[eval]") {
  const Json good = Json::parse(journal_line(sample()));
  REQUIRE(parse_journal_line(good.dump()).ok());
  for (const auto& [name, value] : good.items()) {
    if (name == "scores" || name == "residual" || name == "deviation") continue;  // may be missing
    Json j = good;
    j.erase(name);
    CAPTURE(name);
    CHECK_FALSE(parse_journal_line(j.dump()).ok());
  }
  const auto refused = [&](const std::string& name, const std::string& value) {
    Json j = good;
    j[name] = "THE VALUE";
    std::string line = j.dump();
    line.replace(line.find("\"THE VALUE\""), 11, value);
    CAPTURE(name, value);
    CHECK_FALSE(parse_journal_line(line).ok());
  };
  for (const char* value : {"1", "null", "[]", "{}", R"({"unselected":1})"}) refused("residual", value);
  for (const char* name : {"set", "item", "setting", "answer", "key"}) {
    for (const char* value : {"1", "null", "true", "[]", "{}", "[\"x\"]"}) refused(name, value);
  }
  for (const char* value : {"\"\"", "\"ab\"", "\"zz\""}) refused("key", value);
  for (const char* name : {"charged", "ttft_ms"}) {
    for (const char* value : {"\"1\"", "null", "true", "[]", "1e999", "-"}) refused(name, value);
  }
  for (const char* name : {"tokens", "recomputed"}) {
    for (const char* value : {"-1", "1.5", "1e300", "18446744073709551616", "\"1\"", "null", "true", "[1]"})
      refused(name, value);
  }
  for (const char* name : {"kl", "top1", "nll", "attention"}) {
    for (const char* value : {"1", "null", "\"x\"", "{}", "{\"a\":1}", "[\"1\"]", "[[1]]", "[true]", "[1e999]"})
      refused(name, value);
  }
  for (const char* value : {"[]", "[1,2]", "[1,2,3,4]"}) {
    refused("kl", value);
    refused("top1", value);
  }
  for (const char* value : {"[-1,0,1]", "[0.5,0,1]", "[99999999999999999999,0,1]"}) refused("top1", value);
  for (const char* value : {"[]", "[1]", "[1,2,3]"}) refused("nll", value);
  for (const char* value :
       {"1", "null", "[]", "{}", R"({"f1":1,"exact":1,"rouge_l":1})", R"({"f1":1,"exact":1,"rouge_l":1,"summary":1})",
        R"({"f1":null,"exact":1,"rouge_l":1,"summary":true})", R"({"f1":1,"exact":"1","rouge_l":1,"summary":true})"})
    refused("scores", value);
  for (const char* value :
       {"1", "null", "[]", "{}", R"({"top":[],"next":[1]})", R"({"top":[0.5],"next":[1],"last":[1]})",
        R"({"top":[],"next":[1],"last":[1,1]})", R"({"top":[],"next":["1"],"last":[1]})"})
    refused("deviation", value);
  for (const char* line : {"", "null", "1", "\"x\"", "[]", "{}", "{\"key\"", "\xff\xfe", "// comment"}) {
    CAPTURE(line);
    CHECK_FALSE(parse_journal_line(line).ok());
  }
  CHECK_FALSE(parse_journal_line(std::string(1000000, '[')).ok());
  CHECK_FALSE(parse_journal_line(good.dump() + good.dump()).ok());
}

TEST_CASE("journal: what was added is found by the next run, the last of two with one key", "[eval]") {
  const TempDir dir;
  const std::string folder = dir / "a/b";
  TrialRecord later = sample("first");
  later.answer = "later";
  {
    Journal journal(folder);
    CHECK(journal.find(sample().key) == nullptr);
    journal.add(sample("first"));
    journal.add(sample("second"));
    REQUIRE(journal.find(sample("first").key) != nullptr);
    CHECK(journal.find(sample("first").key)->answer == sample().answer);
    journal.add(later);
    CHECK(journal.find(later.key)->answer == "later");
  }
  const Journal journal(folder);
  CHECK(journal.damaged() == 0);
  REQUIRE(journal.find(later.key) != nullptr);
  check_same(*journal.find(later.key), later);
  check_same(*journal.find(sample("second").key), sample("second"));
}

TEST_CASE("journal: a last line that a crash cut off is passed over, and those behind it count", "[eval]") {
  const std::string whole = journal_line(sample("first")), cut = journal_line(sample("second"));
  for (const size_t n : {size_t{1}, cut.size() / 2, cut.size() - 2, cut.size() - 1}) {
    CAPTURE(n);
    const TempDir dir;
    write_all(dir / "trials.jsonl", whole + cut.substr(0, n));
    const bool is_whole = n == cut.size() - 1;  // the line end alone is missing
    {
      Journal journal(dir.path());
      CHECK(journal.damaged() == (is_whole ? 0 : 1));
      CHECK(journal.find(sample("first").key) != nullptr);
      CHECK((journal.find(sample("second").key) != nullptr) == is_whole);
      journal.add(sample("third"));
    }
    const Journal again(dir.path());
    CHECK(again.damaged() == (is_whole ? 0 : 1));
    CHECK(again.find(sample("first").key) != nullptr);
    CHECK(again.find(sample("third").key) != nullptr);
  }
}

TEST_CASE("journal: damaged lines in the middle are counted and cost no other line", "[eval]") {
  const TempDir dir;
  write_all(dir / "trials.jsonl", journal_line(sample("a")) + "{}\n\n\xff\n" + std::string(1000, '[') + "\n" +
                                      journal_line(sample("b")) + std::string(7, '\0') + "\n");
  const Journal journal(dir.path());
  CHECK(journal.damaged() == 5);
  CHECK(journal.find(sample("a").key) != nullptr);
  CHECK(journal.find(sample("b").key) != nullptr);
}

TEST_CASE("journal: one run at a time", "[eval]") {
  const TempDir dir;
  {
    const Journal first(dir.path());
    try {
      const Journal second(dir.path());
      FAIL("two runs at once");
    } catch (const Error& e) {
      CHECK(e.code() == Code::kResource);
      CHECK_THAT(e.message(), Catch::Contains("another run"));
      CHECK(e.where() == dir / "trials.jsonl");
      CHECK_FALSE(e.hint().empty());
    }
  }
  CHECK_NOTHROW(Journal(dir.path()));
}

TEST_CASE("journal: a folder that is none, or may not be written, is an error that names it", "[eval]") {
  const TempDir dir;
  const auto error_of = [](const std::string& folder) {
    try {
      const Journal journal(folder);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  write_all(dir / "file", "x");
  CHECK_THAT(error_of(dir / "file"), Catch::Contains(dir / "file"));
  CHECK_THAT(error_of(dir / "file/below"), Catch::Contains(dir / "file"));
  std::filesystem::create_directories(dir / "taken/trials.jsonl");
  CHECK_THAT(error_of(dir / "taken"), Catch::Contains("trials.jsonl"));
  std::filesystem::create_directories(dir / "pipe");
  REQUIRE(::mkfifo((dir / "pipe/trials.jsonl").c_str(), 0600) == 0);
  CHECK_THAT(error_of(dir / "pipe"), Catch::Contains("trials.jsonl"));
  std::filesystem::create_directories(dir / "endless");
  std::filesystem::create_symlink("/dev/full", dir / "endless/trials.jsonl");
  CHECK_THAT(error_of(dir / "endless"), Catch::Contains("trials.jsonl"));
  std::filesystem::create_directories(dir / "closed");
  REQUIRE(::chmod((dir / "closed").c_str(), 0555) == 0);
  REQUIRE(::chmod(dir.path().c_str(), 0755) == 0);
  CHECK_THAT(in_child([&] { return error_of(dir / "closed"); }, true), Catch::Contains("trials.jsonl"));
}

TEST_CASE("journal: a full disk is an error, and what was whole before it is found again", "[eval]") {
  const auto disk = SmallDisk::mount(64 << 10);
  if (!disk) {
    SUCCEED("skipped: no small disk can be mounted");
    return;
  }
  size_t n = 0;
  {
    Journal journal(disk->path());
    try {
      for (; n < 1000; ++n) journal.add(sample(std::to_string(n)));
      FAIL("no disk is that large");
    } catch (const Error& e) {
      CHECK(e.code() == Code::kResource);
      CHECK(e.where() == disk->path() + "/trials.jsonl");
    }
  }
  REQUIRE(n > 10);
  const TempDir elsewhere;
  write_all(elsewhere / "trials.jsonl", read_all(disk->path() + "/trials.jsonl"));
  Journal journal(elsewhere.path());
  for (size_t i = 0; i < n; ++i) CHECK(journal.find(sample(std::to_string(i)).key) != nullptr);
  CHECK(journal.find(sample(std::to_string(n)).key) == nullptr);
}

constexpr size_t kVocab = 5;

TrialReference reference() {
  TrialReference r;
  r.answer = {4, 0};
  r.own_answer = {1, 2, 3};
  r.rows = 3;
  for (size_t i = 0; i < r.rows * kVocab; ++i) r.logits.push_back(static_cast<float>(i) * 0.1f - 0.7f);
  r.ttft_ms = 123.456;
  return r;
}

TEST_CASE("reference cache: what was put is found, bit for bit", "[eval]") {
  const TempDir dir;
  const ReferenceCache cache(dir / "x/full");
  const Hash key = hash_of_text("test", "key");
  CHECK_FALSE(cache.find(key, kVocab).has_value());
  TrialReference r = reference();
  for (const bool empty : {false, true}) {
    if (empty) {
      r.answer.clear();
      r.own_answer.clear();
      r.rows = 1;
      r.logits.resize(kVocab);
      r.logits[2] = -std::numeric_limits<float>::infinity();
    }
    REQUIRE(cache.put(key, r).ok());
    const auto found = cache.find(key, kVocab);
    REQUIRE(found.has_value());
    CHECK((found->answer == r.answer && found->own_answer == r.own_answer));
    CHECK((found->rows == r.rows && found->ttft_ms == r.ttft_ms));
    REQUIRE(found->logits.size() == r.logits.size());
    CHECK(std::memcmp(found->logits.data(), r.logits.data(), r.logits.size() * sizeof(float)) == 0);
    CHECK_FALSE(cache.find(hash_of_text("test", "other"), kVocab).has_value());
    for (const size_t vocab : {size_t{0}, size_t{4}, size_t{6}, std::numeric_limits<size_t>::max() / 4})
      CHECK_FALSE(cache.find(key, vocab).has_value());
  }
}

TEST_CASE("reference cache: a file with any byte changed, cut or added is not there", "[eval]") {
  const TempDir dir;
  const ReferenceCache cache(dir.path());
  const Hash key = hash_of_text("test", "key");
  REQUIRE(cache.put(key, reference()).ok());
  const std::string path = dir / key.hex(), good = read_all(path);
  for (size_t i = 0; i < good.size(); ++i) {
    for (const char flip : {'\x01', '\x80', '\xff'}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ flip);
      write_all(path, bad);
      CAPTURE(i);
      CHECK_FALSE(cache.find(key, kVocab).has_value());
    }
    write_all(path, good.substr(0, i));
    CAPTURE(i);
    CHECK_FALSE(cache.find(key, kVocab).has_value());
  }
  write_all(path, good + '\0');
  CHECK_FALSE(cache.find(key, kVocab).has_value());
  write_all(path, good);
  CHECK(cache.find(key, kVocab).has_value());
}

TEST_CASE("reference cache: a whole file with tokens that the vocabulary lacks is not there", "[eval]") {
  const TempDir dir;
  const ReferenceCache cache(dir.path());
  const Hash key = hash_of_text("test", "key");
  for (const int32_t id : {5, -1, std::numeric_limits<int32_t>::max()}) {
    TrialReference r = reference();
    r.answer[1] = id;
    REQUIRE(cache.put(key, r).ok());
    CHECK_FALSE(cache.find(key, kVocab).has_value());
  }
}

TEST_CASE("reference cache: a folder that cannot be is an error to put and a miss to find", "[eval]") {
  const TempDir dir;
  write_all(dir / "file", "x");
  const ReferenceCache cache(dir / "file");
  const Hash key = hash_of_text("test", "key");
  CHECK_FALSE(cache.put(key, reference()).ok());
  CHECK_FALSE(cache.find(key, kVocab).has_value());
  const ReferenceCache taken(dir.path());
  std::filesystem::create_directories(dir / key.hex());
  CHECK_FALSE(taken.find(key, kVocab).has_value());
}

}  // namespace
}  // namespace cento::test
