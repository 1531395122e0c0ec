// Learns from a Jinja template what ChatTemplate needs to render without it; used by chat_template.cc only.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "model/chat_template.h"
#include "model/jinja.h"

namespace cento {

class TemplateLearner {
 public:
  // The learned template, checked against the source on conversations of up to seven turns; its kind is left to the
  // caller. nullopt, with the reason in `why`, for a template that does more than put fixed text around turns.
  static std::optional<ChatTemplate> learn(std::string_view source, const std::string& bos, const std::string& eos,
                                           std::string& why);

 private:
  using Role = ChatTemplate::Role;
  using Trim = ChatTemplate::Trim;
  using Status = JinjaTemplate::Output::Status;

  TemplateLearner(JinjaTemplate source, const std::string& bos, const std::string& eos);

  std::string run();  // reason why not, or ""
  std::string learn_plain();
  std::string learn_system();
  void learn_ends_of_answers();
  void learn_rare_joins();
  std::string learn_trims();
  std::string learn_thinking();
  std::string check();

  bool left_out(std::string_view roles) const { return no_system_ && roles.find('S') != std::string_view::npos; }
  // A conversation written in letters: "SUAU". Contents are words that stand in no template.
  std::vector<Message> talk(std::string_view roles) const;
  JinjaTemplate::Output source_text(const std::vector<Message>& messages, bool generation_prompt);
  bool same(const std::vector<Message>& messages, bool generation_prompt);  // ours and the template's
  bool same_both(const std::vector<Message>& messages);
  // The stretches before, between and behind the contents; nullopt unless each is there once, in order.
  static std::optional<std::vector<std::string>> stretches(const std::string& text,
                                                           const std::vector<Message>& messages);

  JinjaTemplate source_;
  std::string bos_, eos_;
  ChatTemplate out_;
  bool no_system_ = false;  // the template has no place for a system text; ours has, and is not compared there
  std::set<std::string> looked_for_;
};

}  // namespace cento
