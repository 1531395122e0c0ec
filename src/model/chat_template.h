// Chat templates: which of the known families a file's template belongs to, and how turns become text and token ids.
//
// A file's template is a program. cento runs it once, on short conversations of its own, and learns from these the text
// that stands before, between and behind turns; what it learned must then give the same text as the template on longer
// ones. So a variant of a family is rendered as its file says, and a template that does more than put text around turns
// is refused.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/gguf_reader.h"
#include "model/tokenizer.h"

namespace cento {

// kOther: of no known family, learned from the file all the same.
enum class TemplateKind { kNone, kChatMl, kLlama2, kLlama3, kGemma, kMistral, kPhi3, kZephyr, kOther };

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
  // Recognised from the file's tokenizer.chat_template by its marks; `override_name` ("chatml", "llama3", "none", ...)
  // wins. Throws Error(kInput) for a template that cannot be followed: the hint names --chat-template and the families.
  // Throws Error(kUsage) for an override of an unknown name.
  // A file without a template (base model) is kNone: turns are joined as plain text.
  static ChatTemplate recognise(const GgufFile& file, std::string_view override_name = {});
  // The same from the template's text; `bos` and `eos` are the names of these tokens.
  static ChatTemplate learn(std::string_view source, const std::string& bos, const std::string& eos,
                            const std::string& where = {});
  // The plain form of a family (for kOther: of kNone). Writes no BOS: encode() adds it.
  static ChatTemplate of(TemplateKind kind, std::string default_system = {});
  static std::vector<std::string> names();

  TemplateKind kind() const { return kind_; }
  const char* name() const;
  const std::string& default_system() const {
    return default_system_;
  }  // put first when no system turn is given; often ""

  // The whole conversation; `generation_prompt` adds the head of the assistant's turn. Adds the file's default system
  // text where the template does so. A template that knows no system turn (it refuses one or drops its text) gets the
  // system text in front of the first user turn. Thinking of earlier answers ("<think>...</think>") is left out where
  // the template leaves it out. Throws Error(kUsage) for an order of roles that the template refuses, and for no
  // messages.
  std::vector<TemplatePart> render(const std::vector<Message>& messages, bool generation_prompt) const;
  static std::string text(const std::vector<TemplatePart>& parts);

  // Ids of rendered parts: BOS first if the tokenizer says so and the template does not write it itself. `with_bos`
  // false: the parts continue a prompt, so neither BOS nor a SentencePiece dummy prefix is put before them.
  static std::vector<int32_t> encode(const std::vector<TemplatePart>& parts, const Tokenizer& tokenizer,
                                     bool with_bos = true);

  // Text before and after the user's content of a single-question prompt: [head(system)] user content [tail]. An empty
  // `system` is no system turn. If trims_user() is true render() takes white space off the content's ends; a caller
  // that puts content into a frame does the same.
  struct Frame {
    std::vector<TemplatePart> head, tail;
  };
  Frame frame(const std::string& system) const;
  bool trims_user() const;

  // Texts that end an answer when the model writes them instead of its end token (e.g. "<|im_end|>" of a base model).
  std::vector<std::string> stop_texts() const;

 private:
  friend class TemplateLearner;
  enum Role { kStart, kSystem, kUser, kAssistant };  // kStart: before the first turn
  enum class Trim { kNothing, kBoth, kLeft, kRight, kLeftLines };
  enum class Thinking { kKept, kCutBeforeLastUser, kCutButLastAnswer, kCut };

  struct Join {
    std::string text;
    Trim trim = Trim::kNothing;  // what the template takes off the content behind the text
  };
  struct Turn {
    Role role;
    std::string content;
    bool cut_thinking = false;
  };
  static std::string_view trimmed(std::string_view content, Trim trim);
  enum class EmptySystem { kTurn, kNoTurn, kRefused };

  std::vector<Turn> turns_of(const std::vector<Message>& messages) const;
  void mark_thinking(std::vector<Turn>& turns) const;
  std::string content_of(const Turn& turn, Trim trim) const;

  TemplateKind kind_ = TemplateKind::kNone;
  std::string default_system_;
  std::array<std::array<std::optional<Join>, 4>, 4> joins_;        // [previous role][role]; nullopt: refused
  std::array<std::array<std::optional<std::string>, 2>, 4> ends_;  // [last role][generation prompt]
  bool system_before_last_user_ = false;                           // Mistral's later templates
  EmptySystem empty_system_ = EmptySystem::kTurn;
  Thinking thinking_ = Thinking::kKept;
  Trim after_thinking_ = Trim::kNothing;
};

}  // namespace cento
