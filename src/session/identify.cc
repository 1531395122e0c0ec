#include "session/identify.h"

namespace cento {

void identify(LoadedModel& model, Catalogue* catalogue) {
  if (catalogue == nullptr) return;
  const FileStamp& stamp = model.file().file().stamp();
  if (const auto known = catalogue->remembered_fingerprint(stamp)) {
    model.set_fingerprint(*known);
    return;
  }
  const Hash& fingerprint = model.fingerprint();
  if (catalogue->db().read_only()) return;
  const KvShape shape{model.config().n_layers, model.config().n_kv_heads, model.config().head_dim, model.kv_type()};
  catalogue->put_model(fingerprint, model.name(), model.config().architecture,
                       2 * shape.n_layers * shape.side_bytes(1));
  catalogue->remember_fingerprint(stamp, fingerprint);  // last: a run that knows it asks no further
}

}  // namespace cento
