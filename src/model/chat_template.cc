#include "model/chat_template.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "model/jinja.h"
#include "model/template_learner.h"

namespace cento {
namespace {

struct Family {
  TemplateKind kind;
  const char* name;
  std::vector<std::string> stop_texts;
};

const std::vector<Family>& families() {
  static const std::vector<Family> all = {
      {TemplateKind::kNone, "none", {}},
      {TemplateKind::kChatMl, "chatml", {"<|im_end|>"}},
      {TemplateKind::kLlama2, "llama2", {"</s>", "[INST]"}},
      {TemplateKind::kLlama3, "llama3", {"<|eot_id|>"}},
      {TemplateKind::kGemma, "gemma", {"<end_of_turn>"}},
      {TemplateKind::kMistral, "mistral", {"</s>", "[INST]"}},
      {TemplateKind::kPhi3, "phi3", {"<|end|>"}},
      {TemplateKind::kZephyr, "zephyr", {"</s>", "<|user|>"}},
  };
  return all;
}

const Family* family_of(TemplateKind kind) {
  for (const Family& family : families())
    if (family.kind == kind) return &family;
  return nullptr;
}

std::string hint() {
  std::string names;
  for (const std::string& name : ChatTemplate::names()) names += (names.empty() ? "" : ", ") + name;
  return "name the family of the model's prompt format with --chat-template NAME: " + names;
}

TemplateKind kind_by_marks(std::string_view source) {
  const auto has = [&](std::string_view mark) { return source.find(mark) != std::string_view::npos; };
  if (has("<|im_start|>")) return TemplateKind::kChatMl;
  if (has("<|start_header_id|>")) return TemplateKind::kLlama3;
  if (has("<start_of_turn>")) return TemplateKind::kGemma;
  if (has("[INST]")) return has("<<SYS>>") ? TemplateKind::kLlama2 : TemplateKind::kMistral;
  if (has("<|user|>") && has("<|end|>")) return TemplateKind::kPhi3;
  if (has("<|user|>") && (has("</s>") || has("eos_token"))) return TemplateKind::kZephyr;
  return TemplateKind::kOther;
}

std::string token_name(const GgufFile& file, const char* id_key) {
  const auto id = file.integer(id_key);
  const auto tokens = file.texts("tokenizer.ggml.tokens");
  return id && tokens && *id < tokens->size() ? (*tokens)[*id] : std::string();
}

}  // namespace

ChatTemplate ChatTemplate::recognise(const GgufFile& file, std::string_view override_name) {
  if (!override_name.empty()) {
    for (const Family& family : families())
      if (override_name == family.name) return of(family.kind);
    throw Error(Code::kUsage, "unknown chat template '" + printable(override_name) + "'", "--chat-template", hint());
  }
  const auto source = file.text("tokenizer.chat_template");
  if (!source || trim(*source).empty()) return of(TemplateKind::kNone);
  return learn(*source, token_name(file, "tokenizer.ggml.bos_token_id"),
               token_name(file, "tokenizer.ggml.eos_token_id"), file.file().path());
}

ChatTemplate ChatTemplate::learn(std::string_view source, const std::string& bos, const std::string& eos,
                                 const std::string& where) {
  const TemplateKind kind = kind_by_marks(source);
  std::string why;
  auto learned = TemplateLearner::learn(source, bos, eos, why);
  if (!learned) {
    const Family* family = family_of(kind);
    throw Error(Code::kInput,
                "the model's chat template cannot be followed: " + printable(why) +
                    (family ? " (it looks like the family " + std::string(family->name) + ")" : ""),
                where, hint());
  }
  learned->kind_ = kind;
  return *learned;
}

ChatTemplate ChatTemplate::of(TemplateKind kind, std::string default_system) {
  ChatTemplate t;
  t.kind_ = kind;
  // [role]: text before and behind its content.
  std::array<std::string, 4> head, tail;
  std::string generation;
  Trim trim = Trim::kNothing;
  bool system_in_user = false;
  const auto heads = [&](const std::string& before, const std::string& behind, const char* assistant = "assistant") {
    head = {"", before + "system" + behind, before + "user" + behind, before + assistant + behind};
    generation = head[kAssistant];
  };
  const auto tails = [&](const std::string& text) { tail = {"", text, text, text}; };
  switch (kind) {
    case TemplateKind::kNone:
    case TemplateKind::kOther:
      tails("\n");
      break;
    case TemplateKind::kChatMl:
      heads("<|im_start|>", "\n"), tails("<|im_end|>\n");
      break;
    case TemplateKind::kLlama3:
      heads("<|start_header_id|>", "<|end_header_id|>\n\n"), tails("<|eot_id|>"), trim = Trim::kBoth;
      break;
    case TemplateKind::kGemma:
      heads("<start_of_turn>", "\n", "model"), tails("<end_of_turn>\n"), trim = Trim::kBoth, system_in_user = true;
      break;
    case TemplateKind::kPhi3:
      heads("<|", "|>\n"), tails("<|end|>\n");
      break;
    case TemplateKind::kZephyr:
      heads("<|", "|>\n"), tails("</s>\n");
      break;
    case TemplateKind::kLlama2:
      head = {"", "[INST] <<SYS>>\n", "[INST] ", " "}, tail = {"", "\n<</SYS>>\n\n", " [/INST]", " </s>"};
      trim = Trim::kBoth, system_in_user = true;
      break;
    case TemplateKind::kMistral:
      head = {"", "[INST] ", "[INST] ", " "}, tail = {"", "\n\n", " [/INST]", "</s>"}, system_in_user = true;
      break;
  }
  const bool bos_each_turn = kind == TemplateKind::kLlama2;  // Meta's format starts every question as a new sequence
  for (const Role from : {kStart, kSystem, kUser, kAssistant})
    for (const Role to : {kSystem, kUser, kAssistant}) {
      std::string between = tail[from] + (from == kAssistant && bos_each_turn ? "<s>" : "") + head[to];
      if (system_in_user) {
        if (from != kStart && to == kSystem) continue;
        if (from == kSystem && to == kAssistant) continue;
        if (kind == TemplateKind::kGemma && to == kSystem) between = head[kUser];
        if (from == kSystem && to == kUser) between = kind == TemplateKind::kGemma ? "\n\n" : tail[kSystem];
      }
      t.joins_[from][to] = Join{between, trim};
    }
  for (const Role last : {kSystem, kUser, kAssistant}) {
    if (last == kSystem && system_in_user) continue;
    t.ends_[last][0] = tail[last];
    t.ends_[last][1] = tail[last] + generation;
  }
  if (system_in_user) t.empty_system_ = EmptySystem::kNoTurn;
  if (kind == TemplateKind::kNone) t.ends_[kAssistant][0] = t.ends_[kUser][0] = "";
  t.default_system_ = std::move(default_system);
  if (!t.default_system_.empty())
    t.joins_[kStart][kUser]->text = t.joins_[kStart][kSystem]->text +
                                    std::string(trimmed(t.default_system_, t.joins_[kStart][kSystem]->trim)) +
                                    t.joins_[kSystem][kUser]->text;
  return t;
}

std::vector<std::string> ChatTemplate::names() {
  std::vector<std::string> out;
  for (const Family& family : families()) out.emplace_back(family.name);
  return out;
}

const char* ChatTemplate::name() const {
  const Family* family = family_of(kind_);
  return family ? family->name : "the file's own";
}

std::vector<std::string> ChatTemplate::stop_texts() const {
  const Family* family = family_of(kind_);
  return family ? family->stop_texts : std::vector<std::string>();
}

std::string_view ChatTemplate::trimmed(std::string_view content, Trim trim) {
  if (trim == Trim::kLeftLines)
    while (!content.empty() && content.front() == '\n') content.remove_prefix(1);
  const bool left = trim == Trim::kBoth || trim == Trim::kLeft, right = trim == Trim::kBoth || trim == Trim::kRight;
  return strip_space(content, left, right);
}

std::vector<ChatTemplate::Turn> ChatTemplate::turns_of(const std::vector<Message>& messages) const {
  std::vector<Turn> turns;
  for (const Message& message : messages) {
    Role role = kStart;
    if (message.role == "system") role = kSystem;
    if (message.role == "user") role = kUser;
    if (message.role == "assistant") role = kAssistant;
    if (role == kStart)
      throw Error(Code::kUsage, "unknown role '" + printable(message.role) + "'",
                  "message " + std::to_string(turns.size()), "roles are system, user and assistant");
    if (role == kSystem && !turns.empty() && system_before_last_user_)
      throw Error(Code::kUsage, "the model's chat template takes a system turn at the start only", "",
                  "put the system text first");
    turns.push_back({role, message.content});
  }
  if (!turns.empty() && turns[0].role == kSystem && turns[0].content.empty()) {
    if (empty_system_ == EmptySystem::kRefused)
      throw Error(Code::kUsage, "the model's chat template takes no empty system turn", "message 0",
                  "leave the turn out");
    if (empty_system_ == EmptySystem::kNoTurn) turns.erase(turns.begin());
  }
  if (turns.empty()) throw Error(Code::kUsage, "no messages", "", "give at least a user turn");
  mark_thinking(turns);
  if (system_before_last_user_ && turns[0].role == kSystem) {
    const Turn system = turns[0];
    turns.erase(turns.begin());
    if (!turns.empty() && turns.back().role == kUser)
      turns.insert(turns.end() - 1, system);  // else the template drops it
  }
  return turns;
}

void ChatTemplate::mark_thinking(std::vector<Turn>& turns) const {
  if (thinking_ == Thinking::kKept) return;
  size_t n = turns.size();  // answers before this place are cut
  const Role until = thinking_ == Thinking::kCutBeforeLastUser ? kUser : kAssistant;
  if (thinking_ != Thinking::kCut) {
    while (n > 0 && turns[n - 1].role != until) --n;
    if (n > 0) --n;
  }
  for (size_t i = 0; i < n; ++i) turns[i].cut_thinking = turns[i].role == kAssistant;
}

std::string ChatTemplate::content_of(const Turn& turn, Trim trim) const {
  static constexpr std::string_view kEnd = "</think>";
  const std::string_view content = trimmed(turn.content, trim);
  const size_t at = turn.cut_thinking ? content.rfind(kEnd) : std::string_view::npos;
  return std::string(at == std::string_view::npos ? content
                                                  : trimmed(content.substr(at + kEnd.size()), after_thinking_));
}

std::vector<TemplatePart> ChatTemplate::render(const std::vector<Message>& messages, bool generation_prompt) const {
  static constexpr const char* kRoleNames[] = {"start", "system", "user", "assistant"};
  std::vector<TemplatePart> parts;
  const auto add = [&](bool is_template, std::string_view text) {
    if (!text.empty()) parts.push_back({is_template, std::string(text)});
  };
  Role previous = kStart;
  for (const Turn& turn : turns_of(messages)) {
    const auto& join = joins_[previous][turn.role];
    if (!join)
      throw Error(Code::kUsage,
                  "the model's chat template takes no " + std::string(kRoleNames[turn.role]) + " turn " +
                      (previous == kStart ? "at the start" : "behind a " + std::string(kRoleNames[previous]) + " turn"),
                  "", "let user and assistant turns alternate, behind at most one system turn");
    add(true, join->text);
    add(false, content_of(turn, join->trim));
    previous = turn.role;
  }
  const auto& end = ends_[previous][generation_prompt ? 1 : 0];
  if (!end)
    throw Error(Code::kUsage,
                "the model's chat template cannot end with a " + std::string(kRoleNames[previous]) + " turn", "",
                "let the conversation end with a user turn");
  add(true, *end);
  return parts;
}

std::string ChatTemplate::text(const std::vector<TemplatePart>& parts) {
  std::string out;
  for (const TemplatePart& part : parts) out += part.text;
  return out;
}

// Text between two special tokens is tokenised in one go, template and content together, as a model saw it in training:
// in
// "[INST] Hi" the space belongs to the word. Only template parts are searched for special tokens.
std::vector<int32_t> ChatTemplate::encode(const std::vector<TemplatePart>& parts, const Tokenizer& tokenizer,
                                          bool with_bos) {
  std::vector<int32_t> ids;
  std::string plain;
  bool at_prefix = with_bos;  // where a dummy prefix belongs: at the start of a sequence and behind a special token
  const auto flush = [&] {
    const std::vector<int32_t> more = tokenizer.encode(plain, at_prefix);
    ids.insert(ids.end(), more.begin(), more.end());
    plain.clear();
  };
  for (const TemplatePart& part : parts) {
    if (!part.is_template) {
      plain += part.text;
      continue;
    }
    for (const Tokenizer::Run& run : tokenizer.split_specials(part.text)) {
      if (!run.special) {
        plain += run.text;
        continue;
      }
      flush();
      ids.push_back(*run.special);
      at_prefix = true;
    }
  }
  flush();
  if (with_bos && tokenizer.add_bos && tokenizer.bos && (ids.empty() || ids.front() != *tokenizer.bos))
    ids.insert(ids.begin(), *tokenizer.bos);
  return ids;
}

ChatTemplate::Frame ChatTemplate::frame(const std::string& system) const {
  std::vector<Message> messages;
  if (!system.empty()) messages.push_back({"system", system});
  // A content that no template changes or drops; its part is the one behind which the tail begins.
  static const std::string kContent = "content";
  messages.push_back({"user", kContent});
  const std::vector<TemplatePart> parts = render(messages, true);
  size_t at = parts.size();
  while (at > 0 && (parts[at - 1].is_template || parts[at - 1].text != kContent)) --at;
  Frame out;
  if (at == 0) throw Error(Code::kInternal, "the chat template lost the user's text");
  out.head.assign(parts.begin(), parts.begin() + static_cast<ptrdiff_t>(at) - 1);
  out.tail.assign(parts.begin() + static_cast<ptrdiff_t>(at), parts.end());
  return out;
}

bool ChatTemplate::trims_user() const {
  const auto& join = joins_[kStart][kUser];
  return join && join->trim == Trim::kBoth;
}

}  // namespace cento
