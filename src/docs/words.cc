#include "docs/words.h"

#include <algorithm>
#include <array>
#include <unordered_set>

#include "base/text.h"
#include "docs/utf8.h"

namespace cento {
namespace {

// Base letters of U+00C0..U+017F, lower case; '.' where a letter has no other base and is only lowered.
constexpr std::string_view kLatin1Base = "aaaaaa.ceeeeiiii.nooooo..uuuuy..aaaaaa.ceeeeiiii.nooooo..uuuuy.y";
constexpr std::string_view kLatinABase =
    "aaaaaaccccccccdd..eeeeeeeeeegggggggghh..iiiiiiiii...jjkk.llllll....nnnnnn...oooooo..rrrrrrsssssssstttt.."
    "uuuuuuuuuuuuwwyyyzzzzzz.";
static_assert(kLatin1Base.size() == 64 && kLatinABase.size() == 128);

bool is_letter(uint32_t c) {
  if (c < 0x80) return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
  if (c < 0xc0) return c == 0xaa || c == 0xb5 || c == 0xba;
  if (c == 0xd7 || c == 0xf7) return false;
  if (c >= 0x2000 && c <= 0x2bff) return false;  // punctuation, arrows, mathematics, boxes
  if (c >= 0x3000 && c <= 0x303f) return c == 0x3005 || c == 0x3006 || c == 0x3007;
  if (c >= 0xff00 && c <= 0xff0f) return false;
  if (c >= 0xff1a && c <= 0xff20) return false;
  if (c >= 0xff5b && c <= 0xff65) return false;
  if (c >= 0xe000 && c <= 0xf8ff) return false;
  if (c >= 0xfe10 && c <= 0xfe6f) return false;
  if (c >= 0x1f000 && c <= 0x1faff) return false;
  return c != 0xfffd && c != 0xfeff;
}

void append_folded(std::string& out, uint32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    return;
  }
  if (c >= 0x300 && c <= 0x36f) return;  // combining accents
  if (c >= 0xc0 && c <= 0xff && kLatin1Base[c - 0xc0] != '.') {
    out += kLatin1Base[c - 0xc0];
    return;
  }
  if (c >= 0x100 && c <= 0x17f && kLatinABase[c - 0x100] != '.') {
    out += kLatinABase[c - 0x100];
    return;
  }
  if (c >= 0x100 && c <= 0x17f) {  // capitals are even, but odd from U+0139 to U+0148
    const bool odd = c >= 0x139 && c <= 0x148;
    if ((c % 2 == 1) == odd && c != 0x138 && c < 0x178) ++c;
  } else if ((c >= 0xc0 && c <= 0xde) || (c >= 0x391 && c <= 0x3a9) || (c >= 0x410 && c <= 0x42f)) {
    c += 32;
  } else if (c >= 0x400 && c <= 0x40f) {
    c += 80;
  } else if (c >= 0xff10 && c <= 0xff5a) {  // full-width forms
    return append_folded(out, c - 0xff10 + '0');
  }
  append_utf8(out, c);
}

bool ends_with(std::string_view s, std::string_view end) {
  return s.size() >= end.size() && s.substr(s.size() - end.size()) == end;
}

bool has_vowel(std::string_view s) { return s.find_first_of("aeiouy") != std::string_view::npos; }

}  // namespace

std::vector<Word> words_of(std::string_view text) {
  std::vector<Word> words;
  std::string word;
  bool spaceless = false;
  const auto end_word = [&] {
    if (!word.empty()) {
      std::string stem = spaceless ? word : stem_of(word);
      words.push_back({std::move(word), std::move(stem), spaceless});
    }
    word.clear();
  };
  for (size_t i = 0; i < text.size(); i += utf8_length(text, i)) {
    const uint32_t c = utf8_code_point(text, i);
    if (!is_letter(c)) {
      end_word();
      continue;
    }
    if (is_spaceless_script(c) != spaceless) end_word();
    spaceless = is_spaceless_script(c);
    append_folded(word, c);
  }
  end_word();
  return words;
}

std::string stem_of(const std::string& word) {
  if (word.size() < 4 || !std::all_of(word.begin(), word.end(), [](char c) { return c >= 'a' && c <= 'z'; }))
    return word;
  std::string s = word;
  // Plurals and the third person.
  if (ends_with(s, "sses"))
    s.resize(s.size() - 2);
  else if (ends_with(s, "ies") && s.size() > 4)
    s.replace(s.size() - 3, 3, "y");
  else if (ends_with(s, "s") && !ends_with(s, "ss") && !ends_with(s, "us") && !ends_with(s, "is"))
    s.resize(s.size() - 1);
  const auto strip = [&](std::string_view end, size_t keep) {
    if (!ends_with(s, end) || s.size() < end.size() + keep ||
        !has_vowel(std::string_view(s).substr(0, s.size() - end.size())))
      return false;
    s.resize(s.size() - end.size());
    return true;
  };
  const bool verbal = strip("ing", 3) || strip("ed", 3);
  if (verbal && s.size() > 3 && s[s.size() - 1] == s[s.size() - 2] &&
      std::string_view("lsz").find(s.back()) == std::string_view::npos) {
    s.resize(s.size() - 1);  // running, planned
  }
  if (!verbal) (void)(strip("ation", 4) || strip("ment", 4) || strip("ness", 4) || strip("ly", 4) || strip("ion", 4));
  if (s.size() > 3 && s.back() == 'e') s.resize(s.size() - 1);
  if (s.size() > 3 && s.back() == 'y') s.back() = 'i';
  return s;
}

bool is_stop_word(const std::string& word) {
  static const std::unordered_set<std::string> kWords = {
      "a",       "about", "above",  "according", "after",  "again",   "all",     "also",   "am",     "an",      "and",
      "any",     "are",   "aren",   "as",        "at",     "be",      "because", "been",   "before", "being",   "below",
      "between", "both",  "but",    "by",        "can",    "cannot",  "could",   "did",    "didn",   "do",      "does",
      "doesn",   "doing", "don",    "down",      "during", "each",    "few",     "for",    "from",   "further", "get",
      "gets",    "had",   "happen", "happens",   "has",    "have",    "having",  "he",     "her",    "here",    "hers",
      "him",     "his",   "how",    "i",         "if",     "in",      "into",    "is",     "isn",    "it",      "its",
      "itself",  "just",  "ll",     "may",       "many",   "me",      "might",   "more",   "most",   "much",    "must",
      "my",      "need",  "no",     "nor",       "not",    "of",      "off",     "often",  "on",     "once",    "only",
      "or",      "other", "our",    "ours",      "out",    "over",    "own",     "please", "re",     "s",       "same",
      "say",     "says",  "shall",  "she",       "should", "so",      "some",    "such",   "t",      "tell",    "than",
      "that",    "the",   "their",  "theirs",    "them",   "then",    "there",   "these",  "they",   "this",    "those",
      "through", "to",    "too",    "under",     "until",  "up",      "upon",    "us",     "use",    "used",    "ve",
      "very",    "was",   "we",     "were",      "what",   "when",    "where",   "which",  "while",  "who",     "whom",
      "whose",   "why",   "will",   "with",      "within", "without", "would",   "you",    "your",   "yours"};
  return kWords.count(word) != 0;
}

std::vector<std::string> character_pairs(std::string_view run) {
  std::vector<std::string> pairs;
  for (size_t i = 0; i < run.size();) {
    const size_t n = utf8_length(run, i);
    if (i + n < run.size()) pairs.emplace_back(run.substr(i, n + utf8_length(run, i + n)));
    i += n;
  }
  if (pairs.empty() && !run.empty()) pairs.emplace_back(run);
  return pairs;
}

}  // namespace cento
