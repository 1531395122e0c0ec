#include "model/template_learner.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace cento {
namespace {

constexpr std::string_view kMarker = "Zq";  // in every content, so that the interpreter knows one when it sees it

const char* role_name(char letter) { return letter == 'S' ? "system" : letter == 'U' ? "user" : "assistant"; }

}  // namespace

std::optional<ChatTemplate> TemplateLearner::learn(std::string_view source, const std::string& bos,
                                                   const std::string& eos, std::string& why) {
  auto parsed = JinjaTemplate::parse(source, why);
  if (!parsed) return std::nullopt;
  TemplateLearner learner(std::move(*parsed), bos, eos);
  why = learner.run();
  if (!why.empty()) return std::nullopt;
  return learner.out_;
}

TemplateLearner::TemplateLearner(JinjaTemplate source, const std::string& bos, const std::string& eos)
    : source_(std::move(source)), bos_(bos), eos_(eos) {}

std::string TemplateLearner::run() {
  for (const auto step : {&TemplateLearner::learn_plain, &TemplateLearner::learn_system})
    if (std::string why = (this->*step)(); !why.empty()) return why;
  learn_ends_of_answers();
  learn_rare_joins();
  for (const auto step : {&TemplateLearner::learn_trims, &TemplateLearner::learn_thinking, &TemplateLearner::check})
    if (std::string why = (this->*step)(); !why.empty()) return why;
  return {};
}

std::vector<Message> TemplateLearner::talk(std::string_view roles) const {
  std::vector<Message> messages;
  for (const char letter : roles)
    messages.push_back({role_name(letter), std::string(kMarker) + letter + std::to_string(messages.size()) + "x"});
  return messages;
}

JinjaTemplate::Output TemplateLearner::source_text(const std::vector<Message>& messages, bool generation_prompt) {
  JinjaTemplate::Input input;
  for (const Message& message : messages) input.messages.push_back({message.role, message.content});
  input.add_generation_prompt = generation_prompt;
  input.bos_token = bos_, input.eos_token = eos_;
  input.marker = kMarker;
  auto output = source_.render(input);
  looked_for_.insert(output.looked_for.begin(), output.looked_for.end());
  return output;
}

bool TemplateLearner::same(const std::vector<Message>& messages, bool generation_prompt) {
  const auto wanted = source_text(messages, generation_prompt);
  if (wanted.status != Status::kText) return false;
  try {
    return ChatTemplate::text(out_.render(messages, generation_prompt)) == wanted.text;
  } catch (const Error&) {  // a join or an end that is not known
    return false;
  }
}

bool TemplateLearner::same_both(const std::vector<Message>& messages) {
  return same(messages, true) && same(messages, false);
}

std::optional<std::vector<std::string>> TemplateLearner::stretches(const std::string& text,
                                                                   const std::vector<Message>& messages) {
  std::vector<std::string> out;
  size_t done = 0;
  for (const Message& message : messages) {
    const size_t at = text.find(message.content, done);
    if (at == std::string::npos || text.find(message.content) != at) return std::nullopt;
    out.push_back(text.substr(done, at - done));
    done = at + message.content.size();
    if (text.find(message.content, done) != std::string::npos) return std::nullopt;
  }
  out.push_back(text.substr(done));
  return out;
}

// Questions and answers in turn, without a system text.
std::string TemplateLearner::learn_plain() {
  const auto reason = [](const JinjaTemplate::Output& output) {
    return (output.status == Status::kRefused ? "it refuses a plain question: " : "") + output.text;
  };
  const auto messages = talk("UAU");
  for (const bool generation : {false, true}) {
    const auto output = source_text(messages, generation);
    if (output.status != Status::kText) return reason(output);
    const auto parts = stretches(output.text, messages);
    if (!parts) return "it changes or leaves out turns";
    out_.joins_[Role::kStart][Role::kUser] = {(*parts)[0], Trim::kNothing};
    out_.joins_[Role::kUser][Role::kAssistant] = {(*parts)[1], Trim::kNothing};
    out_.joins_[Role::kAssistant][Role::kUser] = {(*parts)[2], Trim::kNothing};
    out_.ends_[Role::kUser][generation ? 1 : 0] = (*parts)[3];
  }
  return same_both(talk("U")) && same_both(messages) ? "" : "its text around a turn changes with the place of the turn";
}

std::string TemplateLearner::learn_system() {
  const auto messages = talk("SU");
  const auto output = source_text(messages, true);
  if (output.status == Status::kFailed) return output.text;
  const std::string start = out_.joins_[Role::kStart][Role::kUser]->text;
  const bool dropped = output.status == Status::kText && output.text.find(messages[0].content) == std::string::npos;
  if (output.status == Status::kRefused || dropped) {
    // No system turn in this format (Gemma 2, Phi-3 at first): the text goes in front of the question, as the makers of
    // Gemma advise and as Gemma 3's template does.
    out_.joins_[Role::kStart][Role::kSystem] = {start, Trim::kBoth};
    out_.joins_[Role::kSystem][Role::kUser] = {"\n\n", Trim::kNothing};
    out_.empty_system_ = ChatTemplate::EmptySystem::kNoTurn;
    no_system_ = true;
    return {};
  }
  const auto parts = stretches(output.text, messages);
  if (!parts) return "it changes or leaves out the system text";
  out_.joins_[Role::kStart][Role::kSystem] = {(*parts)[0], Trim::kNothing};
  out_.joins_[Role::kSystem][Role::kUser] = {(*parts)[1], Trim::kNothing};
  if (!same_both(talk("SUAU"))) {
    out_.joins_[Role::kAssistant][Role::kSystem] = out_.joins_[Role::kAssistant][Role::kUser];
    out_.system_before_last_user_ = true;
    if (!same_both(talk("SUAU"))) return "its text around the system turn changes with the conversation";
  }
  // What it puts first by itself, if that has the form of a system turn.
  const std::string &before = (*parts)[0], &behind = (*parts)[1];
  if (start.size() >= before.size() + behind.size() && start.compare(0, before.size(), before) == 0 &&
      start.compare(start.size() - behind.size(), behind.size(), behind) == 0)
    out_.default_system_ = start.substr(before.size(), start.size() - before.size() - behind.size());

  std::vector<Message> empty = messages;
  empty[0].content.clear();
  using Empty = ChatTemplate::EmptySystem;
  for (const Empty how : {Empty::kTurn, Empty::kNoTurn, Empty::kRefused}) {
    out_.empty_system_ = how;
    if (same_both(empty)) break;
  }
  return {};
}

// A conversation that ends with an answer; some templates then write that answer differently (Qwen3 adds thinking), and
// such an end is left unknown.
void TemplateLearner::learn_ends_of_answers() {
  const auto messages = talk("UA");
  for (const bool generation : {false, true}) {
    const auto output = source_text(messages, generation);
    const auto parts = output.status == Status::kText ? stretches(output.text, messages) : std::nullopt;
    if (!parts) continue;
    auto& end = out_.ends_[Role::kAssistant][generation ? 1 : 0];
    end = (*parts)[2];
    if (!same(messages, generation) || !same(talk("UAUA"), generation) ||
        (!no_system_ && !same(talk("SUA"), generation)))
      end.reset();
  }
}

// Orders that people rarely want and many templates refuse. Each is learned from one conversation and kept if ours is
// then the template's text.
void TemplateLearner::learn_rare_joins() {
  struct Rare {
    const char* roles;
    size_t place;  // of the turn behind the join
  };
  for (const Rare& rare : {Rare{"UU", 1}, Rare{"UAAU", 2}, Rare{"AU", 0}, Rare{"SAU", 1}, Rare{"USU", 1},
                           Rare{"UASU", 2}, Rare{"SSU", 1}}) {
    if (left_out(rare.roles)) continue;
    const auto messages = talk(rare.roles);
    const auto role_at = [&](size_t i) {
      const char letter = rare.roles[i];
      return letter == 'S' ? Role::kSystem : letter == 'U' ? Role::kUser : Role::kAssistant;
    };
    auto& join = out_.joins_[rare.place == 0 ? Role::kStart : role_at(rare.place - 1)][role_at(rare.place)];
    if (join) continue;
    const auto output = source_text(messages, true);
    const auto parts = output.status == Status::kText ? stretches(output.text, messages) : std::nullopt;
    if (!parts) continue;
    join = ChatTemplate::Join{(*parts)[rare.place], Trim::kNothing};
    if (!same_both(messages)) join.reset();
  }
  for (const bool generation : {false, true}) {  // a system text alone
    if (no_system_) break;
    const auto messages = talk("S");
    const auto output = source_text(messages, generation);
    const auto parts = output.status == Status::kText ? stretches(output.text, messages) : std::nullopt;
    if (!parts || out_.system_before_last_user_) continue;
    auto& end = out_.ends_[Role::kSystem][generation ? 1 : 0];
    end = (*parts)[1];
    if (!same(messages, generation)) end.reset();
  }
}

// For every known join: which white space goes off the content behind it.
std::string TemplateLearner::learn_trims() {
  struct Probe {
    const char* roles;
    size_t place;
    bool needed;
  };
  for (const Probe& probe :
       {Probe{"SU", 0, true}, Probe{"SU", 1, true}, Probe{"U", 0, true}, Probe{"UAU", 1, true}, Probe{"UAU", 2, true},
        Probe{"UU", 1, false}, Probe{"UAAU", 2, false}, Probe{"AU", 0, false}, Probe{"SAU", 1, false},
        Probe{"USU", 1, false}, Probe{"UASU", 2, false}, Probe{"SSU", 1, false}}) {
    if (left_out(probe.roles)) continue;
    auto messages = talk(probe.roles);
    const auto role_of = [&](size_t i) {
      return messages[i].role == "system" ? Role::kSystem : messages[i].role == "user" ? Role::kUser : Role::kAssistant;
    };
    auto& join = out_.joins_[probe.place == 0 ? Role::kStart : role_of(probe.place - 1)][role_of(probe.place)];
    if (!join) continue;
    if (probe.roles[probe.place] == 'S' && probe.place > 0 && out_.system_before_last_user_) continue;  // see below
    std::string& content = messages[probe.place].content;
    bool found = false;
    for (const Trim trim : {Trim::kNothing, Trim::kBoth, Trim::kLeft, Trim::kRight, Trim::kLeftLines}) {
      join->trim = trim;
      const std::string word = content;
      found = true;
      for (const char* around : {"\n \t", " ", "\n\n"}) {
        content = around + word + around;
        found = found && same_both(messages);
        content = word;
      }
      if (found) break;
    }
    if (!found && probe.needed) return "it changes the white space of turns in a way of its own";
    if (!found) join.reset();
  }
  // With the system text in front of the last question the joins of that place are used there.
  if (out_.system_before_last_user_)
    out_.joins_[Role::kAssistant][Role::kSystem]->trim = out_.joins_[Role::kStart][Role::kSystem]->trim;
  return {};
}

// The template may search contents. Of what models do there, leaving out the thinking of earlier answers is followed;
// looking for tool results in a user's turn decides only what counts as the last question, and is not.
std::string TemplateLearner::learn_thinking() {
  for (const bool generation : {true, false})  // conversations that show all places a template may search
    for (const char* roles : {"SUAUAU", "UAUA", "U"}) source_text(talk(roles), generation);
  const bool thinks = looked_for_.count("</think>") > 0;
  for (const std::string& text : looked_for_)
    if (text != "</think>" && text != "<think>" && text != "<tool_response>" && text != "</tool_response>")
      return "it changes with the words of a turn ('" + text + "')";
  if (!thinks && !looked_for_.count("<think>")) return {};

  const auto with_thought = [&](const char* roles, std::vector<size_t> places) {
    auto messages = talk(roles);
    for (const size_t i : places) messages[i].content = "<think>\nZqT\n</think>\n\n " + messages[i].content + "\n";
    return messages;
  };
  using Thinking = ChatTemplate::Thinking;
  for (const Thinking thinking :
       {Thinking::kKept, Thinking::kCutBeforeLastUser, Thinking::kCutButLastAnswer, Thinking::kCut})
    for (const Trim trim : {Trim::kNothing, Trim::kLeftLines, Trim::kBoth, Trim::kLeft, Trim::kRight}) {
      out_.thinking_ = thinking, out_.after_thinking_ = trim;
      if (!same_both(with_thought("UAU", {1})) || !same_both(with_thought("UAUAU", {1, 3})) ||
          (!no_system_ && !same_both(with_thought("SUAUAU", {2}))))
        continue;
      for (const bool generation : {false, true})
        if (!same(with_thought("UA", {1}), generation)) out_.ends_[Role::kAssistant][generation ? 1 : 0].reset();
      return {};
    }
  return "it changes the thinking of earlier answers in a way of its own";
}

// Everything at once, on longer conversations with contents as people write them.
std::string TemplateLearner::check() {
  static const std::vector<std::string> contents = {
      "Answer briefly.\n\n- one\n- two",
      "What is \"this\"?\nAnd {{ that }} {% if x %} <b>it</b>? &amp; 日本語 🦙",
      "Zq 1 + 1 = 2\n\n```\ncode\n```",
      "a",
      "42",
      "Why?\\n 'quoted' </s> <|im_end|> [INST] x [/INST]",
      "ü"};
  for (const char* roles : {"U", "SU", "UAU", "SUAU", "UAUAU", "SUAUAU", "SUAUAUAU", "UA", "SUA", "UAUA", "SUAUA"}) {
    if (left_out(roles)) continue;
    auto messages = talk(roles);
    for (size_t i = 0; i < messages.size(); ++i)
      messages[i].content = contents[(i + (roles[0] == 'S' ? 0 : 1)) % contents.size()];
    for (const bool generation : {false, true}) {
      if (messages.back().role == "assistant" && !out_.ends_[Role::kAssistant][generation ? 1 : 0]) continue;
      if (!same(messages, generation))
        return "its text around turns changes with the conversation (" + std::string(roles) + ")";
    }
  }
  return {};
}

}  // namespace cento
