// What an evaluation has measured, one JSON line a trial, written as it goes: a sweep that was stopped goes on where it
// was, and one with more settings measures those only.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "eval/trial.h"

namespace cento {

struct TrialScores {
  bool scored = false;   // there are references
  bool summary = false;  // ROUGE-L counts, else F1
  double f1 = 0, exact = 0, rouge_l = 0;
  bool judged = false;  // docqa: the answer is right or it is not
  bool right = false;
  bool answered = false;  // an own answer was made, if perhaps an empty one
  double score() const { return summary ? rouge_l : f1; }
};

struct TrialRecord {
  Hash key;  // of everything that the figures depend on
  std::string set, item, setting;
  TrialOutcome outcome;  // without logits
  TrialScores scores;    // follow from the answer and the item: made anew by every run
  std::string answer;    // this setting's own
};

// With its line end. What is not finite becomes NaN, what is no UTF-8 U+FFFD.
std::string journal_line(const TrialRecord& record);
// Error(kInput) for a line that journal_line() does not write.
Result<TrialRecord> parse_journal_line(const std::string& line);

// Damaged lines are passed over and counted: what they held is measured again. Of two lines with one key the last
// counts.
class Journal {
 public:
  // Opens DIR/trials.jsonl, which is made where it is missing, and keeps others out of it as long as it lives. Throws
  // Error; kResource while another run has it.
  explicit Journal(const std::string& folder);
  ~Journal();
  const TrialRecord* find(const Hash& key) const;  // valid until the next add()
  void add(TrialRecord record);                    // written through to the system before it returns; throws Error
  size_t damaged() const { return damaged_; }

 private:
  void write(std::string_view text);

  std::map<Hash, TrialRecord> records_;
  FileHandle file_;  // locked
  std::string path_;
  size_t damaged_ = 0;
};

// Full prefill's logits and answers, kept between sweeps: DIR/full/KEY.
class ReferenceCache {
 public:
  explicit ReferenceCache(std::string folder) : folder_(std::move(folder)) {}
  // nullopt: not there, not whole, or not of a vocabulary of this size.
  std::optional<TrialReference> find(const Hash& key, size_t vocab) const;
  Status put(const Hash& key, const TrialReference& reference) const;

 private:
  std::string folder_;
};

}  // namespace cento
