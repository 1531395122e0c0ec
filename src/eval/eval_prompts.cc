#include "eval/eval_prompts.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/hash.h"
#include "blend/stand_in.h"
#include "session/answer.h"

namespace cento {
namespace {

// A passage more than a context needs, so that leaving out the chunk itself leaves enough.
constexpr size_t kPassageTokens = 2 * kStandInTokens + 324;

}  // namespace

std::vector<std::string> draw_stand_ins(const std::string& path, uint64_t seed, size_t count) {
  DatasetReader reader(path);
  std::map<Hash, std::string> drawn;  // by a hash of seed and text: the lowest are a random sample without repeats
  for (;;) {
    auto next = reader.next();
    if (!next.ok()) continue;
    if (!next.value()) break;
    for (const EvalChunk& chunk : next.value()->chunks) {
      const std::string text = chunk_text(chunk);
      drawn.emplace(hash_of_text("stand-in draw " + std::to_string(seed), text), text);
      if (drawn.size() > count) drawn.erase(std::prev(drawn.end()));
    }
  }
  std::vector<std::string> out;
  for (auto& [hash, text] : drawn) out.push_back(std::move(text));
  return out;
}

EvalPrompts::EvalPrompts(const LoadedModel& model, const std::vector<std::string>& stand_ins, const std::string& system)
    : model_(&model), system_(system.empty() ? default_system_text() : system), layout_(model, system_) {
  size_t tokens = 0;
  for (const std::string& text : stand_ins) {
    if (tokens >= kPassageTokens) break;
    texts_.push_back(text);
    passages_.push_back(layout_.chunk(text));
    tokens += std::min(passages_.back().size(), kStandInPassageMax);
  }
}

TrialPrompt EvalPrompts::prompt(const EvalItem& item) const {
  if (item.chunks.empty()) throw Error{Code::kInput, "the item has no passages", item.set + ": " + item.id};
  const PromptLayout own(*model_, item.system && !item.system->empty() ? *item.system : system_);
  TrialPrompt prompt;
  prompt.prefix = own.prefix();
  prompt.question = own.question(item.question);
  if (item.given_answer) prompt.answer = model_->tokenizer().encode(*item.given_answer, false);
  std::vector<std::vector<int32_t>> brought;
  for (const std::string& text : item.stand_in) brought.push_back(own.chunk(text));
  for (const EvalChunk& chunk : item.chunks) {
    const std::string text = chunk_text(chunk);
    prompt.chunks.push_back(own.chunk(text));
    std::vector<std::vector<int32_t>> passages = brought;
    for (size_t i = 0; item.stand_in.empty() && i < texts_.size(); ++i)
      if (texts_[i] != text) passages.push_back(passages_[i]);
    prompt.contexts.push_back(stand_in_context(passages));
  }
  return prompt;
}

}  // namespace cento
