#include "kv/kv_trim.h"

#include <algorithm>
#include <vector>

namespace cento {

Trimmed trim_kv(KvStore& store, uint64_t max_bytes) {
  std::vector<KvRow> rows = store.catalogue().all_kv();
  std::sort(rows.begin(), rows.end(), [](const KvRow& a, const KvRow& b) {
    const bool a_prefix = a.kind == KvKind::kPrefix, b_prefix = b.kind == KvKind::kPrefix;
    if (a_prefix != b_prefix) return b_prefix;
    if (a.last_used_ms != b.last_used_ms) return a.last_used_ms < b.last_used_ms;
    return a.key < b.key;
  });
  Trimmed trimmed;
  trimmed.bytes = store.catalogue().kv_bytes_total();
  for (const KvRow& row : rows) {
    if (trimmed.bytes <= max_bytes) break;
    store.remove(row.key).or_throw();
    ++trimmed.removed;
    trimmed.freed += row.n_bytes;
    trimmed.bytes -= std::min(trimmed.bytes, row.n_bytes);
  }
  return trimmed;
}

}  // namespace cento
