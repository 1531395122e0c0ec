#include "session/identify.h"

#include "base/log.h"
#include "model/fingerprint.h"

namespace cento {
namespace {

// A file that was changed this shortly before it was hashed may be changed again within one tick of the file system's
// clock, and look unchanged: it is not remembered.
constexpr int64_t kTickNs = 2'000'000'000;

struct Known {
  Hash fingerprint;
  bool noted = false;  // this very file, and not a copy
};

// The content hash of this very file, or of a copy of it, where there is no doubt:
//   nothing about the file has changed                      its hash
//   same size and time, but another disk or inode           it was copied, moved or mounted anew: a sample decides
//   same disk, inode, size and time, but touched since      somebody may have set the time back: hashed again
std::optional<Known> known_model(const MappedFile& file, Catalogue& catalogue) {
  const FileStamp& stamp = file.stamp();
  const auto models = catalogue.remembered_models(stamp.size, stamp.mtime_ns);
  for (const auto& m : models) {
    if (m.stamp != stamp) continue;
    if (m.ctime_ns != file.ctime_ns()) return std::nullopt;
    return Known{m.fingerprint, true};
  }
  if (models.empty()) return std::nullopt;
  const Hash sample = model_sample(file);
  std::optional<Hash> found;
  for (const auto& m : models) {
    if (m.sample != sample) continue;
    if (found && *found != m.fingerprint) return std::nullopt;  // two that the sample does not tell apart
    found = m.fingerprint;
  }
  if (!found) return std::nullopt;
  return Known{*found, false};
}

void note_now(LoadedModel& model, Catalogue& catalogue, bool settled) {
  const MappedFile& file = model.file().file();
  const KvShape shape{model.config().n_layers, model.config().n_kv_heads, model.config().head_dim, model.kv_type()};
  catalogue.put_model(model.fingerprint(), model.name(), model.config().architecture,
                      2 * shape.n_layers * shape.side_bytes(1));
  // Last: a run that knows it asks no further.
  if (settled) catalogue.remember_model({file.stamp(), file.ctime_ns(), model.fingerprint(), model_sample(file)});
}

}  // namespace

void identify(LoadedModel& model, Catalogue* catalogue, NoteModel note) {
  if (catalogue == nullptr) return;
  const MappedFile& file = model.file().file();
  const auto known = known_model(file, *catalogue);
  if (known) model.set_fingerprint(known->fingerprint);
  (void)model.fingerprint();  // hashed now, if it was not known
  if (catalogue->db().read_only() || (known && known->noted)) return;
  const int64_t now_ns = catalogue->clock().unix_ms() * 1'000'000;
  const bool settled = file.ctime_ns() < now_ns - kTickNs;
  const auto write = [&] { note_now(model, *catalogue, settled); };
  if (note == NoteModel::kNow) {
    write();
  } else if (!catalogue->without_waiting(write)) {
    log_debug("the model is not noted: the store is busy");
  }
}

}  // namespace cento
