#include "eval/cloze.h"

#include <catch2/catch.hpp>
#include <set>

#include "base/text.h"
#include "docs/words.h"
#include "eval/text_score.h"

namespace cento::test {
namespace {

WordFrequencies counted(const std::vector<std::string>& chunks) {
  WordFrequencies out;
  for (const std::string& c : chunks) out.add(c);
  return out;
}

std::optional<Cloze> cloze_of(const std::string& text, uint64_t seed = 1, const std::vector<std::string>& others = {}) {
  std::vector<std::string> chunks = others;
  chunks.push_back(text);
  Rng rng(seed);
  return make_cloze(text, counted(chunks), rng);
}

std::string answer_of(const std::string& text, const std::vector<std::string>& others = {}) {
  const auto cloze = cloze_of(text, 1, others);
  return cloze ? cloze->answer : "";
}

TEST_CASE("cloze: a number, a name or a rare word of a sentence is what is missing", "[eval]") {
  const auto cloze = cloze_of("Up to five days of annual leave\nmay be carried over until 31 March.");
  REQUIRE(cloze);
  CHECK(cloze->original == "Up to five days of annual leave may be carried over until 31 March.");
  CHECK(cloze->answer == "31");
  CHECK(cloze->sentence == "Up to five days of annual leave may be carried over until _____ March.");
  CHECK(cloze->question == "Which word or number is missing: \"" + cloze->sentence + "\"");
  CHECK(answer_of("Before the tide turns the pilot and the crew of Petrel have to be on board.") == "Petrel");
  CHECK(answer_of("Set `max_payload` to the largest message that any of the clients may send.") == "max_payload");
  CHECK(answer_of("The pump can move up to 5,000 litres of water in an hour of work.") == "5,000");
  // Only one word is not in most of the chunks.
  std::vector<std::string> others(
      200, "when the tide turns the crew of the boat has to be there and on board with lanterns");
  CHECK(answer_of("When the tide turns the crew of the boat has to be there with barometers.", others) == "barometers");
  // A capital says nothing at the beginning of a sentence, where every word has one.
  others.assign(200, "tells the keeper of the light about the boats that are still out and when they are due");
  others.insert(others.end(), 10, "somebody");
  CHECK(answer_of("Somebody tells the keeper of the light about the boats that are still out.", others) == "");
  CHECK(answer_of("The keeper of the light tells Somebody about the boats that are still out.", others) == "Somebody");
}

TEST_CASE("cloze: text that is no sentence, or says nothing of its own, gives no question", "[eval]") {
  for (const char* text : {
           "",
           "   \n\n ",
           "Too short to tell.",
           "| Port | 4222 | what clients connect to, for all the servers of it |.",
           "- one thing\n- another thing\n- a third thing 12\n- a fourth thing that is longer 13.",
           "A heading that has quite a lot of words in it and yet no mark at its end 1978",
           "for (int i = 0; i < 10; ++i) { sum += values[i] * weights[i]; } return sum / 10.",
           "We have it and you have it and they have it and all of us do.",
           "Wren, Heron and Gull, and then Wren before Heron, and Heron and Wren, but not Gull.",
       }) {
    CAPTURE(text);
    CHECK_FALSE(cloze_of(text));
  }
  CHECK_FALSE(cloze_of(std::string(100000, 'a') + " b c d e f g h i."));
  CHECK_FALSE(cloze_of("The bell\x1b[31m rings 12 times when the ferry leaves the eastern quay."));
  // Every chunk has all of it.
  const std::string known = "The harbour office opens at 0900 and closes when the ferry Heron has left the quay.";
  CHECK_FALSE(cloze_of(known, 1, std::vector<std::string>(100, known)));
}

TEST_CASE("cloze: the question never shows its answer", "[eval]") {
  // The figure twice; a word in another form; a part of a longer one; what the question itself says.
  for (const char* text : {
           "Gate 17 opens when gate 17 has been greased and the old grease taken off it.",
           "The greasing of the winch goes before that of other things, and winches need grease.",
           "The missing number of a sentence is the word that somebody took out of a sentence.",
           "With max_payload the server bounds the payload of what clients may send to it.",
           "In 1978 the lock was built, and 78 boats went through it on the first day alone.",
           "Über die Fähre entscheidet der Hafenmeister, und die Fahre nach Föhr fährt um 17 Uhr.",
       }) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const auto cloze = cloze_of(text, seed);
      if (!cloze) continue;
      CAPTURE(text, cloze->answer, cloze->question);
      CHECK_FALSE(holds_answer_groups(cloze->question, std::vector<std::vector<std::string>>{{cloze->answer}}));
      const std::string lower = to_lower_ascii(cloze->question);
      CHECK(lower.find(to_lower_ascii(cloze->answer)) == std::string::npos);
      std::set<std::string> stems;
      for (const Word& w : words_of(cloze->question)) stems.insert(w.stem);
      for (const Word& w : words_of(cloze->answer)) CHECK_FALSE(stems.contains(w.stem));
    }
  }
  CHECK(answer_of("Gate 17 opens when gate 17 has been greased and the old grease taken off it.") != "17");
  // A port of an address is no word of the sentence.
  CHECK(answer_of("Then go to http://localhost:9090/graph and look at what the Petrel shows you there.") == "Petrel");
}

TEST_CASE("cloze: the same text, frequencies and seed give the same question, and seeds differ", "[eval]") {
  std::string text;
  for (int i = 0; i < 30; ++i)
    text += "The boat with the name N" + std::to_string(100 + i) + " lies at quay and waits for water. ";
  std::set<std::string> answers;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const auto a = cloze_of(text, seed), b = cloze_of(text, seed);
    REQUIRE((a && b));
    CHECK((a->answer == b->answer && a->question == b->question));
    answers.insert(a->answer);
  }
  CHECK(answers.size() > 3);
}

TEST_CASE("cloze: other scripts are cut between characters and words, and stay valid", "[eval]") {
  CHECK(answer_of("Der Kapitän der Fähre muß bis 18 Uhr im Büro gemeldet haben, daß alle an Bord sind.") == "Kapitän");
  CHECK(answer_of("Паром уходит с восточной пристани и приходит в Выборг ещё до захода солнца.") == "Выборг");
  // Cut where the script changes; hiragana and long runs of Han characters are no words.
  CHECK(answer_of("この手順ではまず最初にクラスターを用意してから次に進んでください。") == "クラスター");
  CHECK(answer_of("安装之前请确认您的集群版本不低于 1.24 并且已经配置好了访问权限。") == "1.24");
  // An accent of its own does not part a word.
  const auto cloze = cloze_of("On the way back the crew goes to see Rene\u0301e and the others at the lock.");
  REQUIRE(cloze);
  CHECK(cloze->answer == "Rene\u0301e");
  const std::string mixed =
      "Der Zug № 12 fährt “heute” um 7:45 über Łódź — 東京 と クラスター — nach Αθήνα, sagt José Müller‑Lüdenscheidt. ";
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto c = cloze_of(mixed + mixed.substr(0, 90) + "?", seed);
    if (!c) continue;
    CHECK((is_valid_utf8(c->question) && is_valid_utf8(c->answer) && is_valid_utf8(c->original)));
    CHECK(c->original.find(c->answer) != std::string::npos);
  }
}

}  // namespace
}  // namespace cento::test
