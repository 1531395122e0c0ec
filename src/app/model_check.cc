#include "app/model_check.h"

#include <cstdio>

#include "app/interrupt.h"
#include "app/json.h"
#include "app/store_options.h"
#include "base/machine.h"
#include "base/text.h"
#include "eval/calibration.h"
#include "session/gate.h"
#include "session/identify.h"

namespace cento {
namespace {

template <class... Args>
std::string line(const char* format, Args... args) {
  char text[512];
  std::snprintf(text, sizeof text, format, args...);
  return text;
}

Json check_json(const GateCheck& c) {
  Json j = {{"name", c.name}, {"figure", c.figure}, {"limit", c.limit}, {"passed", c.passed()}};
  if (!c.passed()) j["why"] = c.why;
  return j;
}

std::string check_text(const GateCheck& c) {
  return line("%-30s %-6s  %.3g (limit %.3g)\n", c.name.c_str(), c.passed() ? "passed" : "FAILED", c.figure, c.limit);
}

Json calibration_json(const Calibration& c) {
  const ModelRecord& r = c.record;
  Json j;
  j["prompts"] = r.n_prompts;
  j["settings"] = Json::array();
  for (const CalibrationRow& row : c.rows) {
    j["settings"].push_back({{"name", row.setting},
                             {"charged", rounded(row.charged, 4)},
                             {"kl", {{"mean", rounded(row.kl, 6)}, {"max", rounded(row.kl_worst, 6)}}},
                             {"top1", rounded(row.top1, 4)}});
  }
  j["record"] = {{"ratio", r.ratio},
                 {"repair", repair_name(r.repair)},
                 {"kl", {{"mean", rounded(r.kl, 6)}, {"max", rounded(r.kl_worst, 6)}}},
                 {"top1", rounded(r.top1, 4)}};
  j["guard"] = Json();
  if (c.guard) {
    j["guard"] = {{"limit", r.guard ? Json(rounded(r.guard->limit, 4)) : Json()},
                  {"auc", rounded(c.guard->auc, 4)},
                  {"false_alarms", rounded(c.guard->false_alarms, 4)},
                  {"found", rounded(c.guard->found, 4)},
                  {"answers", c.guard->n},
                  {"above", c.guard->n_bad}};
  }
  return j;
}

std::string calibration_text(const Calibration& c) {
  std::string out = line("\n%zu prompts of the program's own\n%-34s %8s %9s %9s %6s\n", c.record.n_prompts, "setting",
                         "charged", "KL", "worst KL", "top-1");
  for (const CalibrationRow& row : c.rows)
    out += line("%-34s %8.3f %9.4f %9.4f %6.3f\n", row.setting.c_str(), row.charged, row.kl, row.kl_worst, row.top1);
  const ModelRecord& r = c.record;
  out += line("\nrecorded: %.0f %% of the reused rows are recomputed (KL %.4f, worst %.4f); repair: %s\n",
              100 * r.ratio, r.kl, r.kl_worst, repair_name(r.repair));
  if (r.kl > kCalibrationKl)
    out += line(
        "          that is above the KL of %.2f which blends are held to: for answers that have to be those of "
        "full\n          prefill use --prefill prefix\n",
        kCalibrationKl);
  if (!c.guard) {
    out += line("guard:    none: too few of these answers are above a KL of %.1f to learn from\n", kGuardKl);
  } else {
    out += line(
        "guard:    finds %.0f %% of the answers with a KL above %.1f at %.0f %% false alarms (AUC %.2f; %zu of "
        "%zu answers)%s\n",
        100 * c.guard->found, kGuardKl, 100 * c.guard->false_alarms, c.guard->auc, c.guard->n_bad, c.guard->n,
        r.guard ? "" : ": not used");
  }
  return out;
}

// All checks, in the order in which they are printed.
GateResult run_checks(Run& run, const ModelCommand& command, const CommonOptions& common, Engine& engine) {
  const auto show = [&run](const GateCheck& check) {
    if (!run.common().json) run.terminal.out(check_text(check));
  };
  GateResult result = run_gate(engine);
  for (const GateCheck& check : result.checks) show(check);
  const auto add = [&](const GateCheck& check) {
    show(check);
    result.checks.push_back(check);
    if (check.passed()) return;
    result.passed = false;
    if (result.why.empty()) result.why = check.why;
  };
  const ScratchFolder scratch;
  for (const GateCheck& check : check_saving(engine, scratch.path())) add(check);
  throw_if_interrupted();
  if (command.run.precision == Precision::kFast) {
    RunOptions exact_run = command.run;
    exact_run.precision = Precision::kF32;
    const auto exact_model = load_model(common, exact_run);
    Engine exact(*exact_model);
    add(check_precision(engine, exact));
  }
  throw_if_interrupted();
  return result;
}

}  // namespace

int model_check(Run& run, const ModelCommand& command) {
  CommonOptions common = run.common();
  if (!command.file.empty()) common.model = command.file;
  const auto model = load_model(common, command.run);  // first: no store is made for a slip of the name
  const auto store = open_store(common, StoreUse::kCreate);
  throw_if_interrupted();
  Engine engine(*model);
  Catalogue& catalogue = store->kv.catalogue();
  identify(*model, &catalogue);
  const GateResult checks = run_checks(run, command, common, engine);
  remember_gate(engine, catalogue, checks);

  Json out;
  out["model"] = {{"name", json_text(model->name())}, {"fingerprint", model->fingerprint().hex()}};
  out["machine"] = {
      {"cpu", json_text(processor_name())}, {"target", model->ops().name}, {"threads", model->pool().size()}};
  out["passed"] = checks.passed;
  out["checks"] = Json::array();
  for (const GateCheck& check : checks.checks) out["checks"].push_back(check_json(check));
  if (!checks.passed && !common.json) run.terminal.out("not blended: " + checks.why + "\n");

  bool stopped = false;
  if (checks.passed && command.calibrate) {
    CalibrationHooks hooks;
    hooks.stop = interrupt_requested;
    hooks.progress = [&run](size_t done, size_t total) { run.terminal.progress("check", done, total, "trials", ""); };
    const Calibration calibration = calibrate(engine, hooks);
    run.terminal.end_progress();
    stopped = calibration.stopped;
    if (!stopped) {
      write_record(engine, catalogue, calibration.record);
      out["calibration"] = calibration_json(calibration);
      if (!common.json) run.terminal.out(calibration_text(calibration));
    }
  }
  if (common.json) run.terminal.out(json_line(out));
  if (stopped) {
    run.terminal.note("stopped: the checks are remembered, nothing was calibrated");
    return kInterruptedStatus;
  }
  return checks.passed ? 0 : exit_status(Code::kInput);
}

}  // namespace cento
