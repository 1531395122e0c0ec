// Computes the KV of a chunk behind a context, and builds the segments of a plan from what is resident or stored.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "kv/kv_store.h"

namespace cento {

struct ComputedKv {
  KvBlock block;
  size_t rows_computed = 0;  // context rows that were not resident, and the chunk's
};

// KV of `ids` behind `context` (fixed prefix first). Leading context rows that are in the live KV already are not
// computed again. nullopt: `stop` said so. Leaves the live KV holding context and chunk.
std::optional<ComputedKv> compute_kv(Engine& engine, std::span<const int32_t> context, std::span<const int32_t> ids,
                                     const std::function<bool()>& stop);

// The stored fixed prefix as a segment: resident, or exact from the store, or fresh. A damaged one is set aside.
std::vector<Segment> prefix_segments(Engine& engine, KvStore* store, const std::vector<int32_t>& prefix);

// Identity of a KV of this model.
KvIdentity identity_of(Engine& engine, KvKind kind, std::span<const int32_t> prefix, std::span<const int32_t> context,
                       std::span<const int32_t> ids);

}  // namespace cento
