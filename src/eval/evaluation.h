// Runs settings over data sets and sums up how close each comes to full prefill, and what it costs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/loaded_model.h"
#include "eval/journal.h"
#include "eval/statistics.h"
#include "eval/trial.h"

namespace cento {

struct EvalOptions {
  std::vector<std::string> data;       // files
  std::vector<TrialSetting> settings;  // besides the three that are always run: see standing_settings()
  size_t items = 0;                    // of each file, from its beginning; 0: all
  bool shuffle = false;                // the chunks of each item
  uint64_t seed = 1;                   // of shuffles, stand-ins and intervals
  std::string system;                  // text for items without one; empty: the default
  size_t answer_tokens = 24;           // teacher-forced at most
  size_t own_answer_tokens = 32;       // of each setting's own answer, for scores; 0: none
  bool attention = false;              // measure the attention's shift by layer
  std::string folder;                  // of the journal and full prefill's logits; empty: nothing is kept
};

// full, none (re-positioned only; with the stand-in context and behind the prefix as the settings use them), and the
// question without passages: what every figure is compared with.
std::vector<TrialSetting> standing_settings(const std::vector<TrialSetting>& settings);

// "query r=0.15 stand-in": what a setting is called.
std::string setting_name(const TrialSetting& setting);

// Over the items of a set, or of all; one value an item, bootstrapped over items.
struct SettingSummary {
  TrialSetting setting;
  size_t n_items = 0;
  Estimate charged, kl, top1, nll_change, ttft_ms, recomputed;
  std::optional<Estimate> gap;             // 1 - KL / KL of plain reuse of the same stored KV
  std::optional<Estimate> gap_no_context;  // 1 - KL / KL of the question without passages
  double kl_p95 = 0, kl_max = 0;           // over all answer rows
  std::optional<Estimate> f1, exact, rouge_l;
  std::optional<Estimate> score_change;  // of F1 (qa) or ROUGE-L (summ) against full prefill, paired
  double zero_f1 = 0;                    // share of scored items with F1 0
  std::string worst_item;                // with the largest mean KL
  double worst_kl = 0;
  std::vector<double> attention_shift;  // [layers] means; empty if not measured
  std::vector<double> kl_by_row;        // means over items: the prompt's last row, then answer rows
  std::vector<double> item_kl;          // [items] means, in the order of the data
};

struct SetSummary {
  std::string set;  // "" of all sets together
  size_t n_items = 0;
  double tokens_mean = 0;
  std::vector<SettingSummary> settings;
};

struct EvalReport {
  std::vector<SetSummary> sets;
  std::optional<SetSummary> pooled;                          // where there is more than one set
  std::vector<std::pair<std::string, std::string>> skipped;  // "file:line" or item, reason
  size_t measured = 0, known = 0;                            // trials run now, and taken from the journal
  bool stopped = false;                                      // what was measured is in the report
};

struct EvalHooks {
  std::function<void(size_t done, size_t total, const std::string& what)> progress;  // trials
  std::function<bool()> stop;
  // Logits [rows, V] of a trial; full prefill's too.
  std::function<void(const std::string& set, const std::string& item, const std::string& setting,
                     std::span<const float> logits, size_t rows)>
      logits;
};

// Throws Error(kInput) for a file that cannot be read or has no item; what is wrong with single lines is in `skipped`.
EvalReport evaluate(LoadedModel& model, const EvalOptions& options, const EvalHooks& hooks);

// The same figures of records, without a model: for tests and for reports of what was stopped. `order`: set and item
// names in the order in which they are to be.
SetSummary summarise(const std::string& set, const std::vector<TrialSetting>& settings,
                     const std::vector<std::vector<const TrialRecord*>>& by_item, uint64_t seed);

}  // namespace cento
