#include "app/eval_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>

#include "app/text_table.h"
#include "base/machine.h"
#include "base/text.h"
#include "eval/agreement.h"

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

const char* score_name(const SetSummary& set) {
  if (set.n_summaries == 0) return "F1";
  return set.n_summaries == set.n_scored ? "ROUGE-L" : "F1 or ROUGE-L";
}

const SettingSummary* full_of(const SetSummary& set) {
  for (const SettingSummary& s : set.settings) {
    if (s.setting.kind == TrialKind::kFull) return &s;
  }
  return nullptr;
}

using Cells = std::vector<std::string>;

void append(Cells& row, const Cells& more) { row.insert(row.end(), more.begin(), more.end()); }

// Scores against references, and whether answers are right: columns for what the set has, F1 where it has neither.
std::vector<Cells> rows_of(const SetSummary& set) {
  const bool judged = set.n_judged > 0, scored = set.n_scored > 0 || !judged;
  std::vector<Cells> rows = {
      {"setting", "charged", "TTFT ms", "full / this", "KL [95 %]", "KL p95", "top-1 [95 %]", "gap"}};
  if (scored) append(rows[0], {score_name(set), "change [95 %]"});
  if (judged) append(rows[0], {"right [95 %]", "change [95 %]", "same answer"});
  rows[0].push_back("worst KL");
  const SettingSummary* full = full_of(set);
  for (const SettingSummary& s : set.settings) {
    const double ratio = full != nullptr && s.ttft_ms.value > 0 ? full->ttft_ms.value / s.ttft_ms.value : NAN;
    Cells row = {s.setting.name,
                 fixed(s.charged.value, 3),
                 fixed(s.ttft_ms.value, 0),
                 fixed(ratio, 1),
                 with_range(s.kl, 4),
                 fixed(s.kl_p95, 4),
                 with_range(s.top1, 3),
                 s.gap ? fixed(s.gap->value, 2) : "-"};
    if (scored) append(row, {s.score ? fixed(s.score->value, 3) : "-", with_range(s.score_change, 3)});
    if (judged)
      append(row, {with_range(s.right, 3), with_range(s.right_change, 3),
                   s.same_answer ? fixed(s.same_answer->value, 3) : "-"});
    row.push_back(fixed(s.worst_kl, 3));
    rows.push_back(std::move(row));
  }
  return rows;
}

// What the retriever brought; "" where passages were given.
std::string retrieval_text(const SetSummary& set) {
  if (!set.retrieval) return {};
  const RetrievalSummary& r = *set.retrieval;
  std::string out = "retrieval: " + std::to_string(r.n_asked) + (r.n_asked == 1 ? " question" : " questions");
  if (r.n_with_evidence > 0) {
    const double share = 100 * static_cast<double>(r.n_evidence_found) / static_cast<double>(r.n_with_evidence);
    out += ", the evidence is among the passages in " + std::to_string(r.n_evidence_found) + " of " +
           std::to_string(r.n_with_evidence) + " (" + fixed(share, 0) + " %)";
  }
  return out + (r.n_nothing_found > 0 ? ", nothing found for " + std::to_string(r.n_nothing_found) : "");
}

// Lines about the questions that were made of the collection; none without such.
std::vector<std::string> agreement_lines(const EvalReport& report) {
  const auto a = report.own_documents ? agreement_of(report.sets.front()) : std::nullopt;
  if (!a) return {};
  const std::string of = " of " + std::to_string(a->n_items);
  return {agreement_text(*a),
          "filled in right: full prefill " + std::to_string(a->n_right_full) + of + ", blended " +
              std::to_string(a->n_right) + of,
          "KL to full prefill: mean " + fixed(a->kl_mean, 4) + ", p95 " + fixed(a->kl_p95, 4) + ", max " +
              fixed(a->kl_max, 4) + " nats; the same likeliest token on " + fixed(100 * a->top1, 1) + " % of rows (" +
              a->setting + ")"};
}

std::string heading(const SetSummary& set) {
  return (set.set.empty() ? std::string("all sets") : printable(set.set)) + ": " + std::to_string(set.n_items) +
         (set.n_items == 1 ? " item, " : " items, ") + fixed(set.tokens_mean, 0) + " prompt tokens on average";
}

PlotRange range_of(const Estimate& e) { return {e.low, e.high}; }

ReportTable all_figures(const SetSummary& set) {
  ReportTable table{"Every setting beside full prefill of the same tokens", {}, rows_of(set)};
  table.columns = table.rows.front();
  table.rows.erase(table.rows.begin());
  return table;
}

constexpr const char* kKlAxis = "mean KL to full prefill, nats";

// What a setting is called but for its budget.
std::string family_of(const TrialSetting& setting) {
  std::string name = setting.name;
  for (const std::string_view budget : {" r=", " default"}) {
    const size_t from = name.find(budget);
    if (from == std::string::npos) continue;
    name.erase(from, std::min(name.find(' ', from + 1), name.size()) - from);
    if (!setting.blend.layer_ratios.empty()) name.insert(from, "-gradual");
    break;
  }
  return name;
}

// One line a family of settings, which differ in their budget; of settings without a point none.
LineChart over_budgets(const SetSummary& set, LineChart chart,
                       const std::function<std::optional<PlotPoint>(const SettingSummary&)>& point) {
  for (const SettingSummary& s : set.settings) {
    const auto at = s.setting.kind == TrialKind::kBlend ? point(s) : std::nullopt;
    if (!at) continue;
    const std::string family = family_of(s.setting);
    auto found =
        std::find_if(chart.series.begin(), chart.series.end(), [&](const PlotSeries& x) { return x.name == family; });
    if (found == chart.series.end()) found = chart.series.insert(chart.series.end(), {family, {}, true});
    found->points.push_back(*at);
  }
  for (PlotSeries& line : chart.series)
    std::stable_sort(line.points.begin(), line.points.end(), [](const auto& a, const auto& b) { return a.x < b.x; });
  return chart;
}

// Gradual filtering stands at its mean ratio, plain reuse at 0, where the lines of its stored KV begin.
LineChart over_ratios(const SetSummary& set) {
  const auto at = [](const SettingSummary& s, double ratio) {
    return PlotPoint{ratio, s.kl.value, std::nullopt, range_of(s.kl), s.setting.name};
  };
  LineChart chart =
      over_budgets(set,
                   {"Quality against the recompute ratio",
                    "Falling lines: more of the reused rows recomputed bring the answer closer; 0 is plain "
                    "reuse.",
                    {"recomputed share of the reused rows, r", false},
                    {kKlAxis, true},
                    {}},
                   [&](const SettingSummary& s) -> std::optional<PlotPoint> {
                     const BlendSettings& b = s.setting.blend;
                     if (b.policy == PolicyKind::kNone) return at(s, 0);
                     if (b.policy == PolicyKind::kAll) return at(s, 1);
                     if (!b.layer_ratios.empty()) return at(s, (b.layer_ratios.front() + b.layer_ratios.back()) / 2);
                     return b.ratio ? std::optional(at(s, *b.ratio)) : std::nullopt;
                   });
  for (const SettingSummary& floor : set.settings) {
    if (floor.setting.kind != TrialKind::kBlend || floor.setting.blend.policy != PolicyKind::kNone) continue;
    const std::string name = family_of(floor.setting), context = name.substr(name.rfind(' '));
    for (PlotSeries& line : chart.series)
      if (line.name != name && line.name.ends_with(context)) line.points.insert(line.points.begin(), at(floor, 0));
  }
  return chart;
}

constexpr size_t kLinesMax = 12;  // more cannot be told apart where they cross

// Of each family the setting with the middle one of its budgets.
std::vector<const SettingSummary*> one_of_each_family(const std::vector<const SettingSummary*>& all) {
  std::vector<std::pair<std::string, std::vector<const SettingSummary*>>> families;
  for (const SettingSummary* s : all) {
    const std::string name = family_of(s->setting);
    auto found = std::find_if(families.begin(), families.end(), [&](const auto& f) { return f.first == name; });
    if (found == families.end()) found = families.insert(families.end(), {name, {}});
    found->second.push_back(s);
  }
  std::vector<const SettingSummary*> out;
  for (auto& [name, members] : families) {
    std::stable_sort(members.begin(), members.end(),
                     [](const auto* a, const auto* b) { return a->charged.value < b->charged.value; });
    out.push_back(members[members.size() / 2]);
  }
  return out;
}

// One line a setting: values [rows or layers].
LineChart one_line_each(const SetSummary& set, LineChart chart,
                        const std::function<const std::vector<double>&(const SettingSummary&)>& values) {
  std::vector<const SettingSummary*> shown;
  for (const SettingSummary& s : set.settings) {
    if (s.setting.kind == TrialKind::kBlend && !values(s).empty()) shown.push_back(&s);
  }
  if (shown.size() > kLinesMax) {
    shown = one_of_each_family(shown);
    chart.title += ", at the middle budget of each";
  }
  for (const SettingSummary* s : shown) {
    PlotSeries line{s->setting.name, {}, true};
    for (const double v : values(*s)) line.points.push_back({static_cast<double>(line.points.size()), v, {}, {}, ""});
    chart.series.push_back(std::move(line));
  }
  return chart;
}

const char* context_of(const SettingSummary& s) { return s.setting.stand_in ? "stand-in" : "prefix"; }

// Nothing where it was not measured.
LineChart deviation_by_rank(const SetSummary& set) {
  LineChart chart{
      "Deviation by rank",
      "How much of the stored KV's distance from full prefill's the most deviating rows hold: the steeper the "
      "start, the fewer rows matter.",
      {"share of the rows, most deviating first", false},
      {"share of the deviation", false},
      {}};
  for (const SettingSummary& s : set.settings) {
    if (!s.deviation || s.deviation->top_share.empty()) continue;
    PlotSeries line{context_of(s), {{0, 0, {}, {}, ""}}, true};
    for (size_t i = 0; i < kTopRows.size(); ++i)
      line.points.push_back({kTopRows[i], s.deviation->top_share[i], {}, {}, ""});
    chart.series.push_back(std::move(line));
  }
  if (!chart.series.empty())
    chart.series.push_back({"if all rows deviated alike", {{0, 0, {}, {}, ""}, {1, 1, {}, {}, ""}}, true});
  return chart;
}

LineChart layer_correlation(const SetSummary& set) {
  LineChart chart{
      "Deviation from layer to layer",
      "High lines: rows that deviate at a layer are those that deviate later, so that they can be chosen early.",
      {"layer", false},
      {"rank correlation of the rows' deviation", false},
      {}};
  for (const SettingSummary& s : set.settings) {
    if (!s.deviation) continue;
    const auto add = [&](const char* with, const std::vector<double>& by_layer) {
      PlotSeries line{std::string(context_of(s)) + with, {}, true};
      for (size_t l = 0; l < by_layer.size(); ++l)  // at layer 0 no row deviates
        if (std::isfinite(by_layer[l])) line.points.push_back({static_cast<double>(l), by_layer[l], {}, {}, ""});
      if (!line.points.empty()) chart.series.push_back(std::move(line));
    };
    add(", with the next layer", s.deviation->next_layer);
    add(", with the last layer", s.deviation->last_layer);
  }
  return chart;
}

BarChart mean_and_worst(const SetSummary& set) {
  BarChart chart{"Mean and worst prompt",
                 "A long bar beside a short one: the mean hides a prompt.",
                 "KL, nats",
                 {},
                 {{"mean", {}}, {"worst prompt", {}}}};
  for (const SettingSummary& s : set.settings) {
    if (s.setting.kind != TrialKind::kBlend) continue;
    chart.groups.push_back(s.setting.name);
    chart.series[0].bars.push_back({s.kl.value, range_of(s.kl)});
    chart.series[1].bars.push_back({s.worst_kl, std::nullopt});
  }
  return chart;
}

ReportTable worst_prompts(const SetSummary& set) {
  ReportTable table{"Worst prompts", {"setting", "item", "KL"}, {}};
  for (const SettingSummary& s : set.settings) {
    if (s.setting.kind == TrialKind::kBlend) table.rows.push_back({s.setting.name, s.worst_item, fixed(s.worst_kl, 4)});
  }
  return table;
}

ReportSection section_of(const SetSummary& set) {
  ReportSection section{heading(set), {all_figures(set)}};
  if (set.retrieval) section.parts.insert(section.parts.begin(), retrieval_text(set));
  const auto speed = [](const SettingSummary& s) -> std::optional<PlotPoint> {
    return PlotPoint{s.ttft_ms.value, s.kl.value, range_of(s.ttft_ms), range_of(s.kl), s.setting.name};
  };
  section.parts.push_back(over_budgets(set,
                                       {"Quality against time",
                                        "Points to the lower left are fast and close to full prefill.",
                                        {"time to first token, ms", false},
                                        {kKlAxis, true},
                                        {}},
                                       speed));
  const auto budget = [](const SettingSummary& s) -> std::optional<PlotPoint> {
    return PlotPoint{s.charged.value, s.kl.value, std::nullopt, range_of(s.kl), s.setting.name};
  };
  section.parts.push_back(over_budgets(set,
                                       {"Quality against the budget",
                                        "Falling lines: more rows recomputed bring the answer closer.",
                                        {"charged share of full prefill", false},
                                        {kKlAxis, true},
                                        {}},
                                       budget));
  const auto add_if_any = [&section](LineChart chart) {
    if (!chart.series.empty()) section.parts.push_back(std::move(chart));
  };
  add_if_any(over_ratios(set));
  section.parts.push_back(mean_and_worst(set));
  section.parts.push_back(
      one_line_each(set,
                    {"Distance along the answer",
                     "The first point is the prompt's last row; those behind it are answer tokens.",
                     {"row", false},
                     {kKlAxis, true},
                     {}},
                    [](const SettingSummary& s) -> const std::vector<double>& { return s.kl_by_row; }));
  add_if_any(one_line_each(set,
                           {"Attention's output by layer",
                            "How far what the question's rows attended to moved, relative to full prefill's.",
                            {"layer", false},
                            {"relative distance", false},
                            {}},
                           [](const SettingSummary& s) -> const std::vector<double>& { return s.attention_shift; }));
  add_if_any(deviation_by_rank(set));
  add_if_any(layer_correlation(set));
  section.parts.push_back(worst_prompts(set));
  return section;
}

std::string what_was_run(const EvalOptions& o) {
  return "answers of up to " + std::to_string(o.answer_tokens) + " tokens teacher-forced, seed " +
         std::to_string(o.seed) + ", order " +
         (o.shuffle                                    ? "shuffled"
          : o.collection_order == ChunkOrder::kReading ? "of reading"
                                                       : "as given");
}

}  // namespace

std::string eval_text(const EvalReport& report, const EvalOptions& options, LoadedModel& model) {
  std::string out = printable(model.name()) + ", " + printable(processor_name()) + ", target " + model.ops().name +
                    ", " + std::to_string(model.pool().size()) + " threads; " + what_was_run(options) + "\n";
  for (const SetSummary& set : report.sets) {
    out += "\n" + heading(set) + "\n" + text_table(rows_of(set));
    if (set.retrieval) out += retrieval_text(set) + "\n";
  }
  if (report.pooled) out += "\n" + heading(*report.pooled) + "\n" + text_table(rows_of(*report.pooled));
  if (report.stopped) out += "\nstopped: the figures are those of the items that were finished\n";
  const std::vector<std::string> lines = agreement_lines(report);
  if (!lines.empty()) out += "\n";
  for (const std::string& line : lines) out += line + "\n";
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
  if (const auto lines = agreement_lines(report); !lines.empty()) {
    ReportSection own{"On your documents", {}};
    for (const std::string& line : lines) own.parts.emplace_back(line);
    page.sections.push_back(std::move(own));
  }
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
