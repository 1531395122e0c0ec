#include "docs/chunker.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/rng.h"
#include "base/text.h"
#include "docs/split.h"
#include "support/fake_tokenizer.h"
#include "support/shared_data.h"

using namespace cento;

namespace {

const test::FakeTokenizer kTokenizer;

uint32_t prompt_tokens(const TokenCounter& counter, const NewChunk& c) {
  return counter.count(c.header.empty() ? c.body + "\n" : c.header + "\n" + c.body + "\n");
}

std::vector<NewChunk> chunks_of(const Document& document, uint32_t budget,
                                const TokenCounter& counter = TokenCounter(&kTokenizer)) {
  std::vector<NewChunk> chunks = chunk_document(document, counter, budget);
  for (const NewChunk& c : chunks) {
    CAPTURE(c.header, c.body);
    CHECK(c.n_tokens == prompt_tokens(counter, c));
    CHECK(c.n_tokens <= budget);
    CHECK(is_valid_utf8(c.header));
    CHECK(is_valid_utf8(c.body));
    CHECK(c.header.find('\n') == std::string::npos);
    CHECK(!c.body.empty());
    CHECK(c.line_from >= 1);
    CHECK(c.line_from <= c.line_to);
  }
  return chunks;
}

std::string squeezed(const std::string& s) {
  std::string out;
  for (const char c : s) {
    if (c != ' ' && c != '\n' && c != '\t') out += c;
  }
  return out;
}

std::string bodies(const std::vector<NewChunk>& chunks) {
  std::string out;
  for (const NewChunk& c : chunks) out += c.body + "\n";
  return out;
}

std::string sentence(int n) { return "Sentence number " + std::to_string(n) + " is about the tide."; }

}  // namespace

TEST_CASE("chunker: a small document is one chunk under its title", "[docs]") {
  const auto chunks = chunks_of(read_markdown("# Leave policy\n\nFive days.\n"), 256);
  REQUIRE(chunks.size() == 1);
  CHECK(chunks[0].header == "Leave policy");
  CHECK(chunks[0].body == "Five days.");
  CHECK(chunks[0].line_from == 1);
  CHECK(chunks[0].line_to == 3);
}

TEST_CASE("chunker: the header is the trail of headings, and small sections share a chunk", "[docs]") {
  std::string text = "# Leave policy\n\n## Carrying over\n\n";
  for (int i = 0; i < 5; ++i) text += sentence(i) + "\n";
  text += "\n## Sick leave\n\n### First days\n\nCall in.\n\n### Later\n\nSend a note.\n";
  const auto chunks = chunks_of(read_markdown(text), 128);
  REQUIRE(chunks.size() == 2);
  CHECK(chunks[0].header == "Leave policy > Carrying over");
  CHECK(chunks[0].body.rfind("Sentence number 0", 0) == 0);
  CHECK(chunks[1].header == "Leave policy > Sick leave");
  CHECK(chunks[1].body == "### First days\nCall in.\n\n### Later\nSend a note.");
  CHECK(chunks[1].line_from == 11);
  CHECK(chunks[1].line_to == 19);
}

TEST_CASE("chunker: the same section makes the same chunk wherever its file stands", "[docs]") {
  const auto a = chunks_of(read_markdown("# T\n\n## S\n\ntext\n"), 64),
             b = chunks_of(read_markdown("\n\n# T\n\n\n## S\n\ntext"), 64);
  REQUIRE(a.size() == 1);
  REQUIRE(b.size() == 1);
  CHECK(chunk_text_hash(a[0].header, a[0].body) == chunk_text_hash(b[0].header, b[0].body));
}

TEST_CASE("chunker: long paragraphs are cut at sentence ends, with their lines", "[docs]") {
  std::string text = "# T\n\n";
  for (int i = 0; i < 40; ++i) text += sentence(i) + (i % 2 ? "\n" : " ");
  const auto chunks = chunks_of(read_markdown(text), 100);
  REQUIRE(chunks.size() > 5);
  uint32_t last = 0;
  for (const NewChunk& c : chunks) {
    CHECK(c.body.back() == '.');
    CHECK(c.body.rfind("Sentence", 0) == 0);
    CHECK(c.line_from >= last);
    last = c.line_to;
    if (&c != &chunks.front()) {
      // The first line named holds the first words.
      const int first = std::stoi(c.body.substr(16));
      CHECK(c.line_from == 3u + static_cast<uint32_t>(first / 2));
    }
  }
  CHECK(squeezed(bodies(chunks)) == squeezed(text.substr(5)));
}

TEST_CASE("chunker: text without sentence ends, spaces or line ends is cut between characters", "[docs]") {
  std::string cjk, word, emoji;
  for (int i = 0; i < 800; ++i) cjk += "潮汐站的值班员每天早上八点前记录水位";
  for (int i = 0; i < 100000; ++i) word += static_cast<char>('a' + i % 26);
  for (int i = 0; i < 3000; ++i) emoji += "👩‍🚀";
  for (const std::string& text : {cjk, word, emoji, std::string(200000, 'a'), std::string(50000, '.')}) {
    for (const uint32_t budget : {32u, 100u, 256u}) {
      const auto chunks = chunks_of(read_plain(text), budget);
      CHECK(squeezed(bodies(chunks)) == text);
      // No crumbs: a chunk is filled to more than half on average.
      uint64_t sum = 0;
      for (const NewChunk& c : chunks) sum += c.n_tokens;
      CHECK(sum > chunks.size() * budget / 2);
    }
  }
}

TEST_CASE("chunker: rows carry their header row along, unless it is too wide", "[docs]") {
  std::string text = "# T\n\n| name | weight |\n|---|---|\n";
  for (int i = 0; i < 60; ++i) text += "| item " + std::to_string(i) + " | " + std::to_string(i * 7) + " |\n";
  auto chunks = chunks_of(read_markdown(text), 128);
  REQUIRE(chunks.size() > 3);
  for (const NewChunk& c : chunks) {
    CHECK(c.body.rfind("| name | weight |\n|---|---|\n| item", 0) == 0);
    CHECK(c.body.find("| name", 5) == std::string::npos);
  }
  std::string wide = "|", rule = "|";
  for (int i = 0; i < 300; ++i) {
    wide += "c" + std::to_string(i) + "|";
    rule += "---|";
  }
  chunks = chunks_of(read_markdown(wide + "\n" + rule + "\n" + wide + "\n" + wide + "\nend"), 100);
  const std::string all = squeezed(bodies(chunks));
  size_t n = 0;
  for (size_t at = all.find("c299|"); at != std::string::npos; at = all.find("c299|", at + 1)) ++n;
  CHECK(n == 3);  // the header row once, and two rows
  CHECK(all.find("end") != std::string::npos);
}

TEST_CASE("chunker: code is cut at line ends and keeps its indentation", "[docs]") {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "    return compute(" + std::to_string(i) + ");\n";
  const auto chunks = chunks_of(read_code(text), 80);
  REQUIRE(chunks.size() > 5);
  for (const NewChunk& c : chunks) {
    CHECK(c.body.rfind("    return", 0) == 0);
    CHECK(c.body.back() == ';');
    CHECK(c.line_to - c.line_from == static_cast<uint32_t>(std::count(c.body.begin(), c.body.end(), '\n')));
  }
}

TEST_CASE("chunker: a heading stays with what follows, an announcing line too", "[docs]") {
  std::string text = "# T\n\n";
  for (int i = 0; i < 4; ++i) text += sentence(i) + "\n";
  text += "\nThe options are:\n\n- " + sentence(7) + "\n- " + sentence(8) + "\n- " + sentence(9) + "\n\n## Next\n\n" +
          sentence(10) + "\n";
  const auto chunks = chunks_of(read_markdown(text), 100);
  for (const NewChunk& c : chunks) {
    CHECK(c.body.find("## Next") == std::string::npos);
    if (c.body.find("The options are:") != std::string::npos) CHECK(c.body.rfind("The options are:", 0) == 0);
  }
  CHECK(chunks.back().header == "T > Next");
  std::string headings;
  for (int i = 0; i < 400; ++i)
    headings += std::string(static_cast<size_t>(1 + i % 6), '#') + " Heading " + std::to_string(i) + "\n";
  const std::string all = [&] {
    std::string s;
    for (const NewChunk& c : chunks_of(read_markdown(headings), 64)) s += c.header + "\n" + c.body + "\n";
    return s;
  }();
  for (int i = 0; i < 400; ++i) CHECK(all.find("Heading " + std::to_string(i)) != std::string::npos);
}

TEST_CASE("chunker: a header that is too long is shortened, never endless", "[docs]") {
  std::string trail;
  for (int i = 1; i <= 6; ++i)
    trail += std::string(static_cast<size_t>(i), '#') + " " + std::string(300, static_cast<char>('a' + i)) + "\n\n";
  for (const uint32_t budget : {32u, 64u, 256u, 1000u}) {
    const auto chunks = chunks_of(read_markdown(trail + "The text below."), budget);
    REQUIRE(!chunks.empty());
    CHECK(chunks.back().body.find("The text below.") != std::string::npos);
    for (const NewChunk& c : chunks)
      CHECK(TokenCounter(&kTokenizer).count(c.header) <= std::min(kHeaderTokensMax, budget / 4) + 1);
  }
  CHECK(chunk_document(read_markdown("# T\n\ntext"), TokenCounter(nullptr), 1).size() == 1);  // clamped
  const auto words = chunks_of(read_markdown("# One\n\n## Two words here\n\n### Three\n\n" + sentence(1)), 256);
  CHECK(words.at(0).header == "One > Two words here > Three");
}

TEST_CASE("chunker: an empty heading closes its section", "[docs]") {
  Document d = read_rst("Top\n===\n\n.. py:data:: SECRET\n\n   " + sentence(1) + " " + sentence(2) + "\n\n" +
                        sentence(3) + " " + sentence(4) + "\n");
  const auto chunks = chunks_of(d, 70);
  REQUIRE(chunks.size() == 2);
  CHECK(chunks[0].header == "Top > SECRET");
  CHECK(chunks[1].header == "Top");
}

TEST_CASE("chunker: random documents keep the budget and all of their text", "[docs]") {
  Rng rng(5);
  const char* parts[] = {"# A heading\n",
                         "## Sub `x`\n",
                         "words and words. More words! ",
                         "\n\n",
                         "- item\n",
                         "```\ncode line\n```\n",
                         "| a | b |\n|---|---|\n| 1 | 2 |\n",
                         "長い文章です。",
                         "\n",
                         "x",
                         "endlesswordwithoutanyspaceinitatall",
                         "Title\n===\n",
                         "   ",
                         "### \n",
                         "👍🏽"};
  for (int round = 0; round < 400; ++round) {
    std::string text;
    const uint64_t n = rng.below(120);
    for (uint64_t i = 0; i < n; ++i) text += parts[rng.below(std::size(parts))];
    const auto budget = static_cast<uint32_t>(32 + rng.below(200));
    CAPTURE(round, text, budget);
    const Document document = rng.below(2) ? read_markdown(text) : read_rst(text);
    const auto chunks = chunks_of(document, budget);
    std::string all;
    for (const NewChunk& c : chunks) all += c.body;
    all = squeezed(all);
    for (const Block& b : document.blocks) {
      if (b.kind == BlockKind::kHeading || b.kind == BlockKind::kTableRow) continue;
      // A block that was cut may have a header row between its parts only if it is a row.
      if (TokenCounter(&kTokenizer).count(b.text) < budget / 2) CHECK(all.find(squeezed(b.text)) != std::string::npos);
    }
  }
}

TEST_CASE("chunker: the estimate is above what a vocabulary of today gives", "[docs]") {
  const auto sums = test::shared_path("data/tokenizers/docs-token-sums.jsonl");
  const auto docs = test::shared_path("data/docs");
  if (!sums || !docs) return;
  std::ifstream in(*sums);
  size_t n = 0, low_qwen = 0, low_spm = 0;
  for (std::string line; std::getline(in, line); ++n) {
    const auto row = nlohmann::json::parse(line);
    const uint32_t estimate = TokenCounter(nullptr).count(test::read_all(*docs + "/" + row["file"].get<std::string>()));
    low_qwen += estimate < row["qwen2"]["n"].get<uint32_t>();
    low_spm += estimate < row["llama-spm"]["n"].get<uint32_t>();
  }
  CHECK(n == 273);
  CHECK(low_qwen == 0);
  CHECK(low_spm <= 2);  // a vocabulary of 32,000 spells much of Korean in bytes
}

TEST_CASE("split: ranges are in order, whole and within the room", "[docs]") {
  const CountTokens bytes = [](std::string_view s) { return s.size(); };
  const auto pieces = [&](const std::string& s, SplitAt where, size_t room) {
    std::string out;
    for (const TextRange& r : split_text(s, where, room, bytes)) out += "[" + s.substr(r.begin, r.end - r.begin) + "]";
    return out;
  };
  CHECK(pieces("", SplitAt::kSentences, 10).empty());
  CHECK(pieces("   \n ", SplitAt::kSentences, 10).empty());
  CHECK(pieces("One. Two. Three.", SplitAt::kSentences, 10) == "[One. Two.][Three.]");
  CHECK(pieces("e.g. this (v. 2) stays. Next", SplitAt::kSentences, 24) == "[e.g. this (v. 2) stays.][Next]");
  CHECK(pieces("好。好。好。", SplitAt::kSentences, 12) == "[好。好。][好。]");
  CHECK(pieces("a b c d e", SplitAt::kSentences, 3) == "[a b][c][d][e]");
  CHECK(pieces("abcdefgh", SplitAt::kSentences, 3) == "[abc][def][gh]");
  CHECK(pieces("a\nb\nc", SplitAt::kLines, 3) == "[a\nb][c]");
  CHECK(pieces("好好", SplitAt::kSentences, 1) == "[好][好]");
  CHECK(middle_cut("a") == 0);
  CHECK(middle_cut("ab") == 1);
  CHECK(middle_cut("好") == 0);
  CHECK(middle_cut("好好") == 3);
}
