#include "eval/evaluation.h"

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "engine/engine.h"
#include "eval/dataset.h"
#include "eval/eval_prompts.h"
#include "eval/text_score.h"
#include "session/gate.h"

namespace cento {
namespace {

// Raised when the meaning of a journal's figures changes.
constexpr const char* kJournalVersion = "trial 1";
constexpr const char* kDataHint = "see `man cento-eval` for the fields of a line";

// Everything but the prompt that a trial's figures depend on.
void add_setting(Hasher& h, const TrialSetting& s, const EvalOptions& o) {
  h.add_text(s.name).add_u64(static_cast<uint64_t>(s.kind)).add_u64(s.stand_in ? 1 : 0);
  if (s.exact_first) h.add_u64(1);
  const BlendSettings& b = s.blend;
  const auto real = [&h](double x) { h.add_text(std::to_string(x)); };  // the name has all digits
  h.add_u64(static_cast<uint64_t>(b.policy)).add_u64(b.check_layer).add_u64(b.smooth).add_u64(b.head_rows);
  h.add_u64(b.seed).add_u64(static_cast<uint64_t>(b.repair)).add_u64(b.ratio ? 1 : 0);
  real(b.ratio.value_or(0));
  real(b.probe_depth);
  for (const double r : b.layer_ratios) real(r);
  h.add_u64(o.answer_tokens).add_u64(o.own_answer_tokens).add_u64(o.attention ? 1 : 0);
  if (o.deviation && is_plain_reuse(s)) h.add_text("deviation");  // other settings do not have it
}

Hash prompt_key(LoadedModel& model, const TrialPrompt& prompt, bool contexts) {
  Hasher h(kJournalVersion);
  h.add_hash(model.fingerprint()).add_hash(model.layout()).add_text(model.ops().name);
  h.add_u64(model.precision() == Precision::kF32 ? 1 : 0);
  h.add_i32s(prompt.prefix).add_i32s(prompt.question).add_u64(prompt.chunks.size());
  for (const auto& c : prompt.chunks) h.add_i32s(c);
  if (contexts)
    for (const auto& c : prompt.contexts) h.add_i32s(c);
  h.add_u64(prompt.answer ? 1 : 0);
  if (prompt.answer) h.add_i32s(*prompt.answer);
  return h.finish();
}

TrialScores score(const EvalItem& item, const std::string& answer) {
  TrialScores s;
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
    count_items();
    if (const GateResult g = run_gate(engine_); !g.passed) throw Error{Code::kInput, "not evaluated: " + g.why};
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

  static Error no_item(const std::string& path, const Skipped& skipped) {
    if (skipped.empty()) return {Code::kInput, "no item to run", path, kDataHint};
    return {Code::kInput, "no item to run: " + skipped.front().second, skipped.front().first, kDataHint};
  }

  static void skip(Skipped& skipped, const std::string& where, const std::string& reason) {
    if (skipped.size() < EvalReport::kSkippedMax) {
      skipped.emplace_back(where, reason);
    } else if (skipped.size() == EvalReport::kSkippedMax) {
      skipped.emplace_back("further lines", "are not named here");
    }
  }

  // The next line that is an item with passages; nullopt behind the last, and when stopped.
  std::optional<EvalItem> next_item(DatasetReader& reader, Skipped& skipped) {
    while (!stopped()) {
      auto next = reader.next();
      if (!next.ok()) {
        skip(skipped, next.error().where(), next.error().message());
        continue;
      }
      if (!next.value()) return std::nullopt;
      if (!next.value()->chunks.empty()) return std::move(*next.value());
      skip(skipped, reader.set() + ": " + next.value()->id, "has no passages");
    }
    return std::nullopt;
  }

  void one_set(const std::string& path) {
    const EvalPrompts prompts(model_, draw_stand_ins(path, options_.seed), options_.system);
    DatasetReader reader(path);
    Set set;
    set.name = reader.set();
    for (size_t n = 0; options_.items == 0 || n < options_.items; ++n) {
      auto item = next_item(reader, report_.skipped);
      if (!item) break;
      if (options_.shuffle) shuffle_chunks(*item, options_.seed);
      if (!one_item(*item, prompts.prompt(*item), set)) break;
    }
    sets_.push_back(std::move(set));
  }

  // Records of an item, one for each setting; owned here, since a journal may be absent.
  struct Item {
    std::vector<TrialRecord> records;
  };
  struct Set {
    std::string name;
    std::vector<Item> items;
  };

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
      Hasher h(kJournalVersion);
      h.add_hash(key_of_prompt);
      add_setting(h, setting, options_);
      const Hash key = h.finish();
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
    Hasher h("full prefill");
    h.add_hash(prompt_key(model_, prompt, false)).add_u64(options_.answer_tokens).add_u64(options_.own_answer_tokens);
    const Hash key = h.finish();
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
      all.insert(all.end(), by_item.begin(), by_item.end());
    }
    if (report_.sets.size() > 1) report_.pooled = summarise("", settings_, all, options_.seed);
  }

  LoadedModel& model_;
  Engine engine_;
  const EvalOptions& options_;
  const EvalHooks& hooks_;
  const std::vector<TrialSetting> settings_;
  std::unique_ptr<Journal> journal_;
  std::optional<ReferenceCache> cache_;
  std::vector<Set> sets_;
  size_t total_ = 0, done_ = 0;
  EvalReport report_;
};

}  // namespace

EvalReport evaluate(LoadedModel& model, const EvalOptions& options, const EvalHooks& hooks) {
  return Evaluation(model, options, hooks).run();
}

}  // namespace cento
