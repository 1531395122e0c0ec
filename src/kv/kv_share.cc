// What goes into the remote tier; what was stored before there was one goes there too.
#include <new>

#include "base/log.h"
#include "kv/blob_identity.h"
#include "kv/bytes_file.h"
#include "kv/kv_store.h"
#include "kv/kv_store_impl.h"

namespace cento {

bool put_and_list(RemoteTier& remote, const BlobView& blob, const Hash& group, const RemoteTier::Listed& listed) {
  Status s = remote.put(listed.name, blob);
  if (s.ok()) s = remote.list(group, listed);
  if (!s.ok()) log_debug("stored KV is not shared: " + s.error().message());
  return s.ok();
}

bool KvStore::offer(const Hash& key) {
  if (!remote_ || !locked_.empty()) return false;
  try {
    const Hash name = name_of(key);
    if (remote_->contains(name)) return false;
    auto plain = read_blob(key);  // checked in full: damage is not handed on
    if (!plain) return false;
    const auto header = read_blob_header(BytesFile(*plain), "");
    if (!header) return false;
    const Packed packed = pack(std::move(*plain));
    return put_and_list(*remote_, {packed.bytes, packed.parts}, name_of(group_of(*header)), {name, header->kind});
  } catch (const Error& error) {
    log_debug("stored KV is not shared: " + error.message());
  } catch (const std::bad_alloc&) {
    log_debug("stored KV is not shared: not enough memory");
  }
  return false;
}

}  // namespace cento
