// Access to K and V elements of either live type, and the rotation of a pair, for the reference kernels.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/tensor_view.h"
#include "compute/ops.h"

namespace cento::ref {

constexpr float kMaxHalf = 65504.0F;  // largest finite half

inline float load(const void* data, KvType type, size_t idx) {
  if (type == KvType::kF32) return static_cast<const float*>(data)[idx];
  return to_float(static_cast<const fp16*>(data)[idx]);
}

inline void store(void* data, KvType type, size_t idx, float value) {
  if (type == KvType::kF32)
    static_cast<float*>(data)[idx] = value;
  else
    static_cast<fp16*>(data)[idx] = to_fp16(std::clamp(value, -kMaxHalf, kMaxHalf));
}

// What store and load of `value` give.
inline float rounded(KvType type, float value) {
  return type == KvType::kF32 ? value : to_float(to_fp16(std::clamp(value, -kMaxHalf, kMaxHalf)));
}

// y = x [d] rotated by the table's row for `pos`; y may be x. Products and sums are rounded one by one, so that every
// target can give the same bits.
inline void rotate(const float* x, float* y, size_t d, const RopeTable& rope, int32_t pos) {
  const size_t half = rope.dims / 2;
  const float* row = rope.table + static_cast<size_t>(pos) * rope.dims;
  for (size_t i = 0; i < half; ++i) {
    const size_t a = rope.interleaved ? 2 * i : i;
    const size_t b = rope.interleaved ? 2 * i + 1 : i + half;
    const float cos = row[2 * i], sin = row[2 * i + 1];
    const float xa = x[a], xb = x[b];
    y[a] = xa * cos - xb * sin;
    y[b] = xb * cos + xa * sin;
  }
  for (size_t i = rope.dims; i < d; ++i) y[i] = x[i];
}

}  // namespace cento::ref
