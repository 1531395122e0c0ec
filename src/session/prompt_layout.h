// How a prompt over documents is put together: [fixed prefix: BOS, template head, system text] [chunk] ... [question,
// tail]. Chunks are tokenised on their own and joined as ids, so that full prefill sees the same ids as blended
// prefill.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/loaded_model.h"

namespace cento {

class PromptLayout {
 public:
  PromptLayout(const LoadedModel& model, const std::string& system);

  const std::vector<int32_t>& prefix() const { return prefix_; }
  uint32_t context_max() const { return model_->config().context_max; }
  // `text` ends up with one empty line behind it, whatever it ends with.
  std::vector<int32_t> chunk(const std::string& text) const;
  std::vector<int32_t> question(const std::string& text) const;

 private:
  const LoadedModel* model_;
  std::vector<int32_t> prefix_;
  std::vector<TemplatePart> tail_;
};

}  // namespace cento
