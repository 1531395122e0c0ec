#include "kv/kv_store.h"

#include <algorithm>
#include <new>
#include <set>

#include "base/log.h"
#include "kv/blob_codec.h"
#include "kv/blob_reader.h"
#include "kv/bytes_file.h"

namespace cento {
namespace {

constexpr int64_t kTemporaryAgeMs = 3'600'000;  // older ones belong to nobody: a put takes seconds
constexpr const char* kSetAside = "set-aside";

Error miss(std::string reason, const std::string& where) { return {Code::kInput, std::move(reason), where}; }

Hash key_of(const Hash& fingerprint, const Hash& layout, KvKind kind, const Hash& prefix_id, const Hash& context_id,
            const Hash& ids_hash) {
  Hasher hasher("cento kv key");
  hasher.add_hash(fingerprint).add_hash(layout).add_u64(static_cast<uint64_t>(kind));
  return hasher.add_hash(prefix_id).add_hash(context_id).add_hash(ids_hash).finish();
}

Hash key_of(const BlobHeader& h) {
  return key_of(h.fingerprint, h.layout, h.kind, h.prefix_id, h.context_id, kv_ids_hash(h.ids));
}

BlobHeader about(const KvIdentity& identity) {
  BlobHeader header;
  header.fingerprint = identity.fingerprint;
  header.layout = identity.layout;
  header.prefix_id = kv_ids_hash(identity.prefix_ids);
  header.context_id = kv_ids_hash(identity.context_ids);
  header.shape = identity.shape;
  header.kind = identity.kind;
  header.ids.assign(identity.ids.begin(), identity.ids.end());
  header.key = key_of(header);
  return header;
}

KvRow row_of(const BlobHeader& header, const char* codec, uint64_t n_bytes, const std::optional<Hash>& chunk_hash,
             int64_t now_ms) {
  KvRow row;
  row.key = header.key;
  row.fingerprint = header.fingerprint;
  row.layout = header.layout;
  row.prefix_id = header.prefix_id;
  row.ids_hash = kv_ids_hash(header.ids);
  row.context_id = header.context_id;
  row.chunk_hash = chunk_hash;
  row.kind = header.kind;
  row.codec = codec;
  row.n_tokens = header.ids.size();
  row.n_bytes = n_bytes;
  row.created_ms = row.last_used_ms = now_ms;
  return row;
}

// Header, key and every frame; `wanted`: the key it must have.
Result<BlobHeader> check_blob(std::unique_ptr<File> file, const std::string& where, const std::optional<Hash>& wanted) {
  auto header = read_blob_header(*file, where);
  if (!header) return header.error();
  if (key_of(*header) != header->key || (wanted && header->key != *wanted)) return miss("other key", where);
  try {
    const BlobHeader checked = *header;
    const uint64_t n_bytes = checked.shape.side_bytes(checked.ids.size());
    std::vector<std::byte> k(n_bytes), v(n_bytes);
    BlobReader reader(std::move(file), std::move(*header), where);
    for (uint32_t layer = 0; layer < reader.shape().n_layers; ++layer) {
      if (auto s = reader.read_layer(layer, k, v); !s) return s.error();
    }
    return checked;
  } catch (const std::bad_alloc&) {
    return Error{Code::kResource, "not enough memory to read it", where};
  }
}

// The first difference, in words; "" if there is none.
std::string difference(const BlobHeader& found, const BlobHeader& wanted) {
  if (found.fingerprint != wanted.fingerprint) return "other model";
  if (found.layout != wanted.layout || !(found.shape == wanted.shape)) return "other KV layout";
  if (found.prefix_id != wanted.prefix_id) return "other prefix";
  if (found.ids != wanted.ids) return "other tokens";
  if (found.context_id != wanted.context_id) return "other context";
  if (found.kind != wanted.kind) return "other kind";
  if (found.key != wanted.key) return "other key";
  return {};
}

// How far a row agrees with what is wanted, and where it stops: for the reason of a miss.
std::pair<int, const char*> agreement(const KvRow& row, const BlobHeader& wanted) {
  if (row.fingerprint != wanted.fingerprint) return {1, "other model"};
  if (row.layout != wanted.layout) return {2, "other KV layout"};
  if (row.prefix_id != wanted.prefix_id) return {3, "other prefix"};
  if (row.context_id != wanted.context_id) return {4, "other context"};
  return {5, "other kind"};
}

// What a row says of how its KV is packed.
bool says_what_is_there(const KvRow& row, const BlobHeader& found) {
  return row.codec == kv_codec_name(found.codecs.back()) && row.n_bytes == found.file_bytes;
}

std::string folder_of(const std::string& path) { return path.substr(0, path.find_last_of('/')); }

std::string store_folder(const Catalogue& catalogue, const char* name) {
  return (catalogue.dir().empty() ? "." : catalogue.dir()) + "/" + name;
}

// The key in a blob's file name; nullopt for any other file.
std::optional<Hash> key_in(const std::string& name) {
  if (!name.ends_with(".kv")) return std::nullopt;
  return hash_from_hex(std::string_view(name).substr(0, name.size() - 3));
}

}  // namespace

Hash kv_ids_hash(std::span<const int32_t> ids) { return Hasher("cento token ids").add_i32s(ids).finish(); }

Hash kv_key(const KvIdentity& identity) {
  return key_of(identity.fingerprint, identity.layout, identity.kind, kv_ids_hash(identity.prefix_ids),
                kv_ids_hash(identity.context_ids), kv_ids_hash(identity.ids));
}

KvStore::KvStore(Catalogue& catalogue, FileSystem& fs) : catalogue_(&catalogue), fs_(&fs) {}

std::string KvStore::path_of(const Hash& key) const {
  const std::string hex = key.hex();
  return store_folder(*catalogue_, "kv") + "/" + hex.substr(0, 2) + "/" + hex + ".kv";
}

// ---- reading

Result<std::unique_ptr<KvReader>> KvStore::open(const KvIdentity& wanted) {
  try {
    const BlobHeader header = about(wanted);
    const auto row = catalogue_->kv(header.key);
    if (!row) return miss(why_not_stored(header), path_of(header.key));
    return open_checked(*row, header);
  } catch (const Error& error) {  // a damaged or locked catalogue is a miss too
    return error;
  }
}

// The context is the row's: whoever asks takes a KV behind any. The row's key is the hash of what the row says, so a
// header with this key says the same.
Result<std::unique_ptr<KvReader>> KvStore::open_row(const KvRow& row, const KvIdentity& wanted) {
  try {
    BlobHeader header = about(wanted);
    header.context_id = row.context_id;
    header.kind = row.kind;
    header.key = row.key;
    return open_checked(row, header);
  } catch (const Error& error) {
    return error;
  }
}

Result<std::unique_ptr<KvReader>> KvStore::open_checked(const KvRow& row, const BlobHeader& wanted) {
  const Hash& key = row.key;
  const std::string path = path_of(key);
  auto file = fs_->open_read(path);
  if (!file) {
    if (fs_->exists(path)) return file.error();  // no handles left, no permission: the file may be in order
    forget(key);
    return miss("file missing", path);
  }
  auto header = read_blob_header(**file, path);
  if (!header) {
    if (header.error().code() == Code::kInput) set_aside(key, header.error().message());
    return header.error();
  }
  const std::string reason = difference(*header, wanted);
  // A file that is what its name says stays: somebody asked for something else by mistake.
  if (header->key != key || key_of(*header) != key) set_aside(key, reason.empty() ? "other key" : reason);
  if (!reason.empty()) return miss(reason, path);
  if (key_of(*header) != key) return miss("other key", path);
  if (!says_what_is_there(row, *header)) reconcile(key);
  touch(key);
  return std::unique_ptr<KvReader>(std::make_unique<BlobReader>(std::move(*file), std::move(*header), path));
}

// A put over what was stored that is killed between the file's new name and the row leaves the new file under the old
// row: the same KV, packed otherwise. The row is made to say what is there. Under the write lock, as a put is.
void KvStore::reconcile(KvRow row) {
  const std::string path = path_of(row.key);
  const auto file = fs_->open_read(path);
  if (!file) return;
  const auto header = read_blob_header(**file, path);
  if (!header || header->key != row.key) return;
  row.codec = kv_codec_name(header->codecs.back());
  row.n_bytes = header->file_bytes;
  catalogue_->put_kv(row);
}

void KvStore::reconcile(const Hash& key) {
  Db& db = catalogue_->db();
  if (db.read_only() || db.in_transaction()) return;
  try {
    Transaction transaction(db);
    if (const auto row = catalogue_->kv(key)) reconcile(*row);
    transaction.commit();
  } catch (const Error& error) {  // the next one to open it sees to it
    log_debug("row of stored KV " + key.short_hex() + " stays as it is: " + error.message());
  }
}

void KvStore::touch(const Hash& key) {
  try {
    catalogue_->touch_kv(key);
  } catch (const Error& error) {  // a statistic: the KV itself is in order
    log_debug("use of stored KV " + key.short_hex() + " is not counted: " + error.message());
  }
}

std::string KvStore::why_not_stored(const BlobHeader& wanted) {
  std::pair<int, const char*> best = {0, "not stored"};
  for (const KvRow& row : catalogue_->kv_of_ids(kv_ids_hash(wanted.ids))) {
    if (row.key != wanted.key) best = std::max(best, agreement(row, wanted));  // that one was stored just now
  }
  return best.second;
}

// ---- taking away

void KvStore::forget(const Hash& key) {
  if (catalogue_->db().read_only()) return;
  try {
    catalogue_->remove_kv(key);
  } catch (const Error& error) {
    log_warning("row of stored KV " + key.short_hex() + " stays: " + error.message());
  }
}

// The row first: from then on nobody opens the file, wherever it lies.
void KvStore::set_aside(const Hash& key, const std::string& reason) {
  if (catalogue_->db().read_only()) return;
  log_warning("stored KV " + key.short_hex() + " is set aside: " + reason);
  forget(key);
  const std::string folder = store_folder(*catalogue_, kSetAside), path = path_of(key);
  Status moved = fs_->make_folders(folder);
  if (moved.ok()) moved = fs_->rename(path, folder + "/" + key.hex() + ".kv");
  // It must not come back: the next put replaces it, gc removes it.
  if (!moved.ok()) log_warning("stored KV " + key.short_hex() + " stays where it is: " + moved.error().message());
}

Status KvStore::remove(const Hash& key) {
  try {
    require_writable();
    // The row first, in a transaction of its own: whoever is killed behind it leaves a file without a row, for gc, and
    // not the other way round.
    const bool row_gone = remove_rows([&] { return std::vector<Hash>{key}; }).has_value();
    // Under the write lock, so that a put of the same key in another process cannot come in between.
    Transaction transaction(catalogue_->db());
    if (row_gone && catalogue_->kv(key)) return Status::done();  // one has just been put
    if (auto s = fs_->remove(path_of(key)); !s) return s;
    if (!row_gone) catalogue_->remove_kv(key);
    transaction.commit();
    return Status::done();
  } catch (const Error& error) {
    return error;
  }
}

// ---- writing

Result<KvRow> KvStore::put(const KvIdentity& identity, const KvBlock& block, KvCodec codec,
                           const std::optional<Hash>& chunk_hash) {
  try {
    const BlobHeader header = about(identity);
    const auto bytes = encode_blob(header, block, codec);
    if (!bytes) return bytes.error();
    const KvRow row = row_of(header, kv_codec_name(codec), bytes->size(), chunk_hash, catalogue_->clock().unix_ms());
    if (auto s = write(row, *bytes); !s) return s.error();
    return row;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return Error{Code::kResource, "not enough memory to store KV of " + std::to_string(block.n_tokens()) + " tokens"};
  }
}

Result<std::vector<std::byte>> KvStore::read_blob(const Hash& key) {
  const std::string path = path_of(key);
  if (!fs_->exists(path)) return miss("file missing", path);
  const auto file = fs_->open_read(path);
  if (!file) return file.error();
  const auto size = (*file)->size();
  if (!size) return size.error();
  try {
    std::vector<std::byte> bytes(*size);
    if (auto s = (*file)->read_at(0, bytes); !s) return s.error();
    if (const auto checked = check_blob(std::make_unique<BytesFile>(bytes), path, key); !checked)
      return checked.error();
    return bytes;
  } catch (const std::bad_alloc&) {
    return Error{Code::kResource, "not enough memory to read it", path};
  }
}

Result<bool> KvStore::add_blob(std::span<const std::byte> bytes, const std::optional<Hash>& chunk_hash) {
  const auto checked = check_blob(std::make_unique<BytesFile>(bytes), "", {});
  if (!checked) return checked.error();
  try {
    require_writable();
    if (catalogue_->kv(checked->key) && fs_->exists(path_of(checked->key))) return false;
    const KvRow row = row_of(*checked, kv_codec_name(checked->codecs.back()), bytes.size(), chunk_hash,
                             catalogue_->clock().unix_ms());
    if (auto s = write(row, bytes); !s) return s.error();
    return true;
  } catch (const Error& error) {
    return error;
  }
}

// BEGIN IMMEDIATE on a read-only connection succeeds, so the transactions do not see to it.
void KvStore::require_writable() const {
  if (catalogue_->db().read_only()) throw Error{Code::kInput, "store cannot be written", catalogue_->dir()};
}

Status KvStore::write(const KvRow& row, std::span<const std::byte> bytes) {
  require_writable();
  const std::string path = path_of(row.key), folder = folder_of(path);
  if (!fs_->exists(folder)) {
    if (auto s = fs_->make_folders(folder); !s) return s;
    // A file is there after a power cut only if the folders above it are.
    if (auto s = fs_->sync_folder(folder_of(folder)); !s) return s;
    if (auto s = fs_->sync_folder(folder_of(folder_of(folder))); !s) return s;
  }
  const auto temporary = write_beside(*fs_, path, bytes);
  if (!temporary) return temporary.error();
  bool renamed = false;
  const auto place = [&]() -> Status {
    // The write lock from the rename to the row: gc in another process must not take the file for a left-over.
    Transaction transaction(catalogue_->db());
    if (auto s = fs_->rename(*temporary, path); !s) return s;
    renamed = true;
    if (auto s = fs_->sync_folder(folder); !s) return s;
    catalogue_->put_kv(row);
    transaction.commit();
    return Status::done();
  };
  Status placed;
  try {
    placed = place();
  } catch (const Error& error) {
    placed = error;
  }
  if (!placed.ok()) discard(row.key, renamed ? path : *temporary);
  return placed;
}

// After a failed put. A file in place stays if a row, of this KV stored before, still refers to it: it holds the same
// KV. What cannot be removed is left for gc.
void KvStore::discard(const Hash& key, const std::string& path) {
  try {
    if (path == path_of(key) && catalogue_->kv(key)) return;
    (void)fs_->remove(path).ok();
  } catch (const Error& error) {
    log_debug("left for gc: " + path + ": " + error.message());
  }
}

// ---- keeping in order

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
  const auto take_row = [&](const Hash& key) {
    catalogue_->remove_kv(key);
    ++removed.rows;
  };
  // Rows first, as remove() does it.
  removed.rows += remove_rows([&] { return catalogue_->orphaned_kv(); }).value_or(0);
  // Under the write lock: a put in another process is wholly before it or wholly after it.
  Transaction transaction(catalogue_->db());
  for (const Hash& key : catalogue_->orphaned_kv()) take_row(key);
  std::set<Hash> kept;
  for (const KvRow& row : catalogue_->all_kv()) {
    if (!fs_->exists(path_of(row.key))) {
      take_row(row.key);
      continue;
    }
    kept.insert(row.key);
    const auto file = fs_->open_read(path_of(row.key));
    const auto size = file.ok() ? (*file)->size() : Result<uint64_t>(file.error());
    if (size.ok() && *size != row.n_bytes) reconcile(row);
  }
  for_each_file([&](const std::string& path, const std::string& name) {
    const auto key = key_in(name);
    if (key ? !kept.contains(*key) || path != path_of(*key) : is_old_temporary(path, name)) take_file(path);
  });
  const std::string aside = store_folder(*catalogue_, kSetAside);
  if (fs_->exists(aside)) {
    for (const std::string& name : fs_->list(aside).or_throw()) take_file(aside + "/" + name);
  }
  transaction.commit();
  return removed;
}

void KvStore::for_each_file(const std::function<void(const std::string& path, const std::string& name)>& visit) {
  const std::string top = store_folder(*catalogue_, "kv");
  if (!fs_->exists(top)) return;
  for (const std::string& part : fs_->list(top).or_throw()) {
    const std::string folder = top + "/" + part;
    auto names = fs_->list(folder);
    if (!names) continue;  // not a folder: nothing of ours
    for (const std::string& name : *names) visit(folder + "/" + name, name);
  }
}

bool KvStore::is_old_temporary(const std::string& path, const std::string& name) {
  if (name.find(".kv.tmp-") == std::string::npos) return false;
  const auto modified = fs_->modified_ms(path);
  return modified.ok() && catalogue_->clock().unix_ms() - *modified > kTemporaryAgeMs;
}

KvStore::Verified KvStore::verify(bool repair) {
  Verified verified;
  for (const Hash& key : catalogue_->kv_keys()) {
    ++verified.blobs;
    const Status s = verify_blob(key);
    if (s.ok()) continue;
    verified.bad.emplace_back(key, s.error().message());
    if (!repair || s.error().code() != Code::kInput) continue;
    set_aside(key, s.error().message());
    if (!catalogue_->kv(key)) ++verified.repaired;
  }
  return verified;
}

Status KvStore::verify_blob(const Hash& key) {
  const std::string path = path_of(key);
  if (!fs_->exists(path)) return miss("file missing", path);
  auto file = fs_->open_read(path);
  // No handles left, no permission: the file may be in order.
  if (!file) return Error{Code::kResource, file.error().message(), path, file.error().hint()};
  const auto checked = check_blob(std::move(*file), path, key);
  return checked.ok() ? Status::done() : Status(checked.error());
}

}  // namespace cento
