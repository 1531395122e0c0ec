// Questions about somebody's own documents, made of these: cloze questions over the chunks of a collection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "docs/doc_store.h"
#include "eval/dataset.h"

namespace cento {

inline constexpr const char* kOwnDocumentsSet = "my documents";

struct OwnQuestionsOptions {
  size_t n = 30;      // at most
  uint64_t seed = 1;  // the same seed and collection: the same questions
  std::function<bool()> stop;
};

// As items of the kind docqa with one turn: the answer is the missing word, the evidence the sentence. Spread over the
// sources: each gives a second question after all have given one, if they have any to give. No chunk gives two, and no
// sentence is asked for twice. Fewer than `n` where the collection has no more to give, or when stopped.
std::vector<EvalItem> own_questions(DocStore& docs, int64_t collection_id, const OwnQuestionsOptions& options);

}  // namespace cento
