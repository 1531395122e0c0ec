// Weighted sums of V by dot products of bfloat16 pairs (AVX-512 BF16: twice the multiply-adds of float32). Weights and
// V are rounded to 8 bits, at most 2^-8 off each; sums are float32. Scores stay float32: rounding K would move them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/tensor_view.h"

namespace cento::simd {

// The processor and the operating system have it. The functions below may be called only then.
bool has_bf16_dot();

// Pair j / 2 of column c holds v[j, c] in its low half and v[j + 1, c], j even, in its high half. Rows are n_cols wide.

// pairs[j / 2, c] = v[j, c], v[j + 1, c] rounded, for the rows [begin, end) of v [*, d]; a row of a pair that is not in
// [begin, end) counts as 0. Columns from d to n_cols keep what they hold.
void pair_values(const fp16* v, size_t begin, size_t end, size_t d, size_t n_cols, uint32_t* pairs);

// p[j] = 2^(s[j] - m) rounded, j < 64, and their sums before that rounding: sums[i] += those of j = i, i + 16, ... The
// power is within 3 units in the last place of float32, exactly 1 at 0; s[j] > m counts as m, NaN too. p may be s.
void weights(const float* s, float m, float* sums, uint16_t* p);

// o[r, c] += sum over j in [begin, end), ascending pair by pair, of p[r, j] * v[j, c], for n_rows (1..6) vectors and
// all n_cols (a multiple of 16) columns. The other row of a first or last pair that is cut in two is not multiplied in.
// p rows are ldp apart, o rows n_cols. A vector's sum does not depend on the others, nor on [begin, end) being cut at
// even places into several calls.
void add_weighted_pairs(size_t n_rows, const uint16_t* p, size_t ldp, const uint32_t* pairs, size_t begin, size_t end,
                        size_t n_cols, float* o);

}  // namespace cento::simd
