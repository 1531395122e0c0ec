// From items of a data set to prompts for trials: token ids, and what each chunk is precomputed behind.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/loaded_model.h"
#include "eval/dataset.h"
#include "eval/trial.h"
#include "session/prompt_layout.h"

namespace cento {

// Passages that stand in front of every chunk of a set while it is precomputed: drawn once, at random with a seed, from
// the whole file, as `precompute` draws them from a collection. Reads the file once; keeps `count` texts at most.
// Lines that are no items are passed over.
std::vector<std::string> draw_stand_ins(const std::string& path, uint64_t seed, size_t count = 64);

class EvalPrompts {
 public:
  // `stand_ins`: texts in the order of the draw. `system` replaces the default text for items that bring none.
  EvalPrompts(const LoadedModel& model, const std::vector<std::string>& stand_ins, const std::string& system);

  // Throws Error(kInput) for an item without chunks.
  TrialPrompt prompt(const EvalItem& item) const;

 private:
  const LoadedModel* model_;
  std::string system_;
  PromptLayout layout_;                         // of system_
  std::vector<std::string> texts_;              // of the passages that are used
  std::vector<std::vector<int32_t>> passages_;  // their ids
};

}  // namespace cento
