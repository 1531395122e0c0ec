#include "eval/eval_summary.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace cento {
namespace {

TrialSetting standing(TrialKind kind, bool stand_in) {
  TrialSetting s;
  s.kind = kind;
  s.stand_in = stand_in;
  s.blend.policy = PolicyKind::kNone;
  s.name = setting_name(s);
  return s;
}

// Six digits where they say all, else as many as tell `x` from its neighbours. 1e-12: what a product of a ratio and a
// factor is off by is below 4 * 2^-53, and ratios that close give the same rows.
std::string number_text(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", x);
  if (std::abs(std::strtod(text, nullptr) - x) <= 1e-12 * std::abs(x)) return text;
  return {text, std::to_chars(text, text + sizeof text, x).ptr};
}

double mean_kl(const TrialRecord& r) { return mean(r.outcome.kl); }
double share_same(const TrialRecord& r) {
  double n = 0;
  for (const char c : r.outcome.same_top) n += c;
  return n / static_cast<double>(std::max<size_t>(r.outcome.same_top.size(), 1));
}

using ByItem = std::vector<std::vector<const TrialRecord*>>;  // [items][settings]

// The figures of a set, setting by setting.
class Summary {
 public:
  Summary(const std::vector<TrialSetting>& settings, const ByItem& by_item, uint64_t seed)
      : settings_(settings), by_item_(by_item) {
    bootstrap_.seed = seed;
    for (size_t s = 0; s < settings.size(); ++s) {
      if (settings[s].kind == TrialKind::kFull) full_ = s;
      if (settings[s].kind == TrialKind::kNoContext) no_context_ = s;
    }
  }

  SetSummary of_set(const std::string& set) const {
    SetSummary out;
    out.set = set;
    out.n_items = by_item_.size();
    if (by_item_.empty()) return out;
    out.tokens_mean = mean(values(full_, [](const TrialRecord& r) { return static_cast<double>(r.outcome.n_tokens); }));
    for (const auto& item : by_item_) {
      out.n_scored += item[full_]->scores.scored ? 1 : 0;
      out.n_summaries += item[full_]->scores.scored && item[full_]->scores.summary ? 1 : 0;
      out.n_judged += item[full_]->scores.judged ? 1 : 0;
    }
    for (size_t s = 0; s < settings_.size(); ++s) out.settings.push_back(of_setting(s, set.empty()));
    return out;
  }

 private:
  template <class Of>
  std::vector<double> values(size_t setting, const Of& of) const {
    std::vector<double> v;
    for (const auto& item : by_item_) v.push_back(of(*item[setting]));
    return v;
  }
  template <class Of>
  Estimate estimate(size_t setting, const Of& of) const {
    const std::vector<double> v = values(setting, of);
    return bootstrap_mean(v, bootstrap_).value_or(Estimate{NAN, NAN, NAN, v.size()});
  }

  SettingSummary of_setting(size_t s, bool pooled) const {
    SettingSummary sum;
    sum.setting = settings_[s];
    sum.n_items = by_item_.size();
    sum.charged = estimate(s, [](const TrialRecord& r) { return r.outcome.charged; });
    sum.recomputed = estimate(s, [](const TrialRecord& r) { return static_cast<double>(r.outcome.n_recomputed); });
    sum.ttft_ms = estimate(s, [](const TrialRecord& r) { return r.outcome.ttft_ms; });
    sum.kl = estimate(s, mean_kl);
    sum.top1 = estimate(s, share_same);
    sum.nll_change = estimate(s, [](const TrialRecord& r) { return r.outcome.nll - r.outcome.nll_full; });
    sum.item_kl = values(s, mean_kl);
    add_gaps(s, sum);
    add_rows(s, sum);
    add_worst(s, pooled, sum);
    add_scores(s, sum);
    add_right(s, sum);
    add_same_answer(s, sum);
    add_attention(s, sum);
    sum.deviation = mean_deviation(s);
    return sum;
  }

  void add_gaps(size_t s, SettingSummary& sum) const {
    if (settings_[s].kind != TrialKind::kBlend) return;
    sum.gap_no_context = gap_recovered(sum.item_kl, values(no_context_, mean_kl), bootstrap_);
    for (size_t f = 0; f < settings_.size(); ++f) {
      if (is_plain_reuse(settings_[f]) && settings_[f].stand_in == settings_[s].stand_in)
        sum.gap = gap_recovered(sum.item_kl, values(f, mean_kl), bootstrap_);
    }
  }

  // Over rows: items have as many as their answers are long.
  void add_rows(size_t s, SettingSummary& sum) const {
    std::vector<double> all;
    std::vector<std::vector<double>> by_row;
    for (const auto& item : by_item_) {
      const std::vector<double>& kl = item[s]->outcome.kl;
      all.insert(all.end(), kl.begin(), kl.end());
      by_row.resize(std::max(by_row.size(), kl.size()));
      for (size_t i = 0; i < kl.size(); ++i) by_row[i].push_back(kl[i]);
    }
    sum.kl_p95 = percentile(all, 0.95);
    sum.kl_max = percentile(all, 1);
    for (const std::vector<double>& row : by_row) sum.kl_by_row.push_back(mean(row));
  }

  // An item without a figure is worse than any.
  void add_worst(size_t s, bool pooled, SettingSummary& sum) const {
    const auto worse = [](double a, double b) { return std::isnan(b) ? false : std::isnan(a) || a > b; };
    size_t worst = 0;
    for (size_t i = 1; i < sum.item_kl.size(); ++i) {
      if (worse(sum.item_kl[i], sum.item_kl[worst])) worst = i;
    }
    const TrialRecord& r = *by_item_[worst][s];
    sum.worst_item = (pooled ? r.set + ": " : "") + r.item;
    sum.worst_kl = sum.item_kl[worst];
  }

  void add_scores(size_t s, SettingSummary& sum) const {
    std::vector<double> f1, exact, rouge, score, change;
    for (const auto& item : by_item_) {
      const TrialScores &own = item[s]->scores, &full = item[full_]->scores;
      if (!own.scored || !full.scored) continue;
      f1.push_back(own.f1);
      exact.push_back(own.exact);
      rouge.push_back(own.rouge_l);
      score.push_back(own.score());
      change.push_back(own.score() - full.score());
    }
    if (f1.empty()) return;
    sum.f1 = bootstrap_mean(f1, bootstrap_);
    sum.exact = bootstrap_mean(exact, bootstrap_);
    sum.rouge_l = bootstrap_mean(rouge, bootstrap_);
    sum.score = bootstrap_mean(score, bootstrap_);
    sum.score_change = bootstrap_mean(change, bootstrap_);
    sum.zero_f1 = static_cast<double>(std::count(f1.begin(), f1.end(), 0.0)) / static_cast<double>(f1.size());
  }

  void add_right(size_t s, SettingSummary& sum) const {
    std::vector<double> right, change;
    for (const auto& item : by_item_) {
      const TrialScores &own = item[s]->scores, &full = item[full_]->scores;
      if (!own.judged || !full.judged) continue;
      right.push_back(own.right ? 1 : 0);
      change.push_back(right.back() - (full.right ? 1 : 0));
      sum.n_right += own.right ? 1 : 0;
    }
    sum.right = bootstrap_mean(right, bootstrap_);
    sum.right_change = bootstrap_mean(change, bootstrap_);
  }

  void add_same_answer(size_t s, SettingSummary& sum) const {
    std::vector<double> same;
    for (const auto& item : by_item_) {
      if (!item[s]->scores.answered || !item[full_]->scores.answered) continue;
      same.push_back(item[s]->answer == item[full_]->answer ? 1 : 0);
      sum.n_same_answer += same.back() > 0 ? 1 : 0;
    }
    sum.same_answer = bootstrap_mean(same, bootstrap_);
  }

  void add_attention(size_t s, SettingSummary& sum) const {
    for (const auto& item : by_item_) {
      const std::vector<double>& shift = item[s]->outcome.attention_shift;
      sum.attention_shift.resize(std::max(sum.attention_shift.size(), shift.size()), 0.0);
      for (size_t l = 0; l < shift.size(); ++l)
        sum.attention_shift[l] += shift[l] / static_cast<double>(by_item_.size());
    }
  }

  // Of a list that every item's profile has: the mean, index by index, of the figures that are numbers; NaN of none.
  std::vector<double> mean_list(size_t s, std::vector<double> DeviationProfile::*list) const {
    std::vector<std::vector<double>> figures;
    for (const auto& item : by_item_) {
      if (!item[s]->outcome.deviation) continue;
      const std::vector<double>& of_item = (*item[s]->outcome.deviation).*list;
      figures.resize(std::max(figures.size(), of_item.size()));
      for (size_t i = 0; i < of_item.size(); ++i) {
        if (!std::isnan(of_item[i])) figures[i].push_back(of_item[i]);
      }
    }
    std::vector<double> out;
    for (const std::vector<double>& f : figures) out.push_back(mean(f));
    return out;
  }

  std::optional<DeviationProfile> mean_deviation(size_t s) const {
    DeviationProfile out{mean_list(s, &DeviationProfile::top_share), mean_list(s, &DeviationProfile::next_layer),
                         mean_list(s, &DeviationProfile::last_layer)};
    if (out.top_share.empty() && out.next_layer.empty()) return std::nullopt;
    return out;
  }

  const std::vector<TrialSetting>& settings_;
  const ByItem& by_item_;
  BootstrapOptions bootstrap_;
  size_t full_ = 0, no_context_ = 0;
};

}  // namespace

RetrievalSummary& RetrievalSummary::operator+=(const RetrievalSummary& other) {
  n_asked += other.n_asked;
  n_nothing_found += other.n_nothing_found;
  n_with_evidence += other.n_with_evidence;
  n_evidence_found += other.n_evidence_found;
  return *this;
}

std::string setting_name(const TrialSetting& s) {
  if (s.kind == TrialKind::kFull) return "full";
  if (s.kind == TrialKind::kNoContext) return "no passages";
  std::string name = policy_name(s.blend.policy);
  const bool budgeted = s.blend.policy != PolicyKind::kNone && s.blend.policy != PolicyKind::kAll;
  if (budgeted && !s.blend.layer_ratios.empty()) {
    name += " r=" + number_text(s.blend.layer_ratios.front()) + ".." + number_text(s.blend.layer_ratios.back());
  } else if (budgeted) {
    name += s.blend.ratio ? " r=" + number_text(*s.blend.ratio) : " default";
  }
  const BlendSettings plain;
  if (s.blend.check_layer != plain.check_layer) name += " check=" + std::to_string(s.blend.check_layer);
  if (s.blend.head_rows != plain.head_rows) name += " heads=" + std::to_string(s.blend.head_rows);
  if (s.blend.smooth != plain.smooth) name += " smooth=" + std::to_string(s.blend.smooth);
  if (s.blend.probe_depth != plain.probe_depth) name += " probe=" + number_text(s.blend.probe_depth);
  if (s.blend.seed != plain.seed) name += " seed=" + std::to_string(s.blend.seed);
  if (s.blend.repair != Repair::kNone) name += std::string(" repair=") + repair_name(s.blend.repair);
  name += !s.stand_in ? " prefix" : s.exact_first ? " exact-first" : " stand-in";
  return is_lossy(s.codec) ? name + " " + kv_codec_name(s.codec) : name;
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
  return Summary(settings, by_item, seed).of_set(set);
}

}  // namespace cento
