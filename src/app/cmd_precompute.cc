#include <cstdio>

#include "app/commands.h"
#include "app/interrupt.h"
#include "app/json.h"
#include "app/store_options.h"
#include "base/text.h"

namespace cento {
namespace {

double per(double amount, double count) { return count > 0 ? amount / count : 0; }

Json report_json(const PrecomputeReport& r) {
  const auto tokens = static_cast<double>(r.tokens);
  Json out;
  out["model"] = json_text(r.model);
  out["chunks"] = {{"wanted", r.wanted},   {"present", r.present}, {"made", r.made},      {"skipped", r.skipped},
                   {"evicted", r.evicted}, {"recoded", r.recoded}, {"fetched", r.fetched}};
  out["tokens"] = r.tokens;
  out["bytes"] = r.bytes;
  out["bytes_per_token"] = rounded(per(static_cast<double>(r.bytes), tokens), 1);
  out["seconds"] = rounded(r.seconds, 3);
  out["tokens_per_second"] = rounded(per(tokens, r.seconds), 1);
  out["skipped"] = skipped_list(r.skipped_items);
  return out;
}

std::string report_text(const PrecomputeReport& r, bool dry_run) {
  std::string out = std::to_string(r.wanted) + " chunks: " + std::to_string(r.present) + " there already, ";
  if (dry_run) {
    const uint64_t missing = r.wanted - std::min(r.wanted, r.present + r.skipped);
    return out + std::to_string(missing) + " to be computed, about " + std::to_string(r.tokens) + " tokens and " +
           size_text(r.bytes) + " (dry run: nothing was stored)\n";
  }
  out += std::to_string(r.made) + " computed";
  if (r.fetched > 0) out += ", " + std::to_string(r.fetched) + " of them from the remote tier";
  if (r.recoded > 0) out += ", " + std::to_string(r.recoded) + " packed anew to " + size_text(r.recoded_bytes);
  if (r.skipped > 0) out += ", " + std::to_string(r.skipped) + " skipped";
  if (r.evicted > 0) out += ", " + std::to_string(r.evicted) + " replaced";
  if (r.made > 0) {
    char speed[64];
    std::snprintf(speed, sizeof speed, "%.0f tokens/s", per(static_cast<double>(r.tokens), r.seconds));
    out += "; " + std::to_string(r.tokens) + " tokens, " + size_text(r.bytes) + " in " + time_text(r.seconds) +
           " min (" + speed + ")";
  } else if (r.skipped == 0 && r.recoded == 0 && !r.stopped) {
    out += "; nothing to do";
  }
  return out + "\n";
}

}  // namespace

int cmd_precompute(Run& run, const PrecomputeCommand& command) {
  const auto store = open_store(run.common(), StoreUse::kWrite);
  const auto model = load_model(run.common(), command.run);
  throw_if_interrupted();

  PrecomputeHooks hooks;
  hooks.stop = interrupt_requested;
  hooks.progress = [&](uint64_t done, uint64_t total, uint64_t tokens, double seconds) {
    char speed[64] = "";
    if (tokens > 0 && seconds > 0)
      std::snprintf(speed, sizeof speed, "%.0f tokens/s", per(static_cast<double>(tokens), seconds));
    run.terminal.progress("precompute", done, total, "chunks", speed);
  };
  const PrecomputeReport report = precompute(*model, store->kv, store->docs, command.options, hooks);
  run.terminal.end_progress();

  name_skipped(run.terminal, report.skipped_items);
  if (run.common().json) {
    run.terminal.out(json_line(report_json(report)));
  } else if (!run.common().quiet) {
    run.terminal.out(report_text(report, command.options.dry_run));
  }
  if (report.stopped) {
    run.terminal.note("stopped; the next `cento precompute` goes on from here");
    return kInterruptedStatus;
  }
  return report.skipped_items.empty() ? 0 : kPartlyDoneStatus;
}

}  // namespace cento
