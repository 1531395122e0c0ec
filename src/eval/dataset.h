// Items that `cento eval` runs on, read one by one from JSON Lines or from a prompt file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/file.h"
#include "base/result.h"

namespace cento {

enum class EvalKind {
  kQa,      // a question over passages, with reference answers
  kSumm,    // passages to summarise, with reference summaries
  kDocqa,   // questions over a folder of documents, which is indexed apart: no chunks
  kPrompt,  // explicit segments, as `query --prompt` takes them
};
const char* eval_kind_name(EvalKind kind);  // "qa", "summ", "docqa", "prompt"

struct EvalChunk {
  std::string title, text;   // the title may be empty, the text is not blank
  std::optional<bool> gold;  // whether it holds the answer, where the source says so
};
// What the model is given: title, line end, text; without a title the text alone.
std::string chunk_text(const EvalChunk& chunk);

struct EvalEvidence {
  std::string file;   // relative to the folder of documents
  std::string quote;  // in the file once white space is folded
};

struct EvalTurn {
  std::string question;
  std::vector<std::vector<std::string>> answer_groups;  // one alternative of each (text_score.h); none: not to be found
  std::vector<EvalEvidence> evidence;
};

struct EvalItem {
  std::string id;   // as given; of a prompt without one: the set, a colon and the line
  std::string set;  // the file's name without folder and extension
  EvalKind kind = EvalKind::kQa;
  std::optional<std::string> system;        // prompt; else the default text applies
  std::string question;                     // qa, prompt; of summ the instruction; of docqa the first turn's
  std::vector<EvalChunk> chunks;            // at least one, but for docqa
  std::vector<std::string> references;      // qa answers or summaries; may be empty
  std::optional<std::string> given_answer;  // prompt: to be teacher-forced instead of the model's own
  std::vector<std::string> stand_in;        // prompt: passages of the same set, which chunks are computed behind
  std::string docqa_kind;                   // docqa: "single", "table", ...; may be empty
  std::vector<EvalTurn> turns;              // docqa: at least one
  std::string search;                       // docqa: what passages are retrieved for; empty: the question
};

// The instruction of a summ item: its query if that asks for a summary already, else "Summarize what the text says
// about: QUERY", and for a blank query "Summarize the text.".
std::string summary_instruction(const std::string& query);

// Another order of n chunks: at each place the index of the one that goes there. It depends on seed and id alone: not
// on other items, not on the machine.
std::vector<size_t> shuffled_order(const EvalItem& item, size_t n, uint64_t seed);
void shuffle_chunks(EvalItem& item, uint64_t seed);  // into that order

// Reads a file forwards and holds one line of it at a time. One thread.
//
// JSON Lines: the kind is known by the fields of each line: "chunks" (a prompt), else "summaries", "turns", "passages".
// A file named *.json is one prompt. Fields that are not known are ignored; blank lines are skipped; line ends may be
// CRLF and the last may be missing; a byte order mark is ignored.
class DatasetReader {
 public:
  static constexpr size_t kLineBytesMax = size_t{64} << 20;  // of a line, and of a prompt file
  static constexpr size_t kValuesMax = size_t{1} << 20;      // JSON values of an item
  static constexpr int kDepthMax = 32;                       // of nested lists and objects

  // Throws Error if `path` is not a readable regular file.
  explicit DatasetReader(const std::string& path);
  // `path` names the file in messages and gives the set and the format.
  DatasetReader(std::unique_ptr<File> file, const std::string& path);

  // The next item, or nullopt behind the last. An Error (kInput; kUsage for a *.json prompt file) is about one line,
  // which where() names as "file:line"; the next call goes on behind it. After an error in reading the file there is
  // no next item. Every text of an item is valid UTF-8; no two items of a file have the same id.
  Result<std::optional<EvalItem>> next();

  const std::string& set() const { return set_; }
  size_t line() const { return line_; }  // from 1, of the last item or error; 0 before the first

 private:
  enum class Line { kNone, kWhole, kTooLong };
  Result<Line> next_line();
  Status refill();
  Result<EvalItem> parse(std::string_view line);

  std::unique_ptr<File> file_;
  std::string path_, set_;
  bool one_prompt_;      // the whole file is one "line"
  uint64_t size_ = 0;    // bytes of the file
  uint64_t offset_ = 0;  // of the next byte to read into buffer_
  std::string buffer_;   // read and not yet used from used_ on
  size_t used_ = 0;
  std::string text_;  // the current line, without its end
  size_t line_ = 0;
  std::unordered_set<std::string> ids_;
};

}  // namespace cento
