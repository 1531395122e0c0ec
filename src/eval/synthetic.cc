#include "eval/synthetic.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"

namespace cento {
namespace {

constexpr size_t kWordsMin = 16;       // fewer whole words in the vocabulary are too uniform a text
constexpr size_t kSentenceWords = 12;  // a full stop after so many

bool is_word(const std::string& text) {
  return text.size() >= 2 && text.size() <= 10 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= 'a' && c <= 'z'; });
}

std::string joined(const std::vector<std::string>& words, size_t n) {
  std::string text;
  for (size_t i = 0; i < n; ++i) text += words[i] + (i % kSentenceWords == kSentenceWords - 1 ? ".\n" : " ");
  return text;
}

}  // namespace

std::vector<int32_t> synthetic_ids(const Tokenizer& tokenizer, size_t n, Rng& rng) {
  std::vector<int32_t> plain;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.piece(id).empty()) plain.push_back(id);  // control tokens stand for no text
  }
  if (plain.empty()) throw Error{Code::kInput, "the model's vocabulary has no token that stands for text"};
  std::vector<int32_t> ids;
  if (n > 0 && tokenizer.add_bos && tokenizer.bos) ids.push_back(*tokenizer.bos);
  while (ids.size() < n) ids.push_back(plain[rng.below(plain.size())]);
  return ids;
}

std::vector<std::string> vocabulary_words(const Tokenizer& tokenizer) {
  std::vector<std::string> words;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    std::string piece = tokenizer.piece(id);  // "" for control tokens
    if (!piece.starts_with(' ')) continue;
    piece.erase(0, 1);
    if (is_word(piece)) words.push_back(std::move(piece));
  }
  if (words.size() >= kWordsMin) return words;
  return {"the", "gate", "opens", "at", "eight", "and", "its", "keeper", "rings", "a", "bell", "on", "market", "days"};
}

std::string synthetic_text(const std::vector<std::string>& words, size_t n_tokens,
                           const std::function<size_t(const std::string&)>& count, Rng& rng) {
  CHECK(!words.empty());
  std::vector<std::string> drawn;
  for (size_t i = 0; i < std::max<size_t>(n_tokens, 1); ++i) drawn.push_back(words[rng.below(words.size())]);
  size_t fits = 1, too_many = drawn.size() + 1;  // a word has a token at least, so that all of them are enough
  while (too_many - fits > 1) {
    const size_t middle = fits + (too_many - fits) / 2;
    (count(joined(drawn, middle)) <= n_tokens ? fits : too_many) = middle;
  }
  return joined(drawn, fits);
}

}  // namespace cento
