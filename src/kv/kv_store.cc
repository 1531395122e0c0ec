#include "kv/kv_store.h"

#include <algorithm>
#include <new>

#include "base/log.h"
#include "kv/blob_identity.h"
#include "kv/blob_reader.h"
#include "kv/bytes_file.h"
#include "kv/kv_store_impl.h"

namespace cento {
namespace {

constexpr const char* kSetAside = "set-aside";

Error miss(std::string reason, const std::string& where) { return {Code::kInput, std::move(reason), where}; }

}  // namespace

KvStore::KvStore(Catalogue& catalogue, FileSystem& fs)
    : catalogue_(&catalogue), fs_(&fs), disk_(fs, store_folder(catalogue, "kv"), catalogue.clock()) {
  disk_.set_folders(catalogue.kv_folders());
  if (const auto id = catalogue.setting(kCipherSetting); id && !id->empty()) locked_ = "store is encrypted";
  if (catalogue.setting(kCipherNextSetting)) locked_ = kRekeyStopped;
}

KvStore::~KvStore() = default;

// ---- reading

Result<std::unique_ptr<KvReader>> KvStore::open(const KvIdentity& wanted) {
  try {
    if (!locked_.empty()) return miss(locked_, catalogue_->dir());
    const BlobHeader header = header_of(wanted);
    if (const auto row = catalogue_->kv(header.key)) {
      auto reader = open_checked(*row, header);
      if (reader.ok() || !remote_) return reader;
      auto elsewhere = open_remote(name_of(header.key), header);
      return elsewhere.ok() ? std::move(elsewhere) : std::move(reader);
    }
    if (remote_) {
      if (auto reader = open_remote(name_of(header.key), header); reader.ok()) return reader;
    }
    return miss(why_not_stored(header), path_of(header.key));
  } catch (const Error& error) {  // a damaged or locked catalogue is a miss too
    return error;
  }
}

std::vector<KvRow> KvStore::find(const KvIdentity& wanted) {
  if (!locked_.empty()) return {};
  const BlobHeader header = header_of(wanted);
  std::vector<KvRow> rows =
      catalogue_->find_kv(header.fingerprint, header.layout, header.prefix_id, kv_ids_hash(header.ids));
  if (!remote_) return rows;
  std::vector<Hash> known;
  for (const KvRow& row : rows) known.push_back(name_of(row.key));
  for (const RemoteTier::Listed& listed : remote_->find(name_of(group_of(header)))) {
    if (std::find(known.begin(), known.end(), listed.name) != known.end()) continue;
    KvRow row;
    row.kind = listed.kind;
    row.n_tokens = header.ids.size();
    row.remote_name = listed.name;
    rows.push_back(std::move(row));
  }
  return rows;
}

// The context is the row's: whoever asks takes a KV behind any. The row's key is the hash of what the row says, so a
// header with this key says the same.
Result<std::unique_ptr<KvReader>> KvStore::open_row(const KvRow& row, const KvIdentity& wanted) {
  try {
    if (!locked_.empty()) return miss(locked_, catalogue_->dir());
    BlobHeader header = header_of(wanted);
    header.kind = row.kind;
    if (row.remote_name) {
      header.key = Hash{};  // any
      return open_remote(*row.remote_name, header);
    }
    header.context_id = row.context_id;
    header.key = row.key;
    return open_checked(row, header);
  } catch (const Error& error) {
    return error;
  }
}

Result<std::unique_ptr<File>> KvStore::unsealed(std::unique_ptr<File> file, const std::string& where) const {
  if (!cipher_) return file;
  return cipher_->open(std::move(file), where);
}

Result<std::unique_ptr<KvReader>> KvStore::open_checked(const KvRow& row, const BlobHeader& wanted) {
  if (ram_) {
    if (auto reader = open_in(*ram_, row, wanted); reader.ok()) {
      touch(row.key);
      return reader;
    }
  }
  auto reader = open_in(disk_, row, wanted);
  if (reader.ok()) touch(row.key);
  return reader;
}

Result<std::unique_ptr<KvReader>> KvStore::open_in(Tier& tier, const KvRow& row, const BlobHeader& wanted) {
  const Hash& key = row.key;
  const bool on_disk = &tier == &disk_;
  // Another process gives the store another key: under its new name the file is in order.
  if (row.cipher != (cipher_ ? std::optional(cipher_->id()) : std::nullopt))
    return miss("encrypted with another key", catalogue_->dir());
  const Hash name = name_of(key);
  const std::string path = on_disk ? disk_.find(name) : std::string("in ") + tier.name();
  auto file = tier.open(name);
  if (!file) {
    // It is nowhere, and no folder is away.
    if (on_disk && path.empty() && file.error().code() == Code::kInput) forget(key);
    return file.error();
  }
  const auto damaged = [&](const std::string& reason) {
    if (on_disk) {
      set_aside(key, reason);
    } else {
      (void)tier.evict(name).ok();
    }
  };
  const auto file_bytes = (*file)->size();
  if (!file_bytes) return file_bytes.error();
  auto plain = unsealed(std::move(*file), path);
  auto header = plain.ok() ? read_blob_header(**plain, path) : Result<BlobHeader>(plain.error());
  if (!header) {
    if (header.error().code() == Code::kInput) damaged(header.error().message());
    return header.error();
  }
  const std::string reason = difference(*header, wanted);
  // A file that is what its name says stays: somebody asked for something else by mistake.
  if (header->key != key || key_of(*header) != key) damaged(reason.empty() ? "other key" : reason);
  if (!reason.empty()) return miss(reason, path);
  if (key_of(*header) != key) return miss("other key", path);
  if (on_disk && (row.codec != kv_codec_name(header->codecs.back()) || row.n_bytes != *file_bytes)) reconcile(key);
  return std::unique_ptr<KvReader>(
      std::make_unique<BlobReader>(std::move(*plain), std::move(*header), path, tier.name()));
}

// A put over what was stored that is killed between the file's new name and the row leaves the new file under the old
// row: the same KV, packed otherwise. The row is made to say what is there. Under the write lock, as a put is.
void KvStore::reconcile(KvRow row) {
  const Hash name = name_of(row.key);
  const std::string path = disk_.find(name);
  auto file = fs_->open_read(path);
  if (!file) return;
  const auto size = (*file)->size();
  auto plain = unsealed(std::move(*file), path);
  if (!plain || !size) return;
  const auto header = read_blob_header(**plain, path);
  if (!header || header->key != row.key) return;
  row.codec = kv_codec_name(header->codecs.back());
  row.n_bytes = *size;
  for (const DiskFolder& folder : disk_.folders()) {
    if (disk_.path_in(folder, name) == path) row.folder = folder.id;
  }
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

// ---- the remote tier

// Nothing in it is trusted: what is read is held against what is wanted as a file on disk is. A key of zeros in
// `wanted` stands for any context of that kind.
Result<std::unique_ptr<KvReader>> KvStore::open_remote(const Hash& name, const BlobHeader& wanted) {
  const std::string where = remote_->where();
  auto file = remote_->open(name);
  if (!file) return file.error();
  auto plain = unsealed(std::move(*file), where);
  if (!plain) return plain.error();
  auto header = read_blob_header(**plain, where);
  if (!header) return header.error();
  const bool any_context = wanted.key == Hash{};
  if (const std::string reason = difference(*header, wanted, any_context); !reason.empty()) return miss(reason, where);
  if (header->kind != wanted.kind) return miss("other kind", where);
  if (key_of(*header) != header->key || name_of(header->key) != name) return miss("other key", where);
  return std::unique_ptr<KvReader>(
      std::make_unique<BlobReader>(std::move(*plain), std::move(*header), where, remote_->name()));
}

std::optional<KvRow> KvStore::fetch(const KvIdentity& wanted, const std::optional<Hash>& chunk_hash) {
  if (!remote_) return std::nullopt;
  const BlobHeader header = header_of(wanted);
  return take_in(name_of(header.key), header, false, chunk_hash);
}

std::optional<KvRow> KvStore::fetch_row(const KvRow& row, const KvIdentity& wanted,
                                        const std::optional<Hash>& chunk_hash) {
  if (!remote_ || !row.remote_name) return std::nullopt;
  BlobHeader header = header_of(wanted);
  header.kind = row.kind;
  return take_in(*row.remote_name, header, true, chunk_hash);
}

std::optional<KvRow> KvStore::take_in(const Hash& name, const BlobHeader& wanted, bool any_context,
                                      const std::optional<Hash>& chunk_hash) {
  const std::string where = remote_->where();
  const auto take = [&]() -> Result<KvRow> {
    require_unlocked();
    require_writable();
    auto file = remote_->open(name);
    if (!file) return file.error();
    auto plain = unsealed(std::move(*file), where);
    if (!plain) return plain.error();
    auto bytes = read_whole(**plain, where);
    if (!bytes) return bytes.error();
    const auto header = check_blob(std::make_unique<BytesFile>(*bytes), where, {});
    if (!header) return header.error();
    if (const std::string reason = difference(*header, wanted, any_context); !reason.empty())
      return miss(reason, where);
    if (name_of(header->key) != name) return miss("other key", where);
    const Packed packed = pack(std::move(*bytes));
    const KvRow row = row_of(*header, packed.bytes.size(), chunk_hash, catalogue_->clock().unix_ms());
    if (auto s = write(row, packed); !s) return s.error();
    return row;
  };
  try {
    const auto row = take();
    if (row.ok()) return *row;
    log_debug("nothing taken from " + where + ": " + row.error().message());
  } catch (const Error& error) {
    log_debug("nothing taken from " + where + ": " + error.message());
  } catch (const std::bad_alloc&) {
    log_debug("nothing taken from " + where + ": not enough memory");
  }
  return std::nullopt;
}

// The copies of what has just been stored. They are a service: if one cannot be made, the store is as good as before.
void KvStore::share(const BlobHeader& header, const Packed& packed, double cost_ms) {
  const BlobView view{packed.bytes, packed.parts, cost_ms};
  const Hash name = name_of(header.key);
  if (ram_) {
    if (auto s = ram_->put(name, view); !s) log_debug("stored KV is not kept in memory: " + s.error().message());
  }
  if (!remote_) return;
  (void)put_and_list(*remote_, view, name_of(group_of(header)), {name, header.kind});
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

void KvStore::give_up(const KvReader& reader, const std::string& reason) {
  const std::string_view from = reader.from();
  if (from == disk_.name()) set_aside(reader.key(), reason);
  if (ram_ && from == ram_->name()) (void)ram_->evict(name_of(reader.key())).ok();
}

// The row first: from then on nobody opens the file, wherever it lies.
void KvStore::set_aside(const Hash& key, const std::string& reason) {
  if (catalogue_->db().read_only() || !locked_.empty()) return;
  log_warning("stored KV " + key.short_hex() + " is set aside: " + reason);
  forget(key);
  const Hash name = name_of(key);
  if (ram_) (void)ram_->evict(name).ok();
  const std::string path = disk_.find(name);
  if (path.empty()) return;
  const std::string folder = store_folder(*catalogue_, kSetAside);
  Status moved = fs_->make_folders(folder);
  if (moved.ok()) moved = fs_->rename(path, folder + "/" + name.hex() + ".kv");
  if (!moved.ok()) moved = fs_->remove(path);  // on another disk than the store
  // It must not come back: the next put replaces it, gc removes it.
  if (!moved.ok()) log_warning("stored KV " + key.short_hex() + " stays where it is: " + moved.error().message());
}

Status KvStore::remove(const Hash& key) {
  try {
    require_unlocked();
    require_writable();
    const Hash name = name_of(key);
    if (ram_) (void)ram_->evict(name).ok();
    // The row first, in a transaction of its own: whoever is killed behind it leaves a file without a row, for gc, and
    // not the other way round.
    const bool row_gone = remove_rows([&] { return std::vector<Hash>{key}; }).has_value();
    // Under the write lock, so that a put of the same key in another process cannot come in between.
    Transaction transaction(catalogue_->db());
    if (row_gone && catalogue_->kv(key)) return Status::done();  // one has just been put
    if (auto s = disk_.evict(name); !s) return s;
    if (!row_gone) catalogue_->remove_kv(key);
    transaction.commit();
    return Status::done();
  } catch (const Error& error) {
    return error;
  }
}

// ---- writing

KvStore::Packed KvStore::pack(std::vector<std::byte> plain) const {
  const BytesFile file(plain);
  std::vector<uint64_t> parts = parts_of(std::move(read_blob_header(file, "")).or_throw());
  if (!cipher_) return {std::move(plain), std::move(parts), {}};
  StoreCipher::Sealed sealed = cipher_->seal({plain, parts});
  return {std::move(sealed.bytes), std::move(sealed.parts), cipher_->id()};
}

Result<KvRow> KvStore::put(const KvIdentity& identity, const KvBlock& block, KvCodec codec,
                           const std::optional<Hash>& chunk_hash, double cost_ms) {
  try {
    require_unlocked();
    BlobHeader header = header_of(identity);
    auto bytes = encode_blob(header, block, codec);
    if (!bytes) return bytes.error();
    const Packed packed = pack(std::move(*bytes));
    header.codecs = {codec};
    KvRow row = row_of(header, packed.bytes.size(), chunk_hash, catalogue_->clock().unix_ms());
    row.cost_ms = cost_ms;
    if (auto s = write(row, packed); !s) return s.error();
    share(header, packed, cost_ms);
    return row;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return Error{Code::kResource, "not enough memory to store KV of " + std::to_string(block.n_tokens()) + " tokens"};
  }
}

Result<uint64_t> KvStore::packed_bytes(const KvIdentity& identity, const KvBlock& block, KvCodec codec) const {
  auto bytes = encode_blob(header_of(identity), block, codec);
  if (!bytes) return bytes.error();
  return pack(std::move(*bytes)).bytes.size();
}

Result<std::vector<std::byte>> KvStore::read_blob(const Hash& key) {
  try {
    require_unlocked();
    const Hash name = name_of(key);
    auto file = disk_.open(name);
    if (!file) return file.error();
    const std::string path = disk_.find(name);
    auto plain = unsealed(std::move(*file), path);
    if (!plain) return plain.error();
    return read_checked(**plain, path, key);
  } catch (const Error& error) {
    return error;
  }
}

Result<bool> KvStore::add_blob(std::span<const std::byte> bytes, const std::optional<Hash>& chunk_hash) {
  const auto checked = check_blob(std::make_unique<BytesFile>(bytes), "", {});
  if (!checked) return checked.error();
  try {
    require_unlocked();
    require_writable();
    if (catalogue_->kv(checked->key) && disk_.contains(name_of(checked->key))) return false;
    const Packed packed = pack({bytes.begin(), bytes.end()});
    const KvRow row = row_of(*checked, packed.bytes.size(), chunk_hash, catalogue_->clock().unix_ms());
    if (auto s = write(row, packed); !s) return s.error();
    return true;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return Error{Code::kResource, "not enough memory to store it"};
  }
}

// BEGIN IMMEDIATE on a read-only connection succeeds, so the transactions do not see to it.
void KvStore::require_writable() const {
  if (catalogue_->db().read_only()) throw Error{Code::kInput, "store cannot be written", catalogue_->dir()};
}

void KvStore::require_unlocked() const {
  if (!locked_.empty())
    throw Error{Code::kInput, locked_, catalogue_->dir(), "give its key: --key-file FILE, or CENTO_KEY"};
  // Names are made with the key: whoever goes on with an old one would take every file for a stray.
  const std::string own = cipher_ ? cipher_id_text(cipher_->id()) : std::string();
  if (catalogue_->setting(kCipherNextSetting) || catalogue_->setting(kCipherSetting).value_or("") != own)
    throw Error{Code::kInput, "the store's key was changed by another process", catalogue_->dir(),
                "run it again with the new key, when the rekey has ended"};
}

Status KvStore::write(KvRow row, const Packed& packed) {
  require_writable();
  row.cipher = packed.cipher;
  if (!(row.cost_ms > 0)) row.cost_ms = catalogue_->typical_cost_ms(row.fingerprint, row.n_tokens, row.n_bytes);
  if (auto s = make_room(packed.bytes.size(), row.key); !s) return s;
  const auto folder = choose_folder(packed.bytes.size());
  if (!folder) return folder.error();
  row.folder = (*folder)->id;
  return write_to(**folder, row, packed.bytes);
}

Status KvStore::write_to(const DiskFolder& folder, const KvRow& row, std::span<const std::byte> bytes) {
  const Hash name = name_of(row.key);
  const auto prepared = disk_.prepare(folder, name, bytes);
  if (!prepared) return prepared.error();
  bool renamed = false;
  const auto place = [&]() -> Status {
    // The write lock from the rename to the row: gc in another process must not take the file for a left-over.
    Transaction transaction(catalogue_->db());
    if (auto s = disk_.place(*prepared, renamed); !s) return s;
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
  if (!placed.ok()) {
    discard(row.key, renamed ? prepared->path : prepared->temporary, renamed);
    return placed;
  }
  for (const DiskFolder& other : disk_.folders()) {  // where an earlier one of this key lies
    if (&other != &folder) (void)fs_->remove(disk_.path_in(other, name)).ok();
  }
  return placed;
}

// After a failed put. A file in place stays if a row, of this KV stored before, still refers to it: it holds the same
// KV. What cannot be removed is left for gc.
void KvStore::discard(const Hash& key, const std::string& path, bool in_place) {
  try {
    if (in_place && catalogue_->kv(key)) return;
    (void)fs_->remove(path).ok();
  } catch (const Error& error) {
    log_debug("left for gc: " + path + ": " + error.message());
  }
}

}  // namespace cento
