#include "eval/evaluation.h"

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "engine/engine.h"
#include "eval/collection_prompts.h"
#include "eval/dataset.h"
#include "eval/eval_prompts.h"
#include "eval/own_questions.h"
#include "eval/text_score.h"
#include "eval/trial_key.h"
#include "session/gate.h"

namespace cento {
namespace {

constexpr const char* kDataHint = "see `man cento-eval` for the fields of a line";
constexpr const char* kIndexHint = "run `cento index FOLDER` first, or name a collection with --collection";

TrialScores score(const EvalItem& item, const std::string& answer) {
  TrialScores s;
  s.answered = true;
  if (item.kind == EvalKind::kDocqa) {
    const auto& groups = item.turns.front().answer_groups;
    s.judged = true;
    s.right = groups.empty() ? says_not_in_documents(answer) : holds_answer_groups(answer, groups);
  }
  if (item.references.empty()) return s;
  s.scored = true;
  s.summary = item.kind == EvalKind::kSumm;
  s.f1 = token_f1(answer, item.references);
  s.exact = exact_match(answer, item.references);
  s.rouge_l = rouge_l(answer, item.references);
  return s;
}

class Evaluation {
 public:
  Evaluation(LoadedModel& model, const EvalOptions& options, const EvalHooks& hooks)
      : model_(model),
        engine_(model),
        options_(options),
        hooks_(hooks),
        settings_(standing_settings(options.settings)) {
    if (!options.folder.empty()) {
      journal_ = std::make_unique<Journal>(options.folder);
      cache_.emplace(options.folder + "/full");
      if (journal_->damaged() > 0)
        log_warning(std::to_string(journal_->damaged()) + " damaged lines in " + options.folder +
                    "/trials.jsonl: measured again");
    }
  }

  EvalReport run() {
    make_own_questions();
    count_items();
    if (const GateResult g = run_gate(engine_); !g.passed) throw Error{Code::kInput, "not evaluated: " + g.why};
    own_set();
    for (const std::string& path : options_.data) {
      if (stopped()) break;
      one_set(path);
    }
    finish();
    return std::move(report_);
  }

 private:
  bool stopped() {
    if (hooks_.stop && hooks_.stop()) report_.stopped = true;
    return report_.stopped;
  }

  // Looked for once, when it is first needed. nullptr: there is no store, or no such collection in it.
  CollectionPrompts* collection() {
    if (collection_sought_) return collection_.get();
    collection_sought_ = true;
    DocStore* docs = hooks_.documents ? hooks_.documents() : nullptr;
    if (docs != nullptr && docs->find_collection(options_.collection))
      collection_ = std::make_unique<CollectionPrompts>(model_, *docs, options_.collection, options_.top_k,
                                                        options_.system, options_.collection_order);
    return collection_.get();
  }

  std::string no_collection() const {
    return "asks about documents, and there is no collection named '" + options_.collection + "'";
  }

  void make_own_questions() {
    if (options_.own_documents == 0) return;
    CollectionPrompts* own = collection();
    if (own == nullptr)
      throw Error{Code::kInput, "no collection named '" + options_.collection + "'",
                  "--collection " + options_.collection, kIndexHint};
    own_ = own_questions(own->docs(), own->collection_id(), {options_.own_documents, options_.seed, hooks_.stop});
    if (stopped()) return;
    if (own_.empty())
      throw Error{Code::kInput, "too little text to make questions of in collection '" + options_.collection + "'",
                  own->docs().catalogue().db().path(),
                  "index documents with whole sentences of eight words or more: `cento index FOLDER`"};
    if (own_.size() < options_.own_documents)
      skip(report_.skipped, kOwnDocumentsSet,
           "text for " + std::to_string(own_.size()) + " of " + std::to_string(options_.own_documents) + " questions");
    total_ += own_.size() * settings_.size();
  }

  // Reads every file once, so that a mistake in the last one is told before hours of work, and the time left is known.
  void count_items() {
    for (const std::string& path : options_.data) {
      DatasetReader reader(path);
      Skipped skipped;
      size_t n = 0;
      while ((options_.items == 0 || n < options_.items) && next_item(reader, skipped)) ++n;
      if (stopped()) return;
      if (n == 0) throw no_item(path, skipped);
      total_ += n * settings_.size();
    }
  }

  using Skipped = std::vector<std::pair<std::string, std::string>>;  // where, reason

  Error no_item(const std::string& path, const Skipped& skipped) const {
    if (skipped.empty()) return {Code::kInput, "no item to run", path, kDataHint};
    const auto& [where, reason] = skipped.front();
    const bool unindexed = reason.starts_with(no_collection());
    return {Code::kInput, "no item to run: " + (unindexed ? no_collection() : reason), where,
            unindexed ? kIndexHint : kDataHint};
  }

  static void skip(Skipped& skipped, const std::string& where, const std::string& reason) {
    if (skipped.size() < EvalReport::kSkippedMax) {
      skipped.emplace_back(where, reason);
    } else if (skipped.size() == EvalReport::kSkippedMax) {
      skipped.emplace_back("further lines", "are not named here");
    }
  }

  // The next line that is an item whose passages are in it or can be retrieved; nullopt behind the last, and when
  // stopped.
  std::optional<EvalItem> next_item(DatasetReader& reader, Skipped& skipped) {
    while (!stopped()) {
      auto next = reader.next();
      if (!next.ok()) {
        skip(skipped, next.error().where(), next.error().message());
        continue;
      }
      if (!next.value()) return std::nullopt;
      if (next.value()->kind != EvalKind::kDocqa || collection() != nullptr) return std::move(*next.value());
      skip(skipped, reader.set() + ": " + next.value()->id, no_collection() + ": " + kIndexHint);
    }
    return std::nullopt;
  }

  // Records of an item, one for each setting; owned here, since a journal may be absent.
  struct Item {
    std::vector<TrialRecord> records;
  };
  struct Set {
    std::string name;
    std::vector<Item> items;
    std::optional<RetrievalSummary> retrieval;
  };

  void one_set(const std::string& path) {
    const EvalPrompts prompts(model_, draw_stand_ins(path, options_.seed), options_.system);
    DatasetReader reader(path);
    Set set;
    set.name = reader.set();
    for (size_t n = 0; options_.items == 0 || n < options_.items; ++n) {
      auto item = next_item(reader, report_.skipped);
      if (!item) break;
      if (options_.shuffle) shuffle_chunks(*item, options_.seed);
      const bool done =
          item->kind == EvalKind::kDocqa ? retrieved_item(*item, set) : one_item(*item, prompts.prompt(*item), set);
      if (!done) break;
    }
    sets_.push_back(std::move(set));
  }

  void own_set() {
    if (own_.empty() || stopped()) return;
    Set set;
    set.name = kOwnDocumentsSet;
    for (const EvalItem& item : own_) {
      if (stopped() || !retrieved_item(item, set)) break;
    }
    report_.own_documents = !set.items.empty();
    sets_.push_back(std::move(set));
  }

  // An item whose passages the retriever finds. False: stopped.
  bool retrieved_item(const EvalItem& item, Set& set) {
    const std::string where = item.set + ": " + item.id;
    auto found = collection()->prompt(item.question, item.search.empty() ? item.question : item.search);
    RetrievalSummary counts;
    counts.n_asked = 1;
    const EvalTurn& turn = item.turns.front();
    counts.n_with_evidence = turn.evidence.empty() ? 0 : 1;
    if (!found.ok()) {
      counts.n_nothing_found = 1;
      skip(report_.skipped, where, "retrieval finds nothing: " + found.error().message());
      done_ += settings_.size();
    } else {
      counts.n_evidence_found = counts.n_with_evidence > 0 && holds_evidence(found->passages, turn.evidence) ? 1 : 0;
      if (options_.shuffle) shuffle(item, found->prompt);
      if (!one_item(item, found->prompt, set)) return false;
    }
    if (item.turns.size() > 1)
      skip(report_.skipped, where,
           "turns behind the first need a conversation: " + std::to_string(item.turns.size() - 1) + " left out");
    if (!set.retrieval) set.retrieval.emplace();
    *set.retrieval += counts;
    return true;
  }

  void shuffle(const EvalItem& item, TrialPrompt& prompt) const {
    std::vector<std::vector<int32_t>> chunks, contexts;
    for (const size_t i : shuffled_order(item, prompt.chunks.size(), options_.seed)) {
      chunks.push_back(std::move(prompt.chunks[i]));
      contexts.push_back(std::move(prompt.contexts[i]));
    }
    prompt.chunks = std::move(chunks);
    prompt.contexts = std::move(contexts);
  }

  // Tokens of the longest sequence that an item's trials put into the model, answers included.
  size_t tokens_needed(const TrialPrompt& prompt) const {
    size_t longest = prompt.n_tokens() + std::max({options_.answer_tokens, options_.own_answer_tokens,
                                                   prompt.answer ? prompt.answer->size() : 0});
    for (size_t i = 0; i < prompt.chunks.size(); ++i)
      longest = std::max(longest, prompt.prefix.size() + prompt.contexts[i].size() + prompt.chunks[i].size());
    return longest;
  }

  // False: stopped. A part of an item's settings does not count: figures are paired.
  bool one_item(const EvalItem& item, const TrialPrompt& prompt, Set& set) {
    if (const size_t needed = tokens_needed(prompt); needed > model_.config().context_max) {
      skip(report_.skipped, item.set + ": " + item.id,
           "needs " + std::to_string(needed) + " tokens with the answer, the model's context holds " +
               std::to_string(model_.config().context_max));
      done_ += settings_.size();
      return true;
    }
    TrialOptions trial_options;
    trial_options.answer_tokens = options_.answer_tokens;
    trial_options.own_answer_tokens = options_.own_answer_tokens;
    trial_options.want_attention = options_.attention;
    trial_options.want_deviation = options_.deviation;
    trial_options.want_logits = static_cast<bool>(hooks_.logits);
    trial_options.stop = hooks_.stop;
    Trial trial(engine_, prompt, trial_options);
    const Hash key_of_prompt = prompt_key(model_, prompt, true);
    bool prepared = false;
    Item result;
    for (const TrialSetting& setting : settings_) {
      if (stopped()) return false;
      const Hash key = trial_key(key_of_prompt, setting, options_);
      if (const TrialRecord* known = known_trial(key)) {
        result.records.push_back(*known);
        describe(item, result.records.back());
        ++report_.known;
      } else {
        if (!prepared && !prepare(trial, item, prompt)) return false;
        prepared = true;
        auto record = measure(trial, item, setting, key);
        if (!record) return false;
        if (journal_) journal_->add(*record);
        result.records.push_back(std::move(*record));
        ++report_.measured;
      }
      ++done_;
      if (hooks_.progress) hooks_.progress(done_, total_, item.set + ": " + setting.name);
    }
    set.items.push_back(std::move(result));
    return true;
  }

  // nullptr where logits are wanted, which are not kept.
  const TrialRecord* known_trial(const Hash& key) const {
    return journal_ && !hooks_.logits ? journal_->find(key) : nullptr;
  }

  bool prepare(Trial& trial, const EvalItem& item, const TrialPrompt& prompt) {
    const Hash key = reference_key(model_, prompt, options_);
    std::optional<TrialReference> known;
    if (cache_) known = cache_->find(key, model_.config().vocab);
    if (!trial.prepare(known ? &*known : nullptr)) {
      report_.stopped = true;
      return false;
    }
    if (cache_ && !known) {
      if (Status s = cache_->put(key, trial.reference()); !s)
        log_warning("full prefill's logits are not kept: " + s.error().message());
    }
    if (hooks_.logits) hooks_.logits(item.set, item.id, "full", trial.reference().logits, trial.reference().rows);
    return true;
  }

  std::optional<TrialRecord> measure(Trial& trial, const EvalItem& item, const TrialSetting& setting, const Hash& key) {
    TrialRecord record;
    record.key = key;
    record.setting = setting.name;
    auto outcome = trial.run(setting);
    if (!outcome) {
      report_.stopped = true;
      return std::nullopt;
    }
    if (hooks_.logits && setting.kind != TrialKind::kFull)
      hooks_.logits(item.set, item.id, setting.name, outcome->logits, outcome->kl.size());
    outcome->logits.clear();
    record.outcome = std::move(*outcome);
    record.answer = to_valid_utf8(model_.tokenizer().decode(record.outcome.answer));
    describe(item, record);
    return record;
  }

  // What no key depends on: the same prompt may stand elsewhere under another name, or with other references.
  void describe(const EvalItem& item, TrialRecord& record) const {
    record.set = item.set;
    record.item = item.id;
    record.scores = options_.own_answer_tokens > 0 ? score(item, record.answer) : TrialScores{};
  }

  void finish() {
    std::vector<std::vector<const TrialRecord*>> all;
    for (const Set& set : sets_) {
      std::vector<std::vector<const TrialRecord*>> by_item;
      for (const Item& item : set.items) {
        by_item.emplace_back();
        for (const TrialRecord& r : item.records) by_item.back().push_back(&r);
      }
      if (by_item.empty()) continue;
      report_.sets.push_back(summarise(set.name, settings_, by_item, options_.seed));
      report_.sets.back().retrieval = set.retrieval;
      all.insert(all.end(), by_item.begin(), by_item.end());
    }
    if (report_.sets.size() < 2) return;
    report_.pooled = summarise("", settings_, all, options_.seed);
    for (const SetSummary& set : report_.sets) {
      if (!set.retrieval) continue;
      if (!report_.pooled->retrieval) report_.pooled->retrieval.emplace();
      *report_.pooled->retrieval += *set.retrieval;
    }
  }

  LoadedModel& model_;
  Engine engine_;
  const EvalOptions& options_;
  const EvalHooks& hooks_;
  const std::vector<TrialSetting> settings_;
  std::unique_ptr<Journal> journal_;
  std::optional<ReferenceCache> cache_;
  std::unique_ptr<CollectionPrompts> collection_;
  bool collection_sought_ = false;
  std::vector<EvalItem> own_;
  std::vector<Set> sets_;
  size_t total_ = 0, done_ = 0;
  EvalReport report_;
};

}  // namespace

EvalReport evaluate(LoadedModel& model, const EvalOptions& options, const EvalHooks& hooks) {
  return Evaluation(model, options, hooks).run();
}

}  // namespace cento
