// What an evaluation's settings are called, and the figures that trials of many items come to.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "eval/journal.h"
#include "eval/statistics.h"
#include "eval/trial.h"

namespace cento {

// full, none (re-positioned only; with the stand-in context and behind the prefix as the settings use them), and the
// question without passages: what every figure is compared with.
std::vector<TrialSetting> standing_settings(const std::vector<TrialSetting>& settings);

// "query r=0.15 stand-in": what a setting is called. Settings of different figures have different names.
std::string setting_name(const TrialSetting& setting);

// Over the items of a set, or of all; one value an item, bootstrapped over items.
struct SettingSummary {
  TrialSetting setting;
  size_t n_items = 0;
  Estimate charged, kl, top1, nll_change, ttft_ms, recomputed;
  std::optional<Estimate> gap;                 // 1 - KL / KL of plain reuse of the same stored KV
  std::optional<Estimate> gap_no_context;      // 1 - KL / KL of the question without passages
  double kl_p95 = 0, kl_max = 0;               // over all answer rows
  std::optional<Estimate> f1, exact, rouge_l;  // over the items with references; nullopt without any
  std::optional<Estimate> score;               // F1 (qa) or ROUGE-L (summ)
  std::optional<Estimate> score_change;        // of that against full prefill, paired
  double zero_f1 = 0;                          // share of scored items with F1 0
  std::optional<Estimate> right;               // share of the judged items whose answer is right; nullopt without any
  std::optional<Estimate> right_change;        // against full prefill, paired
  size_t n_right = 0;
  std::optional<Estimate> same_answer;  // share of items whose own answer is full prefill's; nullopt if none is made
  size_t n_same_answer = 0;
  std::string worst_item;  // with the largest mean KL
  double worst_kl = 0;
  std::vector<double> attention_shift;        // [layers] means; empty if not measured
  std::optional<DeviationProfile> deviation;  // means over the items that have a figure; of plain reuse, if measured
  std::vector<double> kl_by_row;              // means over items: the prompt's last row, then answer rows
  std::vector<double> item_kl;                // [items] means, in the order of the data
};

// Of questions whose passages were retrieved.
struct RetrievalSummary {
  size_t n_asked = 0;
  size_t n_nothing_found = 0;                        // of these: not run
  size_t n_with_evidence = 0, n_evidence_found = 0;  // that name where the answer stands; all of it was retrieved
  RetrievalSummary& operator+=(const RetrievalSummary& other);
};

struct SetSummary {
  std::string set;  // "" of all sets together
  size_t n_items = 0;
  size_t n_scored = 0, n_summaries = 0;  // items with references; of these, those whose score is ROUGE-L
  size_t n_judged = 0;                   // items whose answer is right or not: docqa
  std::optional<RetrievalSummary> retrieval;
  double tokens_mean = 0;  // of the prompts
  std::vector<SettingSummary> settings;
};

// Figures of records, without a model. by_item [items][settings]: of each item a record of every setting, in
// their order; one of the settings is full prefill, one the question without passages.
SetSummary summarise(const std::string& set, const std::vector<TrialSetting>& settings,
                     const std::vector<std::vector<const TrialRecord*>>& by_item, uint64_t seed);

}  // namespace cento
