#include "eval/calibration.h"

#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "blend/stand_in.h"
#include "eval/calibration_text.h"
#include "eval/eval_summary.h"
#include "eval/statistics.h"
#include "session/answer.h"
#include "session/prompt_layout.h"

namespace cento {
namespace {

constexpr uint64_t kSeed = 1;
constexpr size_t kOwnPassages = 4, kOtherPassages = 4;  // of the question's world and of the others
constexpr double kRatios[] = {0.05, 0.10, 0.15, 0.20, 0.25};
constexpr double kRepairRatio = 0.15;

TrialSetting setting(PolicyKind policy, double ratio, bool stand_in, Repair repair = Repair::kNone) {
  TrialSetting s;
  s.stand_in = stand_in;
  s.blend.policy = policy;
  if (policy != PolicyKind::kNone) s.blend.ratio = ratio;
  s.blend.repair = repair;
  s.name = setting_name(s);
  return s;
}

struct Measured {
  TrialSetting setting;
  std::vector<double> charged, kl, top1;  // one for each prompt
};

CalibrationRow row_of(const Measured& m) {
  return {m.setting.name, mean(m.charged), mean(m.kl), *std::max_element(m.kl.begin(), m.kl.end()), mean(m.top1)};
}

// The smallest ratio that keeps the bar; else the highest that is allowed.
const Measured& chosen_ratio(const std::vector<Measured>& all) {
  const Measured* best = nullptr;
  for (const Measured& m : all) {
    const BlendSettings& b = m.setting.blend;
    if (!m.setting.stand_in || b.policy != PolicyKind::kQuery || b.repair != Repair::kNone) continue;
    if (*b.ratio > kCalibrationRatioMax) break;
    best = &m;
    if (mean(m.kl) <= kCalibrationKl) break;
  }
  return *best;
}

const Measured& with_repair(const std::vector<Measured>& all, Repair repair) {
  return *std::find_if(all.begin(), all.end(), [&](const Measured& m) {
    const BlendSettings& b = m.setting.blend;
    return m.setting.stand_in && b.policy == PolicyKind::kQuery && *b.ratio == kRepairRatio && b.repair == repair;
  });
}

std::vector<double> rows_of(const std::vector<GuardSample>& samples) {
  std::vector<double> rows;
  for (const GuardSample& s : samples) {
    const auto x = s.residual.features();
    rows.insert(rows.end(), x.begin(), x.end());
  }
  return rows;
}

std::optional<Guard> fit(const std::vector<GuardSample>& samples) {
  std::vector<uint8_t> bad;
  for (const GuardSample& s : samples) bad.push_back(s.bad ? 1 : 0);
  const auto model = fit_logistic(rows_of(samples), Residual::kFeatures, bad);
  if (!model.ok()) return std::nullopt;
  Guard guard;
  guard.bias = model.value().bias;
  std::copy(model.value().weights.begin(), model.value().weights.end(), guard.weights.begin());
  return guard;
}

}  // namespace

std::vector<TrialPrompt> calibration_prompts(const LoadedModel& model, uint64_t seed) {
  const PromptLayout layout(model, default_system_text());
  const auto& worlds = calibration_worlds();
  std::vector<std::vector<std::vector<int32_t>>> ids;  // [worlds][passages]
  for (const CalibrationWorld& world : worlds) {
    ids.emplace_back();
    for (const std::string& text : world.passages) ids.back().push_back(layout.chunk(text));
  }
  std::vector<TrialPrompt> out;
  Rng rng(seed);
  for (size_t w = 0; w < worlds.size(); ++w) {
    for (const CalibrationQuestion& question : worlds[w].questions) {
      std::vector<std::pair<size_t, size_t>> own, others, in, rest;  // world, passage
      for (const size_t p : question.gold) in.emplace_back(w, p);
      for (size_t v = 0; v < worlds.size(); ++v) {
        for (size_t p = 0; p < ids[v].size(); ++p) {
          const std::pair<size_t, size_t> place{v, p};
          if (std::find(in.begin(), in.end(), place) == in.end()) (v == w ? own : others).push_back(place);
        }
      }
      shuffle(own, rng);
      shuffle(others, rng);
      const size_t n_own = std::min(own.size(), kOwnPassages - std::min(kOwnPassages, question.gold.size()));
      in.insert(in.end(), own.begin(), own.begin() + static_cast<ptrdiff_t>(n_own));
      in.insert(in.end(), others.begin(), others.begin() + kOtherPassages);
      rest.assign(own.begin() + static_cast<ptrdiff_t>(n_own), own.end());
      rest.insert(rest.end(), others.begin() + kOtherPassages, others.end());
      shuffle(in, rng);
      shuffle(rest, rng);
      std::vector<std::vector<int32_t>> passages;
      for (const auto& [v, p] : rest) passages.push_back(ids[v][p]);
      TrialPrompt prompt;
      prompt.prefix = layout.prefix();
      prompt.question = layout.question(question.text);
      for (const auto& [v, p] : in) {
        prompt.chunks.push_back(ids[v][p]);
        prompt.contexts.push_back(stand_in_context(passages));
      }
      out.push_back(std::move(prompt));
    }
  }
  return out;
}

Calibration calibrate(Engine& engine, const CalibrationHooks& hooks) {
  std::vector<Measured> all;
  const auto add = [&all](const TrialSetting& s) { all.push_back({s, {}, {}, {}}); };
  add(setting(PolicyKind::kNone, 0, true));
  for (const double ratio : kRatios) add(setting(PolicyKind::kQuery, ratio, true));
  add(setting(PolicyKind::kQuery, kRepairRatio, true, Repair::kShift));
  for (const double ratio : {kRatios[0], kRatios[2]}) add(setting(PolicyKind::kQuery, ratio, false));
  const std::vector<TrialPrompt> prompts = calibration_prompts(engine.model(), kSeed);
  TrialOptions options;
  options.own_answer_tokens = 0;
  options.stop = hooks.stop;
  std::vector<GuardSample> samples;
  size_t done = 0;
  Calibration out;
  for (size_t p = 0; p < prompts.size(); ++p) {
    Trial trial(engine, prompts[p], options);
    out.stopped = !trial.prepare(nullptr);
    for (Measured& m : all) {
      const auto outcome = out.stopped ? std::nullopt : trial.run(m.setting);
      if (!outcome) {
        out.stopped = true;
        return out;
      }
      m.charged.push_back(outcome->charged);
      m.kl.push_back(mean(outcome->kl));
      m.top1.push_back(static_cast<double>(std::count(outcome->same_top.begin(), outcome->same_top.end(), 1)) /
                       static_cast<double>(outcome->same_top.size()));
      if (outcome->residual && m.setting.blend.repair == Repair::kNone)
        samples.push_back({p, *outcome->residual, m.kl.back() > kGuardKl});
      if (hooks.progress) hooks.progress(++done, prompts.size() * all.size());
    }
  }
  for (const Measured& m : all) out.rows.push_back(row_of(m));
  const Measured& chosen = chosen_ratio(all);
  out.record.ratio = *chosen.setting.blend.ratio;
  out.record.repair = choose_repair(with_repair(all, Repair::kNone).kl, with_repair(all, Repair::kShift).kl);
  out.record.kl = mean(chosen.kl);
  out.record.kl_worst = row_of(chosen).kl_worst;
  out.record.top1 = mean(chosen.top1);
  out.record.n_prompts = prompts.size();
  if (const auto guard = fit_guard(samples)) {
    out.record.guard = guard->guard;
    out.guard = guard->quality;
  }
  return out;
}

Repair choose_repair(const std::vector<double>& kl_none, const std::vector<double>& kl_shift) {
  const auto difference = bootstrap_difference(kl_shift, kl_none);
  if (!difference || difference->high >= 0) return Repair::kNone;
  for (size_t i = 0; i < kl_none.size(); ++i) {
    if (kl_shift[i] > std::max(1.5 * kl_none[i], kl_none[i] + 0.01)) return Repair::kNone;
  }
  return Repair::kShift;
}

std::optional<FittedGuard> fit_guard(const std::vector<GuardSample>& samples) {
  FittedGuard out;
  out.quality.n = samples.size();
  size_t n_prompts = 0;
  for (const GuardSample& s : samples) {
    out.quality.n_bad += s.bad ? 1 : 0;
    n_prompts = std::max(n_prompts, s.prompt + 1);
  }
  if (out.quality.n_bad < kGuardSamplesMin || out.quality.n - out.quality.n_bad < kGuardSamplesMin) return std::nullopt;
  // Each prompt's samples judged by a guard that has not seen them: these chances are what the limit is set on.
  std::vector<double> chances;
  std::vector<uint8_t> bad;
  for (size_t held = 0; held < n_prompts; ++held) {
    std::vector<GuardSample> others;
    for (const GuardSample& s : samples)
      if (s.prompt != held) others.push_back(s);
    const auto guard = fit(others);
    if (!guard) return std::nullopt;
    for (const GuardSample& s : samples) {
      if (s.prompt != held) continue;
      chances.push_back(guard->probability(s.residual));
      bad.push_back(s.bad ? 1 : 0);
    }
  }
  const auto auc = roc_auc(chances, bad);
  const auto threshold = calibrate_threshold(chances, bad, kFalseAlarmsMax);
  const auto guard = fit(samples);
  if (!auc || !threshold || !guard) return std::nullopt;
  if (*auc >= kGuardAucMin) {
    out.guard = *guard;
    out.guard->limit = std::clamp(threshold->threshold, 0.0, 1.0);
  }
  out.quality.auc = *auc;
  out.quality.false_alarms = threshold->false_alarm_rate;
  out.quality.found = threshold->detection_rate;
  return out;
}

}  // namespace cento
