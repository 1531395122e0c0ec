// Panels: quantised weights as the SIMD int8 kernels read them. All CPU targets share the layout.
//
// A panel is 16 output rows: a record per block of the source type (256 values, or 32), k ascending, read front to back
// as one stream (two streams a panel, scales and codes, made decoding of short rows half as fast: the processor's
// prefetcher started anew in each panel):
//   d [16] fp16, then, if the type has mins, m [16] fp16
//   once per 32 values:
//     256-value types only: scale [sub-blocks in 32][16] int8, then, if there are mins, min_code [sub-blocks in 32][16]
//     uint8 codes, bits * 64 bytes. Let word j (0..7) of row r be its codes 4j .. 4j+3, one a byte. A "vector" is one
//     word of each of the 16 rows: 64 bytes, which one vpdpbusd multiplies with four activations.
//       8 bits: vectors 0..7
//       4 bits: four vectors, i = word 2i | word 2i+1 << 4
//       2 bits: two vectors,  i = word 4i | word 4i+1 << 2 | word 4i+2 << 4 | word 4i+3 << 6
//       6 bits: the 4 low bits as for 4 bits, then the 2 high bits as for 2 bits
//       5 and 3 bits: the 4 or 2 low bits as above, then one vector whose bit j is the high bit of word j
// Nothing is rounded: halves stay halves and integers stay integers, so panels take what the file takes, but for scales
// that had 6 or 4 bits and have 8 now (Q4_K 2.8 %, Q2_K 19 % larger). Rows past N are zeros.
#pragma once

#include "compute/ops.h"
#include "kernels/ref/quant_codes.h"

namespace cento::simd {

constexpr size_t kPanelRows = 16;

enum Layout : int32_t {
  kFloatInPlace,    // F32, F16, BF16: the file's own rows
  kDequantInPlace,  // quantised, multiplied as floats: the file's own rows, expanded tile by tile
  kPanels,
};

constexpr int sub_blocks(const QuantFormat& f) { return 32 / f.sub; }  // in 32 values
constexpr size_t record_values(const QuantFormat& f) { return f.super_block ? 256 : 32; }
constexpr size_t head_bytes(const QuantFormat& f) { return f.has_min ? 64 : 32; }  // of a record: d, m
constexpr size_t scale_bytes(const QuantFormat& f) {                               // of 32 values
  return f.super_block ? size_t{16} * static_cast<size_t>(sub_blocks(f)) * (f.has_min ? 2 : 1) : 0;
}
constexpr size_t code_bytes(const QuantFormat& f) { return static_cast<size_t>(f.bits) * 64; }  // of 32 values
constexpr size_t record_bytes(const QuantFormat& f) {
  return head_bytes(f) + record_values(f) / 32 * (scale_bytes(f) + code_bytes(f));
}
constexpr size_t panel_bytes(const QuantFormat& f, size_t k) { return k / record_values(f) * record_bytes(f); }

// The pack of all SIMD CPU targets: panels for quantised types in kFast, else the file's rows in place.
PackedMatrix pack_panels(const ExecContext&, const PackArgs&);

}  // namespace cento::simd
