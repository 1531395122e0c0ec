#include <algorithm>
#include <ctime>
#include <map>
#include <set>

#include "app/commands.h"
#include "app/interrupt.h"
#include "app/json.h"
#include "app/store_options.h"
#include "base/text.h"
#include "kv/kv_export.h"
#include "kv/kv_trim.h"

namespace cento {
namespace {

constexpr size_t kIdDigitsMin = 8;

std::string utc_text(int64_t unix_ms) {
  const std::time_t seconds = unix_ms / 1000;
  std::tm t = {};
  char out[32] = "";
  if (gmtime_r(&seconds, &t) != nullptr) std::strftime(out, sizeof out, "%Y-%m-%dT%H:%M:%SZ", &t);
  return out;
}

struct Amount {
  uint64_t blobs = 0, tokens = 0, bytes = 0;
};

struct ModelTotals {
  std::string name, architecture;
  uint64_t blobs = 0, tokens = 0, bytes = 0;
  std::map<std::string, Amount> codecs;  // by name
};

// By fingerprint; models that have no KV here any more are left out.
std::map<Hash, ModelTotals> totals_by_model(Store& store) {
  std::map<Hash, ModelTotals> out;
  for (const KvRow& row : store.catalogue.all_kv()) {
    ModelTotals& m = out[row.fingerprint];
    ++m.blobs;
    m.tokens += row.n_tokens;
    m.bytes += row.n_bytes;
    Amount& of_codec = m.codecs[row.codec];
    ++of_codec.blobs;
    of_codec.tokens += row.n_tokens;
    of_codec.bytes += row.n_bytes;
  }
  Stmt models = store.catalogue.db().prepare("SELECT fingerprint, name, architecture FROM models");
  while (models.step()) {
    const auto it = out.find(models.hash(0));
    if (it == out.end()) continue;
    it->second.name = models.text(1);
    it->second.architecture = models.text(2);
  }
  return out;
}

int cache_status(Run& run) {
  const auto store = open_store(run.common(), StoreUse::kRead);
  const auto models = totals_by_model(*store);
  const uint64_t bytes = store->catalogue.kv_bytes_total();
  Json out;
  put_path(out, "store", store->catalogue.dir());
  out["schema"] = Catalogue::kSchemaVersion;
  out["kv"] = {{"blobs", 0}, {"tokens", 0}, {"bytes", bytes}};
  out["models"] = Json::array();
  std::string text = "store   " + printable(store->catalogue.dir()) + "\n";
  uint64_t blobs = 0, tokens = 0;
  std::string model_lines;
  for (const auto& [fingerprint, m] : models) {
    blobs += m.blobs;
    tokens += m.tokens;
    Json codecs = Json::array();
    std::string codec_names;
    for (const auto& [name, a] : m.codecs) {
      codecs.push_back({{"codec", json_text(name)}, {"blobs", a.blobs}, {"tokens", a.tokens}, {"bytes", a.bytes}});
      codec_names += (codec_names.empty() ? "" : ", ") + printable(name) +
                     (m.codecs.size() > 1 ? " " + size_text(a.bytes) : std::string());
    }
    out["models"].push_back({{"name", json_text(m.name)},
                             {"fingerprint", fingerprint.hex()},
                             {"architecture", json_text(m.architecture)},
                             {"blobs", m.blobs},
                             {"tokens", m.tokens},
                             {"bytes", m.bytes},
                             {"codecs", std::move(codecs)}});
    model_lines += "model   " + printable(m.name) + " (" + fingerprint.short_hex() + "): " + std::to_string(m.blobs) +
                   " pieces, " + std::to_string(m.tokens) + " tokens, " + size_text(m.bytes) + " (" + codec_names +
                   ")\n";
  }
  out["kv"]["blobs"] = blobs;
  out["kv"]["tokens"] = tokens;
  out["collections"] = Json::array();
  text += "kv      " + std::to_string(blobs) + " pieces, " + std::to_string(tokens) + " tokens, " + size_text(bytes) +
          "\n" + model_lines;
  for (const Collection& c : store->docs.collections()) {
    const size_t sources = store->docs.sources(c.id).size();
    const uint64_t chunks = store->docs.chunk_count(c.id);
    const size_t skipped = store->docs.skipped(c.id).size();
    out["collections"].push_back({{"name", json_text(c.name)},
                                  {"sources", sources},
                                  {"chunks", chunks},
                                  {"skipped", skipped},
                                  {"chunk_tokens", c.chunk_tokens},
                                  {"tokenizer", json_text(c.tokenizer)}});
    text += "docs    " + printable(c.name) + ": " + std::to_string(sources) + " files, " + std::to_string(chunks) +
            " chunks" + (skipped > 0 ? ", " + std::to_string(skipped) + " files skipped" : "") + "\n";
  }
  run.terminal.out(run.common().json ? json_line(out) : text);
  return 0;
}

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

int cache_verify(Run& run, bool repair) {
  const auto store = open_store(run.common(), repair ? StoreUse::kWrite : StoreUse::kRead);
  const KvStore::Verified verified = store->kv.verify(repair);
  Json out;
  out["blobs"] = verified.blobs;
  out["bad"] = Json::array();
  for (const auto& [key, reason] : verified.bad) {
    out["bad"].push_back({{"id", key.hex()}, {"reason", json_text(reason)}});
    run.terminal.warning(key.short_hex() + ": " + reason);
  }
  if (repair) out["repaired"] = verified.repaired;
  const std::string text = std::to_string(verified.blobs) + " pieces read, " + std::to_string(verified.bad.size()) +
                           " damaged" + (repair && !verified.bad.empty() ? ", " + std::to_string(verified.repaired) + " taken out of the store" : "") + "\n";
  run.terminal.out(run.common().json ? json_line(out) : text);
  if (verified.bad.empty()) return 0;
  run.terminal.note(repair ? "the next `cento precompute` computes them again; `cento cache gc` frees their space"
                           : "damaged pieces are never used; `cento cache verify --repair` takes them out, the next "
                             "`cento precompute` computes them again");
  return exit_status(Code::kInput);
}

int cache_gc(Run& run) {
  const auto store = open_store(run.common(), StoreUse::kWrite);
  const KvStore::Leftovers removed = store->kv.gc();
  const Json out = {{"files", removed.files}, {"rows", removed.rows}, {"bytes", removed.bytes}};
  run.terminal.out(run.common().json ? json_line(out)
                                     : std::to_string(removed.files) + " files and " + std::to_string(removed.rows) +
                                           " rows removed, " + size_text(removed.bytes) + " freed\n");
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

int cache_trim(Run& run, uint64_t max_bytes) {
  const auto store = open_store(run.common(), StoreUse::kWrite);
  const Trimmed t = trim_kv(store->kv, max_bytes);
  const Json out = {{"removed", t.removed}, {"freed", t.freed}, {"bytes", t.bytes}};
  run.terminal.out(run.common().json ? json_line(out)
                                     : std::to_string(t.removed) + " pieces removed, " + size_text(t.freed) +
                                           " freed; " + size_text(t.bytes) + " stored\n");
  return 0;
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
    case CacheCommand::Action::kExport:
      return cache_export(run, command.file);
    case CacheCommand::Action::kImport:
      return cache_import(run, command.file);
  }
  return exit_status(Code::kInternal);
}

}  // namespace cento
