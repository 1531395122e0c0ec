// Scores of an answer's text against references. All texts are valid UTF-8; for ASCII the figures are those of the
// published scripts, for other scripts see below. Time is linear in the texts, but for ROUGE-L, which says its own.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cento {

// SQuAD's normalisation (Rajpurkar et al. 2016): lower case, punctuation taken out, then the words a, an, the, then
// white space folded to single spaces. Beyond ASCII: capitals of Latin, Greek, Cyrillic, Armenian and full-width
// letters are lowered, typographic and East Asian punctuation goes as ASCII's does. Accents stay.
std::string normalise_answer(std::string_view text);

// Words of the normalised text. Characters of scripts without spaces (Han, kana, Thai, ...) are a word each.
std::vector<std::string> answer_words(std::string_view text);

// 1 if the normalised texts are equal for one reference, else 0; 0 without references.
double exact_match(std::string_view answer, std::span<const std::string> references);

// SQuAD's token F1: harmonic mean of precision and recall of the words as multisets, best of the references; 0 without
// any. If either side has no word left, 1 where both have none, else 0 (as SQuAD 2.0).
double token_f1(std::string_view answer, std::span<const std::string> references);

// Words beyond this many of either text do not count: a bound on time, far above any summary's length.
inline constexpr size_t kRougeWordsMax = size_t{1} << 17;

// ROUGE-L (Lin 2004, sentence level) over the whole text: with L the length of the longest common subsequence of
// words, precision L / words of the answer, recall L / words of the reference, F = 2PR / (P + R), which is beta = 1.
// Lower case, no stemming, words are runs of letters and digits (accents are folded; scripts without spaces: one
// character a word). Best of the references; 0 without any and where a side has no words. Takes about n m / 64 steps
// and O(n + m) memory for n and m words.
double rouge_l(std::string_view answer, std::span<const std::string> references);

// Length of the longest common subsequence.
size_t lcs_length(std::span<const uint32_t> a, std::span<const uint32_t> b);

// Whether the answer holds, as whole words and with case and white space folded, one alternative of every group. In
// scripts without spaces a word ends anywhere. False without groups (then see says_not_in_documents) and for a group
// whose alternatives are all blank.
bool holds_answer_groups(std::string_view answer, std::span<const std::vector<std::string>> groups);

// Whether the answer says that the documents do not say: an English phrase of that meaning is in it. A heuristic.
bool says_not_in_documents(std::string_view answer);

}  // namespace cento
