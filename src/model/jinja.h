// The part of the Jinja template language that chat templates of model files are written in. cento runs a file's
// template only on a few short conversations of its own making, to learn the text that stands around the turns
// (chat_template.cc); so there are no tools, documents or dates here: a template that needs one of these fails, which
// is an answer, too. Source: Jinja 3.1 documentation, with the settings of the models' own libraries (trim_blocks,
// lstrip_blocks).
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace cento {

namespace jinja {
struct Node;
}

class JinjaTemplate {
 public:
  struct Turn {
    std::string role, content;
  };
  struct Input {
    std::vector<Turn> messages;
    bool add_generation_prompt = false;
    std::string bos_token, eos_token;
    std::string marker;  // texts that hold it count as content in `looked_for`; "" for none
  };
  struct Output {
    enum class Status { kText, kRefused, kFailed };  // refused: the template raised an error of its own
    Status status = Status::kFailed;
    std::string text;                  // the rendering, or the reason
    std::set<std::string> looked_for;  // texts the template searched message contents for
  };

  // The parsed template, or nullopt with the reason in `why`: a syntax error, or something this interpreter lacks.
  static std::optional<JinjaTemplate> parse(std::string_view source, std::string& why);

  // Never throws for what the template does; bounded in time, memory and depth whatever it says. Thread-safe.
  Output render(const Input& input) const;

 private:
  std::shared_ptr<const jinja::Node> root_;
};

// `s` without the white space that Python's str.strip() takes off, on the sides asked for.
std::string_view strip_space(std::string_view s, bool left, bool right);

}  // namespace cento
