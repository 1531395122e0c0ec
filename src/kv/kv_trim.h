// Makes stored KV smaller, to a number of bytes.
#pragma once

#include <cstdint>

#include "kv/kv_store.h"

namespace cento {

struct Trimmed {
  uint64_t removed = 0, freed = 0;  // pieces; bytes
  uint64_t bytes = 0;               // stored now
};

// Removes pieces until no more than `max_bytes` are stored: longest unused first; a fixed prefix, which is small and
// serves every prompt of its model, last. Throws Error: store locked or read-only; what was removed before stays so.
Trimmed trim_kv(KvStore& store, uint64_t max_bytes);

}  // namespace cento
