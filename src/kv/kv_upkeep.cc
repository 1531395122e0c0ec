// The store's upkeep: budgets, eviction, folders, gc, verify.
#include <algorithm>
#include <limits>
#include <map>

#include "base/log.h"
#include "base/text.h"
#include "kv/blob_identity.h"
#include "kv/kv_store.h"
#include "kv/kv_store_impl.h"

namespace cento {
namespace {

constexpr const char* kSetAside = "set-aside";
constexpr const char* kBudget = "the store's budget";
constexpr size_t kMarkBytes = 16;
constexpr size_t kVictimsAtOnce = 64;  // rows asked for at a time

}  // namespace

// ---- budgets

bool KvStore::is_over_budget(const Error& error) { return error.code() == Code::kResource && error.where() == kBudget; }

KvStore::Evicted KvStore::set_limits(const StoreLimits& limits) {
  limits_ = limits;
  ram_ = limits.ram_bytes_max > 0 ? std::make_unique<RamTier>(limits.ram_bytes_max, catalogue_->clock()) : nullptr;
  Evicted all;
  if (catalogue_->db().read_only() || !locked_.empty()) return all;
  if (limits.max_age_ms > 0) {
    Evicted old;
    for (const KvRow& row : catalogue_->unused_since(catalogue_->clock().unix_ms() - limits.max_age_ms)) {
      if (auto s = remove(row.key); !s) throw s.error();
      ++old.blobs;
      old.bytes += row.n_bytes;
    }
    if (old.blobs > 0) {
      log_warning(std::to_string(old.blobs) + " pieces of stored KV, " + size_text(old.bytes) +
                  ", were not used for too long and are removed");
    }
    all = old;
  }
  if (limits.disk_bytes_max > 0) {
    const Evicted over = evict_to(limits.disk_bytes_max, std::numeric_limits<int64_t>::max(), nullptr);
    if (over.blobs > 0) {
      log_warning(std::to_string(over.blobs) + " pieces of stored KV, " + size_text(over.bytes) +
                  ", are removed: the store may hold " + size_text(limits.disk_bytes_max));
    }
    all.blobs += over.blobs;
    all.bytes += over.bytes;
  }
  return all;
}

KvStore::Evicted KvStore::trim(uint64_t bytes_max) {
  require_unlocked();
  require_writable();
  return evict_to(bytes_max, std::numeric_limits<int64_t>::max(), nullptr);
}

// Until no more than `bytes_max` is left, or nothing that was last used before then.
KvStore::Evicted KvStore::evict_to(uint64_t bytes_max, int64_t used_before_ms, const Hash* except) {
  Evicted gone;
  std::map<int64_t, bool> here;  // folders: a blob in one that is away frees nothing
  for (const DiskFolder& folder : disk_.folders()) here[folder.id] = disk_.available(folder);
  for (size_t ask = kVictimsAtOnce;;) {
    uint64_t held = catalogue_->kv_bytes_total();
    if (held <= bytes_max) return gone;
    const auto rows = catalogue_->next_to_evict(used_before_ms, ask);
    bool any = false;
    for (const KvRow& row : rows) {
      if (held <= bytes_max) return gone;
      if ((except != nullptr && row.key == *except) || !here[row.folder]) continue;
      catalogue_->raise_eviction_floor(row.key);
      if (auto s = remove(row.key); !s) throw s.error();
      any = true;
      held -= std::min(held, row.n_bytes);
      ++gone.blobs;
      gone.bytes += row.n_bytes;
    }
    if (any) continue;
    if (rows.size() < ask) return gone;  // no more of them
    ask *= 4;
  }
}

Status KvStore::make_room(uint64_t n_bytes, const Hash& for_key) {
  if (limits_.disk_bytes_max == 0) return Status::done();
  const auto old = catalogue_->kv(for_key);
  const uint64_t replaced = old ? old->n_bytes : 0;
  if (n_bytes > limits_.disk_bytes_max) {
    return Error{
        Code::kResource,
        size_text(n_bytes) + " are more than the " + size_text(limits_.disk_bytes_max) + " that the store may hold",
        kBudget, "a larger --max-disk"};
  }
  const uint64_t allowed = limits_.disk_bytes_max - n_bytes + replaced;
  if (catalogue_->kv_bytes_total() <= allowed) return Status::done();
  const int64_t before = protected_since_ms_ > 0 ? protected_since_ms_ : std::numeric_limits<int64_t>::max();
  (void)evict_to(allowed, before, &for_key);
  if (catalogue_->kv_bytes_total() <= allowed) return Status::done();
  return Error{Code::kResource, "the store is full: what is in it is needed now", kBudget, "a larger --max-disk"};
}

Status KvStore::fits(uint64_t n_bytes) {
  try {
    if (limits_.disk_bytes_max > 0) {
      const uint64_t total = catalogue_->kv_bytes_total();
      if (n_bytes > limits_.disk_bytes_max || (protected_since_ms_ > 0 && total + n_bytes > limits_.disk_bytes_max &&
                                               total - evictable_bytes() + n_bytes > limits_.disk_bytes_max)) {
        return Error{Code::kResource, "the store may hold " + size_text(limits_.disk_bytes_max), kBudget,
                     "a larger --max-disk"};
      }
    }
    const auto folder = choose_folder(n_bytes);
    return folder.ok() ? Status::done() : Status(folder.error());
  } catch (const Error& error) {
    return error;
  }
}

uint64_t KvStore::evictable_bytes() { return catalogue_->kv_bytes_unused_since(protected_since_ms_); }

// The one with most room; the store's own if all are alike.
Result<const DiskFolder*> KvStore::choose_folder(uint64_t n_bytes) {
  const DiskFolder* best = nullptr;
  uint64_t best_free = 0;
  Error why{Code::kResource, "no folder of the store is there", catalogue_->dir()};
  for (const DiskFolder& folder : disk_.folders()) {
    if (!disk_.available(folder)) continue;
    if (auto s = disk_.check_room(folder, n_bytes); !s) {
      why = s.error();
      continue;
    }
    uint64_t free = std::numeric_limits<uint64_t>::max();
    if (const auto told = disk_.free_bytes(folder); told.ok()) free = *told;
    if (folder.bytes_max > 0) {
      const uint64_t held = catalogue_->kv_totals(folder.id).n_bytes;
      const uint64_t left = folder.bytes_max - std::min(held, folder.bytes_max);
      if (left < n_bytes) {
        why = Error{Code::kResource, "the folder may hold " + size_text(folder.bytes_max), folder.path};
        continue;
      }
      free = std::min(free, left);
    }
    if (best == nullptr || free > best_free) {
      best = &folder;
      best_free = free;
    }
  }
  if (best == nullptr) return why;
  return best;
}

// ---- folders

void KvStore::add_folder(const std::string& path, uint64_t bytes_max) {
  require_unlocked();
  require_writable();
  for (const DiskFolder& known : disk_.folders()) {
    if (known.path != path || known.id == 0) continue;
    catalogue_->set_kv_folder_budget(known.id, bytes_max);
    disk_.set_folders(catalogue_->kv_folders());
    return;
  }
  DiskFolder folder;
  folder.path = path;
  folder.bytes_max = bytes_max;
  folder.mark = random_hex(kMarkBytes);
  fs_->make_folders(path).or_throw();
  const std::string mark_file = path + "/" + DiskTier::kMarkFile;
  if (fs_->exists(mark_file))
    throw Error{Code::kInput, "the folder is in use by another store", path, "take an empty folder"};
  atomic_write(*fs_, mark_file, std::as_bytes(std::span(folder.mark))).or_throw();
  try {
    catalogue_->add_kv_folder(folder);
  } catch (...) {
    (void)fs_->remove(mark_file).ok();
    throw;
  }
  disk_.set_folders(catalogue_->kv_folders());
}

uint64_t KvStore::remove_folder(const std::string& path, const Hooks& hooks) {
  require_unlocked();
  require_writable();
  const std::vector<DiskFolder> folders = disk_.folders();
  const auto found =
      std::find_if(folders.begin(), folders.end(), [&](const DiskFolder& f) { return f.id != 0 && f.path == path; });
  if (found == folders.end())
    throw Error{Code::kUsage, "not a folder of this store", path, "`cento cache status` lists them"};
  const bool here = disk_.available(*found);
  const uint64_t total = catalogue_->kv_totals(found->id).n_bytes;
  // Nothing new goes there from now on.
  std::vector<DiskFolder> others;
  for (const DiskFolder& f : folders) {
    if (f.id != 0 && f.id != found->id) others.push_back(f);
  }
  uint64_t moved = 0;
  for (KvRow row : catalogue_->all_kv()) {
    if (row.folder != found->id) continue;
    if (hooks.stop && hooks.stop()) return moved;
    if (!here) {  // gone with its disk
      forget(row.key);
      continue;
    }
    const std::string from = disk_.path_in(*found, name_of(row.key));
    disk_.set_folders(others);
    const auto to = choose_folder(row.n_bytes);
    disk_.set_folders({folders.begin() + 1, folders.end()});
    if (!to) throw to.error();
    const int64_t to_id = (*to)->id;
    auto file = fs_->open_read(from);
    if (!file) {
      forget(row.key);
      continue;
    }
    const auto bytes = std::move(read_whole(**file, from)).or_throw();
    row.folder = to_id;
    const auto& all = disk_.folders();
    const auto target = std::find_if(all.begin(), all.end(), [&](const DiskFolder& f) { return f.id == to_id; });
    write_to(*target, row, bytes).or_throw();
    moved += row.n_bytes;
    if (hooks.progress) hooks.progress(moved, total);
  }
  catalogue_->remove_kv_folder(found->id);
  if (here) (void)fs_->remove(path + "/" + DiskTier::kMarkFile).ok();
  disk_.set_folders(catalogue_->kv_folders());
  return moved;
}

// ---- gc and verify

// The number of rows removed in one transaction; `which` is asked under its lock. nullopt: the disk has no room for
// that, so that files have to go before their rows.
std::optional<size_t> KvStore::remove_rows(const std::function<std::vector<Hash>()>& which) {
  Transaction transaction(catalogue_->db());
  try {
    const std::vector<Hash> keys = which();
    for (const Hash& key : keys) catalogue_->remove_kv(key);
    transaction.commit();
    return keys.size();
  } catch (const Error& error) {
    if (error.code() != Code::kResource) throw;
    return std::nullopt;
  }
}

KvStore::Leftovers KvStore::gc() {
  require_unlocked();
  require_writable();
  Leftovers removed;
  const auto take_file = [&](const std::string& path) {
    const auto file = fs_->open_read(path);
    const auto size = file.ok() ? (*file)->size() : Result<uint64_t>(file.error());
    const uint64_t n_bytes = size.ok() ? *size : 0;
    fs_->remove(path).or_throw();
    ++removed.files;
    removed.bytes += n_bytes;
  };
  const bool all_here = disk_.all_available();
  const auto take_row = [&](const Hash& key) {
    catalogue_->remove_kv(key);
    ++removed.rows;
  };
  // Rows first, as remove() does it.
  removed.rows += remove_rows([&] { return catalogue_->orphaned_kv(); }).value_or(0);
  // Under the write lock: a put in another process is wholly before it or wholly after it.
  Transaction transaction(catalogue_->db());
  require_unlocked();  // once more: a rekey that has begun since shows under the lock
  for (const Hash& key : catalogue_->orphaned_kv()) take_row(key);
  std::map<Hash, std::string> kept;  // name -> path
  for (const KvRow& row : catalogue_->all_kv()) {
    const Hash name = name_of(row.key);
    std::string path = disk_.find(name);
    if (path.empty()) {
      if (all_here) take_row(row.key);
      continue;
    }
    const auto file = fs_->open_read(path);
    const auto size = file.ok() ? (*file)->size() : Result<uint64_t>(file.error());
    if (size.ok() && *size != row.n_bytes) reconcile(row);
    kept[name] = std::move(path);
  }
  disk_.for_each_file(
      [&](const DiskFolder&, const std::string& path, const std::string& file_name, const std::optional<Hash>& name) {
        const auto row = name ? kept.find(*name) : kept.end();
        if (name ? row == kept.end() || path != row->second : disk_.is_old_temporary(path, file_name)) take_file(path);
      });
  const std::string aside = store_folder(*catalogue_, kSetAside);
  if (fs_->exists(aside)) {
    for (const std::string& name : fs_->list(aside).or_throw()) take_file(aside + "/" + name);
  }
  transaction.commit();
  return removed;
}

KvStore::Verified KvStore::verify(bool repair, const Hooks& hooks) {
  require_unlocked();
  Verified verified;
  const uint64_t total = catalogue_->kv_bytes_total();
  for (const KvRow& row : catalogue_->all_kv()) {
    if (hooks.stop && hooks.stop()) {
      verified.stopped = true;
      break;
    }
    ++verified.blobs;
    verified.bytes += row.n_bytes;
    const Status s = verify_blob(row.key);
    if (hooks.progress) hooks.progress(verified.bytes, total);
    if (s.ok()) continue;
    verified.bad.emplace_back(row.key, s.error().message());
    if (!repair || s.error().code() != Code::kInput) continue;
    set_aside(row.key, s.error().message());
    if (!catalogue_->kv(row.key)) ++verified.repaired;
  }
  return verified;
}

Status KvStore::verify_blob(const Hash& key) {
  const Hash name = name_of(key);
  const std::string path = disk_.find(name);
  auto file = disk_.open(name);
  // No handles left, no permission: the file may be in order.
  if (!file && !path.empty()) return Error{Code::kResource, file.error().message(), path, file.error().hint()};
  if (!file) return file.error();
  auto plain = unsealed(std::move(*file), path);
  if (!plain) return plain.error();
  const auto checked = check_blob(std::move(*plain), path, key);
  return checked.ok() ? Status::done() : Status(checked.error());
}

}  // namespace cento
