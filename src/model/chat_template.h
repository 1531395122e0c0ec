// Chat templates: which of the known families a file's template belongs to, and how turns become text and token ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/gguf_reader.h"
#include "model/tokenizer.h"

namespace cento {

enum class TemplateKind { kNone, kChatMl, kLlama2, kLlama3, kGemma, kMistral, kPhi3, kZephyr };

struct Message {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

// A run of template text (control tokens allowed) or of somebody's text (never parsed for control tokens).
struct TemplatePart {
  bool is_template;
  std::string text;
};

class ChatTemplate {
 public:
  // Recognised from the file's tokenizer.chat_template by its marks; `override_name` ("chatml", "llama3", "none", ...) wins.
  // Throws Error(kInput) for a template of no known family: the hint names --chat-template and the families.
  // A file without a template (base model) is kNone: turns are joined as plain text.
  static ChatTemplate recognise(const GgufFile& file, std::string_view override_name = {});
  static ChatTemplate of(TemplateKind kind, std::string default_system = {});
  static std::vector<std::string> names();

  TemplateKind kind() const { return kind_; }
  const char* name() const;
  const std::string& default_system() const { return default_system_; }  // put first when no system turn is given; often ""

  // The whole conversation; `generation_prompt` adds the head of the assistant's turn. Adds the file's default system text
  // where the template does so. Throws Error(kUsage) for an order of roles that the template refuses.
  std::vector<TemplatePart> render(const std::vector<Message>& messages, bool generation_prompt) const;
  static std::string text(const std::vector<TemplatePart>& parts);

  // Ids of rendered parts: BOS first if the tokenizer says so and the template does not write it itself.
  static std::vector<int32_t> encode(const std::vector<TemplatePart>& parts, const Tokenizer& tokenizer, bool with_bos = true);

  // Text before and after the user's content of a single-question prompt: [head(system)] user content [tail].
  struct Frame {
    std::vector<TemplatePart> head, tail;
  };
  Frame frame(const std::string& system) const;

  // Texts that end an answer when the model writes them instead of its end token (e.g. "<|im_end|>" of a base model).
  std::vector<std::string> stop_texts() const;

 private:
  TemplateKind kind_ = TemplateKind::kNone;
  std::string default_system_;
};

}  // namespace cento
