// The integers inside quantised blocks. The int8 kernels multiply these; dequantize (compute/quant.h) gives the same
// weights as floats.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/tensor_view.h"

namespace cento {

// weight = d * scale * (code - offset) + min, where min is m for the types that store it as a half, and -d_min *
// min_code for those that store it as an integer.
struct QuantFormat {
  int bits;    // of a code
  int offset;  // subtracted from a code
  int sub;     // values that share a scale: 32 or 16
  bool has_min;
  bool super_block;  // 256 values share d (and d_min); else 32 share d (and m) and scale is 1
  constexpr int block() const { return super_block ? 256 : 32; }
};

//                              bits off sub  min    super
inline constexpr QuantFormat kQ4_0{4, 8, 32, false, false};
inline constexpr QuantFormat kQ4_1{4, 0, 32, true, false};
inline constexpr QuantFormat kQ5_0{5, 16, 32, false, false};
inline constexpr QuantFormat kQ5_1{5, 0, 32, true, false};
inline constexpr QuantFormat kQ8_0{8, 128, 32, false, false};
inline constexpr QuantFormat kQ2_K{2, 0, 16, true, true};
inline constexpr QuantFormat kQ3_K{3, 4, 16, false, true};
inline constexpr QuantFormat kQ4_K{4, 0, 32, true, true};
inline constexpr QuantFormat kQ5_K{5, 0, 32, true, true};
inline constexpr QuantFormat kQ6_K{6, 32, 16, false, true};

// Null for F32, F16, BF16.
const QuantFormat* quant_format(DType type);

// One block, taken apart.
struct QuantBlock {
  fp16 d, m;             // m: min, or d_min of super-blocks; 0 without
  int8_t scale[16];      // [block / sub]; super-blocks only
  uint8_t min_code[16];  // [block / sub]; super-blocks with min only
  uint8_t code[256];     // [block], in value order
};
void read_quant_block(DType type, const std::byte* bytes, QuantBlock& out);

// The int8 product of Precision::kFast, the same on every CPU target, bit for bit. For row t and each 32 values of k,
// in order:
//   amax = max |x|; sx = amax / 127; xq = x * (127 / amax) rounded to nearest even. All float32.
//   amax < kTinyBlock (x is 0 for every purpose and 127 / amax could overflow): sx = 0, xq = 0.
//   An x that is not finite: sx = NaN, xq = 0, so that the row's results show it.
// In a block where one value outweighs all others (outlier channels, which every language model has) the others get few
// of the 255 steps. Where it holds more than 5/6 of the energy, 6 * 127^2 > 5 * sum xq^2, what the rounding left is
// quantised in the same way once more: the second term, exact to 15 bits.
//   r = fma(-sx, xq, x); sr and rq of r as sx and xq of x. No second term if max |r| < kTinyBlock.
// For output n, sub-block by sub-block (one or two in 32 values), in order:
//   i = sum xq * (code - offset)          exact: |i| < 2^21
//   acc = fma(i, (d * scale) * sx, acc)   d * scale is exact: 11 and at most 8 significant bits
// then, for the types with a min, sub-block by sub-block again:
//   acc = fma(min, sx * sum xq, acc)
// then all of this again with sr and rq where there is a second term.
// y = acc + bias, or y + (acc + bias) with `add`.
constexpr float kTinyBlock = 0x1p-100f;
constexpr int kOutlierEnergy = 6 * 127 * 127 / 5;  // a second term where sum xq^2 is at most this (and not 0)

}  // namespace cento
