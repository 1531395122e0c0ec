// Prompts of questions about an indexed collection, put together as `cento query` does, with what `cento precompute`
// computes their chunks behind.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "docs/doc_store.h"
#include "engine/loaded_model.h"
#include "eval/dataset.h"
#include "eval/trial.h"
#include "session/chunk_order.h"
#include "session/collection_contexts.h"
#include "session/prompt_layout.h"

namespace cento {

struct CollectionPassage {
  ChunkRow row;
  std::vector<ChunkPlace> places;  // at least one
};

struct CollectionPrompt {
  TrialPrompt prompt;
  std::vector<CollectionPassage> passages;  // [chunks] in the order of the prompt
};

class CollectionPrompts {
 public:
  // `model` and `docs` outlive it; nothing is written. `system` replaces the default text unless it is empty. Throws
  // Error(kInput) if there is no such collection.
  CollectionPrompts(const LoadedModel& model, DocStore& docs, const std::string& collection, size_t top_k,
                    const std::string& system, ChunkOrder order = ChunkOrder::kRank);
  CollectionPrompts(const CollectionPrompts&) = delete;
  CollectionPrompts& operator=(const CollectionPrompts&) = delete;

  // `search`: what passages are retrieved for, as a rule the question itself. Error(kInput), which says why, when
  // nothing is found.
  Result<CollectionPrompt> prompt(const std::string& question, const std::string& search);

  DocStore& docs() { return docs_; }
  int64_t collection_id() const { return collection_id_; }

 private:
  DocStore& docs_;
  int64_t collection_id_;
  size_t top_k_;
  ChunkOrder order_;
  PromptLayout layout_;
  CollectionContexts contexts_;
};

// Whether every quote is in one of the passages that come from its file ("": any file). Words are compared, in their
// order: what readers take out of a file, such as white space, marks and tags, does not count.
bool holds_evidence(std::span<const CollectionPassage> passages, std::span<const EvalEvidence> evidence);

}  // namespace cento
