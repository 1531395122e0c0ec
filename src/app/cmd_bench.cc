#include <algorithm>
#include <cstdio>

#include "app/commands.h"
#include "app/interrupt.h"
#include "app/json.h"
#include "app/store_options.h"
#include "app/text_table.h"
#include "base/machine.h"
#include "base/text.h"
#include "eval/bench.h"

namespace cento {
namespace {

#if defined(__clang__)
constexpr const char* kCompiler = "Clang " __clang_version__;
#elif defined(__GNUC__)
constexpr const char* kCompiler = "GCC " __VERSION__;
#else
constexpr const char* kCompiler = "unknown compiler";
#endif

const char* precision_name(Precision precision) { return precision == Precision::kF32 ? "f32" : "fast"; }

Json quartiles(const Spread& s) { return {rounded(s.q1, 3), rounded(s.q3, 3)}; }

Json rate_json(size_t tokens, const Spread& s) {
  return {
      {"tokens", tokens}, {"tokens_per_second", rounded(s.median, 2)}, {"quartiles", quartiles(s)}, {"repeats", s.n}};
}

Json optional_ms(const std::optional<Spread>& s) { return s ? rounded(s->median, 3) : Json(); }

Json ttft_json(const FirstTokenReport& f) {
  Json out;
  out["full_ms"] = rounded(f.full.median, 3);
  out["prefix_ms"] = rounded(f.prefix.median, 3);
  out["reuse_ms"] = rounded(f.reuse.median, 3);
  out["blend_ms"] = rounded(f.blend.median, 3);
  out["page_cache"] = "warm";  // of the four above
  out["reuse_cold_ms"] = optional_ms(f.reuse_cold);
  out["blend_cold_ms"] = optional_ms(f.blend_cold);
  out["quartiles"] = {{"full_ms", quartiles(f.full)},
                      {"prefix_ms", quartiles(f.prefix)},
                      {"reuse_ms", quartiles(f.reuse)},
                      {"blend_ms", quartiles(f.blend)}};
  if (f.reuse_cold) out["quartiles"]["reuse_cold_ms"] = quartiles(*f.reuse_cold);
  if (f.blend_cold) out["quartiles"]["blend_cold_ms"] = quartiles(*f.blend_cold);
  out["tokens"] = f.tokens;
  out["chunks"] = f.chunks;
  out["context"] = f.context;
  out["policy"] = f.policy;
  out["recomputed"] = f.recomputed;
  out["charged"] = rounded(f.charged, 4);
  out["bytes_loaded"] = f.bytes_loaded;
  return out;
}

Json resume_json(const FirstTokenReport& f) {
  Json out;
  out["tokens"] = f.resumed_tokens;
  out["bytes_loaded"] = f.resumed_bytes;
  out["quartiles"] = quartiles(f.resume);
  out["cold_ms"] = optional_ms(f.resume_cold);
  out["recompute_ms"] = rounded(f.recompute.median, 3);
  out["recompute_quartiles"] = quartiles(f.recompute);
  return out;
}

Json peer_json(const SpeedOptions& options, const PeerReport& peer) {
  Json out;
  put_path(out, "program", peer.program);
  out["build"] = json_text(peer.build);
  out["backends"] = json_text(peer.backends);
  const auto figure = [](size_t tokens, const PeerFigure& f) {
    Json j = rate_json(tokens, f.tokens_per_second);
    j["flash_attention"] = f.flash_attention;
    return j;
  };
  out["prefill"] = figure(options.prompt_tokens, peer.prefill);
  out["decode"] = figure(options.decode_tokens, peer.decode);
  out["settings"] = Json::array();
  for (size_t i = 0; i < peer.all_prefill.size(); ++i) {
    out["settings"].push_back({{"flash_attention", peer.all_prefill[i].flash_attention},
                               {"prefill_tokens_per_second", rounded(peer.all_prefill[i].tokens_per_second.median, 2)},
                               {"decode_tokens_per_second", rounded(peer.all_decode[i].tokens_per_second.median, 2)}});
  }
  return out;
}

Json report_json(const BenchReport& r, const BenchCommand& command, LoadedModel& model) {
  Json out;
  out["machine"] = {{"cpu", json_text(processor_name())},
                    {"target", model.ops().name},
                    {"threads", model.pool().size()},
                    {"compiler", kCompiler}};
  Json file;
  put_path(file, "file", model.file().file().path());
  file["name"] = json_text(model.name());
  file["type"] = main_type_name(model.file());
  file["bytes"] = model.file().file().bytes().size();
  out["model"] = std::move(file);
  out["precision"] = precision_name(command.run.precision);
  out["seed"] = command.speed.seed;
  out["repeat"] = command.speed.repeat;
  out["prefill"] = rate_json(command.speed.prompt_tokens, r.prefill);
  out["decode"] = rate_json(command.speed.decode_tokens, r.decode);
  out["ttft"] = ttft_json(r.first_token);
  out["resume_ms"] = rounded(r.first_token.resume.median, 3);
  out["resume"] = resume_json(r.first_token);
  out["peak_bytes"] = r.peak_bytes;
  if (r.peer) {
    out["peer"] = peer_json(command.speed, *r.peer);
    out["ratios"] = {{"prefill", rounded(r.prefill_ratio, 3)}, {"decode", rounded(r.decode_ratio, 3)}};
  }
  return out;
}

// ---- for people ----

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value < 100 ? "%.1f" : "%.0f", value);
  return text;
}

std::string times(double ratio) {
  char text[32];
  std::snprintf(text, sizeof text, ratio < 100 ? "%.2fx" : "%.0fx", ratio);
  return text;
}

std::string with_quartiles(const Spread& s) {
  return number(s.median) + " [" + number(s.q1) + ", " + number(s.q3) + "]";
}

std::string rates_text(const BenchReport& r, const SpeedOptions& o) {
  std::vector<std::vector<std::string>> rows = {{"tokens/s", "cento"}};
  rows.push_back({"prefill of " + std::to_string(o.prompt_tokens), with_quartiles(r.prefill)});
  rows.push_back({"decode of " + std::to_string(o.decode_tokens), with_quartiles(r.decode)});
  if (r.peer) {
    rows[0].insert(rows[0].end(), {"llama.cpp", "cento / llama.cpp", "its flash attention"});
    const auto add = [](std::vector<std::string>& row, const PeerFigure& f, double ratio) {
      row.insert(row.end(), {with_quartiles(f.tokens_per_second), times(ratio), f.flash_attention ? "on" : "off"});
    };
    add(rows[1], r.peer->prefill, r.prefill_ratio);
    add(rows[2], r.peer->decode, r.decode_ratio);
  }
  return text_table(rows);
}

std::string first_token_text(const FirstTokenReport& f) {
  std::vector<std::vector<std::string>> rows = {
      {"first token of " + std::to_string(f.tokens) + " tokens, " + std::to_string(f.chunks) + " chunks", "ms",
       "full / this"}};
  const auto add = [&](const char* name, const std::optional<Spread>& s, const Spread& against) {
    if (s) {
      rows.push_back({name, with_quartiles(*s), times(against.median / std::max(s->median, 1e-3))});
    } else {
      rows.push_back({name, "not measured", ""});
    }
  };
  add("full", f.full, f.full);
  add("prefix", f.prefix, f.full);
  add("reuse, page cache warm", f.reuse, f.full);
  add("reuse, page cache cold", f.reuse_cold, f.full);
  add("blend, page cache warm", f.blend, f.full);
  add("blend, page cache cold", f.blend_cold, f.full);
  rows.push_back({"new question behind " + std::to_string(f.resumed_tokens) + " tokens", "ms", "computed / this"});
  add("computed again", f.recompute, f.recompute);
  add("resumed, page cache warm", f.resume, f.recompute);
  add("resumed, page cache cold", f.resume_cold, f.recompute);
  char blend[160];
  std::snprintf(blend, sizeof blend,
                "blend: policy %s, %zu rows recomputed, charged %.1f %% of full prefill, %s loaded\n", f.policy.c_str(),
                f.recomputed, 100 * f.charged, size_text(f.bytes_loaded).c_str());
  std::string out = text_table(rows);
  // Its rows belong to two tables with the same columns; an empty line parts them.
  out.insert(out.find("\nnew question behind") + 1, "\n");
  return out + "\n" + blend;
}

std::string report_text(const BenchReport& r, const BenchCommand& command, LoadedModel& model) {
  const std::string& path = model.file().file().path();
  std::string out = "model:    " + printable(model.name()) + ", " + printable(path_from_here(path)) + ", " +
                    main_type_name(model.file()) + ", " + size_text(model.file().file().bytes().size()) + "\n";
  out += "machine:  " + printable(processor_name()) + ", target " + model.ops().name + ", " +
         std::to_string(model.pool().size()) + " threads, " + kCompiler + "\n";
  out += std::string("run:      precision ") + precision_name(command.run.precision) + ", seed " +
         std::to_string(command.speed.seed) + ", median [quartiles] of " + std::to_string(command.speed.repeat) + "\n";
  if (r.peer) {
    out += "peer:     " + printable(r.peer->program) + ", build " + printable(r.peer->build) + ", " +
           printable(r.peer->backends) + "\n";
  }
  out += "\n" + rates_text(r, command.speed) + "\n" + first_token_text(r.first_token);
  return out + "peak memory: " + size_text(r.peak_bytes) + "\n";
}

}  // namespace

int cmd_bench(Run& run, const BenchCommand& command) {
  const std::string peer = command.peer.empty() ? "" : find_peer(command.peer);
  const auto model = load_model(run.common(), command.run);
  require_context(model->config(), command.speed);
  throw_if_interrupted();

  const ScratchFolder scratch;
  BenchHooks hooks;
  hooks.stop = interrupt_requested;
  hooks.progress = [&](size_t done, size_t total) { run.terminal.progress("bench", done, total, "runs"); };
  const auto report = run_bench(*model, command.speed, peer, scratch.path(), hooks);
  run.terminal.end_progress();
  if (!report) throw Interrupted{};
  run.terminal.out(run.common().json ? json_line(report_json(*report, command, *model))
                                     : report_text(*report, command, *model));
  return 0;
}

}  // namespace cento
