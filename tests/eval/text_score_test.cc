#include "eval/text_score.h"

#include <catch2/catch.hpp>

#include "base/rng.h"

namespace cento {
namespace {

using Texts = std::vector<std::string>;
using Groups = std::vector<std::vector<std::string>>;

TEST_CASE("text score: normalisation is SQuAD's", "[eval]") {
  struct Row {
    std::string text, normal;
  };
  const std::vector<Row> rows = {
      {"", ""},
      {"   \t\n ", ""},
      {"The Eiffel Tower", "eiffel tower"},
      {"An  apple,\na pear... and THE theatre!", "apple pear and theatre"},  // "theatre" is no article
      {"well-known (U.S.)", "wellknown us"},                                 // taken out, not turned into a space
      {"the", ""},
      {"t.h.e end", "end"},  // punctuation goes first, then articles
      {"$1,250.50", "125050"},
      {"it's", "its"},
      // Beyond ASCII: what SQuAD's script does to ASCII.
      {"\u201cDon\u2019t\u201d \u2014 caf\u00e9s\u2026", "dont caf\u00e9s"},
      {"\u00c9COLE \u0416\u0410\u0411\u0410 \u039f\u0394\u039f\u03a3 \u0178 \u0160",
       "\u00e9cole \u0436\u0430\u0431\u0430 \u03bf\u03b4\u03bf\u03c3 \u00ff \u0161"},
      {"\uff21\uff22\u3000\uff08\u6771\u4eac\uff09\u3002", "\uff41\uff42 \u6771\u4eac"},
      {"a\u00a0the\u2003b", "b"},  // no-break and em space part words
  };
  for (const Row& row : rows) {
    CAPTURE(row.text);
    CHECK(normalise_answer(row.text) == row.normal);
  }
}

TEST_CASE("text score: exact match takes any reference", "[eval]") {
  CHECK(exact_match("The answer.", Texts{"no", "Answer"}) == 1);
  CHECK(exact_match("answers", Texts{"answer"}) == 0);
  CHECK(exact_match("No.", Texts{"no"}) == 1);
  CHECK(exact_match("yes", Texts{"no"}) == 0);
  CHECK(exact_match("", Texts{"no"}) == 0);
  CHECK(exact_match("", Texts{}) == 0);
  CHECK(exact_match("the", Texts{"", "x"}) == 1);  // neither has a word left
}

TEST_CASE("text score: token F1 by hand", "[eval]") {
  struct Row {
    std::string answer;
    Texts references;
    double f1;
  };
  const std::vector<Row> rows = {
      // 2 common of 3 answered ("in" too) and 2 wanted: P 2/3, R 1, F 2 * (2/3) / (5/3) = 4/5
      {"in Dodge County", {"Dodge County"}, 0.8},
      {"Dodge", {"Dodge County"}, 2.0 / 3},  // P 1, R 1/2: 1 / (3/2)
      {"Dodge", {"nothing", "Dodge County", "dodge!"}, 1},
      // Repeated words count as often as both have them: 2 common of 4 and 2: P 1/2, R 1: 2/3
      {"new new york york", {"new york"}, 2.0 / 3},
      {"york york york", {"new york"}, 0.4},  // 1 common of 3 and 2: P 1/3, R 1/2: (1/3) / (5/6)
      {"no", {"yes"}, 0},
      {"No.", {"no"}, 1},
      {"no they are not", {"no"}, 0.4},  // P 1/4, R 1: (1/2) / (5/4)
      {"1835", {"1835"}, 1},
      {"1,835", {"1835"}, 1},
      {"in 1835", {"1836"}, 0},
      {"", {"x"}, 0},
      {"x", {""}, 0},
      {"the", {"a"}, 1},  // nothing left on either side
      {"x", {}, 0},
      // Japanese, no spaces: characters. 東京 in 東京都: 2 common of 3 and 2.
      {"\u6771\u4eac\u90fd\u3002", {"\u6771\u4eac"}, 0.8},
      // Mixed: Kubernetes クラ against クラ: 2 common of 3 and 2.
      {"Kubernetes\u30af\u30e9", {"\u30af\u30e9"}, 0.8},
      {"\u4eba\u3005", {"\u4eba\u3005"}, 1},
  };
  for (const Row& row : rows) {
    CAPTURE(row.answer, row.references);
    CHECK(token_f1(row.answer, row.references) == Approx(row.f1).epsilon(1e-15));
  }
}

TEST_CASE("text score: ROUGE-L by hand", "[eval]") {
  struct Row {
    std::string answer;
    Texts references;
    double f;
  };
  const std::vector<Row> rows = {
      // Lin 2004, section 3.1: with "police killed the gunman" the sentences "police kill the gunman" and "the gunman
      // kill police" have subsequences of 3 ("police the gunman") and 2 ("the gunman") of 4 words: P = R = F = 3/4,
      // 1/2.
      {"police kill the gunman", {"police killed the gunman"}, 0.75},
      {"the gunman kill police", {"police killed the gunman"}, 0.5},
      {"the gunman police killed", {"police killed the gunman"}, 0.5},
      // Gaps count: 3 of 5 and 3: P 3/5, R 1: (6/5) / (8/5)
      {"a x b y c", {"a b c"}, 0.75},
      {"A, B; c!", {"a b c"}, 1},         // case and punctuation do not
      {"well-known", {"well known"}, 1},  // parted at the hyphen, unlike SQuAD's words
      {"c b a", {"a b c"}, 1.0 / 3},
      {"b", {"x y", "a b", ""}, 2.0 / 3},  // the best of three
      {"a a a", {"a"}, 0.5},               // 1 of 3 and 1: P 1/3, R 1
      {"", {"a"}, 0},
      {"a", {""}, 0},
      {"", {""}, 0},
      {"...", {"!"}, 0},
      {"a", {}, 0},
      // \u6771\u4eac\u306b\u884c\u304f and \u4eac\u306b\u304f: 3 of 5 and 3
      {"\u6771\u4eac\u306b\u884c\u304f", {"\u4eac\u306b\u304f"}, 0.75},
  };
  for (const Row& row : rows) {
    CAPTURE(row.answer, row.references);
    CHECK(rouge_l(row.answer, row.references) == Approx(row.f).epsilon(1e-15));
  }
}

// The textbook's dynamic programme, in two rows.
size_t lcs_by_table(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b) {
  std::vector<size_t> row(a.size() + 1), next(a.size() + 1);
  for (const uint32_t y : b) {
    for (size_t i = 0; i < a.size(); ++i) next[i + 1] = a[i] == y ? row[i] + 1 : std::max(row[i + 1], next[i]);
    std::swap(row, next);
  }
  return row[a.size()];
}

TEST_CASE("text score: the bit-parallel subsequence has the length of the table's", "[eval]") {
  Rng rng(2);
  for (const size_t n : {0, 1, 63, 64, 65, 128, 200, 1000}) {
    for (const size_t m : {0, 1, 64, 300}) {
      for (const uint64_t alphabet : {1, 2, 3, 20, 5000}) {
        CAPTURE(n, m, alphabet);
        std::vector<uint32_t> a(n), b(m);
        for (auto& x : a) x = static_cast<uint32_t>(rng.below(alphabet));
        for (auto& x : b) x = static_cast<uint32_t>(rng.below(alphabet));
        CHECK(lcs_length(a, b) == lcs_by_table(a, b));
        CHECK(lcs_length(b, a) == lcs_length(a, b));
        CHECK(lcs_length(a, a) == n);
      }
    }
  }
}

TEST_CASE("text score: words beyond ROUGE's bound do not count", "[eval]") {
  // One word more than the bound on both sides, and only that one is the same: no common word is left.
  std::string a, b;
  for (size_t i = 0; i < kRougeWordsMax; ++i) {
    a += "x ";
    b += "y ";
  }
  CHECK(rouge_l(a + "end", Texts{b + "end"}) == 0);
  CHECK(rouge_l("end", Texts{"end"}) == 1);
}

TEST_CASE("text score: answer groups want one alternative each, as whole words", "[eval]") {
  struct Row {
    std::string answer;
    Groups groups;
    bool right;
  };
  const std::vector<Row> rows = {
      {"The port is 4222.", {{"4222"}}, true},
      {"The port is 14222.", {{"4222"}}, false},
      {"4222_x", {{"4222"}}, false},
      {"port:4222", {{"4222"}}, true},
      {"14222 or 4222", {{"4222"}}, true},  // the second place counts
      {"run --config FILE", {{"--config"}}, true},
      {"run --config-file", {{"--config"}}, true},  // a hyphen ends a word
      {"Two   gigabytes\nof memory", {{"two gigabytes of"}}, true},
      {"TWO gigabytes", {{"two  Gigabytes"}}, true},
      {"one and two", {{"one"}, {"2", "two"}}, true},
      {"one", {{"one"}, {"2", "two"}}, false},
      {"", {{"x"}}, false},
      {"x", {}, false},
      {"x", {{}}, false},
      {"x", {{"", " "}}, false},
      {"Sicherheitskonfigurationen", {{"Sicherheitskonfiguration"}}, false},
      {"STRASSE", {{"Stra\u00dfe"}}, true},
      {"\u041c\u041e\u0421\u041a\u0412\u0410!", {{"\u043c\u043e\u0441\u043a\u0432\u0430"}}, true},
      {"\u00fcber", {{"ber"}}, false},  // a letter beyond ASCII is a letter
      // Words of scripts without spaces end anywhere, also beside Latin.
      {"Kubernetes\u30af\u30e9\u30b9\u30bf", {{"Kubernetes"}}, true},
      {"\u30af\u30e9Kubernetes", {{"Kubernetes"}}, true},
      {"\u6771\u4eac\u306b\u884c\u304f", {{"\u4eac"}}, true},
      {"a\u00a0b", {{"a b"}}, true},
  };
  for (const Row& row : rows) {
    CAPTURE(row.answer, row.groups);
    CHECK(holds_answer_groups(row.answer, row.groups) == row.right);
  }
}

TEST_CASE("text score: an answer that says that the documents do not say", "[eval]") {
  for (const char* text : {"The documents do not say.", "The passage DOES NOT  mention it", "They don't contain that.",
                           "The text doesn\u2019t specify a port", "This is not in the passages."}) {
    CAPTURE(text);
    CHECK(says_not_in_documents(text));
  }
  for (const char* text :
       {"", "The port is 4222.", "They do not run as root.", "It is not in use", "does not sayings"}) {
    CAPTURE(text);
    CHECK_FALSE(says_not_in_documents(text));
  }
}

TEST_CASE("text score: no bytes break it", "[eval]") {
  Rng rng(3);
  for (int round = 0; round < 300; ++round) {
    std::string a(rng.below(40), '\0'), b(rng.below(40), '\0');
    for (char& c : a) c = static_cast<char>(rng.next());
    for (char& c : b) c = static_cast<char>(rng.next());
    CAPTURE(round);
    for (const double score : {token_f1(a, Texts{b}), rouge_l(a, Texts{b}), exact_match(a, Texts{b})}) {
      CHECK((score >= 0 && score <= 1));
    }
    CHECK(token_f1(a, Texts{a}) == 1);
    (void)holds_answer_groups(a, Groups{{b}});
  }
}

}  // namespace
}  // namespace cento
