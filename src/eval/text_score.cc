#include "eval/text_score.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <unordered_map>

#include "base/text.h"
#include "docs/utf8.h"
#include "docs/words.h"

namespace cento {
namespace {

struct CaseRange {
  uint32_t from, to;  // capitals: all of them, or every second one if step is 2
  uint32_t step;
  int32_t to_lower;
};

// Capitals with one small letter each (Unicode 15, simple case mapping), of scripts that answers are written in.
constexpr std::array kCapitals = {
    CaseRange{0x41, 0x5a, 1, 32},    CaseRange{0xc0, 0xd6, 1, 32},     CaseRange{0xd8, 0xde, 1, 32},
    CaseRange{0x100, 0x12e, 2, 1},   CaseRange{0x132, 0x136, 2, 1},    CaseRange{0x139, 0x147, 2, 1},
    CaseRange{0x14a, 0x176, 2, 1},   CaseRange{0x178, 0x178, 1, -121}, CaseRange{0x179, 0x17d, 2, 1},
    CaseRange{0x1a0, 0x1a4, 2, 1},   CaseRange{0x1af, 0x1af, 1, 1},    CaseRange{0x1cd, 0x1db, 2, 1},
    CaseRange{0x218, 0x21e, 2, 1},   CaseRange{0x386, 0x386, 1, 38},   CaseRange{0x388, 0x38a, 1, 37},
    CaseRange{0x38c, 0x38c, 1, 64},  CaseRange{0x38e, 0x38f, 1, 63},   CaseRange{0x391, 0x3a1, 1, 32},
    CaseRange{0x3a3, 0x3ab, 1, 32},  CaseRange{0x400, 0x40f, 1, 80},   CaseRange{0x410, 0x42f, 1, 32},
    CaseRange{0x460, 0x480, 2, 1},   CaseRange{0x48a, 0x4be, 2, 1},    CaseRange{0x4c1, 0x4cd, 2, 1},
    CaseRange{0x4d0, 0x52e, 2, 1},   CaseRange{0x531, 0x556, 1, 48},   CaseRange{0x1e00, 0x1e94, 2, 1},
    CaseRange{0x1ea0, 0x1efe, 2, 1}, CaseRange{0xff21, 0xff3a, 1, 32},
};

uint32_t to_lower(uint32_t c) {
  for (const CaseRange& r : kCapitals) {
    if (c < r.from) return c;
    if (c <= r.to) return (c - r.from) % r.step == 0 ? static_cast<uint32_t>(static_cast<int32_t>(c) + r.to_lower) : c;
  }
  return c;
}

bool is_space(uint32_t c) {
  return c == ' ' || (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x1f) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_punctuation(uint32_t c) {
  if (c < 0x80)
    return (c >= 0x21 && c <= 0x2f) || (c >= 0x3a && c <= 0x40) || (c >= 0x5b && c <= 0x60) || (c >= 0x7b && c <= 0x7e);
  if (c == 0xa1 || c == 0xa7 || c == 0xab || c == 0xb6 || c == 0xb7 || c == 0xbb || c == 0xbf) return true;
  if ((c >= 0x2010 && c <= 0x2027) || (c >= 0x2030 && c <= 0x205e)) return true;  // dashes, quotes, ellipsis
  if ((c >= 0x3001 && c <= 0x3003) || (c >= 0x3008 && c <= 0x3011) || (c >= 0x3014 && c <= 0x301f) || c == 0x30fb)
    return true;
  return (c >= 0xff01 && c <= 0xff0f) || (c >= 0xff1a && c <= 0xff20) || (c >= 0xff3b && c <= 0xff40) ||
         (c >= 0xff5b && c <= 0xff65);
}

// Written without spaces between words; with the marks of repetition, which stand inside such words.
bool is_spaceless(uint32_t c) { return is_spaceless_script(c) || (c >= 0x3005 && c <= 0x3007); }

// Words as SQuAD parts them: lower case, without punctuation and articles, parted by white space.
std::vector<std::string> squad_words(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  const auto end_word = [&] {
    if (!word.empty() && word != "a" && word != "an" && word != "the") words.push_back(std::move(word));
    word.clear();
  };
  for (size_t i = 0; i < text.size(); i += utf8_length(text, i)) {
    const uint32_t c = utf8_code_point(text, i);
    if (is_space(c)) {
      end_word();
    } else if (!is_punctuation(c)) {
      append_utf8(word, to_lower(c));
    }
  }
  end_word();
  return words;
}

// Splits characters of scripts without spaces off, each on its own.
void append_split(std::vector<std::string>& out, const std::string& word) {
  std::string run;
  for (size_t i = 0; i < word.size();) {
    const size_t n = utf8_length(word, i);
    if (is_spaceless(utf8_code_point(word, i))) {
      if (!run.empty()) out.push_back(std::move(run));
      run.clear();
      out.push_back(word.substr(i, n));
    } else {
      run += word.substr(i, n);
    }
    i += n;
  }
  if (!run.empty()) out.push_back(std::move(run));
}

double harmonic_mean(size_t common, size_t n_answer, size_t n_reference) {
  if (common == 0) return 0;
  const double precision = static_cast<double>(common) / static_cast<double>(n_answer);
  const double recall = static_cast<double>(common) / static_cast<double>(n_reference);
  return 2 * precision * recall / (precision + recall);
}

double f1_of(const std::vector<std::string>& answer, const std::vector<std::string>& reference) {
  if (answer.empty() || reference.empty()) return answer.empty() && reference.empty() ? 1 : 0;
  std::unordered_map<std::string_view, size_t> left;
  for (const auto& word : reference) ++left[word];
  size_t common = 0;
  for (const auto& word : answer) {
    const auto it = left.find(word);
    if (it == left.end() || it->second == 0) continue;
    --it->second;
    ++common;
  }
  return harmonic_mean(common, answer.size(), reference.size());
}

// Words as numbers, equal for equal words of all texts that share `numbers`.
std::vector<uint32_t> rouge_words(std::string_view text, std::unordered_map<std::string, uint32_t>& numbers) {
  std::vector<uint32_t> out;
  std::vector<std::string> characters;
  const auto add = [&](const std::string& word) {
    if (out.size() < kRougeWordsMax)
      out.push_back(numbers.emplace(word, static_cast<uint32_t>(numbers.size())).first->second);
  };
  for (const Word& word : words_of(text)) {
    characters.clear();
    append_split(characters, word.text);
    for (const auto& part : characters) add(part);
  }
  return out;
}

// Lower case and white space folded to single spaces; spaces at the ends gone.
std::string fold(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); i += utf8_length(text, i)) {
    const uint32_t c = utf8_code_point(text, i);
    if (!is_space(c)) {
      if (c == 0xdf || c == 0x1e9e) {
        out += "ss";
      } else {
        append_utf8(out, c == 0x3c2 ? 0x3c3 : to_lower(c));  // final sigma is sigma
      }
    } else if (!out.empty() && out.back() != ' ') {
      out += ' ';
    }
  }
  if (out.ends_with(' ')) out.pop_back();
  return out;
}

bool is_word_character(std::string_view text, size_t i) {
  const uint32_t c = utf8_code_point(text, i);
  return c == '_' || !words_of(text.substr(i, utf8_length(text, i))).empty();
}

// Whether a word may end between the characters at `before` and `after` of `text`.
bool word_boundary(std::string_view text, size_t before, size_t after) {
  if (is_spaceless(utf8_code_point(text, before)) || is_spaceless(utf8_code_point(text, after))) return true;
  return !is_word_character(text, before) || !is_word_character(text, after);
}

bool holds_words(std::string_view text, std::string_view words) {
  if (words.empty()) return false;
  for (size_t at = text.find(words); at != std::string_view::npos; at = text.find(words, at + 1)) {
    const size_t end = at + words.size();
    const bool starts = at == 0 || word_boundary(text, utf8_floor(text, at - 1), at);
    const bool ends = end == text.size() || word_boundary(text, utf8_floor(text, end - 1), end);
    if (starts && ends) return true;
  }
  return false;
}

}  // namespace

std::string normalise_answer(std::string_view text) {
  std::string out;
  for (const auto& word : squad_words(text)) out += (out.empty() ? "" : " ") + word;
  return out;
}

std::vector<std::string> answer_words(std::string_view text) {
  std::vector<std::string> out;
  for (const auto& word : squad_words(text)) append_split(out, word);
  return out;
}

double exact_match(std::string_view answer, std::span<const std::string> references) {
  const std::string normal = normalise_answer(answer);
  return std::any_of(references.begin(), references.end(),
                     [&](const auto& r) { return normalise_answer(r) == normal; });
}

double token_f1(std::string_view answer, std::span<const std::string> references) {
  const auto words = answer_words(answer);
  double best = 0;
  for (const auto& reference : references) best = std::max(best, f1_of(words, answer_words(reference)));
  return best;
}

// Bit-parallel (Hyyrö 2004): bit i of `row` is 0 where the i-th step of the dynamic programme's row is one up. Each
// element of b costs one pass over a's bits: U = row & matches; row = (row + U) | (row - U), with the carry of the sum
// going from word to word (row - U is row & ~U, without a borrow).
size_t lcs_length(std::span<const uint32_t> a, std::span<const uint32_t> b) {
  const size_t n_words = (a.size() + 63) / 64;
  std::unordered_map<uint32_t, std::vector<uint32_t>> places;
  for (size_t i = 0; i < a.size(); ++i) places[a[i]].push_back(static_cast<uint32_t>(i));
  // Where an element of b stands in a, as bits. Kept for elements with more than n_words places, of which there are at
  // most 64; the others are set and cleared again at no more than the cost of a pass.
  std::unordered_map<uint32_t, std::vector<uint64_t>> kept;
  std::vector<uint64_t> scratch(n_words), row(n_words, ~uint64_t{0});
  for (const uint32_t element : b) {
    const auto found = places.find(element);
    if (found == places.end()) continue;
    const bool keep = found->second.size() > n_words;
    std::vector<uint64_t>& matches = keep ? kept[element] : scratch;
    if (matches.empty() || !keep) {
      matches.resize(n_words);
      for (const uint32_t i : found->second) matches[i / 64] |= uint64_t{1} << i % 64;
    }
    uint64_t carry = 0;
    for (size_t w = 0; w < n_words; ++w) {
      const uint64_t u = row[w] & matches[w], half = row[w] + u, sum = half + carry;
      carry = (half < u) | (sum < half);
      row[w] = sum | (row[w] & ~u);
    }
    if (!keep) {
      for (const uint32_t i : found->second) matches[i / 64] = 0;
    }
  }
  size_t length = 0;
  for (size_t i = 0; i < a.size(); ++i) length += (row[i / 64] >> i % 64 & 1) == 0;
  return length;
}

double rouge_l(std::string_view answer, std::span<const std::string> references) {
  std::unordered_map<std::string, uint32_t> numbers;
  const auto words = rouge_words(answer, numbers);
  double best = 0;
  for (const auto& reference : references) {
    const auto other = rouge_words(reference, numbers);
    best = std::max(best, harmonic_mean(lcs_length(words, other), words.size(), other.size()));
  }
  return best;
}

bool holds_answer_groups(std::string_view answer, std::span<const std::vector<std::string>> groups) {
  const std::string text = fold(answer);
  const auto holds_one = [&](const std::vector<std::string>& alternatives) {
    return std::any_of(alternatives.begin(), alternatives.end(),
                       [&](const auto& a) { return holds_words(text, fold(a)); });
  };
  return !groups.empty() && std::all_of(groups.begin(), groups.end(), holds_one);
}

bool says_not_in_documents(std::string_view answer) {
  const std::string text = fold(answer);
  for (const char* verb : {"say", "contain", "mention", "hold", "provide", "specify", "state"}) {
    for (const char* denial : {"do not ", "does not ", "don't ", "doesn't ", "don\u2019t ", "doesn\u2019t "}) {
      if (holds_words(text, denial + std::string(verb))) return true;
    }
  }
  return holds_words(text, "not in the") || holds_words(text, "not mentioned") || holds_words(text, "not stated");
}

}  // namespace cento
