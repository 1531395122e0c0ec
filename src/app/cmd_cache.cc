#include <algorithm>
#include <map>
#include <set>

#include "app/cache_actions.h"
#include "app/commands.h"
#include "app/interrupt.h"
#include "app/json.h"
#include "app/store_options.h"
#include "base/text.h"
#include "kv/kv_export.h"

namespace cento {
namespace {

constexpr size_t kIdDigitsMin = 8;

// The path of a chunk's first place, whatever its collection; "" for a fixed prefix.
std::string source_of(Store& store, const KvRow& row) {
  if (!row.chunk_hash) return {};
  const auto chunk = store.docs.chunk_by_hash(*row.chunk_hash);
  if (!chunk) return {};
  for (const Collection& c : store.docs.collections()) {
    const auto places = store.docs.places(c.id, chunk->id);
    if (!places.empty()) return places.front().path;
  }
  return {};
}

int cache_list(Run& run) {
  const auto store = open_store(run.common(), StoreUse::kRead);
  auto rows = store->catalogue.all_kv();
  std::sort(rows.begin(), rows.end(), [](const KvRow& a, const KvRow& b) { return a.created_ms < b.created_ms; });
  Json out;
  out["blobs"] = Json::array();
  std::string text;
  for (const KvRow& row : rows) {
    const std::string source = source_of(*store, row);
    Json item;
    item["id"] = row.key.hex();
    item["kind"] = kv_kind_name(row.kind);
    item["model"] = row.fingerprint.hex();
    if (row.chunk_hash) item["chunk"] = row.chunk_hash->hex();
    if (!source.empty()) put_path(item, "source", source);
    item["tokens"] = row.n_tokens;
    item["bytes"] = row.n_bytes;
    item["codec"] = json_text(row.codec);
    item["created"] = utc_text(row.created_ms);
    item["last_used"] = utc_text(row.last_used_ms);
    item["hits"] = row.hits;
    out["blobs"].push_back(std::move(item));
    text += row.key.short_hex() + "  " + kv_kind_name(row.kind) + "  " + std::to_string(row.n_tokens) + " tokens  " +
            size_text(row.n_bytes) + "  " + printable(row.codec) + "  used " + utc_text(row.last_used_ms) + "  " +
            printable(path_from_here(source)) + "\n";
  }
  if (rows.empty()) text = "nothing is stored yet; `cento precompute` fills the store\n";
  run.terminal.out(run.common().json ? json_line(out) : text);
  return 0;
}

bool is_hex(const std::string& text) { return text.find_first_not_of("0123456789abcdef") == std::string::npos; }

// Rows whose key, or whose chunk's id, begins with `id`.
std::vector<KvRow> rows_of(const std::vector<KvRow>& all, const std::string& id) {
  std::vector<KvRow> out;
  std::set<std::string> meant;
  for (const KvRow& row : all) {
    const std::string key = row.key.hex();
    const std::string chunk = row.chunk_hash ? row.chunk_hash->hex() : "";
    if (key.starts_with(id)) {
      meant.insert(key);
    } else if (chunk.starts_with(id)) {
      meant.insert(chunk);  // all KV of that chunk
    } else {
      continue;
    }
    out.push_back(row);
  }
  if (meant.size() > 1)
    throw Error{Code::kUsage, "\"" + id + "\" is the beginning of several ids", "cento cache rm", "write more digits"};
  return out;
}

int cache_remove(Run& run, const std::vector<std::string>& ids) {
  for (const auto& id : ids) {
    if (id.size() < kIdDigitsMin || id.size() > 64 || !is_hex(id)) {
      throw Error{Code::kUsage, "\"" + id + "\" is not an id: 8 to 64 digits 0-9 a-f", "cento cache rm",
                  "cento cache list shows them"};
    }
  }
  const auto store = open_store(run.common(), StoreUse::kWrite);
  const auto all = store->catalogue.all_kv();
  std::map<Hash, uint64_t> chosen;  // key -> bytes; an id given twice counts once
  std::vector<std::string> missing;
  for (const auto& id : ids) {
    const auto rows = rows_of(all, id);
    if (rows.empty()) missing.push_back(id);
    for (const KvRow& row : rows) chosen.emplace(row.key, row.n_bytes);
  }
  Json out;
  out["removed"] = Json::array();
  uint64_t bytes = 0;
  for (const auto& [key, n_bytes] : chosen) {
    store->kv.remove(key).or_throw();
    out["removed"].push_back(key.hex());
    bytes += n_bytes;
  }
  out["not_found"] = missing;
  out["bytes"] = bytes;
  for (const auto& id : missing) run.terminal.warning("no stored KV with id " + id);
  run.terminal.out(run.common().json
                       ? json_line(out)
                       : std::to_string(chosen.size()) + " pieces removed, " + size_text(bytes) + " freed\n");
  if (missing.empty()) return 0;
  return chosen.empty() ? kNothingFoundStatus : kPartlyDoneStatus;
}

ExportHooks hooks_of(Run& run, const char* what, const char* unit) {
  ExportHooks hooks;
  hooks.stop = interrupt_requested;
  hooks.progress = [&run, what, unit](uint64_t done, uint64_t total) {
    run.terminal.progress(what, done, total, unit);
  };
  return hooks;
}

int cache_export(Run& run, const std::string& file) {
  const auto store = open_store(run.common(), StoreUse::kRead);
  const auto rows = store->catalogue.all_kv();
  if (rows.empty()) throw Error{Code::kInput, "nothing is stored yet", store->catalogue.dir(), "cento precompute"};
  const ExportReport report = export_kv(store->kv, rows, file, hooks_of(run, "export", "pieces"));
  run.terminal.end_progress();
  if (report.stopped) {
    run.terminal.note("stopped; nothing was written");
    return kInterruptedStatus;
  }
  Json out = {{"blobs", report.blobs}, {"bytes", report.bytes}};
  put_path(out, "file", file);
  out["skipped"] = Json::array();
  for (const auto& [key, reason] : report.skipped) {
    out["skipped"].push_back({{"id", key.hex()}, {"reason", json_text(reason)}});
    run.terminal.warning("left out: " + key.short_hex() + ": " + reason);
  }
  run.terminal.out(run.common().json ? json_line(out)
                                     : std::to_string(report.blobs) + " pieces, " + size_text(report.bytes) + " in " +
                                           printable(file) + "\n");
  return report.skipped.empty() ? 0 : kPartlyDoneStatus;
}

int cache_import(Run& run, const std::string& file) {
  const auto store = open_store(run.common(), StoreUse::kCreate);
  const ImportReport report = import_kv(store->kv, file, hooks_of(run, "import", "bytes"));
  run.terminal.end_progress();
  Json out = {{"imported", report.imported}, {"present", report.present}, {"bytes", report.bytes}};
  out["skipped"] = Json::array();
  for (const auto& [where, reason] : report.refused) {
    out["skipped"].push_back({{"where", where}, {"reason", json_text(reason)}});
    run.terminal.warning("refused: " + where + ": " + reason);
  }
  run.terminal.out(run.common().json
                       ? json_line(out)
                       : std::to_string(report.imported) + " pieces imported, " + size_text(report.bytes) + "; " +
                             std::to_string(report.present) + " were there already\n");
  if (report.stopped) {
    run.terminal.note("stopped; what was imported stays, and the same command goes on from there");
    return kInterruptedStatus;
  }
  return report.refused.empty() ? 0 : kPartlyDoneStatus;
}

}  // namespace

int cmd_cache(Run& run, const CacheCommand& command) {
  switch (command.action) {
    case CacheCommand::Action::kStatus:
      return cache_status(run);
    case CacheCommand::Action::kList:
      return cache_list(run);
    case CacheCommand::Action::kVerify:
      return cache_verify(run, command.repair);
    case CacheCommand::Action::kGc:
      return cache_gc(run);
    case CacheCommand::Action::kRemove:
      return cache_remove(run, command.ids);
    case CacheCommand::Action::kTrim:
      return cache_trim(run, command.max_bytes);
    case CacheCommand::Action::kFolder:
      return cache_folder(run, command);
    case CacheCommand::Action::kRekey:
      return cache_rekey(run, command);
    case CacheCommand::Action::kExport:
      return cache_export(run, command.file);
    case CacheCommand::Action::kImport:
      return cache_import(run, command.file);
  }
  return exit_status(Code::kInternal);
}

}  // namespace cento
