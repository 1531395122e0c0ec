// Evaluation data: as JSON Lines and as a prompt file. Every line is an item or an Error that names it, reading ends,
// and what is read keeps the promises of eval/dataset.h.
#include "eval/dataset.h"

#include <cstdlib>
#include <cstring>
#include <set>

#include "base/text.h"
#include "fuzz/fuzz_main.h"
#include "support/memory_file.h"

namespace {

using namespace cento;

void require(bool good) {
  if (!good) std::abort();
}

bool is_text(const std::string& s) { return is_valid_utf8(s) && !trim(s).empty(); }

void check_item(EvalItem item) {
  require(is_text(item.id) && is_text(item.question));
  require(item.chunks.empty() == (item.kind == EvalKind::kDocqa));
  require(item.turns.empty() == (item.kind != EvalKind::kDocqa));
  for (const EvalChunk& chunk : item.chunks) require(is_valid_utf8(chunk.title) && is_text(chunk.text));
  for (const std::string& reference : item.references) require(is_text(reference));
  for (const EvalTurn& turn : item.turns) {
    require(is_text(turn.question));
    for (const auto& group : turn.answer_groups) require(!group.empty());
  }
  std::multiset<std::string> before, after;
  for (const EvalChunk& chunk : item.chunks) before.insert(chunk_text(chunk));
  shuffle_chunks(item, 1);
  for (const EvalChunk& chunk : item.chunks) after.insert(chunk_text(chunk));
  require(before == after);
}

void read_as(const std::string& path, const std::vector<std::byte>& bytes, size_t n_lines) {
  DatasetReader reader(std::make_unique<test::MemoryFile>(bytes), path);
  std::set<std::string> ids;
  const bool one_prompt = path.ends_with(".json");
  for (size_t line = 0;;) {
    auto item = reader.next();
    if (item.ok() && !*item) return;
    require(reader.line() > line && reader.line() <= n_lines);
    line = reader.line();
    if (!item) {
      require(item.error().code() == (one_prompt ? Code::kUsage : Code::kInput) && !item.error().message().empty());
      require(item.error().where() == path + (one_prompt ? "" : ":" + std::to_string(line)));
      continue;
    }
    require(ids.insert((*item)->id).second);
    check_item(std::move(**item));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes) {
  std::vector<std::byte> bytes(n_bytes);
  if (n_bytes > 0) std::memcpy(bytes.data(), data, n_bytes);
  size_t n_lines = 1;
  for (size_t i = 0; i < n_bytes; ++i) n_lines += data[i] == '\n';
  read_as("d/fuzz.jsonl", bytes, n_lines);
  read_as("fuzz.json", bytes, 1);
  return 0;
}

std::vector<std::string> cento::test::builtin_seeds() {
  return {
      R"({"id":"a","question":"q?","answers":["x","y"],"passages":[{"title":"T","text":"t","gold":true},{"text":"u"}],"meta":{"k":[1,2]}})"
      "\r\n\n"
      R"({"id":"b","query":"Summarize.","passages":[{"title":"","text":"t","gold":null}],"summaries":["s"]})"
      "\n"
      R"({"id":"c","kind":"followup","turns":[{"question":"q","answers":[["x","y"],["z"]],"evidence":[{"file":"f","quote":"w"}]},{"question":"r","answers":[]}]})"
      "\n",
      R"({"system":"s","chunks":["one","\u00e9\ud83d\ude00"],"question":"q","answer":"a","stand_in":["p"]})",
      "\xef\xbb\xbf{\"id\":\"a\",\"chunks\":[\"c\"],\"question\":\"q\"}\n{\"chunks\":[\"c\"],\"question\":\"q\"}\n[[[["
      "1e99]]]]"};
}
