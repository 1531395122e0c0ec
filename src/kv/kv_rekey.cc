// Encryption of a whole store: taking a key, changing it, giving it up.
#include <algorithm>

#include "base/log.h"
#include "kv/blob_identity.h"
#include "kv/kv_store.h"
#include "kv/kv_store_impl.h"

namespace cento {
namespace {

std::string id_text(const std::shared_ptr<const StoreCipher>& cipher) {
  return cipher ? cipher_id_text(cipher->id()) : std::string();
}

std::optional<CipherId> id_of(const std::shared_ptr<const StoreCipher>& cipher) {
  return cipher ? std::optional(cipher->id()) : std::nullopt;
}

}  // namespace

void KvStore::set_cipher(std::shared_ptr<const StoreCipher> cipher) {
  const std::string& dir = catalogue_->dir();
  if (catalogue_->setting(kCipherNextSetting)) {
    throw Error{Code::kInput, kRekeyStopped, dir,
                "run `cento cache rekey` again, with the same old and new key; it goes on from there"};
  }
  const std::string known = catalogue_->setting(kCipherSetting).value_or("");
  if (known != id_text(cipher)) {
    if (!cipher)
      throw Error{Code::kInput, "the store is encrypted", dir, "give its key: --key-file FILE, or CENTO_KEY"};
    if (!known.empty())
      throw Error{Code::kInput, "the store is encrypted with another key", dir, "check --key-file and CENTO_KEY"};
    if (catalogue_->kv_totals().n_blobs > 0)
      throw Error{Code::kInput, "the store is not encrypted", dir,
                  "`cento cache rekey --new-key-file FILE` encrypts it"};
    if (!catalogue_->db().read_only()) catalogue_->set_setting(kCipherSetting, id_text(cipher));
  }
  cipher_ = std::move(cipher);
  locked_.clear();
}

// Blob by blob: the new file, then the row that says with which key, then the old file goes. Between any two steps the
// row says the truth, and a file that no row means is for gc.
KvStore::Rekeyed KvStore::rekey(std::shared_ptr<const StoreCipher> from, std::shared_ptr<const StoreCipher> to,
                                const Hooks& hooks) {
  require_writable();
  if (const std::string known = catalogue_->setting(kCipherSetting).value_or(""); known != id_text(from)) {
    throw Error{Code::kInput, known.empty() ? "the store is not encrypted" : "the store is encrypted with another key",
                catalogue_->dir(), known.empty() ? "leave out --key-file" : "check --key-file and CENTO_KEY"};
  }
  const std::string next = id_text(to);
  if (const auto earlier = catalogue_->setting(kCipherNextSetting); earlier && *earlier != next)
    throw Error{Code::kInput, "another rekey was stopped in the middle", catalogue_->dir(),
                "give the new key of that one"};
  catalogue_->set_setting(kCipherNextSetting, next);
  locked_ = kRekeyStopped;
  Rekeyed done;
  const auto rows = catalogue_->all_kv();
  uint64_t total = 0, seen = 0;
  for (const KvRow& row : rows) total += row.n_bytes;
  for (KvRow row : rows) {
    if (hooks.stop && hooks.stop()) {
      done.stopped = true;
      return done;
    }
    seen += row.n_bytes;
    if (row.cipher == id_of(to)) continue;  // by a run before
    if (row.cipher != id_of(from))
      throw Error{Code::kInput, "the store is encrypted with another key", catalogue_->dir()};
    cipher_ = from;
    const Hash old_name = name_of(row.key);
    const std::string old_path = disk_.find(old_name);
    const auto read = [&]() -> Result<std::vector<std::byte>> {
      auto file = disk_.open(old_name);
      if (!file) return file.error();
      auto plain = unsealed(std::move(*file), old_path);
      if (!plain) return plain.error();
      return read_checked(**plain, old_path, row.key);
    };
    auto bytes = read();
    if (!bytes) {
      if (bytes.error().code() != Code::kInput) throw bytes.error();
      log_warning("stored KV " + row.key.short_hex() + " is removed: " + bytes.error().message());
      catalogue_->remove_kv(row.key);
      (void)disk_.evict(old_name).ok();
      ++done.damaged;
      continue;
    }
    cipher_ = to;
    const Packed packed = pack(std::move(*bytes));
    row.cipher = packed.cipher;
    row.n_bytes = packed.bytes.size();
    const auto folder = choose_folder(row.n_bytes);
    if (!folder) throw folder.error();
    row.folder = (*folder)->id;
    write_to(**folder, row, packed.bytes).or_throw();
    (void)disk_.evict(old_name).ok();
    ++done.blobs;
    done.bytes += row.n_bytes;
    if (hooks.progress) hooks.progress(seen, total);
  }
  cipher_ = std::move(to);
  {
    Transaction transaction(catalogue_->db());
    catalogue_->set_setting(kCipherSetting, next);
    catalogue_->remove_setting(kCipherNextSetting);
    transaction.commit();
  }
  locked_.clear();
  (void)gc();  // what a run that was killed has left
  return done;
}

}  // namespace cento
