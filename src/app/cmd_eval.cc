#include <algorithm>
#include <map>

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
#include "eval/agreement.h"
#include "eval/dataset.h"
#include "eval/own_questions.h"

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
    j["context"] = !s.setting.stand_in ? "prefix" : s.setting.exact_first ? "exact-first" : "stand-in";
    j["repair"] = repair_name(s.setting.blend.repair);
    j["codec"] = kv_codec_name(s.setting.codec);
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
  j["right"] = estimate_json(s.right);
  j["right_change"] = estimate_json(s.right_change);
  j["same_answer"] = estimate_json(s.same_answer);
  j["worst"] = {{"item", json_text(s.worst_item)}, {"kl", rounded(s.worst_kl, 6)}};
  j["kl_by_row"] = list(s.kl_by_row);
  j["item_kl"] = list(s.item_kl);
  if (!s.attention_shift.empty()) j["attention_shift"] = list(s.attention_shift);
  if (s.deviation) {
    j["deviation"] = {{"rows", list({kTopRows.begin(), kTopRows.end()})},
                      {"top_share", list(s.deviation->top_share)},
                      {"next_layer", list(s.deviation->next_layer)},
                      {"last_layer", list(s.deviation->last_layer)}};
  }
  return j;
}

Json retrieval_json(const std::optional<RetrievalSummary>& r) {
  if (!r) return {};
  return {{"asked", r->n_asked},
          {"nothing_found", r->n_nothing_found},
          {"with_evidence", r->n_with_evidence},
          {"evidence_found", r->n_evidence_found}};
}

Json agreement_json(const EvalReport& report) {
  const auto a = report.own_documents ? agreement_of(report.sets.front()) : std::nullopt;
  if (!a) return {};
  return {{"text", agreement_text(*a)},
          {"setting", a->setting},
          {"agree", a->n_same},
          {"questions", a->n_items},
          {"right", {{"full", a->n_right_full}, {"blended", a->n_right}}},
          {"kl", {{"mean", rounded(a->kl_mean, 6)}, {"p95", rounded(a->kl_p95, 6)}, {"max", rounded(a->kl_max, 6)}}},
          {"top1", rounded(a->top1, 6)}};
}

Json set_json(const SetSummary& set) {
  Json j;
  j["set"] = json_text(set.set);
  j["items"] = set.n_items;
  j["tokens_mean"] = rounded(set.tokens_mean, 1);
  j["retrieval"] = retrieval_json(set.retrieval);
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
  j["order"] = command.eval.shuffle                                    ? "shuffle"
               : command.eval.collection_order == ChunkOrder::kReading ? "reading"
                                                                       : "given";
  j["answer_tokens"] = command.eval.answer_tokens;
  j["trials"] = {{"measured", r.measured}, {"known", r.known}};
  j["on_my_documents"] = agreement_json(r);
  j["sets"] = Json::array();
  for (const SetSummary& s : r.sets) j["sets"].push_back(set_json(s));
  j["pooled"] = r.pooled ? set_json(*r.pooled) : Json();
  j["skipped"] = Json::array();
  for (const auto& [where, reason] : r.skipped)
    j["skipped"].push_back({{"where", json_text(where)}, {"reason", json_text(reason)}});
  return j;
}

// A part of a file name, of letters, digits, - and _, that no two texts share: where something was replaced or cut, a
// hash of the text follows.
std::string file_name_of(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
    out += plain ? c : '_';
  }
  if (out.size() > 80) out.resize(80);
  if (out != text || out.empty()) out += "-" + hash_of_text("file name", text).hex().substr(0, 16);
  return out;
}

// SET.ITEM.SETTING.npy. Names of settings are our own: a space is all that has to be replaced.
std::string logits_name(const std::string& set, const std::string& item, std::string setting) {
  std::replace(setting.begin(), setting.end(), ' ', '_');
  return file_name_of(set) + "." + file_name_of(item) + "." + setting + ".npy";
}

// Their logits would have the same names.
void refuse_sets_of_one_name(const EvalOptions& options) {
  std::map<std::string, std::string> seen;
  if (options.own_documents > 0) seen.emplace(kOwnDocumentsSet, "--on-my-documents");
  for (const std::string& file : options.data) {
    const auto [other, is_new] = seen.emplace(DatasetReader(file).set(), file);
    if (is_new) continue;
    throw Error{Code::kUsage, "--logits: " + other->second + " has the same name", file,
                "rename one of them, or run them one by one"};
  }
}

Status write_text(const std::string& path, const std::string& text) {
  return atomic_write(FileSystem::real(), path, std::as_bytes(std::span(text)));
}

// A run that was stopped before it finished an item leaves an earlier report as it is.
Status write_report(const EvalReport& report, const EvalOptions& options, const Json& json, LoadedModel& model) {
  if (options.folder.empty() || (report.stopped && report.sets.empty())) return Status::done();
  if (Status s = write_text(options.folder + "/results.json", json.dump(1) + "\n"); !s) return s;
  return write_text(options.folder + "/report.html", results_html(eval_page(report, options, model)));
}

int status_of(const EvalReport& report) {
  if (report.stopped) return kInterruptedStatus;
  if (report.sets.empty()) return kNothingFoundStatus;
  return report.skipped.empty() ? 0 : kPartlyDoneStatus;
}

// A set is named by its file, and the progress bar takes ASCII.
std::string ascii(const std::string& text) {
  std::string out = printable(text);
  std::replace_if(
      out.begin(), out.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; }, '?');
  return out;
}

// `store` is filled when an item asks for it; a store is needed only where the collection itself is asked about.
EvalHooks hooks_of(Run& run, const EvalCommand& command, std::unique_ptr<Store>& store) {
  EvalHooks hooks;
  hooks.documents = [&run, &store, own = command.eval.own_documents > 0]() -> DocStore* {
    if (!store && (own || store_exists(store_folder(run.common())))) store = open_store(run.common(), StoreUse::kRead);
    return store ? &store->docs : nullptr;
  };
  hooks.stop = interrupt_requested;
  hooks.progress = [&run](size_t done, size_t total, const std::string& what) {
    run.terminal.progress("eval", done, total, "trials", ascii(what));
  };
  const std::string folder = command.logits_folder;
  if (folder.empty()) return hooks;
  refuse_sets_of_one_name(command.eval);
  FileSystem::real().make_folders(folder).or_throw();
  hooks.logits = [folder](const std::string& set, const std::string& item, const std::string& setting,
                          std::span<const float> logits, size_t rows) {
    write_npy(folder + "/" + logits_name(set, item, setting), logits, rows, logits.size() / rows);
  };
  return hooks;
}

// One setting of the lists. `ratio` below 0: the policy's own budget.
TrialSetting setting_of(const BlendSettings& rest, std::string policy, double ratio, const std::string& context,
                        const std::string& repair, const std::string& codec, size_t n_layers) {
  constexpr std::string_view kGradual = "-gradual";
  TrialSetting s;
  s.stand_in = context != "prefix";
  s.exact_first = context == "exact-first";
  const bool gradual = policy.ends_with(kGradual);
  if (gradual && !rest.layer_ratios.empty())
    throw Error{Code::kUsage, "--policy: " + policy + " has layer ratios of its own", "", "leave --layer-ratios out"};
  if (gradual && ratio < 0)
    throw Error{Code::kUsage, "--policy: " + policy + " needs a ratio of its own", "", "give --ratio numbers"};
  if (gradual) policy.resize(policy.size() - kGradual.size());
  const PolicyKind kind = *find_policy(policy);
  if (kind != PolicyKind::kNone && kind != PolicyKind::kAll) {  // for these the rest changes nothing
    s.blend = rest;
    if (ratio >= 0 && rest.layer_ratios.empty()) s.blend.ratio = ratio;
    if (gradual) s.blend.layer_ratios = gradual_ratios(ratio, rest.check_layer, n_layers);
    s.blend.repair = *find_repair(repair);
  }
  s.blend.policy = kind;
  if (kind != PolicyKind::kAll) s.codec = *find_kv_codec(codec);  // which takes nothing from the store
  s.name = setting_name(s);
  return s;
}

}  // namespace

std::vector<TrialSetting> settings_of(const EvalCommand& command, size_t n_layers) {
  std::vector<TrialSetting> out;
  BlendSettings rest = command.blend;
  rest.layer_ratios = command.layer_ratios;
  const auto add = [&out](TrialSetting s) {
    const bool known = std::any_of(out.begin(), out.end(), [&](const TrialSetting& o) { return o.name == s.name; });
    if (!known) out.push_back(std::move(s));  // none and all are the same at every ratio
  };
  for (const std::string& context : command.contexts) {
    for (const std::string& policy : command.policies) {
      for (const double ratio : command.ratios) {
        for (const std::string& repair : command.repairs) {
          for (const std::string& codec : command.codecs)
            add(setting_of(rest, policy, ratio, context, repair, codec, n_layers));
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
  std::unique_ptr<Store> store;
  const EvalReport report = evaluate(*model, options, hooks_of(run, command, store));
  run.terminal.end_progress();

  for (const auto& [where, reason] : report.skipped) run.terminal.warning("skipped: " + where + ": " + reason);
  const Json json = report_json(report, command, *model);
  const Status written = write_report(report, options, json, *model);
  run.terminal.out(run.common().json ? json_line(json) : eval_text(report, options, *model));
  written.or_throw();  // what took hours is shown all the same
  if (report.stopped) {
    run.terminal.note(options.folder.empty() ? "stopped; with --out the next run would go on from here"
                                             : "stopped; the same command goes on from here");
  }
  return status_of(report);
}

}  // namespace cento
