#include <ctime>
#include <map>

#include "app/cache_actions.h"
#include "app/json.h"
#include "app/store_options.h"
#include "app/text_table.h"
#include "base/text.h"

namespace cento {
namespace {

// What is stored of one collection, model and codec, in one folder. KV of a text that several collections hold counts
// in each of them.
struct Amount {
  std::string collection;  // "": of no document (fixed prefixes, prompts that were kept)
  Hash fingerprint;
  std::string codec;
  int64_t folder = 0;
  uint64_t blobs = 0, tokens = 0, bytes = 0, hits = 0;
  int64_t last_used_ms = 0;
};

uint64_t count_of(const Stmt& s, int column) { return static_cast<uint64_t>(std::max<int64_t>(s.integer(column), 0)); }

std::vector<Amount> amounts(Store& store) {
  Stmt s = store.catalogue.db().prepare(
      "SELECT coalesce(x.name, ''), b.fingerprint, b.codec, b.folder, count(*), sum(b.n_tokens), sum(b.n_bytes), "
      "sum(b.hits), max(b.last_used_ms) FROM kv_blobs b LEFT JOIN (SELECT DISTINCT chunks.hash AS hash, "
      "collections.name AS name FROM chunks JOIN source_chunks ON source_chunks.chunk_id = chunks.id "
      "JOIN sources ON sources.id = source_chunks.source_id JOIN collections ON collections.id = "
      "sources.collection_id) "
      "x ON x.hash = b.chunk_hash GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4");
  std::vector<Amount> out;
  while (s.step()) {
    Amount a;
    a.collection = s.text(0);
    a.fingerprint = s.hash(1);
    a.codec = s.text(2);
    a.folder = s.integer(3);
    a.blobs = count_of(s, 4);
    a.tokens = count_of(s, 5);
    a.bytes = count_of(s, 6);
    a.hits = count_of(s, 7);
    a.last_used_ms = s.integer(8);
    out.push_back(std::move(a));
  }
  return out;
}

struct ModelRow {
  std::string name, architecture;
  uint64_t bytes_per_token = 0;  // of KV in half precision
};

std::map<Hash, ModelRow> models_of(Store& store) {
  std::map<Hash, ModelRow> out;
  Stmt s = store.catalogue.db().prepare("SELECT fingerprint, name, architecture, kv_bytes_per_token FROM models");
  while (s.step()) out[s.hash(0)] = {s.text(1), s.text(2), count_of(s, 3)};
  return out;
}

// Share of what the same KV takes in half precision; 0 if that is not known.
double ratio_of(const Amount& a, const ModelRow& model) {
  const double raw = static_cast<double>(a.tokens) * static_cast<double>(model.bytes_per_token);
  return raw > 0 ? static_cast<double>(a.bytes) / raw : 0;
}

Json stored_json(const std::vector<Amount>& all, std::map<Hash, ModelRow>& models) {
  Json out = Json::array();
  for (const Amount& a : all) {
    out.push_back({{"collection", a.collection.empty() ? Json() : json_text(a.collection)},
                   {"model", json_text(models[a.fingerprint].name)},
                   {"codec", json_text(a.codec)},
                   {"tier", "disk"},
                   {"folder", a.folder},
                   {"chunks", a.blobs},
                   {"tokens", a.tokens},
                   {"bytes", a.bytes},
                   {"ratio", rounded(ratio_of(a, models[a.fingerprint]), 3)},
                   {"last_used", utc_text(a.last_used_ms)},
                   {"hits", a.hits}});
  }
  return out;
}

std::string stored_text(const std::vector<Amount>& all, std::map<Hash, ModelRow>& models, bool several_folders) {
  std::vector<std::vector<std::string>> rows = {
      {"collection", "model", "codec", "tier", "pieces", "tokens", "size", "ratio", "last use", "uses"}};
  for (const Amount& a : all) {
    char ratio[16];
    std::snprintf(ratio, sizeof ratio, "%.2f", ratio_of(a, models[a.fingerprint]));
    rows.push_back({a.collection.empty() ? "(no document)" : printable(a.collection),
                    printable(models[a.fingerprint].name), printable(a.codec),
                    several_folders ? "disk " + std::to_string(a.folder) : "disk", std::to_string(a.blobs),
                    std::to_string(a.tokens), size_text(a.bytes), ratio, utc_text(a.last_used_ms).substr(0, 16),
                    std::to_string(a.hits)});
  }
  return text_table(rows);
}

Json models_json(const std::vector<Amount>& all, std::map<Hash, ModelRow>& models) {
  Json out = Json::array();
  std::map<Hash, std::map<std::string, Amount>> by_model;
  for (const Amount& a : all) {
    Amount& sum = by_model[a.fingerprint][a.codec];
    sum.blobs += a.blobs;
    sum.tokens += a.tokens;
    sum.bytes += a.bytes;
  }
  for (const auto& [fingerprint, codecs] : by_model) {
    uint64_t blobs = 0, tokens = 0, bytes = 0;
    Json list = Json::array();
    for (const auto& [codec, a] : codecs) {
      blobs += a.blobs;
      tokens += a.tokens;
      bytes += a.bytes;
      list.push_back({{"codec", json_text(codec)}, {"blobs", a.blobs}, {"tokens", a.tokens}, {"bytes", a.bytes}});
    }
    out.push_back({{"name", json_text(models[fingerprint].name)},
                   {"fingerprint", fingerprint.hex()},
                   {"architecture", json_text(models[fingerprint].architecture)},
                   {"blobs", blobs},
                   {"tokens", tokens},
                   {"bytes", bytes},
                   {"codecs", std::move(list)}});
  }
  return out;
}

// By model and codec alone: KV that two collections share counts once.
std::vector<Amount> amounts_by_model(Store& store) {
  std::vector<Amount> out;
  Stmt s = store.catalogue.db().prepare(
      "SELECT fingerprint, codec, count(*), sum(n_tokens), sum(n_bytes) FROM kv_blobs GROUP BY 1, 2 ORDER BY 1, 2");
  while (s.step()) {
    Amount a;
    a.fingerprint = s.hash(0);
    a.codec = s.text(1);
    a.blobs = count_of(s, 2);
    a.tokens = count_of(s, 3);
    a.bytes = count_of(s, 4);
    out.push_back(std::move(a));
  }
  return out;
}

struct TierRow {
  std::string tier, where;
  int64_t folder = -1;
  uint64_t blobs = 0, bytes = 0, bytes_max = 0;
  std::optional<uint64_t> free;
  bool available = true;
};

std::vector<TierRow> tiers_of(Store& store) {
  std::vector<TierRow> out;
  if (const RamTier* ram = store.kv.ram(); ram != nullptr) {
    TierRow row;
    row.tier = "ram";
    row.bytes_max = ram->bytes_max().value_or(0);
    out.push_back(std::move(row));
  }
  DiskTier& disk = store.kv.disk();
  for (const DiskFolder& folder : disk.folders()) {
    const KvTotals held = store.catalogue.kv_totals(folder.id);
    TierRow row;
    row.tier = "disk";
    row.where = folder.path;
    row.folder = folder.id;
    row.blobs = held.n_blobs;
    row.bytes = held.n_bytes;
    row.bytes_max = folder.id == 0 ? store.kv.limits().disk_bytes_max : folder.bytes_max;
    row.available = disk.available(folder);
    if (const auto free = disk.free_bytes(folder); free.ok()) row.free = *free;
    out.push_back(std::move(row));
  }
  if (RemoteTier* remote = store.kv.remote(); remote != nullptr) {
    TierRow row;
    row.tier = "remote";
    row.where = remote->where();
    out.push_back(std::move(row));
  }
  return out;
}

Json tiers_json(const std::vector<TierRow>& tiers) {
  Json out = Json::array();
  for (const TierRow& t : tiers) {
    Json row;
    row["tier"] = t.tier;
    if (!t.where.empty()) put_path(row, t.tier == "disk" ? "path" : "where", t.where);
    if (t.folder >= 0) row["folder"] = t.folder;
    if (t.tier == "disk") {
      row["blobs"] = t.blobs;
      row["bytes"] = t.bytes;
      row["available"] = t.available;
    }
    row["max_bytes"] = t.bytes_max > 0 ? Json(t.bytes_max) : Json();
    if (t.free) row["free_bytes"] = *t.free;
    out.push_back(std::move(row));
  }
  return out;
}

std::string tiers_text(const std::vector<TierRow>& tiers) {
  std::string out;
  for (const TierRow& t : tiers) {
    std::string line = t.tier + std::string(t.tier.size() < 8 ? 8 - t.tier.size() : 1, ' ');
    if (!t.where.empty()) line += printable(t.where) + ": ";
    if (t.tier == "disk") {
      line += size_text(t.bytes) + (t.bytes_max > 0 ? " of " + size_text(t.bytes_max) : std::string());
      line += t.available ? "" : ", not there now";
      if (t.free && t.available) line += ", " + size_text(*t.free) + " free on the disk";
    } else if (t.tier == "ram") {
      line += "up to " + size_text(t.bytes_max);
    } else {
      line += "shared with other machines";
    }
    out += line + "\n";
  }
  return out;
}

}  // namespace

std::string utc_text(int64_t unix_ms) {
  const std::time_t seconds = unix_ms / 1000;
  std::tm t = {};
  char out[32] = "";
  if (gmtime_r(&seconds, &t) != nullptr) std::strftime(out, sizeof out, "%Y-%m-%dT%H:%M:%SZ", &t);
  return out;
}

int cache_status(Run& run) {
  const auto store = open_store(run.common(), StoreUse::kRead);
  auto models = models_of(*store);
  const std::vector<Amount> stored = amounts(*store);
  const std::vector<TierRow> tiers = tiers_of(*store);
  const KvTotals totals = store->catalogue.kv_totals();
  Json out;
  put_path(out, "store", store->catalogue.dir());
  out["schema"] = Catalogue::kSchemaVersion;
  out["encrypted"] = store->kv.encrypted();
  out["kv"] = {{"blobs", totals.n_blobs}, {"tokens", totals.n_tokens}, {"bytes", totals.n_bytes}};
  out["stored"] = stored_json(stored, models);
  out["tiers"] = tiers_json(tiers);
  out["models"] = models_json(amounts_by_model(*store), models);
  out["collections"] = Json::array();
  std::string text = "store   " + printable(store->catalogue.dir()) + (store->kv.encrypted() ? ", encrypted" : "") +
                     "\nkv      " + std::to_string(totals.n_blobs) + " pieces, " + std::to_string(totals.n_tokens) +
                     " tokens, " + size_text(totals.n_bytes) + "\n" + tiers_text(tiers);
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
  if (!stored.empty()) text += "\n" + stored_text(stored, models, store->kv.disk().folders().size() > 1);
  run.terminal.out(run.common().json ? json_line(out) : text);
  return 0;
}

}  // namespace cento
