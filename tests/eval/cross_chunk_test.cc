// What tests/tools/make_cross_chunk.py writes.
#include <catch2/catch.hpp>

#include <nlohmann/json.hpp>

#include <cstdio>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <sstream>

#include "base/hash.h"
#include "base/process.h"
#include "eval/dataset.h"
#include "eval/text_score.h"
#include "support/shared_data.h"

namespace cento::test {
namespace {

using Json = nlohmann::json;

bool python_is_there() {
  const auto end = run_process({"python3", "-c", "import sys; sys.exit(sys.version_info < (3, 6))"}, {});
  if (end.ok() && end->ok()) return true;
  std::fprintf(stderr, "skipped: there is no python3\n");
  SUCCEED("skipped: there is no python3");
  return false;
}

std::string made(const TempDir& dir, std::vector<std::string> arguments) {
  const std::string out = dir / "cross.jsonl";
  std::vector<std::string> words = {"python3", CENTO_SOURCE_DIR "/tests/tools/make_cross_chunk.py", "--out", out};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const ProcessEnd end = run_process(words, {}).or_throw();
  INFO(end.err);
  REQUIRE(end.ok());
  return read_all(out);
}

std::vector<Json> lines_of(const std::string& bytes) {
  std::vector<Json> out;
  std::istringstream lines(bytes);
  for (std::string line; std::getline(lines, line);) out.push_back(Json::parse(line));
  return out;
}

std::vector<EvalItem> items_of(const std::string& path) {
  DatasetReader reader(path);
  std::vector<EvalItem> items;
  while (auto item = reader.next().or_throw()) items.push_back(std::move(*item));
  return items;
}

size_t n_words(const std::string& text) {
  std::istringstream words(text);
  return static_cast<size_t>(
      std::distance(std::istream_iterator<std::string>(words), std::istream_iterator<std::string>()));
}

TEST_CASE("cross-chunk set: a seed gives the same bytes each time, another seed other items", "[eval]") {
  if (!python_is_there()) return;
  const TempDir dir;
  const std::string first = made(dir, {"--items", "20", "--seed", "7"});
  CHECK(first == made(dir, {"--items", "20", "--seed", "7"}));
  CHECK(first.starts_with(made(dir, {"--items", "10", "--seed", "7"})));
  const std::vector<Json> one = lines_of(first), other = lines_of(made(dir, {"--items", "20", "--seed", "8"}));
  REQUIRE((one.size() == 20 && other.size() == 20));
  for (size_t i = 0; i < one.size(); ++i) CHECK(one[i]["passages"] != other[i]["passages"]);
  // The bytes themselves: figures that were measured on a set are comparable as long as they stay, with any Python.
  CHECK(hash_of_text("cross-chunk", first).hex() == "6851d87460875901d8a8d71d40144d35ba48d0a475d8ecf19481e348462ecf2f");
}

TEST_CASE("cross-chunk set: every item is a question whose answer stands in two marked passages", "[eval]") {
  if (!python_is_there()) return;
  const TempDir dir;
  const std::vector<Json> lines = lines_of(made(dir, {"--items", "150", "--seed", "3"}));
  const std::vector<EvalItem> items = items_of(dir / "cross.jsonl");
  REQUIRE((items.size() == 150 && lines.size() == 150));
  std::map<std::string, size_t> kinds;
  std::set<std::string> questions, texts;
  for (size_t i = 0; i < items.size(); ++i) {
    const EvalItem& item = items[i];
    CAPTURE(lines[i].dump(1));
    CHECK(item.kind == EvalKind::kQa);
    CHECK((item.chunks.size() >= 6 && item.chunks.size() <= 10));
    CHECK(questions.insert(item.question).second);
    REQUIRE(item.references.size() == 1);
    std::vector<size_t> gold;
    bool answered = false;
    for (size_t c = 0; c < item.chunks.size(); ++c) {
      const std::string text = chunk_text(item.chunks[c]);
      CHECK(texts.insert(text).second);
      CHECK((n_words(text) >= 40 && n_words(text) <= 80));  // 60 to 120 tokens of usual vocabularies
      CHECK(text.find_first_of("{}[]|") == std::string::npos);
      REQUIRE(item.chunks[c].gold);
      if (*item.chunks[c].gold) gold.push_back(c);
      const bool holds = holds_answer_groups(text, std::span(&item.references, 1));
      answered = answered || (holds && *item.chunks[c].gold);
      if (!*item.chunks[c].gold) CHECK_FALSE(holds);
    }
    CHECK(answered);
    REQUIRE(gold.size() == 2);
    const Json& meta = lines[i]["meta"];
    const size_t referent = meta["referent"], referring = meta["referring"];
    CHECK(std::set<size_t>{referent, referring} == std::set<size_t>{gold[0], gold[1]});
    CHECK(referring > 0);
    const std::string kind = meta["kind"];
    ++kinds[kind];
    if (kind != "two-hop") CHECK(referent < referring);
    if (kind == "pronoun") {
      CHECK(referring == referent + 1);
      const std::string& text = item.chunks[referring].text;
      const std::string start = text.substr(0, text.find(' '));
      CHECK(std::set<std::string>{"It", "She", "He", "They"}.count(start) == 1);
    }
  }
  CHECK(kinds == std::map<std::string, size_t>{
                     {"alias", 30}, {"pronoun", 30}, {"override", 30}, {"order", 30}, {"two-hop", 30}});
  for (const Json& line : lines_of(made(dir, {"--items", "8", "--kind", "order"})))
    CHECK(line["meta"]["kind"] == "order");
}

}  // namespace
}  // namespace cento::test
