#include "eval/evaluation.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "engine/engine.h"
#include "eval/dataset.h"
#include "eval/eval_prompts.h"
#include "eval/text_score.h"
#include "session/gate.h"

namespace cento {
namespace {

// Raised when the meaning of a journal's figures changes.
constexpr const char* kJournalVersion = "trial 1";

TrialSetting standing(TrialKind kind, bool stand_in) {
  TrialSetting s;
  s.kind = kind;
  s.stand_in = stand_in;
  s.blend.policy = PolicyKind::kNone;
  s.name = setting_name(s);
  return s;
}

bool is_floor(const TrialSetting& s) { return s.kind == TrialKind::kBlend && s.blend.policy == PolicyKind::kNone; }

// Everything but the prompt that a trial's figures depend on.
void add_setting(Hasher& h, const TrialSetting& s, const EvalOptions& o) {
  h.add_text(s.name).add_u64(static_cast<uint64_t>(s.kind)).add_u64(s.stand_in ? 1 : 0);
  if (s.exact_first) h.add_u64(1);
  const BlendSettings& b = s.blend;
  const auto real = [&h](double x) { h.add_text(std::to_string(x)); };
  h.add_u64(static_cast<uint64_t>(b.policy)).add_u64(b.check_layer).add_u64(b.smooth).add_u64(b.head_rows);
  h.add_u64(b.seed).add_u64(static_cast<uint64_t>(b.repair)).add_u64(b.ratio ? 1 : 0);
  real(b.ratio.value_or(0));
  real(b.probe_depth);
  for (const double r : b.layer_ratios) real(r);
  h.add_u64(o.answer_tokens).add_u64(o.own_answer_tokens).add_u64(o.attention ? 1 : 0);
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

std::string answer_text(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) { return tokenizer.decode(ids); }

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

double mean_kl(const TrialRecord& r) { return mean(r.outcome.kl); }
double share_same(const TrialRecord& r) {
  double n = 0;
  for (const char c : r.outcome.same_top) n += c;
  return n / static_cast<double>(std::max<size_t>(r.outcome.same_top.size(), 1));
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

  size_t wanted(size_t n) const { return options_.items == 0 ? n : std::min(n, options_.items); }

  // Reads every file once, so that a mistake in the last one is told before hours of work, and the time left is known.
  void count_items() {
    for (const std::string& path : options_.data) {
      DatasetReader reader(path);
      size_t n = 0;
      while (next_item(reader, nullptr)) {
        if (++n == options_.items) break;
      }
      if (n == 0) throw Error{Code::kInput, "no item to run", path, "see `man cento-eval` for the fields of a line"};
      total_ += n * settings_.size();
    }
  }

  // The next line that is an item with passages; what is wrong with others goes to `skipped` (null: is passed over).
  std::optional<EvalItem> next_item(DatasetReader& reader, std::vector<std::pair<std::string, std::string>>* skipped) {
    for (;;) {
      const size_t line = reader.line();
      auto next = reader.next();
      if (!next.ok()) {
        if (skipped != nullptr) skipped->emplace_back(next.error().where(), next.error().message());
        if (reader.line() == line) return std::nullopt;  // the file itself cannot be read on
        continue;
      }
      if (!next.value()) return std::nullopt;
      if (!next.value()->chunks.empty()) return std::move(*next.value());
      if (skipped != nullptr) skipped->emplace_back(reader.set() + ": " + next.value()->id, "has no passages");
    }
  }

  void one_set(const std::string& path) {
    const EvalPrompts prompts(model_, draw_stand_ins(path, options_.seed), options_.system);
    DatasetReader reader(path);
    Set set;
    set.name = reader.set();
    for (size_t n = 0; options_.items == 0 || n < options_.items; ++n) {
      auto item = next_item(reader, &report_.skipped);
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

  // False: stopped. A part of an item's settings does not count: figures are paired.
  bool one_item(const EvalItem& item, const TrialPrompt& prompt, Set& set) {
    const size_t limit = model_.config().context_max;
    size_t longest = prompt.n_tokens();
    for (size_t i = 0; i < prompt.chunks.size(); ++i)
      longest = std::max(longest, prompt.prefix.size() + prompt.contexts[i].size() + prompt.chunks[i].size());
    if (longest + std::max(options_.answer_tokens, options_.own_answer_tokens) > limit) {
      report_.skipped.emplace_back(item.set + ": " + item.id,
                                   "needs " + std::to_string(longest) +
                                       " tokens and room for an answer, the model's context holds " +
                                       std::to_string(limit));
      done_ += settings_.size();
      return true;
    }
    TrialOptions trial_options;
    trial_options.answer_tokens = options_.answer_tokens;
    trial_options.own_answer_tokens = options_.own_answer_tokens;
    trial_options.want_attention = options_.attention;
    trial_options.want_logits = static_cast<bool>(hooks_.logits);
    trial_options.stop = hooks_.stop;
    Trial trial(engine_, prompt, trial_options);
    bool prepared = false;
    Item result;
    for (const TrialSetting& setting : settings_) {
      if (stopped()) return false;
      Hasher h(kJournalVersion);
      h.add_hash(prompt_key(model_, prompt, true));
      add_setting(h, setting, options_);
      const Hash key = h.finish();
      const TrialRecord* known = journal_ && !hooks_.logits ? journal_->find(key) : nullptr;
      if (known != nullptr) {
        result.records.push_back(*known);
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
    record.set = item.set;
    record.item = item.id;
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
    if (options_.own_answer_tokens > 0) {
      record.answer = answer_text(model_.tokenizer(), record.outcome.answer);
      record.scores = score(item, record.answer);
    }
    return record;
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

std::string setting_name(const TrialSetting& s) {
  if (s.kind == TrialKind::kFull) return "full";
  if (s.kind == TrialKind::kNoContext) return "no passages";
  std::string name = policy_name(s.blend.policy);
  const auto number = [](double x) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", x);
    return std::string(text);
  };
  const bool budgeted = s.blend.policy != PolicyKind::kNone && s.blend.policy != PolicyKind::kAll;
  if (budgeted && !s.blend.layer_ratios.empty()) {
    name += " r=" + number(s.blend.layer_ratios.front()) + ".." + number(s.blend.layer_ratios.back());
  } else if (budgeted) {
    name += s.blend.ratio ? " r=" + number(*s.blend.ratio) : " default";
  }
  const BlendSettings plain;
  if (s.blend.check_layer != plain.check_layer) name += " check=" + std::to_string(s.blend.check_layer);
  if (s.blend.head_rows != plain.head_rows) name += " heads=" + std::to_string(s.blend.head_rows);
  if (s.blend.smooth != plain.smooth) name += " smooth=" + std::to_string(s.blend.smooth);
  if (s.blend.probe_depth != plain.probe_depth) name += " probe=" + number(s.blend.probe_depth);
  if (s.blend.repair != Repair::kNone) name += std::string(" repair=") + repair_name(s.blend.repair);
  return name + (!s.stand_in ? " prefix" : s.exact_first ? " stand-in, first exact" : " stand-in");
}

std::vector<TrialSetting> standing_settings(const std::vector<TrialSetting>& settings) {
  std::vector<TrialSetting> out = {standing(TrialKind::kFull, true), standing(TrialKind::kNoContext, true)};
  const auto uses = [&](bool stand_in) {
    return std::any_of(settings.begin(), settings.end(),
                       [&](const TrialSetting& s) { return s.kind == TrialKind::kBlend && s.stand_in == stand_in; });
  };
  if (uses(false)) out.push_back(standing(TrialKind::kBlend, false));
  if (uses(true) || !uses(false)) out.push_back(standing(TrialKind::kBlend, true));
  for (const TrialSetting& s : settings) {
    if (std::none_of(out.begin(), out.end(), [&](const TrialSetting& o) { return o.name == s.name; })) out.push_back(s);
  }
  return out;
}

SetSummary summarise(const std::string& set, const std::vector<TrialSetting>& settings,
                     const std::vector<std::vector<const TrialRecord*>>& by_item, uint64_t seed) {
  SetSummary out;
  out.set = set;
  out.n_items = by_item.size();
  BootstrapOptions bootstrap;
  bootstrap.seed = seed;
  const auto values = [&](size_t setting, const auto& of) {
    std::vector<double> v;
    for (const auto& item : by_item) v.push_back(of(*item[setting]));
    return v;
  };
  const auto estimate = [&](const std::vector<double>& v) {
    if (const auto e = bootstrap_mean(v, bootstrap)) return *e;
    return Estimate{NAN, NAN, NAN, v.size()};
  };
  size_t full = 0, no_context = 0;
  for (size_t s = 0; s < settings.size(); ++s) {
    if (settings[s].kind == TrialKind::kFull) full = s;
    if (settings[s].kind == TrialKind::kNoContext) no_context = s;
  }
  if (!by_item.empty())
    out.tokens_mean = mean(values(full, [](const TrialRecord& r) { return static_cast<double>(r.outcome.n_tokens); }));
  for (size_t s = 0; s < settings.size() && !by_item.empty(); ++s) {
    SettingSummary sum;
    sum.setting = settings[s];
    sum.n_items = by_item.size();
    sum.charged = estimate(values(s, [](const TrialRecord& r) { return r.outcome.charged; }));
    sum.recomputed =
        estimate(values(s, [](const TrialRecord& r) { return static_cast<double>(r.outcome.n_recomputed); }));
    sum.ttft_ms = estimate(values(s, [](const TrialRecord& r) { return r.outcome.ttft_ms; }));
    sum.item_kl = values(s, mean_kl);
    sum.kl = estimate(sum.item_kl);
    sum.top1 = estimate(values(s, share_same));
    sum.nll_change = estimate(values(s, [](const TrialRecord& r) { return r.outcome.nll - r.outcome.nll_full; }));
    for (size_t f = 0; f < settings.size(); ++f) {
      if (!is_floor(settings[f]) || settings[f].stand_in != settings[s].stand_in) continue;
      if (settings[s].kind == TrialKind::kBlend) sum.gap = gap_recovered(sum.item_kl, values(f, mean_kl), bootstrap);
    }
    if (settings[s].kind == TrialKind::kBlend)
      sum.gap_no_context = gap_recovered(sum.item_kl, values(no_context, mean_kl), bootstrap);
    std::vector<double> rows, f1, exact, rouge, change;
    for (const auto& item : by_item) {
      const TrialRecord& r = *item[s];
      rows.insert(rows.end(), r.outcome.kl.begin(), r.outcome.kl.end());
      for (size_t i = 0; i < r.outcome.kl.size(); ++i) {
        if (sum.kl_by_row.size() <= i) sum.kl_by_row.push_back(0);
      }
      const double kl = mean_kl(r);
      if (sum.worst_item.empty() || kl > sum.worst_kl || std::isnan(kl)) {
        sum.worst_item = (set.empty() ? r.set + ": " : "") + r.item;
        sum.worst_kl = kl;
      }
      if (r.scores.scored && item[full]->scores.scored) {
        f1.push_back(r.scores.f1);
        exact.push_back(r.scores.exact);
        rouge.push_back(r.scores.rouge_l);
        change.push_back(r.scores.score() - item[full]->scores.score());
      }
    }
    sum.kl_p95 = percentile(rows, 0.95);
    sum.kl_max = percentile(rows, 1);
    for (size_t i = 0; i < sum.kl_by_row.size(); ++i) {
      double total = 0, n = 0;
      for (const auto& item : by_item) {
        if (i >= item[s]->outcome.kl.size()) continue;
        total += item[s]->outcome.kl[i];
        ++n;
      }
      sum.kl_by_row[i] = total / n;
    }
    if (!f1.empty()) {
      sum.f1 = bootstrap_mean(f1, bootstrap);
      sum.exact = bootstrap_mean(exact, bootstrap);
      sum.rouge_l = bootstrap_mean(rouge, bootstrap);
      sum.score_change = bootstrap_mean(change, bootstrap);
      sum.zero_f1 = static_cast<double>(std::count(f1.begin(), f1.end(), 0.0)) / static_cast<double>(f1.size());
    }
    for (const auto& item : by_item) {
      const std::vector<double>& shift = item[s]->outcome.attention_shift;
      if (sum.attention_shift.size() < shift.size()) sum.attention_shift.resize(shift.size(), 0.0);
      for (size_t l = 0; l < shift.size(); ++l)
        sum.attention_shift[l] += shift[l] / static_cast<double>(by_item.size());
    }
    out.settings.push_back(std::move(sum));
  }
  return out;
}

EvalReport evaluate(LoadedModel& model, const EvalOptions& options, const EvalHooks& hooks) {
  return Evaluation(model, options, hooks).run();
}

}  // namespace cento
