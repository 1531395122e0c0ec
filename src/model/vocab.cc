#include "model/vocab.h"

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "base/text.h"

namespace cento {
namespace {

// Names of tokens that end an answer in the model families of today.
constexpr const char* kEndNames[] = {"<|im_end|>",    "<|eot_id|>",      "<|eom_id|>",
                                     "<end_of_turn>", "<|end|>",         "<|endoftext|>",
                                     "</s>",          "<|end_of_text|>", "<｜end▁of▁sentence｜>",
                                     "<turn|>",       "<|EOT|>",         "<|END_OF_TURN_TOKEN|>",
                                     "<eos>",         "<|return|>"};

bool is_end_name(std::string_view name) {
  return std::any_of(std::begin(kEndNames), std::end(kEndNames), [&](const char* end) { return name == end; });
}

std::optional<int32_t> checked_id(std::optional<int64_t> id, size_t n_tokens, const char* key,
                                  const std::string& where) {
  // Old converters wrote "no such token" as -1 in 32 bits.
  if (!id || *id == 0xffffffff) return std::nullopt;
  if (*id < 0 || static_cast<uint64_t>(*id) >= n_tokens)
    throw Error(
        Code::kInput,
        std::string(key) + " is " + std::to_string(*id) + ", the file has " + std::to_string(n_tokens) + " tokens",
        where, "the file is damaged; fetch or convert it again");
  return static_cast<int32_t>(*id);
}

}  // namespace

Vocab::Vocab(const std::vector<std::string>& names, const std::vector<int64_t>& types, const std::string& where) {
  const auto damaged = [&](const std::string& what) {
    return Error(Code::kInput, what, where, "the file is damaged; fetch or convert it again");
  };
  if (names.empty()) throw damaged("the token list is empty");
  if (!types.empty() && types.size() != names.size())
    throw damaged("token list has " + std::to_string(names.size()) + " entries, its types " +
                  std::to_string(types.size()));
  uint64_t total = 0;
  for (const std::string& name : names) total += name.size();
  if (names.size() > (1u << 30) || total > UINT32_MAX) throw damaged("token list is too large");

  names_.reserve(total);
  ends_.reserve(names.size());
  types_.reserve(names.size());
  size_t n_slots = 2;
  while (n_slots < 2 * names.size()) n_slots *= 2;
  slots_.assign(n_slots, -1);
  for (size_t i = 0; i < names.size(); ++i) {
    const int64_t type = types.empty() ? 1 : types[i];
    if (type < 0 || type > 6) throw damaged("token " + std::to_string(i) + " has type " + std::to_string(type));
    types_.push_back(type == 0 ? TokenType::kNormal : static_cast<TokenType>(type));
    names_ += names[i];
    ends_.push_back(static_cast<uint32_t>(names_.size()));
    size_t slot = std::hash<std::string_view>{}(names[i]) & (n_slots - 1);
    while (slots_[slot] >= 0 && name(slots_[slot]) != names[i]) slot = (slot + 1) & (n_slots - 1);
    slots_[slot] = static_cast<int32_t>(i);
  }
}

std::string_view Vocab::name(int32_t id) const {
  const auto i = static_cast<size_t>(id);
  const size_t begin = i == 0 ? 0 : ends_[i - 1];
  return std::string_view(names_).substr(begin, ends_[i] - begin);
}

std::optional<int32_t> Vocab::find(std::string_view wanted) const {
  const size_t mask = slots_.size() - 1;
  for (size_t slot = std::hash<std::string_view>{}(wanted)&mask; slots_[slot] >= 0; slot = (slot + 1) & mask)
    if (name(slots_[slot]) == wanted) return slots_[slot];
  return std::nullopt;
}

void NameMatcher::add(std::string name, int32_t id) {
  if (!name.empty() && name.size() <= kMaxName) names_.push_back({std::move(name), id});
}

void NameMatcher::finish() {
  std::stable_sort(names_.begin(), names_.end(), [](const Name& a, const Name& b) { return a.text < b.text; });
  for (const Name& name : names_) starts_[static_cast<unsigned char>(name.text[0])] = true;
}

std::optional<NameMatcher::Match> NameMatcher::find(std::string_view text, size_t from) const {
  if (names_.empty()) return std::nullopt;
  for (size_t i = from; i < text.size(); ++i)
    if (starts_[static_cast<unsigned char>(text[i])])
      if (auto match = longest_at(text, i)) return match;
  return std::nullopt;
}

// Narrows the sorted list byte by byte: all names in [low, high) start with text[i .. i + n).
std::optional<NameMatcher::Match> NameMatcher::longest_at(std::string_view text, size_t i) const {
  std::optional<Match> best;
  auto low = names_.begin(), high = names_.end();
  for (size_t n = 0; i + n < text.size() && low != high; ++n) {
    const auto byte = static_cast<unsigned char>(text[i + n]);
    const auto at = [n](const Name& name) { return static_cast<unsigned char>(name.text[n]); };
    // A name of exactly n bytes sorts first and has been taken already.
    while (low != high && low->text.size() == n) ++low;
    low = std::partition_point(low, high, [&](const Name& name) { return at(name) < byte; });
    high = std::partition_point(low, high, [&](const Name& name) { return at(name) == byte; });
    if (low != high && low->text.size() == n + 1) best = Match{i, n + 1, low->id};
  }
  return best;
}

VocabTokenizer::VocabTokenizer(const TokenizerSpec& spec) : vocab_(spec.tokens, spec.types, spec.where) {
  const size_t n = spec.tokens.size();
  bos = checked_id(spec.bos, n, "tokenizer.ggml.bos_token_id", spec.where);
  eos = checked_id(spec.eos, n, "tokenizer.ggml.eos_token_id", spec.where);
  unknown_ = checked_id(spec.unknown, n, "tokenizer.ggml.unknown_token_id", spec.where);
  const auto eot = checked_id(spec.eot, n, "tokenizer.ggml.eot_token_id", spec.where);

  const auto ends_turn = [&](std::optional<int32_t> id) {
    if (id && std::find(end_of_turn.begin(), end_of_turn.end(), *id) == end_of_turn.end()) end_of_turn.push_back(*id);
  };
  ends_turn(eos);
  ends_turn(eot);
  for (const char* name : kEndNames) {
    // Among Gemma's tokens for HTML tags is "</s>", which ends struck-through text there, not the answer.
    if (std::string_view(name) == "</s>" && vocab_.find("<end_of_turn>")) continue;
    if (const auto id = vocab_.find(name))
      if (vocab_.type(*id) == TokenType::kControl || vocab_.type(*id) == TokenType::kUserDefined) ends_turn(id);
  }

  std::string model_name;
  for (const char c : spec.model_name) model_name += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  phi3_ = model_name.find("phi-3") != std::string::npos || model_name.find("phi3") != std::string::npos;
}

void VocabTokenizer::build_matchers() {
  for (int32_t id = 0; id < vocab_.size(); ++id) {
    const TokenType type = vocab_.type(id);
    if (type != TokenType::kControl && type != TokenType::kUserDefined) continue;
    specials_.add(type == TokenType::kControl ? std::string(vocab_.name(id)) : plain_name(id), id);
    if (!is_control(id)) user_defined_.add(plain_name(id), id);
  }
  specials_.finish();
  user_defined_.finish();
}

std::vector<int32_t> VocabTokenizer::encode(std::string_view text, bool dummy_prefix) const {
  std::vector<int32_t> ids;
  if (text.empty()) return ids;
  std::string owned;
  if (!is_valid_utf8(text)) text = owned = to_valid_utf8(text);
  if (dummy_prefix && has_dummy_prefix()) text = owned = " " + std::string(text);
  ids.reserve(text.size() / 3);
  size_t done = 0;
  while (const auto match = user_defined_.find(text, done)) {
    if (match->begin > done) encode_run(text.substr(done, match->begin - done), ids);
    ids.push_back(match->id);
    done = match->begin + match->length;
  }
  if (done < text.size()) encode_run(text.substr(done), ids);
  return ids;
}

std::vector<int32_t> VocabTokenizer::encode_with_specials(std::string_view text) const {
  std::vector<int32_t> ids;
  for (const Run& run : split_specials(text)) {
    if (run.special) {
      ids.push_back(*run.special);
    } else {  // at the start or behind a special token, where a dummy prefix belongs (as llama.cpp does)
      const std::vector<int32_t> more = encode(run.text, true);
      ids.insert(ids.end(), more.begin(), more.end());
    }
  }
  return ids;
}

std::vector<Tokenizer::Run> VocabTokenizer::split_specials(std::string_view text) const {
  std::vector<Run> runs;
  size_t done = 0;
  while (const auto match = specials_.find(text, done)) {
    if (match->begin > done) runs.push_back({std::nullopt, text.substr(done, match->begin - done)});
    runs.push_back({match->id, {}});
    done = match->begin + match->length;
    if (swallows_space(match->id))
      while (done < text.size() && (text[done] == ' ' || (text[done] >= '\t' && text[done] <= '\r'))) ++done;
  }
  if (done < text.size()) runs.push_back({std::nullopt, text.substr(done)});
  return runs;
}

// Phi-3's special tokens take the white space behind them, except these three (its tokenizer.json; llama.cpp goes by
// the model's name as well: GGUF has no key for it).
bool VocabTokenizer::swallows_space(int32_t id) const {
  if (!phi3_) return false;
  const std::string_view name = vocab_.name(id);
  return name != "<unk>" && name != "<s>" && name != "<|endoftext|>";
}

std::string VocabTokenizer::piece(int32_t id, bool specials) const {
  if (!vocab_.contains(id)) return {};
  if (is_control(id) || vocab_.type(id) == TokenType::kUnknown)
    return specials ? std::string(vocab_.name(id)) : std::string();
  if (vocab_.type(id) == TokenType::kUnused) return {};
  return bytes_of(id);
}

bool VocabTokenizer::is_control(int32_t id) const {
  if (!vocab_.contains(id)) return false;
  if (vocab_.type(id) == TokenType::kControl) return true;
  return vocab_.type(id) == TokenType::kUserDefined &&
         (is_end_name(vocab_.name(id)) || id == bos ||
          std::find(end_of_turn.begin(), end_of_turn.end(), id) != end_of_turn.end());
}

}  // namespace cento
