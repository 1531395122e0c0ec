#include "docs/retriever.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "base/text.h"
#include "docs/utf8.h"
#include "docs/words.h"

namespace cento {
namespace {

constexpr size_t kQuestionBytesMax = 8192;  // of a longer one the start is searched for
constexpr size_t kTermsMax = 48;
constexpr int64_t kCandidates = 300;   // from each text index; ranked here
constexpr int64_t kCountMax = 50'000;  // a term in more chunks than this counts as being in this many

// BM25's usual constants (Robertson and Zaragoza 2009); the length term is weak because chunks are about equally long.
constexpr double kK1 = 1.2, kB = 0.4;
constexpr double kHeaderWeight = 2.0;  // a word in the header counts as this many in the body

// Below this share of the question's telling words nothing is worth citing; the second holds when one of its words is
// nowhere in the collection. Set by tests/bench/retrieval_docqa (256 tokens, Qwen2's tokenizer) on the questions it
// prints and on nothing else, so other documents may want other values: of 55 answerable questions the lowest had 0.39
// and 0.51; of 8 unanswerable ones 6 fall below. Words are all this looks at: a question about things that the
// documents name without answering it (Kafka in the NATS docs) passes, and the model has to say so.
constexpr double kCoverageMin = 0.38, kCoverageMinIfAbsent = 0.505;

struct Term {
  std::string text, stem;
  std::string match;  // FTS5 expression
  bool spaceless = false;
  std::vector<std::string> pairs;  // of a spaceless run
  double idf = 0;
  double part = 1;     // less when only the beginning of the word was found anywhere
  std::string prefix;  // that beginning
};

std::string quoted(std::string_view word) {
  std::string out = "\"";
  for (const char c : word) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + "\"";
}

// Matches the word and its inflections: what it has in common with its stem, as a prefix, if that is long enough to
// tell.
std::string match_of(const std::string& text, const std::string& stem) {
  size_t n = 0;
  while (n < text.size() && n < stem.size() && text[n] == stem[n]) ++n;
  if (n >= 4) return quoted(std::string_view(text).substr(0, utf8_floor(text, n))) + "*";
  std::string out = quoted(text);
  if (stem != text) out += " OR " + quoted(stem);
  return "(" + out + " OR " + quoted(text + "s") + ")";
}

class Retriever {
 public:
  Retriever(DocStore& store, int64_t collection_id, const std::string& question)
      : db_(store.catalogue().db()), collection_id_(collection_id) {
    std::string text = to_valid_utf8(question.substr(0, kQuestionBytesMax));
    std::replace(text.begin(), text.end(), '\0', ' ');
    make_terms(text);
  }

  Retrieved run(size_t top_k) {
    Retrieved out;
    if (terms_.empty()) return nothing("the question has no words to search for");
    if (!weigh_terms()) return nothing("the collection has no text");
    gather();
    rank();
    if (ranked_.empty()) return nothing("none of the question's words is in the documents");
    const double best = std::max_element(ranked_.begin(), ranked_.end(), [](const Ranked& a, const Ranked& b) {
                          return a.coverage < b.coverage;
                        })->coverage;
    char share[96];
    std::snprintf(share, sizeof share, "the best passage holds %.0f %% of the question's telling words", best * 100);
    if (best < kCoverageMin || (best < kCoverageMinIfAbsent && !absent_.empty())) {
      return nothing(std::string(share) + (absent_.empty() ? "" : "; \"" + absent_ + "\" is nowhere in the documents"));
    }
    select(top_k, out.hits);
    out.why = share;
    return out;
  }

 private:
  struct Ranked {
    int64_t id = 0, source = 0;
    double score = 0, coverage = 0;
    size_t text = 0;  // index into texts_
  };

  static Retrieved nothing(std::string why) {
    Retrieved out;
    out.nothing_fits = true;
    out.why = std::move(why);
    return out;
  }

  void make_terms(const std::string& question) {
    std::vector<Word> words = words_of(question);
    const bool only_stop_words =
        std::all_of(words.begin(), words.end(), [](const Word& w) { return is_stop_word(w.text); });
    std::unordered_set<std::string> seen;
    for (Word& word : words) {
      if (terms_.size() == kTermsMax) break;
      if ((!only_stop_words && is_stop_word(word.text)) || !seen.insert(word.stem).second) continue;
      Term term;
      term.spaceless = word.spaceless;
      if (word.spaceless) {
        term.pairs = character_pairs(word.text);
      } else {
        term.match = match_of(word.text, word.stem);
      }
      term.text = std::move(word.text);
      term.stem = std::move(word.stem);
      terms_.push_back(std::move(term));
    }
  }

  int64_t count(const char* table, const std::string& match) {
    Stmt q = db_.prepare("SELECT count(*) FROM (SELECT 1 FROM " + std::string(table) + " WHERE " + table +
                         " MATCH ?1 LIMIT ?2)");
    q.bind_text(1, match).bind(2, kCountMax);
    q.step();
    return q.integer(0);
  }

  bool weigh_terms() {
    Stmt q = db_.prepare("SELECT count(*) FROM chunks");
    q.step();
    n_chunks_ = static_cast<double>(q.integer(0));
    if (n_chunks_ == 0) return false;
    // A small collection is taken as a sample of a larger one: in ten chunks a word that happens to be absent is no
    // news.
    n_chunks_ = std::max(n_chunks_, 200.0);
    const auto idf = [&](int64_t df) {
      const double n = static_cast<double>(df);
      return std::log(1 + (n_chunks_ - std::min(n_chunks_, n) + 0.5) / (n + 0.5));
    };
    for (Term& term : terms_) {
      if (term.spaceless) {
        // A run is worth about as many words as it has pairs of characters, halved; each is taken as a fairly rare
        // word.
        term.idf = std::log(1 + n_chunks_) * 0.5 * std::max(1.0, static_cast<double>(term.pairs.size()) / 3);
        continue;
      }
      const int64_t df = count("chunk_words", term.match);
      term.idf = idf(df);
      if (df == 0) shorten(term);
      if (absent_.empty() && term.text.size() >= 4 && !is_in_collection(term.match)) absent_ = term.text;
    }
    return true;
  }

  bool is_in_collection(const std::string& match) {
    Stmt q = db_.prepare("SELECT 1 FROM chunk_words WHERE chunk_words MATCH ?2 AND " +
                         collection_filter("chunk_words.rowid") + " LIMIT 1");
    q.bind(1, collection_id_).bind_text(2, match);
    return q.step();
  }

  // A word that is nowhere, such as a compound or a misspelt end: the longest beginning of it that is somewhere.
  void shorten(Term& term) {
    const size_t shortest = std::max<size_t>(6, term.text.size() * 55 / 100);
    for (size_t n = term.text.size(); n-- > shortest;) {
      if (utf8_floor(term.text, n) != n) continue;
      const std::string match = quoted(std::string_view(term.text).substr(0, n)) + "*";
      if (count("chunk_words", match) == 0) continue;
      term.prefix = term.text.substr(0, n);
      term.match = match;
      term.part = static_cast<double>(n) / static_cast<double>(term.text.size());
      return;
    }
  }

  void gather() {
    std::string words, trigrams;
    const bool any_spaceless = std::any_of(terms_.begin(), terms_.end(), [](const Term& t) { return t.spaceless; });
    const auto add = [](std::string& list, const std::string& item) { list += (list.empty() ? "" : " OR ") + item; };
    size_t n_rare = 0;
    for (const Term& term : terms_) n_rare += !term.spaceless && term.idf > 1.4;
    for (const Term& term : terms_) {
      if (term.spaceless) {
        std::vector<size_t> starts;
        for (size_t i = 0; i < term.text.size(); i += utf8_length(term.text, i)) starts.push_back(i);
        starts.push_back(term.text.size());
        for (size_t i = 0; i + 3 < starts.size() && i < 32; ++i) {
          add(trigrams, quoted(std::string_view(term.text).substr(starts[i], starts[i + 3] - starts[i])));
        }
        if (starts.size() <= 3) short_runs_.push_back(term.text);
      } else {
        // Words that every fourth chunk has only slow the search down once there are rarer ones.
        if (term.idf > 1.4 || n_rare < 3) add(words, term.match);
        if (any_spaceless && term.text.size() >= 3) add(trigrams, quoted(term.text));
      }
    }
    if (!words.empty()) candidates("chunk_words", words);
    if (!trigrams.empty()) candidates("chunk_trigrams", trigrams);
    if (texts_.empty()) scan_for_short_runs();
  }

  // CROSS JOIN keeps the order of the tables: from the chunk to its few sources, never through all of the collection's.
  std::string collection_filter(const std::string& rowid) const {
    return "EXISTS (SELECT 1 FROM source_chunks p CROSS JOIN sources s ON s.id = p.source_id WHERE p.chunk_id = " +
           rowid + " AND s.collection_id = ?1)";
  }

  void candidates(const std::string& table, const std::string& match) {
    Stmt q = db_.prepare("SELECT rowid FROM " + table + " WHERE " + table + " MATCH ?2 AND " +
                         collection_filter(table + ".rowid") + " ORDER BY bm25(" + table + ", 2.0, 1.0) LIMIT ?3");
    q.bind(1, collection_id_).bind_text(2, match).bind(3, kCandidates);
    std::vector<int64_t> ids;
    while (q.step()) ids.push_back(q.integer(0));
    for (const int64_t id : ids) load(id);
  }

  // One or two characters of a spaceless script are below what the trigram index can find: the texts are looked
  // through.
  void scan_for_short_runs() {
    for (const std::string& run : short_runs_) {
      Stmt q = db_.prepare("SELECT id FROM chunks WHERE (instr(body, ?2) OR instr(header, ?2)) AND " +
                           collection_filter("chunks.id") + " LIMIT ?3");
      q.bind(1, collection_id_).bind_text(2, run).bind(3, kCandidates);
      std::vector<int64_t> ids;
      while (q.step()) ids.push_back(q.integer(0));
      for (const int64_t id : ids) load(id);
    }
  }

  void load(int64_t id) {
    if (!loaded_.insert(id).second) return;
    if (!load_) {
      load_.emplace(
          db_.prepare("SELECT c.header, c.body, (SELECT p.source_id FROM source_chunks p CROSS JOIN sources s ON s.id "
                      "= p.source_id WHERE p.chunk_id = c.id "
                      "AND s.collection_id = ?1 ORDER BY s.path LIMIT 1) FROM chunks c WHERE c.id = ?2"));
    }
    load_->bind(1, collection_id_).bind(2, id);
    if (load_->step()) texts_.push_back({id, load_->integer(2), load_->text(0), load_->text(1)});
    load_->reset();
  }

  void rank() {
    double total = 0, length = 0;
    for (const Term& term : terms_) total += term.idf;
    std::vector<std::vector<Word>> bodies;
    for (const Text& text : texts_) {
      bodies.push_back(words_of(text.body));
      length += static_cast<double>(bodies.back().size());
    }
    const double mean = std::max(1.0, length / static_cast<double>(std::max<size_t>(1, texts_.size())));
    for (size_t i = 0; i < texts_.size(); ++i) {
      Ranked ranked = score(texts_[i], bodies[i], mean, total);
      ranked.text = i;
      if (ranked.score > 0) ranked_.push_back(ranked);
    }
    std::sort(ranked_.begin(), ranked_.end(),
              [](const Ranked& a, const Ranked& b) { return a.score != b.score ? a.score > b.score : a.id < b.id; });
  }

  struct Text {
    int64_t id, source;
    std::string header, body;
  };

  Ranked score(const Text& text, const std::vector<Word>& body, double mean, double total) const {
    Ranked out;
    out.id = text.id;
    out.source = text.source;
    const std::vector<Word> header = words_of(text.header);
    const double norm = kK1 * (1 - kB + kB * static_cast<double>(body.size() + header.size()) / mean);
    // Places of each term in the body, for closeness.
    std::vector<std::vector<size_t>> places(terms_.size());
    double covered = 0;
    for (size_t t = 0; t < terms_.size(); ++t) {
      const Term& term = terms_[t];
      if (term.spaceless) {
        const double share = share_of_pairs(term, text);
        covered += term.idf * share;
        out.score += term.idf * share * share * (kK1 + 1) / 2;
        continue;
      }
      double tf = 0;
      for (size_t i = 0; i < body.size(); ++i) {
        if (!is_match(term, body[i])) continue;
        tf += 1;
        places[t].push_back(i);
      }
      for (const Word& word : header) tf += is_match(term, word) ? kHeaderWeight : 0;
      if (tf == 0) continue;
      covered += term.idf * term.part;
      out.score += term.idf * term.part * tf * (kK1 + 1) / (tf + norm);
    }
    out.score += closeness(places);
    out.coverage = total > 0 ? covered / total : 0;
    out.score *= 0.5 + 0.5 * out.coverage;
    return out;
  }

  static bool is_match(const Term& term, const Word& word) {
    if (!term.prefix.empty()) return word.text.compare(0, term.prefix.size(), term.prefix) == 0;
    return word.stem == term.stem || word.text == term.text;
  }

  static double share_of_pairs(const Term& term, const Text& text) {
    size_t found = 0;
    for (const std::string& pair : term.pairs)
      found += text.body.find(pair) != std::string::npos || text.header.find(pair) != std::string::npos;
    return static_cast<double>(found) / static_cast<double>(std::max<size_t>(1, term.pairs.size()));
  }

  // Neighbours of the question that are near each other in the text say more than the two words apart.
  double closeness(const std::vector<std::vector<size_t>>& places) const {
    constexpr size_t kNear = 4;
    double sum = 0;
    for (size_t t = 0; t + 1 < terms_.size(); ++t) {
      size_t best = kNear + 1, b = 0;
      for (const size_t a : places[t]) {
        while (b < places[t + 1].size() && places[t + 1][b] + kNear < a) ++b;
        for (size_t k = b; k < places[t + 1].size() && places[t + 1][k] <= a + kNear; ++k) {
          const size_t other = places[t + 1][k];
          best = std::min(best, other > a ? other - a : a - other);
        }
      }
      if (best <= kNear)
        sum += std::min(terms_[t].idf, terms_[t + 1].idf) * 0.5 / static_cast<double>(std::max<size_t>(1, best));
    }
    return sum;
  }

  // Sorted hashes of word triples.
  std::vector<uint64_t> shingles_of(const Ranked& ranked) const {
    const std::vector<Word> words = words_of(texts_[ranked.text].body);
    std::vector<uint64_t> list;
    const std::hash<std::string> hash;
    for (size_t i = 0; i + 2 < words.size(); ++i) {
      list.push_back(hash(words[i].text) * 31 * 31 + hash(words[i + 1].text) * 31 + hash(words[i + 2].text));
    }
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    return list;
  }

  static bool nearly_equal(const std::vector<uint64_t>& a, const std::vector<uint64_t>& b) {
    if (a.size() < 5 || b.size() < 5) return false;
    std::vector<uint64_t> both;
    std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
    return static_cast<double>(both.size()) >= 0.9 * static_cast<double>(a.size() + b.size() - both.size());
  }

  // Best first; each further passage of one source counts a little less, so that one long file does not fill the list;
  // a passage that is nearly the same as a chosen one is left out.
  void select(size_t top_k, std::vector<Hit>& hits) {
    constexpr double kSameSource = 0.93;
    std::map<int64_t, double> factor;
    std::vector<std::vector<uint64_t>> chosen;
    std::vector<bool> used(ranked_.size(), false);
    const size_t reach = std::min(ranked_.size(), std::max<size_t>(64, top_k * 4));
    while (hits.size() < top_k) {
      size_t best = reach;
      double best_score = 0;
      for (size_t i = 0; i < reach; ++i) {
        if (used[i]) continue;
        const auto found = factor.find(ranked_[i].source);
        const double value = ranked_[i].score * (found == factor.end() ? 1.0 : found->second);
        if (value > best_score) {
          best_score = value;
          best = i;
        }
      }
      if (best == reach) return;
      used[best] = true;
      const Ranked& pick = ranked_[best];
      std::vector<uint64_t> shingles = shingles_of(pick);
      if (std::any_of(chosen.begin(), chosen.end(), [&](const auto& other) { return nearly_equal(other, shingles); }))
        continue;
      chosen.push_back(std::move(shingles));
      hits.push_back({pick.id, best_score, pick.coverage});
      auto [entry, fresh] = factor.emplace(pick.source, kSameSource);
      if (!fresh) entry->second *= kSameSource;
    }
  }

  Db& db_;
  int64_t collection_id_;
  std::vector<Term> terms_;
  std::vector<std::string> short_runs_;
  double n_chunks_ = 0;
  std::string absent_;  // the first word of the question that is nowhere in the collection
  std::optional<Stmt> load_;
  std::unordered_set<int64_t> loaded_;
  std::vector<Text> texts_;
  std::vector<Ranked> ranked_;
};

}  // namespace

Retrieved retrieve(DocStore& store, int64_t collection_id, const std::string& question, size_t top_k) {
  return Retriever(store, collection_id, question).run(top_k);
}

}  // namespace cento
