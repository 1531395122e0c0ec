#include <unistd.h>

#include <filesystem>

#include "app/commands.h"
#include "app/json.h"
#include "app/store_options.h"
#include "base/clock.h"
#include "base/machine.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "compute/ops_registry.h"

namespace cento {
namespace {

struct Check {
  std::string name;
  bool ok = true;
  std::string detail;
  std::string hint;  // what to do when it is not ok
};

Check check_machine(const CommonOptions& common) {
  const size_t threads = common.threads > 0 ? common.threads : ThreadPool::usable_processors();
  const auto pages = static_cast<uint64_t>(std::max(0l, ::sysconf(_SC_PHYS_PAGES)));
  const auto page_bytes = static_cast<uint64_t>(std::max(0l, ::sysconf(_SC_PAGESIZE)));
  return {"machine", true,
          processor_name() + ", " + std::to_string(threads) + " threads, " + size_text(pages * page_bytes) + " memory",
          ""};
}

Check check_target() {
  std::string all;
  for (const Ops* ops : all_ops()) all += (all.empty() ? "" : ", ") + std::string(ops->name);
  return {"target", true, std::string(best_ops().name) + " (of " + all + ")", ""};
}

Check check_config(const Options& options) {
  // Settings were read before this runs: a broken file never gets here.
  return {"config", true, options.config_file + (options.config_found ? "" : " (not there: defaults)"), ""};
}

Check check_store(const CommonOptions& common) {
  Check out{"store", true, "", ""};
  try {
    const std::string folder = store_folder(common);
    if (!store_exists(folder)) {
      out.detail = folder + " (not there yet: `cento index FOLDER` makes it)";
      return out;
    }
    const auto store = open_store(common, StoreUse::kRead);
    out.detail = folder + ", " + std::to_string(store->docs.collections().size()) + " collections, " +
                 size_text(store->catalogue.kv_bytes_total()) + " of KV";
    std::error_code error;
    const auto space = std::filesystem::space(folder, error);
    if (!error) out.detail += ", " + size_text(space.available) + " free on its disk";
    if (::access(folder.c_str(), W_OK) != 0) {
      out.ok = false;
      out.detail += ", not writable";
      out.hint = "check owner and permissions of the folder";
    }
  } catch (const Error& e) {
    out = {"store", false, e.message() + (e.where().empty() ? "" : " (" + e.where() + ")"), e.hint()};
  }
  return out;
}

Check check_remote(const CommonOptions& common) {
  if (common.remote.empty()) return {"remote", true, "none", ""};
  try {
    const auto tier = remote_tier(common);
    const Stopwatch watch;
    if (const Status s = tier->check(); !s)
      return {"remote", false, tier->where() + ": " + s.error().message(),
              s.error().hint().empty() ? "commands go on without it" : s.error().hint()};
    const auto ms = static_cast<uint64_t>(watch.ms() + 0.5);
    return {"remote", true, tier->where() + ", read and written in " + std::to_string(ms) + " ms", ""};
  } catch (const Error& e) {
    return {"remote", false, e.message() + (e.where().empty() ? "" : " (" + e.where() + ")"), e.hint()};
  }
}

Check check_model(const CommonOptions& common) {
  try {
    const std::string path = resolve_model(common.model);
    const GgufFile file(path);
    const std::string reason = unsupported_reason(file);
    if (!reason.empty())
      return {"model", false, path + ": " + reason, "use another model; `cento model list` shows which are supported"};
    return {"model", true, path + ", " + size_text(file.file().bytes().size()), ""};
  } catch (const Error& e) {
    return {"model", false, e.message() + (e.where().empty() ? "" : " (" + e.where() + ")"), e.hint()};
  }
}

}  // namespace

int cmd_doctor(Run& run, const DoctorCommand&) {
  const Check checks[] = {check_machine(run.common()), check_target(),
                          check_config(run.options),   check_store(run.common()),
                          check_remote(run.common()),  check_model(run.common())};
  bool ok = true;
  Json list = Json::array();
  std::string text;
  for (const Check& c : checks) {
    ok &= c.ok;
    Json item = {{"name", c.name}, {"ok", c.ok}, {"detail", json_text(c.detail)}};
    if (!c.hint.empty()) item["hint"] = json_text(c.hint);
    list.push_back(std::move(item));
    std::string label = c.name;
    label.resize(9, ' ');
    text += (c.ok ? "ok   " : "BAD  ") + label + printable(c.detail) + "\n";
    if (!c.hint.empty()) text += "              try: " + printable(c.hint) + "\n";
  }
  Json out;
  out["ok"] = ok;
  out["version"] = CENTO_VERSION;
  out["checks"] = std::move(list);
  run.terminal.out(run.common().json ? json_line(out) : text);
  return ok ? 0 : exit_status(Code::kInput);
}

}  // namespace cento
