// Questions without anybody to write them: a sentence of a document with one telling word taken out.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/rng.h"

namespace cento {

// In how many chunks of a collection each word is.
class WordFrequencies {
 public:
  void add(std::string_view chunk);  // valid UTF-8
  size_t n_chunks() const { return n_chunks_; }
  size_t of(const std::string& folded_word) const;  // as words_of() folds it

 private:
  std::unordered_map<std::string, uint32_t> counts_;
  size_t n_chunks_ = 0;
};

struct Cloze {
  std::string original;  // the sentence, white space folded
  std::string answer;    // the word that is missing, as it is written
  std::string sentence;  // with a blank
  std::string question;  // holds that; the answer is nowhere in it
};

// A sentence of `text` (valid UTF-8) without one word that tells: a number, a name, or a word that few chunks have.
// nullopt: no sentence is fit, such as in tables, code and lists of short items. Which one is taken follows from
// `text`, the frequencies and the generator alone.
std::optional<Cloze> make_cloze(std::string_view text, const WordFrequencies& frequencies, Rng& rng);

}  // namespace cento
