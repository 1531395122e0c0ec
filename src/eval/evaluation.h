// Runs settings over data sets and sums up how close each comes to full prefill, and what it costs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "docs/doc_store.h"
#include "engine/loaded_model.h"
#include "eval/eval_summary.h"
#include "eval/trial.h"
#include "session/chunk_order.h"

namespace cento {

struct EvalOptions {
  std::vector<std::string> data;                    // files
  std::vector<TrialSetting> settings;               // besides those that are always run: see standing_settings()
  size_t items = 0;                                 // of each file, from its beginning; 0: all
  bool shuffle = false;                             // the chunks of each item
  ChunkOrder collection_order = ChunkOrder::kRank;  // of what is retrieved from a collection
  uint64_t seed = 1;                                // of shuffles, stand-ins and intervals
  std::string system;                               // text for items without one; empty: the default
  std::string collection = "default";               // that docqa items are about, and own questions are made of
  size_t top_k = 5;                                 // passages that are retrieved for each of these
  size_t own_documents = 0;       // questions made of the collection itself (own_questions.h); 0: none
  size_t answer_tokens = 24;      // teacher-forced at most
  size_t own_answer_tokens = 32;  // of each setting's own answer, for scores; 0: none
  bool attention = false;         // measure the attention's shift by layer
  bool deviation = false;         // measure how stored KV's distance from full prefill's is spread
  std::string folder;             // of the journal and full prefill's logits; empty: nothing is kept
};

struct EvalReport {
  static constexpr size_t kSkippedMax = 1000;  // a file of garbage must not fill the memory; one more entry counts on

  std::vector<SetSummary> sets;
  bool own_documents = false;                                // the first of them is of questions made of the collection
  std::optional<SetSummary> pooled;                          // where there is more than one set
  std::vector<std::pair<std::string, std::string>> skipped;  // "file:line" or item, reason; the first kSkippedMax
  size_t measured = 0, known = 0;                            // trials run now, and taken from the journal
  bool stopped = false;                                      // what was measured is in the report
};

struct EvalHooks {
  // The store that holds the collection, opened when it is first needed; it outlives the evaluation. Empty, or
  // nullptr: there is none.
  std::function<DocStore*()> documents;
  std::function<void(size_t done, size_t total, const std::string& what)> progress;  // trials
  std::function<bool()> stop;
  // Logits [rows, V] of a trial; full prefill's too.
  std::function<void(const std::string& set, const std::string& item, const std::string& setting,
                     std::span<const float> logits, size_t rows)>
      logits;
};

// Throws Error(kInput) for a file that cannot be read or has no item, and for a collection that is not there or has too
// little text where own questions are wanted; what is wrong with single items is in `skipped`.
EvalReport evaluate(LoadedModel& model, const EvalOptions& options, const EvalHooks& hooks);

}  // namespace cento
