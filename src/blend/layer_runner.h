// What blending needs of an engine: layers run on chosen token rows over a live KV. The engine implements it; blend is
// tested with a two-layer fake and no model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kv/kv_block.h"

namespace cento {

// One pass: begin, then for each layer in order project [deviation, keep] finish, then logits; in the last layer
// finish_last may take the place of finish. Rows are always in
// ascending position; a row's slot in the live KV is its position. Throws Error; a pass that threw is begun anew.
class LayerRunner {
 public:
  virtual ~LayerRunner() = default;
  virtual KvShape shape() const = 0;
  virtual uint64_t capacity() const = 0;  // slots of the live KV

  // Starts a pass over T rows: embeds ids [T] at positions pos [T] (ascending, distinct, below capacity()).
  virtual void begin(std::span<const int32_t> ids, std::span<const int32_t> pos) = 0;
  // Computes q, k, v of the current rows in this layer; the live KV does not change.
  virtual void project(uint32_t layer) = 0;
  // Squared distance of the current rows' fresh K and V to what the live KV holds at their positions; both [rows].
  virtual void deviation(uint32_t layer, std::span<float> k_dev, std::span<float> v_dev) = 0;
  // Goes on with a part of the current rows only: ascending indices into them. Between project and finish.
  virtual void keep(std::span<const int32_t> rows) = 0;
  // Puts the current rows' K and V into the live KV and completes the layer. Row r attends to exactly the slots <=
  // pos[r] (within its window), so all of them must hold KV by now. If key_mass is not empty: key_mass[j] = max over
  // the rows from `mass_from` on, and all heads, of the attention probability of slot j, for j < key_mass.size().
  virtual void finish(uint32_t layer, std::span<float> key_mass, size_t mass_from) = 0;
  // The last layer, whose output is wanted of the rows from `first` on only: puts the K and V of all current rows into
  // the live KV, then goes on with [first, rows), from which logits count. first <= rows.
  virtual void finish_last(uint32_t layer, size_t first) = 0;
  // K (not rotated) and V of rows [first, first + n) of the current rows as project computed them; before finish.
  virtual void fetch(uint32_t layer, size_t first, size_t n, std::span<std::byte> k, std::span<std::byte> v) = 0;
  // Logits [n, V] of the current rows [first, first + n), after the last layer's finish.
  virtual std::vector<float> logits(size_t first, size_t n) = 0;

  // Puts stored rows into the live KV of one layer: k, v [T, Hkv, D] not rotated, pos [T] distinct. May run on a
  // loader's thread beside project and finish of other layers; one place at a time.
  virtual void place(uint32_t layer, std::span<const std::byte> k, std::span<const std::byte> v,
                     std::span<const int32_t> pos) = 0;
};

}  // namespace cento
