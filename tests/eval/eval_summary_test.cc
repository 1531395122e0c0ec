#include "eval/eval_summary.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <deque>
#include <set>

#include "eval/agreement.h"

namespace cento::test {
namespace {

TrialSetting blended(PolicyKind policy, bool stand_in, std::optional<double> ratio = {}) {
  TrialSetting s;
  s.stand_in = stand_in;
  s.blend.policy = policy;
  s.blend.ratio = ratio;
  s.name = setting_name(s);
  return s;
}

std::vector<std::string> names_of(const std::vector<TrialSetting>& settings) {
  std::vector<std::string> names;
  for (const TrialSetting& s : settings) names.push_back(s.name);
  return names;
}

const SettingSummary& named(const SetSummary& set, const std::string& name) {
  for (const SettingSummary& s : set.settings) {
    if (s.setting.name == name) return s;
  }
  throw std::runtime_error("no setting " + name);
}

// Records of items under settings; a record's set and item are named by the item.
struct Records {
  std::vector<TrialSetting> settings;
  std::deque<TrialRecord> records;
  std::vector<std::vector<const TrialRecord*>> by_item;

  // kl [settings][rows]
  void add_item(const std::string& name, const std::vector<std::vector<double>>& kl) {
    by_item.emplace_back();
    for (const std::vector<double>& rows : kl) {
      TrialRecord& r = records.emplace_back();
      r.set = "set of " + name;
      r.item = name;
      r.outcome.kl = rows;
      r.outcome.same_top.assign(rows.size(), 1);
      by_item.back().push_back(&r);
    }
  }
  TrialRecord& at(size_t item, size_t setting) { return records[item * settings.size() + setting]; }
  SetSummary summary(const std::string& set = "s") const { return summarise(set, settings, by_item, 1); }
};

Records two_items() {
  Records r;
  r.settings = standing_settings({blended(PolicyKind::kQuery, true, 0.15), blended(PolicyKind::kDevKv, false, 0.15)});
  REQUIRE(names_of(r.settings) == std::vector<std::string>{"full", "no passages", "none prefix", "none stand-in",
                                                           "query r=0.15 stand-in", "dev-kv r=0.15 prefix"});
  r.add_item("a", {{0, 0, 0}, {2, 2, 2}, {1, 1, 1}, {0.3, 0.6, 0.9}, {0.1, 0.2, 0.3}, {0.2, 0.2, 0.2}});
  r.add_item("b", {{0, 0}, {1, 1}, {0.6, 0.6}, {0.2, 0.2}, {0.1, 0.1}, {0.2, 0.2}});
  return r;
}

// What is a sum of few numbers of size 1 and below, and a quotient of two such.
auto near_to(double x) { return Approx(x).margin(1e-12); }

TEST_CASE("summary: KL is a mean over items of means over rows, the gap is over plain reuse of the same KV", "[eval]") {
  const SetSummary set = two_items().summary();
  CHECK((set.set == "s" && set.n_items == 2));
  const SettingSummary& query = named(set, "query r=0.15 stand-in");
  CHECK(query.n_items == 2);
  CHECK(query.kl.value == near_to(0.15));  // of 0.2 and 0.1; over all five rows it would be 0.16
  CHECK(query.kl.low == near_to(0.1));     // the mean of two draws is 0.1, 0.15 or 0.2, at odds 1:2:1
  CHECK(query.kl.high == near_to(0.2));
  CHECK(query.item_kl.size() == 2);
  CHECK((query.item_kl[0] == near_to(0.2) && query.item_kl[1] == near_to(0.1)));
  REQUIRE((query.gap && query.gap_no_context));
  CHECK(query.gap->value == near_to(1 - 0.15 / 0.4));
  CHECK(query.gap_no_context->value == near_to(1 - 0.15 / 1.5));
  const SettingSummary& dev = named(set, "dev-kv r=0.15 prefix");
  CHECK(dev.gap->value == near_to(1 - 0.2 / 0.8));
  CHECK(named(set, "none stand-in").gap->value == near_to(0));
  CHECK(named(set, "none prefix").gap->value == near_to(0));
  CHECK(named(set, "none stand-in").gap_no_context->value == near_to(1 - 0.4 / 1.5));
  const SettingSummary& full = named(set, "full");
  CHECK((full.kl.value == 0 && !full.gap && !full.gap_no_context));
  CHECK_FALSE(named(set, "no passages").gap);
}

TEST_CASE("summary: quantiles and the line along the answer are over rows", "[eval]") {
  const SetSummary set = two_items().summary();
  const SettingSummary& query = named(set, "query r=0.15 stand-in");
  CHECK(query.kl_p95 == near_to(0.2 + 0.8 * 0.1));  // of .1 .1 .1 .2 .3 at index .95 * 4 = 3.8
  CHECK(query.kl_max == near_to(0.3));
  REQUIRE(query.kl_by_row.size() == 3);
  CHECK(query.kl_by_row[0] == near_to(0.1));
  CHECK(query.kl_by_row[1] == near_to(0.15));
  CHECK(query.kl_by_row[2] == near_to(0.3));  // of the one item that is so long
}

TEST_CASE("summary: costs, agreement, likelihood and attention are means over items", "[eval]") {
  Records r = two_items();
  const auto fill = [&](size_t item, double charged, size_t tokens, size_t recomputed, double ttft, double nll,
                        double nll_full, std::vector<char> top, std::vector<double> shift) {
    for (size_t setting = 0; setting < r.settings.size(); ++setting) {
      TrialOutcome& o = r.at(item, setting).outcome;
      o.charged = charged;
      o.n_tokens = tokens;
      o.n_recomputed = recomputed;
      o.ttft_ms = ttft;
      o.nll = nll;
      o.nll_full = nll_full;
      o.same_top = top;
      o.attention_shift = shift;
    }
  };
  fill(0, 0.2, 100, 10, 100, 1.5, 1.0, {1, 0, 1}, {0.1, 0.2});
  fill(1, 0.4, 200, 30, 300, 2.0, 2.1, {1, 1}, {0.3, 0.4});
  const SetSummary set = r.summary();
  CHECK(set.tokens_mean == near_to(150));
  const SettingSummary& s = named(set, "query r=0.15 stand-in");
  CHECK(s.charged.value == near_to(0.3));
  CHECK(s.recomputed.value == near_to(20));
  CHECK(s.ttft_ms.value == near_to(200));
  CHECK(s.nll_change.value == near_to((0.5 - 0.1) / 2));
  CHECK(s.top1.value == near_to((2.0 / 3 + 1) / 2));
  REQUIRE(s.attention_shift.size() == 2);
  CHECK((s.attention_shift[0] == near_to(0.2) && s.attention_shift[1] == near_to(0.3)));
}

TEST_CASE("summary: the deviation's spread is a mean over the items that have a figure", "[eval]") {
  Records r = two_items();
  r.add_item("c", {{0}, {1}, {1}, {1}, {1}, {1}});
  CHECK_FALSE(named(r.summary(), "none prefix").deviation);
  const size_t prefix = 2;
  REQUIRE(r.settings[prefix].name == "none prefix");
  r.at(0, prefix).outcome.deviation = {std::vector<double>(kTopRows.size(), 0.5), {NAN, 0.9}, {NAN, 0.3}};
  r.at(1, prefix).outcome.deviation = {std::vector<double>(kTopRows.size(), 0.7), {NAN, NAN}, {NAN, 0.5}};
  r.at(2, prefix).outcome.deviation = {{}, {NAN, 0.5}, {NAN, 0.1}};  // one passage, which is exact
  const SetSummary set = r.summary();
  const auto& mean = named(set, "none prefix").deviation;
  REQUIRE(mean);
  REQUIRE(mean->top_share.size() == kTopRows.size());
  for (const double share : mean->top_share) CHECK(share == near_to(0.6));
  REQUIRE((mean->next_layer.size() == 2 && mean->last_layer.size() == 2));
  CHECK((std::isnan(mean->next_layer[0]) && mean->next_layer[1] == near_to(0.7)));
  CHECK((std::isnan(mean->last_layer[0]) && mean->last_layer[1] == near_to(0.3)));
  CHECK_FALSE(named(set, "none stand-in").deviation);
}

TEST_CASE("summary: scores are compared with full prefill's item by item, by ROUGE-L for summaries", "[eval]") {
  Records r = two_items();
  r.add_item("without references", {{0}, {1}, {1}, {1}, {1}, {1}});
  const auto score = [&](size_t item, size_t setting, const TrialScores& s) { r.at(item, setting).scores = s; };
  constexpr size_t kQuery = 4;
  for (size_t setting = 0; setting < r.settings.size(); ++setting) {
    score(0, setting, {true, false, 0.8, 1, 0.7});
    score(1, setting, {true, false, 0.5, 0, 0.6});
  }
  score(0, kQuery, {true, false, 0.5, 0, 0.9});
  score(1, kQuery, {true, false, 0.0, 0, 0.2});
  SetSummary set = r.summary();
  CHECK((set.n_scored == 2 && set.n_summaries == 0));
  const SettingSummary qa = named(set, "query r=0.15 stand-in");
  CHECK(qa.f1->value == near_to(0.25));
  CHECK(qa.exact->value == near_to(0));
  CHECK(qa.rouge_l->value == near_to(0.55));
  CHECK(qa.score->value == near_to(0.25));
  CHECK(qa.score_change->value == near_to(-(0.3 + 0.5) / 2));
  CHECK(qa.zero_f1 == near_to(0.5));
  CHECK(named(set, "full").score_change->value == 0);
  CHECK(named(set, "full").zero_f1 == 0);

  for (size_t setting = 0; setting < r.settings.size(); ++setting) score(1, setting, {true, true, 0.5, 0, 0.6});
  score(1, kQuery, {true, true, 0.4, 0, 0.2});
  set = r.summary();
  CHECK((set.n_scored == 2 && set.n_summaries == 1));
  const SettingSummary& mixed = named(set, "query r=0.15 stand-in");
  CHECK(mixed.score->value == near_to((0.5 + 0.2) / 2));
  CHECK(mixed.score_change->value == near_to(-(0.3 + 0.4) / 2));
  CHECK(mixed.f1->value == near_to((0.5 + 0.4) / 2));

  const SetSummary none = two_items().summary();
  CHECK(none.n_scored == 0);
  CHECK((!none.settings[0].f1 && !none.settings[0].score && !none.settings[0].score_change));
}

TEST_CASE("summary: the worst item is named, with its set where there are several, and one without a figure is worst",
          "[eval]") {
  Records r = two_items();
  CHECK(named(r.summary(), "query r=0.15 stand-in").worst_item == "a");
  CHECK(named(r.summary(), "query r=0.15 stand-in").worst_kl == near_to(0.2));
  CHECK(named(r.summary(""), "query r=0.15 stand-in").worst_item == "set of a: a");
  CHECK(named(r.summary(), "full").worst_item == "a");
  r.add_item("nan", {{0}, {1}, {1}, {1}, {NAN}, {1}});
  r.add_item("large", {{0}, {1}, {1}, {1}, {9}, {2}});
  const SetSummary set = r.summary();
  const SettingSummary& s = named(set, "query r=0.15 stand-in");
  CHECK(s.worst_item == "nan");
  CHECK(std::isnan(s.worst_kl));
  CHECK(std::isnan(s.kl.value));  // and no figure is made up for the mean
  CHECK(std::isnan(s.kl_p95));
  CHECK_FALSE(s.gap);
  CHECK(named(set, "dev-kv r=0.15 prefix").worst_item == "large");
}

TEST_CASE("summary: no items are no figures, and one item has no spread", "[eval]") {
  Records r = two_items();
  r.by_item.pop_back();
  const SetSummary one = r.summary();
  const SettingSummary& s = named(one, "query r=0.15 stand-in");
  CHECK((s.kl.low == s.kl.value && s.kl.high == s.kl.value));
  r.by_item.clear();
  const SetSummary none = r.summary();
  CHECK((none.n_items == 0 && none.settings.empty()));
}

TEST_CASE("settings: what is always run is there once, with plain reuse of each KV that is used", "[eval]") {
  using Names = std::vector<std::string>;
  CHECK(names_of(standing_settings({})) == Names{"full", "no passages", "none stand-in"});
  CHECK(names_of(standing_settings({blended(PolicyKind::kQuery, false)})) ==
        Names{"full", "no passages", "none prefix", "query default prefix"});
  const auto both = standing_settings({blended(PolicyKind::kNone, true), blended(PolicyKind::kDevK, false, 0.5),
                                       blended(PolicyKind::kDevK, false, 0.5), blended(PolicyKind::kNone, false)});
  CHECK(names_of(both) == Names{"full", "no passages", "none prefix", "none stand-in", "dev-k r=0.5 prefix"});
  CHECK((both[0].kind == TrialKind::kFull && both[1].kind == TrialKind::kNoContext));
  CHECK((both[2].kind == TrialKind::kBlend && both[2].blend.policy == PolicyKind::kNone && !both[2].stand_in));
}

// All settings that differ in figures from each other, of a few values of each knob.
std::vector<TrialSetting> many_settings() {
  std::vector<TrialSetting> out;
  const std::vector<std::optional<double>> ratios = {std::nullopt, 0.0, 1e-7, 0.05, 0.1234567, 0.1234568, 1.0 / 3, 1.0};
  const auto knobs = [&](TrialSetting s, unsigned bits) {
    s.stand_in = (bits & 1) != 0;
    s.exact_first = s.stand_in && (bits & 128) != 0;
    if ((bits & 2) != 0) s.blend.check_layer = 2;
    if ((bits & 4) != 0) s.blend.head_rows = 4;
    if ((bits & 8) != 0) s.blend.smooth = 3;
    if ((bits & 16) != 0) s.blend.probe_depth = 0.5;
    if ((bits & 32) != 0) s.blend.repair = Repair::kShift;
    if ((bits & 64) != 0) s.blend.seed = 7;
    return s;
  };
  for (const PolicyInfo& policy : policies()) {
    const bool budgeted = policy.kind != PolicyKind::kNone && policy.kind != PolicyKind::kAll;
    for (unsigned bits = 0; bits < 256; ++bits) {
      if ((bits & 129) == 128) continue;  // behind the prefix alone every first chunk is exact
      for (const auto& ratio : ratios) {
        if (budgeted || !ratio) out.push_back(knobs(blended(policy.kind, true, ratio), bits));
      }
      for (const double ratio : {0.15, 0.16, 0.9}) {
        TrialSetting gradual = knobs(blended(policy.kind, true), bits);
        gradual.blend.layer_ratios = gradual_ratios(ratio, gradual.blend.check_layer, 30);
        if (budgeted) out.push_back(gradual);
      }
    }
  }
  return out;
}

TEST_CASE("settings: no two have one name, and every name can be part of a file's", "[eval]") {
  std::set<std::string> names = {"full", "no passages"};
  std::string doubled, odd;
  for (const TrialSetting& s : many_settings()) {
    const std::string name = setting_name(s);
    if (!names.insert(name).second) doubled = name;
    for (const char c : name) {
      const bool plain = (std::isalnum(static_cast<unsigned char>(c)) != 0) || c == '-' || c == '=' || c == '.';
      if (!plain && c != ' ') odd = name;
    }
  }
  CHECK(names.size() > 10000);
  CHECK(doubled.empty());
  CHECK(odd.empty());
  CHECK(setting_name(blended(PolicyKind::kQuery, true, 0.15)) == "query r=0.15 stand-in");
  TrialSetting gradual = blended(PolicyKind::kDevKv, false);
  gradual.blend.layer_ratios = gradual_ratios(0.15, 1, 30);
  CHECK(setting_name(gradual) == "dev-kv r=0.225..0.075 prefix");  // not 0.22499999999999998
}

TEST_CASE("eval summary: answers are right or wrong, and full prefill's or others; unjudged items do not count",
          "[eval]") {
  Records r = two_items();
  r.add_item("c", {{0}, {2}, {1}, {0.3}, {0.1}, {0.2}});
  const auto judge = [&](size_t item, size_t setting, bool right, const std::string& answer) {
    TrialRecord& record = r.at(item, setting);
    record.scores.judged = record.scores.answered = true;
    record.scores.right = right;
    record.answer = answer;
  };
  for (size_t s = 0; s < r.settings.size(); ++s) {
    judge(0, s, true, "31 March");
    judge(1, s, s == 0, s == 0 ? "12" : "13");  // full prefill alone is right
    r.at(2, s).answer = "not judged";
    r.at(2, s).scores.answered = true;
  }
  judge(0, 4, true, "on 31 March");
  const SetSummary set = r.summary();
  CHECK((set.n_judged == 2 && set.n_scored == 0));
  const SettingSummary &full = named(set, "full"), &query = named(set, "query r=0.15 stand-in");
  CHECK((full.n_right == 2 && full.right->value == 1 && full.right_change->value == 0));
  CHECK((full.n_same_answer == 3 && full.same_answer->value == 1));
  CHECK((query.n_right == 1 && query.right->value == 0.5 && query.right_change->value == -0.5));
  CHECK((query.n_same_answer == 1 && query.same_answer->value == Approx(1.0 / 3)));
  CHECK(named(set, "none stand-in").n_same_answer == 2);

  const auto a = agreement_of(set);
  REQUIRE(a);
  CHECK((a->setting == "query r=0.15 stand-in" && a->n_items == 3 && a->n_same == 1));
  CHECK((a->n_right == 1 && a->n_right_full == 2 && a->kl_max == 0.3 && a->kl_mean == query.kl.value));
  CHECK(agreement_text(*a) == "on your documents blended answers agree with full prefill in 1 of 3");

  const SetSummary unanswered = two_items().summary();
  CHECK(unanswered.n_judged == 0);
  CHECK_FALSE(named(unanswered, "full").right);
  CHECK_FALSE(named(unanswered, "full").same_answer);
  CHECK_FALSE(agreement_of(unanswered));
  CHECK_FALSE(agreement_of(SetSummary{}));
}

TEST_CASE("eval summary: of plain reuse alone the agreement is plain reuse's", "[eval]") {
  Records r;
  r.settings = standing_settings({});
  r.add_item("a", {{0}, {2}, {1}});
  for (size_t s = 0; s < 3; ++s) r.at(0, s).scores.answered = true;
  const auto a = agreement_of(r.summary());
  REQUIRE(a);
  CHECK(a->setting == "none stand-in");
}

}  // namespace
}  // namespace cento::test
