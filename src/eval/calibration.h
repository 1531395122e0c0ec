// Measures how a model blends on text that comes with the program, and makes its record of it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "eval/trial.h"
#include "session/model_record.h"

namespace cento {

// Mean KL that a ratio has to keep, and the highest ratio that is chosen where none does (docs/BLENDING.md).
inline constexpr double kCalibrationKl = 0.02;
inline constexpr double kCalibrationRatioMax = 0.25;
// The guard's limit lets at most this share of good answers (KL at most kGuardKl) go the long way.
inline constexpr double kFalseAlarmsMax = 0.05;

struct CalibrationRow {
  std::string setting;
  double charged = 0, kl = 0, kl_worst = 0, top1 = 0;  // means over prompts
};

// How well the guard tells answers above kGuardKl from others: each prompt judged by a guard fitted on the others.
struct GuardQuality {
  size_t n = 0, n_bad = 0;  // prompts x settings
  double auc = 0, false_alarms = 0, found = 0;
};

struct Calibration {
  ModelRecord record;
  std::vector<CalibrationRow> rows;
  std::optional<GuardQuality> guard;  // also where no guard is recorded
  bool stopped = false;               // nothing is to be recorded
};

struct CalibrationHooks {
  std::function<void(size_t done, size_t total)> progress;  // trials
  std::function<bool()> stop;
};

// `prompts` and `seed` choose the passages that stand beside the gold ones.
std::vector<TrialPrompt> calibration_prompts(const LoadedModel& model, uint64_t seed);

Calibration calibrate(Engine& engine, const CalibrationHooks& hooks);

// kShift only where it is surely better: the 95 % interval of the paired difference of the KL lies below 0, and no
// prompt comes out half as far again as without it, or .01 farther; single prompts are where it does its harm
// (docs/BLENDING.md). One value a prompt, in the same order.
Repair choose_repair(const std::vector<double>& kl_none, const std::vector<double>& kl_shift);

// What one trial says about the guard: features and whether its KL was above kGuardKl.
struct GuardSample {
  size_t prompt = 0;  // samples of one prompt are never on both sides of a test
  Residual residual;
  bool bad = false;
};
struct FittedGuard {
  std::optional<Guard> guard;  // none where it would be hardly better than guessing: AUC below kGuardAucMin
  GuardQuality quality;
};
inline constexpr double kGuardAucMin = 0.7;
// nullopt with fewer than kGuardSamplesMin of either kind: nothing can be said.
inline constexpr size_t kGuardSamplesMin = 5;
std::optional<FittedGuard> fit_guard(const std::vector<GuardSample>& samples);

}  // namespace cento
