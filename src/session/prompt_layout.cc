#include "session/prompt_layout.h"

#include "base/text.h"

namespace cento {

PromptLayout::PromptLayout(const LoadedModel& model, const std::string& system) : model_(&model) {
  const ChatTemplate::Frame frame = model.chat().frame(system);
  std::vector<TemplatePart> head = frame.head;
  head.push_back({false, "Passages:\n\n"});
  prefix_ = ChatTemplate::encode(head, model.tokenizer());
  tail_ = frame.tail;
}

std::vector<int32_t> PromptLayout::chunk(const std::string& text) const {
  std::string whole = text;
  while (!whole.empty() && (whole.back() == '\n' || whole.back() == ' ')) whole.pop_back();
  return model_->tokenizer().encode(whole + "\n\n", false);
}

std::vector<int32_t> PromptLayout::question(const std::string& text) const {
  // Said again at the end because small models forget the system text and run on.
  std::vector<TemplatePart> parts = {
      {false, "Question: " + std::string(trim(text)) + "\nAnswer from the passages above, in one or two sentences."}};
  parts.insert(parts.end(), tail_.begin(), tail_.end());
  return ChatTemplate::encode(parts, model_->tokenizer(), false);
}

}  // namespace cento
