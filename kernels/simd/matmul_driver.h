// What the matmuls of the CPU targets share: quantising x once, cutting the work into tasks, scratch space. A target
// brings the inner loops.
#pragma once

#include "compute/ops.h"
#include "kernels/simd/matmul_layout.h"

namespace cento::simd {

// Rows of x are taken in tiles of one of these sizes; any tile gives a row the same result.
constexpr size_t kTileRows[] = {12, 8, 4, 2, 1};
constexpr size_t kNTileRows = 5;

// Quantised rows of a tile of R rows (quant_codes.h says how). Per 32 values of k:
//   a  q [R][32] int8, sx [R] float, minus_sum [R] int32, sx_sum [R] float
//   b  only for types with sub-blocks of 16: minus_sum [2][R] int32, sx_sum [2][R] float, one of each half
//   masks  uint16: bit r is set where row r has a second term
//   second  a record of kSecondBytes for each second term, by block, then by row: as a tile of one row, a then b
// minus_sum = -sum q; sx_sum = sx * sum q.
constexpr size_t kTileBytesA = 44, kTileBytesB = 16;  // per row and 32 values
constexpr size_t kSecondBytes = 64;                   // 60 and 4 of padding: a cache line
struct QuantTile {
  std::byte* a;
  std::byte* b;  // null if not wanted
  uint16_t* masks;
  std::byte* second;
};

// y (+)= a tile of quantised rows times one panel.
struct PanelJob {
  const std::byte* panel;
  size_t n_records;
  const std::byte* a;
  const std::byte* b;  // null unless the type needs it
  const uint16_t* masks;
  const std::byte* second;
  float* y;  // [R, n_lanes], stride ldy
  size_t ldy;
  const float* bias;  // [n_lanes] or null
  size_t n_lanes;     // 1..16, the panel's rows that exist
  bool add;
};

// y (+)= a few rows of float x times some weight rows, all of K. Per output: lanes of partial sums along k, added in a
// fixed order at the end.
struct DotJob {
  const float* x;  // [n_rows, K], stride ldx
  size_t n_rows, ldx;
  const std::byte* w;  // [n_cols, K], stride row_bytes
  size_t n_cols, row_bytes;
  size_t k;
  float* y;  // [n_rows, n_cols], stride ldy
  size_t ldy;
  const float* bias;  // [n_cols] or null
  bool add;
};

struct MatmulTarget {
  void (*quantize)(const float* x, size_t n_rows, size_t ldx, size_t k, const QuantTile&);
  using Panel = void (*)(const PanelJob&);
  const Panel* (*panels)(DType);      // [kNTileRows], by index into kTileRows
  void (*dot)(DType, const DotJob&);  // F32, F16, BF16
};

void run_matmul(const MatmulTarget&, const ExecContext&, const MatmulArgs&);

}  // namespace cento::simd
