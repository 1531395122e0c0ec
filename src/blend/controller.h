// Chooses between blending and computing everything, from what computing and loading cost here (DESIGN 3). Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "blend/policy.h"

namespace cento {

// What a model's computing costs on this machine, and loading from one tier; see SpeedRecord for where it comes from.
struct CostModel {
  double row_ms = 0;            // one row through all layers, attention left out
  double row_key_ms = 0;        // attention of one row to one key, in all layers
  double load_ms_per_byte = 0;  // of stored KV, counted unpacked: reading, checking, unpacking, placing

  // n_rows rows that see n_keys keys on average.
  double compute_ms(double n_rows, double n_keys) const { return n_rows * (row_ms + n_keys * row_key_ms); }
};

struct ReuseFacts {
  size_t n_exact = 0;    // rows that need neither computing nor ranking: the fixed prefix
  size_t n_chunk = 0;    // rows of chunks with stored KV
  size_t n_fresh = 0;    // rows without any: the question, missing chunks
  uint64_t n_bytes = 0;  // of the stored KV, unpacked
  uint32_t n_layers = 1;
  size_t n_tokens() const { return n_exact + n_chunk + n_fresh; }
};

// Time to the first logits, in ms.
double estimate_full_ms(const CostModel& cost, const ReuseFacts& facts);
// `n_rows` chunk rows recomputed. With a policy that chooses at a check layer, loading hides behind recomputation; with
// one that asks the question first it hides behind the probe, since the choice needs every layer.
double estimate_blend_ms(const CostModel& cost, const ReuseFacts& facts, PolicyKind policy, size_t n_rows);

struct BlendChoice {
  bool blend = false;
  size_t n_rows = 0;                 // to recompute
  double blend_ms = 0, full_ms = 0;  // estimates
};

// At least `rows_min` rows are recomputed: fewer would cost quality. More are where they are free because loading is
// the slower part: r* = max(r_min, T_load / T_prefill). Blends only if that is expected to be faster than computing
// all.
BlendChoice choose_blend(const CostModel& cost, const ReuseFacts& facts, PolicyKind policy, size_t rows_min);

}  // namespace cento
