#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "app/commands.h"
#include "app/eval_report.h"
#include "app/interrupt.h"
#include "app/json.h"
#include "app/npy.h"
#include "app/store_options.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/machine.h"
#include "base/text.h"

namespace cento {
namespace {

Json estimate_json(const Estimate& e) {
  return {{"value", rounded(e.value, 6)}, {"low", rounded(e.low, 6)}, {"high", rounded(e.high, 6)}};
}
Json estimate_json(const std::optional<Estimate>& e) { return e ? estimate_json(*e) : Json(); }

Json list(const std::vector<double>& values) {
  Json out = Json::array();
  for (const double v : values) out.push_back(rounded(v, 6));
  return out;
}

Json setting_json(const SettingSummary& s) {
  Json j;
  j["name"] = s.setting.name;
  if (s.setting.kind == TrialKind::kBlend) {
    j["policy"] = policy_name(s.setting.blend.policy);
    j["ratio"] = s.setting.blend.ratio ? Json(*s.setting.blend.ratio) : Json();
    j["context"] = s.setting.stand_in ? "stand-in" : "prefix";
    j["repair"] = repair_name(s.setting.blend.repair);
  }
  j["items"] = s.n_items;
  j["charged"] = estimate_json(s.charged);
  j["recomputed"] = estimate_json(s.recomputed);
  j["ttft_ms"] = estimate_json(s.ttft_ms);
  j["kl"] = {{"mean", estimate_json(s.kl)}, {"p95", rounded(s.kl_p95, 6)}, {"max", rounded(s.kl_max, 6)}};
  j["top1"] = estimate_json(s.top1);
  j["nll_change"] = estimate_json(s.nll_change);
  j["gap"] = estimate_json(s.gap);
  j["gap_no_context"] = estimate_json(s.gap_no_context);
  j["f1"] = estimate_json(s.f1);
  j["exact_match"] = estimate_json(s.exact);
  j["rouge_l"] = estimate_json(s.rouge_l);
  j["score_change"] = estimate_json(s.score_change);
  j["zero_f1"] = s.f1 ? rounded(s.zero_f1, 4) : Json();
  j["worst"] = {{"item", json_text(s.worst_item)}, {"kl", rounded(s.worst_kl, 6)}};
  j["kl_by_row"] = list(s.kl_by_row);
  j["item_kl"] = list(s.item_kl);
  if (!s.attention_shift.empty()) j["attention_shift"] = list(s.attention_shift);
  return j;
}

Json set_json(const SetSummary& set) {
  Json j;
  j["set"] = json_text(set.set);
  j["items"] = set.n_items;
  j["tokens_mean"] = rounded(set.tokens_mean, 1);
  j["settings"] = Json::array();
  for (const SettingSummary& s : set.settings) j["settings"].push_back(setting_json(s));
  return j;
}

Json report_json(const EvalReport& r, const EvalCommand& command, LoadedModel& model) {
  Json j;
  j["partial"] = r.stopped;
  j["model"] = {{"name", json_text(model.name())}, {"fingerprint", model.fingerprint().hex()}};
  j["machine"] = {{"cpu", json_text(processor_name())}, {"target", model.ops().name}, {"threads", model.pool().size()}};
  j["precision"] = command.run.precision == Precision::kF32 ? "f32" : "fast";
  j["seed"] = command.eval.seed;
  j["order"] = command.eval.shuffle ? "shuffle" : "given";
  j["answer_tokens"] = command.eval.answer_tokens;
  j["trials"] = {{"measured", r.measured}, {"known", r.known}};
  j["sets"] = Json::array();
  for (const SetSummary& s : r.sets) j["sets"].push_back(set_json(s));
  j["pooled"] = r.pooled ? set_json(*r.pooled) : Json();
  j["skipped"] = Json::array();
  for (const auto& [where, reason] : r.skipped)
    j["skipped"].push_back({{"where", json_text(where)}, {"reason", json_text(reason)}});
  return j;
}

// A file name of letters, digits and a few signs that no two names share: what was replaced is told apart by a hash.
std::string file_name_of(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                       c == '_' || c == '=' || c == '.';
    out += plain ? c : '_';
  }
  if (out.size() > 80) out.resize(80);
  if (out != text || out[0] == '.') out += "-" + hash_of_text("file name", text).hex().substr(0, 8);
  return out;
}

void write_text(const std::string& path, const std::string& text) {
  std::move(atomic_write(FileSystem::real(), path, std::as_bytes(std::span(text)))).or_throw();
}

}  // namespace

std::vector<TrialSetting> settings_of(const EvalCommand& command, size_t n_layers) {
  constexpr std::string_view kGradual = "-gradual";
  std::vector<TrialSetting> out;
  for (const std::string& context : command.contexts) {
    for (const std::string& policy : command.policies) {
      for (const double ratio : command.ratios) {
        for (const std::string& repair : command.repairs) {
          TrialSetting s;
          s.stand_in = context == "stand-in";
          s.blend = command.blend;
          std::string name = policy;
          const bool gradual = name.size() > kGradual.size() && name.ends_with(kGradual);
          if (gradual) name.resize(name.size() - kGradual.size());
          s.blend.policy = *find_policy(name);
          if (ratio >= 0) s.blend.ratio = ratio;
          if (gradual) s.blend.layer_ratios = gradual_ratios(std::max(ratio, 0.0), s.blend.check_layer, n_layers);
          if (gradual && ratio < 0)
            throw Error{Code::kUsage, "--policy: " + policy + " needs a ratio of its own", "", "give --ratio numbers"};
          s.blend.repair = *find_repair(repair);
          s.name = setting_name(s);
          const bool known =
              std::any_of(out.begin(), out.end(), [&](const TrialSetting& o) { return o.name == s.name; });
          if (!known) out.push_back(std::move(s));  // none and all have no ratio
        }
      }
    }
  }
  return out;
}

int cmd_eval(Run& run, const EvalCommand& command) {
  const auto model = load_model(run.common(), command.run);
  throw_if_interrupted();
  EvalOptions options = command.eval;
  options.settings = settings_of(command, model->config().n_layers);

  EvalHooks hooks;
  hooks.stop = interrupt_requested;
  hooks.progress = [&](size_t done, size_t total, const std::string& what) {
    run.terminal.progress("eval", done, total, "trials", what);
  };
  if (!command.logits_folder.empty()) {
    std::move(FileSystem::real().make_folders(command.logits_folder)).or_throw();
    hooks.logits = [&](const std::string& set, const std::string& item, const std::string& setting,
                       std::span<const float> logits, size_t rows) {
      const std::string name = file_name_of(set) + "." + file_name_of(item) + "." + file_name_of(setting) + ".npy";
      write_npy(command.logits_folder + "/" + name, logits, rows, logits.size() / rows);
    };
  }
  const EvalReport report = evaluate(*model, options, hooks);
  run.terminal.end_progress();

  for (const auto& [where, reason] : report.skipped) run.terminal.warning("skipped: " + where + ": " + reason);
  const Json json = report_json(report, command, *model);
  if (!options.folder.empty()) {
    std::move(FileSystem::real().make_folders(options.folder)).or_throw();
    write_text(options.folder + "/results.json", json.dump(1) + "\n");
    write_text(options.folder + "/report.html", results_html(eval_page(report, options, *model)));
  }
  run.terminal.out(run.common().json ? json_line(json) : eval_text(report, options, *model));
  if (report.stopped) {
    run.terminal.note(options.folder.empty() ? "stopped; with --out the next run would go on from here"
                                             : "stopped; the same command goes on from here");
    return kInterruptedStatus;
  }
  if (report.sets.empty()) return kNothingFoundStatus;
  return report.skipped.empty() ? 0 : kPartlyDoneStatus;
}

}  // namespace cento
