// Words as the retriever compares them: folded, and without the endings of English.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cento {

struct Word {
  std::string text;        // lower case, accents off
  std::string stem;        // of `text`
  bool spaceless = false;  // a run of a script without spaces between words
};

// Runs of letters, digits and marks; what is between them parts words. Han, kana, Thai and the like are runs of their
// own.
std::vector<Word> words_of(std::string_view text);

// Takes plural, -ing, -ed, -ly and the like off an English word of ASCII letters: for comparing, not for showing.
std::string stem_of(const std::string& word);

// Words that say nothing about what a question is about.
bool is_stop_word(const std::string& word);

// Overlapping pairs of characters of a run (one character: itself).
std::vector<std::string> character_pairs(std::string_view run);

}  // namespace cento
