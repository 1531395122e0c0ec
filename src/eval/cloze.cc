#include "eval/cloze.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/text.h"
#include "docs/split.h"
#include "docs/utf8.h"
#include "docs/words.h"

namespace cento {
namespace {

// Of a sentence. Fewer words do not say what is missing; more are no sentence but a list, and small models, which give
// the sentence back whole, would not come to its end.
constexpr size_t kWordsMin = 8, kWordsMax = 30, kBytesMax = 320;
constexpr size_t kAnswerBytesMax = 48;
constexpr const char* kBlank = "_____";
// The rest of the question: what it holds cannot be asked for either.
constexpr const char* kBefore = "Which word or number is missing: \"";
constexpr const char* kBehind = "\"";

enum class CharKind { kMark, kLetter, kDigit, kKatakana, kHan, kOtherSpaceless };

bool is_katakana(uint32_t c) { return (c >= 0x30a1 && c <= 0x30fc && c != 0x30fb) || (c >= 0xff66 && c <= 0xff9d); }
bool is_han(uint32_t c) {
  return (c >= 0x3400 && c <= 0x9fff) || (c >= 0xf900 && c <= 0xfaff) || (c >= 0x20000 && c <= 0x3ffff);
}

CharKind kind_of(std::string_view s, size_t i) {
  const uint32_t c = utf8_code_point(s, i);
  if (c >= '0' && c <= '9') return CharKind::kDigit;
  if (is_katakana(c)) return CharKind::kKatakana;
  if (is_han(c)) return CharKind::kHan;
  if (is_spaceless_script(c)) return CharKind::kOtherSpaceless;
  if (c >= 0x300 && c <= 0x36f) return CharKind::kLetter;  // an accent belongs to the letter before it
  return words_of(s.substr(i, utf8_length(s, i))).empty() ? CharKind::kMark : CharKind::kLetter;
}

bool is_plain(CharKind kind) { return kind == CharKind::kLetter || kind == CharKind::kDigit; }

// A capital of a script that has any: folding changes it, and not by taking an accent off.
bool is_capital(std::string_view s, size_t i) {
  const uint32_t c = utf8_code_point(s, i);
  if (c < 0x80) return c >= 'A' && c <= 'Z';
  return (c >= 0xc0 && c <= 0xde && c != 0xd7) || (c >= 0x391 && c <= 0x3a9) || (c >= 0x400 && c <= 0x42f);
}

struct Piece {
  size_t begin = 0, end = 0;  // bytes of the sentence
  CharKind kind = CharKind::kLetter;
  size_t n_chars = 0;
  bool digit = false, capital = false;
};

// "5,000", "max_payload", "nats.io": marks that stand inside of a word.
bool joins(char c) { return std::string_view(".,-_:'/@+").find(c) != std::string_view::npos; }

Piece plain_piece(std::string_view s, size_t begin) {
  Piece p{begin, begin, CharKind::kLetter, 0, false, is_capital(s, begin)};
  while (p.end < s.size()) {
    const CharKind kind = kind_of(s, p.end);
    const size_t next = p.end + utf8_length(s, p.end);
    if (is_plain(kind)) {
      p.digit |= kind == CharKind::kDigit;
    } else if (!joins(s[p.end]) || next >= s.size() || !is_plain(kind_of(s, next))) {
      break;
    }
    ++p.n_chars;
    p.end = next;
  }
  return p;
}

Piece spaceless_piece(std::string_view s, size_t begin, CharKind kind) {
  Piece p{begin, begin, kind, 0, false, false};
  while (p.end < s.size() && kind_of(s, p.end) == kind) {
    ++p.n_chars;
    p.end += utf8_length(s, p.end);
  }
  return p;
}

std::vector<Piece> pieces_of(std::string_view s) {
  std::vector<Piece> out;
  for (size_t i = 0; i < s.size();) {
    const CharKind kind = kind_of(s, i);
    if (kind == CharKind::kMark) {
      i += utf8_length(s, i);
      continue;
    }
    out.push_back(is_plain(kind) ? plain_piece(s, i) : spaceless_piece(s, i, kind));
    i = out.back().end;
  }
  return out;
}

// Two characters of a script without spaces are about a word.
size_t n_words(const std::vector<Piece>& pieces) {
  size_t n = 0;
  for (const Piece& p : pieces) n += p.kind == CharKind::kLetter ? 1 : (p.n_chars + 1) / 2;
  return n;
}

// Folded words of a text, one space on either side of each.
std::string spaced(const std::vector<Word>& words) {
  std::string out = " ";
  for (const Word& w : words) out += w.text + " ";
  return out;
}

// Whether the text shows the answer, or enough of it: as it is written, or one of its words in any form.
bool shows(const std::string& text, const std::string& answer) {
  const std::vector<Word> shown = words_of(text), wanted = words_of(answer);
  const std::string folded = spaced(wanted);
  if (spaced(shown).find(std::string_view(folded).substr(1, folded.size() - 2)) != std::string::npos) return true;
  std::unordered_set<std::string> known;
  for (const Word& w : shown) known.insert(w.stem);
  return std::any_of(wanted.begin(), wanted.end(), [&](const Word& w) { return known.contains(w.stem); });
}

std::string blanked(const std::string& sentence, const Piece& p) {
  return sentence.substr(0, p.begin) + kBlank + sentence.substr(p.end);
}
std::string question_of(const std::string& sentence, const Piece& p) {
  return kBefore + blanked(sentence, p) + kBehind;
}

// Part of an address, a path, a tag or a formula: it is not what a sentence says.
bool stands_in_code(std::string_view s, const Piece& p) {
  constexpr std::string_view kMarks = "/\\=<>{}[]@#&~^|_";
  return (p.begin > 0 && kMarks.find(s[p.begin - 1]) != std::string_view::npos) ||
         (p.end < s.size() && kMarks.find(s[p.end]) != std::string_view::npos);
}

bool long_enough(const Piece& p) {
  switch (p.kind) {
    case CharKind::kKatakana:
      return p.n_chars >= 3;
    case CharKind::kHan:  // a longer run is several words
      return p.n_chars >= 2 && p.n_chars <= 4;
    case CharKind::kLetter:
      return p.n_chars >= (p.digit ? 2 : p.capital ? 4 : 5);
    default:
      return false;
  }
}

// How much a word tells, above 0; 0: it may not be asked for.
double telling(const std::string& sentence, const Piece& p, bool leads, const WordFrequencies& frequencies) {
  if (!long_enough(p) || p.end - p.begin > kAnswerBytesMax || stands_in_code(sentence, p)) return 0;
  const std::string answer = sentence.substr(p.begin, p.end - p.begin);
  const std::vector<Word> words = words_of(answer);
  if (words.empty()) return 0;
  size_t chunks = frequencies.n_chunks();
  for (const Word& w : words) {
    if (is_stop_word(w.text)) return 0;
    chunks = std::min(chunks, frequencies.of(w.text));
  }
  const bool stands_out = p.digit || (p.capital && !leads) || p.kind == CharKind::kKatakana;
  const size_t n = frequencies.n_chunks();
  if (chunks > 2 + n / (stands_out ? 10 : 50)) return 0;
  if (shows(question_of(sentence, p), answer)) return 0;
  return (stands_out ? 2 : 0) + std::log((1 + static_cast<double>(n)) / (1 + static_cast<double>(chunks))) + 1;
}

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// White space folded; "" where a line behind the first begins like an item of a list, a heading or code.
std::string one_line(std::string_view text) {
  constexpr std::string_view kStarts = "-*+#|>`:$=.";
  std::string out;
  for (const std::string_view line : split_lines(text)) {
    const std::string_view words = trim(line);
    if (words.empty()) continue;
    if (kStarts.find(words[0]) != std::string_view::npos && !out.empty()) return {};
    out += out.empty() ? "" : " ";
    for (size_t i = 0; i < words.size(); ++i) {
      if (!is_space(words[i])) {
        out += words[i];
      } else if (out.back() != ' ') {
        out += ' ';
      }
    }
  }
  return out;
}

// The mark of a list's item or of a quotation in front of a sentence says nothing.
std::string without_bullet(std::string sentence) {
  const size_t at = sentence.find_first_not_of("-*+>");
  return at != std::string::npos && at > 0 && sentence[at] == ' ' ? sentence.substr(at + 1) : sentence;
}

bool ends_like_a_sentence(std::string_view s) {
  while (!s.empty() && std::string_view("\"')*`").find(s.back()) != std::string_view::npos) s.remove_suffix(1);
  if (s.empty()) return false;
  const uint32_t last = utf8_code_point(s, utf8_floor(s, s.size() - 1));
  return last == '.' || last == '!' || last == '?' || last == 0x3002 || last == 0xff01 || last == 0xff1f;
}

// Letters, digits and single spaces are most of a sentence, and marks of code none of it.
bool reads_like_a_sentence(std::string_view s) {
  if (s.size() > kBytesMax || !ends_like_a_sentence(s)) return false;
  if (s.find_first_of("|{}<>\\") != std::string_view::npos || s.find("::") != std::string_view::npos) return false;
  size_t n = 0, marks = 0;
  for (size_t i = 0; i < s.size(); i += utf8_length(s, i)) {
    const uint32_t c = utf8_code_point(s, i);
    if (c < 0x20 || c == 0x7f || (c >= 0x80 && c < 0xa0) || c == 0xfffd) return false;
    marks += c != ' ' && kind_of(s, i) == CharKind::kMark;
    ++n;
  }
  return marks * 8 <= n;
}

std::vector<std::string> sentences_of(std::string_view text) {
  std::vector<std::string> out;
  const auto one_each = [](std::string_view) -> size_t { return 1; };
  for (const TextRange& r : split_text(text, SplitAt::kSentences, 1, one_each)) {
    std::string sentence = without_bullet(one_line(text.substr(r.begin, r.end - r.begin)));
    if (reads_like_a_sentence(sentence)) out.push_back(std::move(sentence));
  }
  return out;
}

// The word of the sentence that tells most; of equals the first.
std::optional<Cloze> cloze_of(const std::string& sentence, const WordFrequencies& frequencies) {
  const std::vector<Piece> pieces = pieces_of(sentence);
  const size_t n = n_words(pieces);
  if (n < kWordsMin || n > kWordsMax) return std::nullopt;
  const Piece* best = nullptr;
  double most = 0;
  for (const Piece& p : pieces) {
    const double tells = telling(sentence, p, &p == &pieces.front(), frequencies);
    if (tells <= most) continue;
    most = tells;
    best = &p;
  }
  if (best == nullptr) return std::nullopt;
  return Cloze{sentence, sentence.substr(best->begin, best->end - best->begin), blanked(sentence, *best),
               question_of(sentence, *best)};
}

}  // namespace

void WordFrequencies::add(std::string_view chunk) {
  std::unordered_set<std::string> here;
  bool spaceless = false;
  for (Word& w : words_of(chunk)) {
    spaceless |= w.spaceless;
    if (!w.spaceless) here.insert(std::move(w.text));
  }
  if (spaceless) {
    for (const Piece& p : pieces_of(chunk)) {
      if (!is_plain(p.kind) && long_enough(p)) here.insert(std::string(chunk.substr(p.begin, p.end - p.begin)));
    }
  }
  for (const std::string& word : here) ++counts_[word];
  ++n_chunks_;
}

size_t WordFrequencies::of(const std::string& folded_word) const {
  const auto found = counts_.find(folded_word);
  return found == counts_.end() ? 0 : found->second;
}

std::optional<Cloze> make_cloze(std::string_view text, const WordFrequencies& frequencies, Rng& rng) {
  std::vector<std::string> sentences = sentences_of(text);
  for (size_t n = sentences.size(); n > 0; --n) {
    std::swap(sentences[n - 1], sentences[rng.below(n)]);
    if (auto cloze = cloze_of(sentences[n - 1], frequencies)) return cloze;
  }
  return std::nullopt;
}

}  // namespace cento
