// Cosines and sines of the rotary position embedding, for RopeTable of compute/ops.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace cento {

// Rows for the positions [from, to): [to - from, dims/2, 2] with (cos, sin)(angle), angle(p, i) =
// p / linear_scale * base^(-2i/dims) / factors[i] (RoFormer, arXiv:2104.09864, 3.4.2; the divisors are those of GGUF's
// rope_freqs.weight). Angles are computed in double: float pos * freq is off by about 2e-3 rad at position 32k.
//   dims     rotated dims of a head, even
//   factors  [dims/2], or empty for none
// The caller has validated: base > 0, linear_scale != 0, factors != 0, all finite.
std::vector<float> make_rope_table(uint32_t dims, double base, double linear_scale, std::span<const float> factors,
                                   uint64_t from, uint64_t to);

}  // namespace cento
