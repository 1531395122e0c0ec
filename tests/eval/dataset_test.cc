#include "eval/dataset.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "support/memory_file.h"
#include "support/shared_data.h"

namespace cento {
namespace {

using Catch::Contains;
using Texts = std::vector<std::string>;

std::unique_ptr<File> file_of(const std::string& bytes) {
  std::vector<std::byte> copy(bytes.size());
  if (!bytes.empty()) std::memcpy(copy.data(), bytes.data(), bytes.size());
  return std::make_unique<test::MemoryFile>(std::move(copy));
}

DatasetReader reader_of(const std::string& bytes, const std::string& path = "data/set.jsonl") {
  return {file_of(bytes), path};
}

EvalItem only_item(const std::string& bytes, const std::string& path = "data/set.jsonl") {
  auto reader = reader_of(bytes, path);
  auto first = reader.next();
  if (!first) FAIL(first.error().what());
  REQUIRE(first->has_value());
  const auto second = reader.next();
  REQUIRE(second.ok());
  REQUIRE_FALSE(second->has_value());
  return std::move(**first);
}

std::string qa_line(const std::string& id) {
  return R"({"id":")" + id + R"(","question":"q?","answers":["x"],"passages":[{"text":"t"}]})";
}

TEST_CASE("dataset: a question over passages", "[eval]") {
  const EvalItem item =
      only_item(R"({"id":"h-1","source":"hotpotqa","question":"Who?","answers":["A","B"],)"
                R"("passages":[{"title":"T","text":"one","gold":true},{"title":"","text":"two","gold":false},)"
                R"({"title":null,"text":"three","gold":null},{"text":"four"}],"meta":{"any":[{"thing":1}]}})");
  CHECK((item.id == "h-1" && item.set == "set" && item.kind == EvalKind::kQa && item.question == "Who?"));
  CHECK(item.references == Texts{"A", "B"});
  REQUIRE(item.chunks.size() == 4);
  CHECK((item.chunks[0].gold == true && item.chunks[1].gold == false && !item.chunks[2].gold && !item.chunks[3].gold));
  CHECK(chunk_text(item.chunks[0]) == "T\none");
  CHECK(chunk_text(item.chunks[1]) == "two");
  CHECK(chunk_text(item.chunks[3]) == "four");
  CHECK((!item.system && !item.given_answer && item.stand_in.empty() && item.turns.empty()));
  CHECK(std::string(eval_kind_name(item.kind)) == "qa");
}

TEST_CASE("dataset: a text to summarise, and the instruction made of its query", "[eval]") {
  const EvalItem item = only_item(
      R"({"id":"m","query":"Summarize the whole meeting.","passages":[{"title":"P","text":"t"}],"summaries":["s"]})");
  CHECK((item.kind == EvalKind::kSumm && item.question == "Summarize the whole meeting."));
  CHECK(item.references == Texts{"s"});
  CHECK(only_item(R"({"id":"m","passages":[{"text":"t"}],"summaries":[]})").question == "Summarize the text.");
  CHECK(summary_instruction(" \n") == "Summarize the text.");
  CHECK(summary_instruction("Give a SUMMARY of it") == "Give a SUMMARY of it");
  CHECK(summary_instruction("the battery ") == "Summarize what the text says about: the battery");
}

TEST_CASE("dataset: questions over documents with groups of alternatives", "[eval]") {
  const EvalItem item = only_item(
      R"({"id":"d","source":"docs","kind":"followup","turns":[)"
      R"({"question":"first?","answers":[["4222","port 4222"],["TCP"]],"evidence":[{"file":"nats/a.md","quote":"is 4222"}]},)"
      R"({"question":"second?","answers":[]}]})");
  CHECK((item.kind == EvalKind::kDocqa && item.docqa_kind == "followup" && item.question == "first?"));
  CHECK(item.chunks.empty());
  REQUIRE(item.turns.size() == 2);
  CHECK(item.turns[0].answer_groups == std::vector<Texts>{{"4222", "port 4222"}, {"TCP"}});
  REQUIRE(item.turns[0].evidence.size() == 1);
  CHECK((item.turns[0].evidence[0].file == "nats/a.md" && item.turns[0].evidence[0].quote == "is 4222"));
  CHECK((item.turns[1].answer_groups.empty() && item.turns[1].evidence.empty()));
}

TEST_CASE("dataset: a prompt file may be laid out over many lines", "[eval]") {
  const std::string json =
      "{\n  \"system\": \"Be brief.\",\n  \"chunks\": [\"one\",\n \"two\"],\n"
      "  \"question\": \"q?\",\n  \"answer\": \"a\",\n  \"stand_in\": [\"p\"],\n  \"note\": 1\n}\n";
  const EvalItem item = only_item(json, "prompts/first.v2.json");
  CHECK((item.kind == EvalKind::kPrompt && item.id == "first.v2" && item.set == "first.v2"));
  CHECK((item.system == "Be brief." && item.question == "q?" && item.given_answer == "a"));
  CHECK(item.stand_in == Texts{"p"});
  REQUIRE(item.chunks.size() == 2);
  CHECK((item.chunks[0].text == "one" && item.chunks[1].text == "two" && item.chunks[0].title.empty()));
}

TEST_CASE("dataset: prompts a line, with and without ids", "[eval]") {
  auto reader = reader_of(R"({"chunks":["c"],"question":"q"})"
                          "\n\n"
                          R"({"id":"mine","chunks":["c"],"question":"q","system":""})");
  const auto a = reader.next().or_throw(), b = reader.next().or_throw();
  REQUIRE((a && b));
  CHECK((a->id == "set:1" && b->id == "mine"));
  CHECK((!a->system && !b->system && !a->given_answer));
  CHECK_FALSE(reader.next().or_throw());
}

TEST_CASE("dataset: line ends, blank lines, byte order mark and a missing last line end do no harm", "[eval]") {
  for (const std::string end : {"\n", "\r\n"}) {
    for (const std::string mark : {"", "\xef\xbb\xbf"}) {
      for (const bool last : {false, true}) {
        CAPTURE(end, mark, last);
        auto reader = reader_of(mark + qa_line("a") + end + end + " \t" + end + qa_line("b") + (last ? end : ""));
        const auto a = reader.next().or_throw();
        REQUIRE(a);
        CHECK((a->id == "a" && reader.line() == 1));
        const auto b = reader.next().or_throw();
        REQUIRE(b);
        CHECK((b->id == "b" && reader.line() == 4));
        CHECK_FALSE(reader.next().or_throw());
        CHECK_FALSE(reader.next().or_throw());
      }
    }
  }
  CHECK_FALSE(reader_of("").next().or_throw());
  CHECK_FALSE(reader_of("\n\r\n").next().or_throw());
  CHECK_FALSE(reader_of("\xef\xbb\xbf\r\n").next().or_throw());
}

TEST_CASE("dataset: lines that do not fit the buffer are read whole", "[eval]") {
  // Lines of lengths around the buffer's 256 KiB, so that ends fall on both sides of its seam.
  std::string bytes;
  std::vector<size_t> lengths;
  for (const size_t length : {size_t{10}, size_t{262000}, size_t{262144}, size_t{1000003}, size_t{5}}) {
    bytes += R"({"id":")" + std::to_string(length) + R"(","question":"q","answers":[],"passages":[{"text":")" +
             std::string(length, 'x') + "\"}]}\r\n";
    lengths.push_back(length);
  }
  auto reader = reader_of(bytes);
  for (const size_t length : lengths) {
    const auto item = reader.next().or_throw();
    REQUIRE(item);
    CHECK((item->id == std::to_string(length) && item->chunks[0].text.size() == length));
  }
  CHECK_FALSE(reader.next().or_throw());
}

TEST_CASE("dataset: a malformed line is named, and the lines behind it are read", "[eval]") {
  const std::string deep(40, '['), good = qa_line("good");
  struct Row {
    std::string line, message;
  };
  const std::vector<Row> rows = {
      {"{", "not JSON: wrong at byte 2, where it ends"},
      {R"({"id":1,,})", "not JSON: wrong at byte 9"},
      {"nonsense", "not JSON"},
      {R"({"id":"a"} {"id":"b"})", "not JSON"},
      {R"({"id":"\ud800"})", "not JSON"},
      {R"({"id":1e999})", "out of range"},
      {"[1]", "not a JSON object"},
      {"null", "not a JSON object"},
      {"\"text\"", "not a JSON object"},
      {"{\"id\":\"\xff\"}", "not valid UTF-8"},
      {R"({"meta":)" + deep, "nested too deep"},
      {"{}", "\"id\" is missing"},
      {R"({"id":null})", "\"id\" is missing"},
      {R"({"id":7,"passages":[]})", "\"id\" is not a text"},
      {R"({"id":" ","passages":[]})", "\"id\" is empty"},
      {R"({"id":")" + std::string(1025, 'i') + R"("})", "\"id\" is longer than 1024 bytes"},
      {R"({"id":"a"})", "of no known kind"},
      {R"({"id":"a","passages":[]})", "\"question\" is missing"},
      {R"({"id":"a","question":7,"passages":[]})", "\"question\" is not a text"},
      {R"({"id":"a","question":" ","passages":[]})", "\"question\" is empty"},
      {R"({"id":"a","question":"q","passages":[]})", "\"answers\" is missing"},
      {R"({"id":"a","question":"q","answers":"x","passages":[]})", "\"answers\" is not a list"},
      {R"({"id":"a","question":"q","answers":["x",["y"]],"passages":[]})", "\"answers[1]\" is not a text"},
      {R"({"id":"a","question":"q","answers":[""],"passages":[]})", "\"answers[0]\" is empty"},
      {R"({"id":"a","question":"q","answers":["x"],"passages":[]})", "\"passages\" is empty"},
      {R"({"id":"a","question":"q","answers":["x"],"passages":{}})", "\"passages\" is not a list"},
      {R"({"id":"a","question":"q","answers":["x"],"passages":["t"]})", "\"passages[0]\" is not an object"},
      {R"({"id":"a","question":"q","answers":["x"],"passages":[{"text":"t"},{}]})", "\"passages[1].text\" is missing"},
      {R"({"id":"a","question":"q","answers":["x"],"passages":[{"text":"\n"}]})", "\"passages[0].text\" is empty"},
      {R"({"id":"a","question":"q","answers":["x"],"passages":[{"text":"t","title":1}]})",
       "\"passages[0].title\" is not a text"},
      {R"({"id":"a","question":"q","answers":["x"],"passages":[{"text":"t","gold":"yes"}]})",
       "\"passages[0].gold\" is not true, false or null"},
      {R"({"id":"a","query":1,"summaries":[],"passages":[{"text":"t"}]})", "\"query\" is not a text"},
      {R"({"id":"a","summaries":null,"passages":[{"text":"t"}]})", "\"summaries\" is missing"},
      {R"({"id":"a","summaries":["s"]})", "\"passages\" is missing"},
      {R"({"id":"a","turns":[]})", "\"turns\" is empty"},
      {R"({"id":"a","turns":[{"role":"user","text":"t"}]})", "a chat of roles and texts"},
      {R"({"id":"a","turns":[{"question":"q"}]})", "\"turns[0].answers\" is missing"},
      {R"({"id":"a","turns":[{"question":"q","answers":["x"]}]})", "\"turns[0].answers[0]\" is not a list"},
      {R"({"id":"a","turns":[{"question":"q","answers":[[]]}]})", "\"turns[0].answers[0]\" is empty"},
      {R"({"id":"a","turns":[{"question":"q","answers":[[1]]}]})", "\"turns[0].answers[0][0]\" is not a text"},
      {R"({"id":"a","turns":[{"question":"q","answers":[],"evidence":[{"file":"f"}]}]})",
       "\"turns[0].evidence[0].quote\" is missing"},
      {R"({"chunks":null,"question":"q"})", "\"chunks\" is missing"},
      {R"({"chunks":[],"question":"q"})", "\"chunks\" is empty"},
      {R"({"chunks":["c"," "],"question":"q"})", "\"chunks[1]\" is empty"},
      {R"({"chunks":["c",1],"question":"q"})", "\"chunks\" holds something that is not a text"},
      {R"({"chunks":["c"]})", "\"question\" is missing"},
      {R"({"chunks":["c"],"question":"q","answer":[]})", "\"answer\" is not a text"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.line);
    auto reader = reader_of("\n" + row.line + "\n" + good + "\n");
    const auto item = reader.next();
    REQUIRE_FALSE(item.ok());
    CHECK(item.error().code() == Code::kInput);
    CHECK_THAT(item.error().message(), Contains(row.message));
    CHECK(item.error().where() == "data/set.jsonl:2");
    const auto behind = reader.next();
    REQUIRE(behind.ok());
    REQUIRE(behind->has_value());
    CHECK(((*behind)->id == "good" && reader.line() == 3));
  }
}

TEST_CASE("dataset: an id may not come twice", "[eval]") {
  auto reader = reader_of(qa_line("a") + "\n" + qa_line("b") + "\n" + qa_line("a") + "\n" + qa_line("c"));
  CHECK(reader.next().or_throw()->id == "a");
  CHECK(reader.next().or_throw()->id == "b");
  const auto twice = reader.next();
  REQUIRE_FALSE(twice.ok());
  CHECK(twice.error().message() == "the id \"a\" is in the file twice");
  CHECK(twice.error().where() == "data/set.jsonl:3");
  CHECK(reader.next().or_throw()->id == "c");
}

TEST_CASE("dataset: a prompt file that is wrong is a usage error that names the file", "[eval]") {
  struct Row {
    std::string bytes, message;
  };
  for (const Row& row : std::vector<Row>{{"", "the prompt file is empty"},
                                         {" \n", "where it ends"},
                                         {R"({"question":"q"})", "\"chunks\" is missing"},
                                         {R"({"chunks":["c"]})", "\"question\" is missing"},
                                         {qa_line("a"), "\"chunks\" is missing"},
                                         {qa_line("a") + "\n" + qa_line("b"), "not JSON"}}) {
    CAPTURE(row.bytes);
    auto reader = reader_of(row.bytes, "p.json");
    const auto item = reader.next();
    REQUIRE_FALSE(item.ok());
    CHECK(item.error().code() == Code::kUsage);
    CHECK_THAT(item.error().message(), Contains(row.message));
    CHECK(item.error().where() == "p.json");
    CHECK_FALSE(reader.next().or_throw());
  }
}

// A file of `size` bytes that are made up as they are read: `tail` at the end, 'x' before.
class LongFile final : public File {
 public:
  LongFile(uint64_t size, std::string tail) : size_(size), tail_(std::move(tail)) {}
  Status write(std::span<const std::byte>) override { return Error{Code::kInput, "not writable"}; }
  Status read_at(uint64_t offset, std::span<std::byte> out) const override {
    for (size_t i = 0; i < out.size(); ++i) {
      const uint64_t left = size_ - (offset + i);
      out[i] = static_cast<std::byte>(left > tail_.size() ? 'x' : tail_[tail_.size() - left]);
    }
    return Status::done();
  }
  Result<uint64_t> size() const override { return size_; }
  Status sync() override { return Status::done(); }

 private:
  uint64_t size_;
  std::string tail_;
};

TEST_CASE("dataset: a line over the limit is refused without being kept, and the next one is read", "[eval]") {
  DatasetReader reader(std::make_unique<LongFile>(DatasetReader::kLineBytesMax + (1u << 20), "\n" + qa_line("a")), "f");
  const auto item = reader.next();
  REQUIRE_FALSE(item.ok());
  CHECK_THAT(item.error().message(), Contains("the line is longer than 64"));
  CHECK(item.error().where() == "f:1");
  CHECK(reader.next().or_throw()->id == "a");
  CHECK_FALSE(reader.next().or_throw());
}

TEST_CASE("dataset: an item of too many values is refused", "[eval]") {
  std::string line = R"({"id":"a","answers":[)";
  for (size_t i = 0; i < DatasetReader::kValuesMax; ++i) line += "0,";
  const auto item = reader_of(line + "0]}").next();
  REQUIRE_FALSE(item.ok());
  CHECK(item.error().message() == "too many values in one item");
}

class BrokenFile final : public File {
 public:
  Status write(std::span<const std::byte>) override { return Error{Code::kInput, "not writable"}; }
  Status read_at(uint64_t, std::span<std::byte>) const override {
    return Error{Code::kResource, "read failed", "disk"};
  }
  Result<uint64_t> size() const override { return uint64_t{10} << 20; }
  Status sync() override { return Status::done(); }
};

TEST_CASE("dataset: after a failed read there is no next item", "[eval]") {
  DatasetReader reader(std::make_unique<BrokenFile>(), "f.jsonl");
  const auto item = reader.next();
  REQUIRE_FALSE(item.ok());
  CHECK(item.error().message() == "read failed");
  CHECK_FALSE(reader.next().or_throw());
  CHECK_THROWS_AS(DatasetReader("/no/such/file.jsonl"), Error);
  CHECK_THROWS_AS(DatasetReader("/dev/null"), Error);
}

std::string order_of(const EvalItem& item) {
  std::string out;
  for (const EvalChunk& chunk : item.chunks) out += chunk.text;
  return out;
}

EvalItem letters(const std::string& id, size_t n) {
  EvalItem item;
  item.id = id;
  for (size_t i = 0; i < n; ++i) item.chunks.push_back({"", std::string(1, static_cast<char>('a' + i)), i == 0});
  return item;
}

TEST_CASE("dataset: the order of chunks depends on seed and id alone", "[eval]") {
  const auto shuffled = [](const std::string& id, size_t n, uint64_t seed) {
    EvalItem item = letters(id, n);
    shuffle_chunks(item, seed);
    for (const EvalChunk& chunk : item.chunks) CHECK(chunk.gold == (chunk.text == "a"));  // the mark goes along
    return order_of(item);
  };
  CHECK(shuffled("x", 0, 1).empty());
  CHECK(shuffled("x", 1, 1) == "a");
  CHECK(shuffled("x", 10, 1) == shuffled("x", 10, 1));
  CHECK(shuffled("x", 10, 1) != shuffled("x", 10, 2));
  CHECK(shuffled("x", 10, 1) != shuffled("y", 10, 1));
  // Fixed once and for all: figures of different machines and versions are about the same prompts. Computed elsewhere:
  // the seed is the first 8 bytes, little-endian, of blake2b-256 of tag, seed and id (hash.h says how they are joined),
  // the order Fisher and Yates' from the end.
  CHECK(shuffled("hotpotqa-1", 10, 1) == "ecbfghdija");
  // Each of the six orders of three: of 6,000 a sixth is 1,000 with a deviation of 29; 200 is almost seven of them.
  std::map<std::string, int> count;
  for (int i = 0; i < 6000; ++i) ++count[shuffled("item-" + std::to_string(i), 3, 1)];
  CHECK(count.size() == 6);
  for (const auto& [order, n] : count) {
    CAPTURE(order);
    CHECK(std::abs(n - 1000) < 200);
  }
}

TEST_CASE("dataset: the shared data is read whole", "[eval]") {
  struct Row {
    std::string file;
    EvalKind kind;
    size_t n_items, n_chunks, n_gold;
  };
  // Counted by another JSON reader; n_gold: chunks marked true.
  const std::vector<Row> rows = {{"qa/2wikimultihopqa-short.jsonl", EvalKind::kQa, 14, 76, 0},
                                 {"qa/cacheblend-2wikimqa.jsonl", EvalKind::kQa, 28, 280, 0},
                                 {"qa/cacheblend-musique.jsonl", EvalKind::kQa, 28, 280, 0},
                                 {"qa/hotpotqa.jsonl", EvalKind::kQa, 40, 394, 80},
                                 {"qa/longbench-2wikimqa.jsonl", EvalKind::kQa, 9, 90, 0},
                                 {"qa/musique.jsonl", EvalKind::kQa, 28, 560, 64},
                                 {"summ/govreport.jsonl", EvalKind::kSumm, 4, 24, 0},
                                 {"summ/mts-dialog.jsonl", EvalKind::kSumm, 60, 60, 0},
                                 {"summ/qmsum.jsonl", EvalKind::kSumm, 10, 115, 0},
                                 {"docqa/docs.jsonl", EvalKind::kDocqa, 39, 0, 0}};
  for (const Row& row : rows) {
    const auto path = test::shared_path("data/" + row.file);
    if (!path) return;
    CAPTURE(row.file);
    DatasetReader reader(*path);
    size_t n_items = 0, n_chunks = 0, n_gold = 0;
    for (;;) {
      const auto item = reader.next().or_throw();
      if (!item) break;
      ++n_items;
      n_chunks += item->chunks.size();
      for (const EvalChunk& chunk : item->chunks) n_gold += chunk.gold == true;
      CHECK(item->kind == row.kind);
      CHECK((item->kind == EvalKind::kDocqa || !item->references.empty()));
    }
    CHECK((n_items == row.n_items && n_chunks == row.n_chunks && n_gold == row.n_gold));
  }
}

TEST_CASE("dataset: files of other kinds are refused line by line", "[eval]") {
  for (const char* file : {"data/chat/oasst.jsonl", "data/traces/mooncake-conversation.jsonl"}) {
    const auto path = test::shared_path(file);
    if (!path) return;
    DatasetReader reader(*path);
    size_t n_errors = 0;
    for (;; ++n_errors) {
      const auto item = reader.next();
      if (item.ok()) {
        CHECK_FALSE(item->has_value());
        break;
      }
    }
    CHECK(n_errors == reader.line());
    CHECK(n_errors > 50);
  }
}

}  // namespace
}  // namespace cento
