#include "app/eval_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "app/text_table.h"
#include "base/machine.h"
#include "base/text.h"

namespace cento {
namespace {

std::string fixed(double value, int digits) {
  if (!std::isfinite(value)) return "-";
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}
std::string with_range(const Estimate& e, int digits) {
  return fixed(e.value, digits) + " [" + fixed(e.low, digits) + ", " + fixed(e.high, digits) + "]";
}
std::string with_range(const std::optional<Estimate>& e, int digits) { return e ? with_range(*e, digits) : "-"; }

bool is_summary(const SetSummary& set) {
  return std::any_of(set.settings.begin(), set.settings.end(), [](const SettingSummary& s) {
    return s.setting.kind == TrialKind::kFull && s.f1 && s.f1->value == 0 && s.rouge_l && s.rouge_l->value > 0;
  });
}

const SettingSummary* full_of(const SetSummary& set) {
  for (const SettingSummary& s : set.settings) {
    if (s.setting.kind == TrialKind::kFull) return &s;
  }
  return nullptr;
}

std::vector<std::vector<std::string>> rows_of(const SetSummary& set) {
  const bool summary = is_summary(set);
  std::vector<std::vector<std::string>> rows = {{"setting", "charged", "TTFT ms", "full / this", "KL [95 %]", "KL p95",
                                                 "top-1 [95 %]", "gap", summary ? "ROUGE-L" : "F1", "change [95 %]",
                                                 "worst KL"}};
  const SettingSummary* full = full_of(set);
  for (const SettingSummary& s : set.settings) {
    const double ratio = full != nullptr && s.ttft_ms.value > 0 ? full->ttft_ms.value / s.ttft_ms.value : NAN;
    const std::optional<Estimate>& score = summary ? s.rouge_l : s.f1;
    rows.push_back({s.setting.name, fixed(s.charged.value, 3), fixed(s.ttft_ms.value, 0), fixed(ratio, 1),
                    with_range(s.kl, 4), fixed(s.kl_p95, 4), with_range(s.top1, 3),
                    s.gap ? fixed(s.gap->value, 2) : "-", score ? fixed(score->value, 3) : "-",
                    with_range(s.score_change, 3), fixed(s.worst_kl, 3)});
  }
  return rows;
}

std::string heading(const SetSummary& set) {
  return (set.set.empty() ? std::string("all sets") : printable(set.set)) + ": " + std::to_string(set.n_items) +
         (set.n_items == 1 ? " item, " : " items, ") + fixed(set.tokens_mean, 0) + " prompt tokens on average";
}

PlotRange range_of(const Estimate& e) { return {e.low, e.high}; }

ReportSection section_of(const SetSummary& set) {
  ReportSection section{heading(set), {}};
  ReportTable table{"Every setting beside full prefill of the same tokens", {}, {}};
  std::vector<std::vector<std::string>> rows = rows_of(set);
  table.columns = rows.front();
  table.rows.assign(rows.begin() + 1, rows.end());
  section.parts.push_back(std::move(table));

  LineChart speed{"Quality against time",
                  "Points to the lower left are fast and close to full prefill.",
                  {"time to first token, ms", false},
                  {"mean KL to full prefill, nats", true},
                  {}};
  LineChart budget{"Quality against the budget",
                   "Falling lines: more rows recomputed bring the answer closer.",
                   {"charged share of full prefill", false},
                   {"mean KL to full prefill, nats", true},
                   {}};
  LineChart by_row{"Distance along the answer",
                   "The first point is the prompt's last row; those behind it are answer tokens.",
                   {"row", false},
                   {"mean KL to full prefill, nats", true},
                   {}};
  LineChart attention{"Attention's output by layer",
                      "How far what the question's rows attended to moved, relative to full prefill's.",
                      {"layer", false},
                      {"relative distance", false},
                      {}};
  BarChart worst{"Mean and worst prompt",
                 "A long bar beside a short one: the mean hides a prompt.",
                 "KL, nats",
                 {},
                 {{"mean", {}}, {"worst prompt", {}}}};
  for (const SettingSummary& s : set.settings) {
    if (s.setting.kind != TrialKind::kBlend) continue;
    const std::string family = std::string(policy_name(s.setting.blend.policy)) +
                               (s.setting.stand_in ? ", stand-in" : ", prefix") +
                               (s.setting.blend.repair == Repair::kNone ? "" : ", shift");
    const auto add = [&](LineChart& chart, PlotPoint point) {
      auto found =
          std::find_if(chart.series.begin(), chart.series.end(), [&](const PlotSeries& x) { return x.name == family; });
      if (found == chart.series.end()) found = chart.series.insert(chart.series.end(), {family, {}, true});
      found->points.push_back(std::move(point));
    };
    add(speed, {s.ttft_ms.value, s.kl.value, range_of(s.ttft_ms), range_of(s.kl), s.setting.name});
    add(budget, {s.charged.value, s.kl.value, std::nullopt, range_of(s.kl), s.setting.name});
    PlotSeries rows_line{s.setting.name, {}, true}, layers{s.setting.name, {}, true};
    for (size_t i = 0; i < s.kl_by_row.size(); ++i)
      rows_line.points.push_back({static_cast<double>(i), s.kl_by_row[i], {}, {}, ""});
    for (size_t l = 0; l < s.attention_shift.size(); ++l)
      layers.points.push_back({static_cast<double>(l), s.attention_shift[l], {}, {}, ""});
    by_row.series.push_back(std::move(rows_line));
    if (!layers.points.empty()) attention.series.push_back(std::move(layers));
    worst.groups.push_back(s.setting.name);
    worst.series[0].bars.push_back({s.kl.value, range_of(s.kl)});
    worst.series[1].bars.push_back({s.worst_kl, std::nullopt});
  }
  section.parts.push_back(std::move(speed));
  section.parts.push_back(std::move(budget));
  section.parts.push_back(std::move(worst));
  section.parts.push_back(std::move(by_row));
  if (!attention.series.empty()) section.parts.push_back(std::move(attention));
  ReportTable items{"Worst prompts", {"setting", "item", "KL"}, {}};
  for (const SettingSummary& s : set.settings)
    if (s.setting.kind == TrialKind::kBlend) items.rows.push_back({s.setting.name, s.worst_item, fixed(s.worst_kl, 4)});
  section.parts.push_back(std::move(items));
  return section;
}

std::string what_was_run(const EvalOptions& o) {
  return "answers of up to " + std::to_string(o.answer_tokens) + " tokens teacher-forced, seed " +
         std::to_string(o.seed) + ", order " + (o.shuffle ? "shuffled" : "as given");
}

}  // namespace

std::string eval_text(const EvalReport& report, const EvalOptions& options, LoadedModel& model) {
  std::string out = printable(model.name()) + ", " + printable(processor_name()) + ", target " + model.ops().name +
                    ", " + std::to_string(model.pool().size()) + " threads; " + what_was_run(options) + "\n";
  for (const SetSummary& set : report.sets) out += "\n" + heading(set) + "\n" + text_table(rows_of(set));
  if (report.pooled) out += "\n" + heading(*report.pooled) + "\n" + text_table(rows_of(*report.pooled));
  if (report.stopped) out += "\nstopped: the figures are those of the items that were finished\n";
  return out;
}

ResultsReport eval_page(const EvalReport& report, const EvalOptions& options, LoadedModel& model) {
  ResultsReport page;
  page.title = "Blended prefill of " + model.name();
  page.facts = {{"model", model.name()},
                {"machine", processor_name() + ", target " + model.ops().name + ", " +
                                std::to_string(model.pool().size()) + " threads"},
                {"run", what_was_run(options)},
                {"figures",
                 "KL(full prefill || setting) over the prompt's last row and the answer's rows, in nats, item means; "
                 "95 % bootstrap intervals over items; gap: 1 - KL / KL of plain reuse of the same stored KV"}};
  if (report.stopped) page.facts.push_back({"state", "stopped before the end: the items that were finished"});
  if (report.pooled) page.sections.push_back(section_of(*report.pooled));
  for (const SetSummary& set : report.sets) page.sections.push_back(section_of(set));
  if (!report.skipped.empty()) {
    ReportTable skipped{"Skipped", {"where", "why"}, {}};
    for (const auto& [where, reason] : report.skipped) skipped.rows.push_back({where, reason});
    page.sections.push_back({"Skipped", {skipped}});
  }
  return page;
}

}  // namespace cento
