#include "kernels/simd/attention_bf16.h"

#include "base/check.h"
#include "kernels/simd/simd_ops.h"

#if CENTO_SIMD_X86
#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 takes the "undefined" operands of its own intrinsics for a mistake (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c")
#pragma GCC optimize("O3")  // tiles are arrays of registers only once their loops are unrolled
#endif

namespace cento::simd {
namespace {

constexpr uint32_t kLowHalf = 0x0000ffffU, kHighHalf = 0xffff0000U;

__m512bh as_pairs(__m512i v) { return reinterpret_cast<__m512bh>(v); }

// Sums of kRows vectors and kCols registers of columns, held in registers while pairs go by.
template <int kRows, int kCols>
struct Sums {
  __m512 sum[kRows][kCols];

  [[gnu::always_inline]] void load(const float* o, size_t n_cols) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (int c = 0; c < kCols; ++c)
        sum[r][c] = _mm512_loadu_ps(o + static_cast<size_t>(r) * n_cols + static_cast<size_t>(c) * 16);
  }
  [[gnu::always_inline]] void store(float* o, size_t n_cols) const {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (int c = 0; c < kCols; ++c)
        _mm512_storeu_ps(o + static_cast<size_t>(r) * n_cols + static_cast<size_t>(c) * 16, sum[r][c]);
  }
  // One pair; halves outside the mask count as 0, of weights and values both.
  [[gnu::always_inline]] void add(const uint16_t* p, size_t ldp, const uint32_t* values, uint32_t mask) {
    __m512i v[kCols];
#pragma GCC unroll 8
    for (int c = 0; c < kCols; ++c) {
      v[c] = _mm512_loadu_si512(values + static_cast<size_t>(c) * 16);
      if (mask != ~0U) v[c] = _mm512_and_si512(v[c], _mm512_set1_epi32(static_cast<int>(mask)));
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      uint32_t pair;
      std::memcpy(&pair, p + static_cast<size_t>(r) * ldp, sizeof pair);
      const __m512bh weights = as_pairs(_mm512_set1_epi32(static_cast<int>(pair & mask)));
#pragma GCC unroll 8
      for (int c = 0; c < kCols; ++c) sum[r][c] = _mm512_dpbf16_ps(sum[r][c], weights, as_pairs(v[c]));
    }
  }
};

template <int kRows, int kCols>
void add_columns(const uint16_t* p, size_t ldp, const uint32_t* pairs, size_t begin, size_t end, size_t n_cols,
                 float* o) {
  Sums<kRows, kCols> sums;
  sums.load(o, n_cols);
  size_t j = begin;
  if (j % 2 == 1) {
    sums.add(p + j - 1, ldp, pairs + j / 2 * n_cols, kHighHalf);
    ++j;
  }
  for (; j + 2 <= end; j += 2) sums.add(p + j, ldp, pairs + j / 2 * n_cols, ~0U);
  if (j < end) sums.add(p + j, ldp, pairs + j / 2 * n_cols, kLowHalf);
  sums.store(o, n_cols);
}

template <int kRows>
void add_rows(const uint16_t* p, size_t ldp, const uint32_t* pairs, size_t begin, size_t end, size_t n_cols, float* o) {
  size_t c = 0;
  for (; c + 64 <= n_cols; c += 64) add_columns<kRows, 4>(p, ldp, pairs + c, begin, end, n_cols, o + c);
  for (; c < n_cols; c += 16) add_columns<kRows, 1>(p, ldp, pairs + c, begin, end, n_cols, o + c);
}

// Sixteen halves, zero past the mask, rounded; one in the low half of each lane.
__m512i rounded_halves(const fp16* v, __mmask16 lanes) {
  const __m512 x = _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lanes, v));
  return _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
}

// 2^x for x <= 0: 2^(x - floor x) by a polynomial (minimax for the relative error, 8.3e-8, with the constant term held
// at 1; own computation), then times 2^(floor x).
__m512 power_of_two(__m512 x) {
  const __m512 r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF);  // 0 for infinity
  __m512 p = _mm512_set1_ps(0x1.e974fap-10F);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.277856p-7F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.c91ce6p-5F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.ebdb56p-3F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.62e4bap-1F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1));
  return _mm512_scalef_ps(p, x);
}

}  // namespace

bool has_bf16_dot() {
  static const bool has = __builtin_cpu_supports("avx512bf16") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
                          __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  return has;
}

void pair_values(const fp16* v, size_t begin, size_t end, size_t d, size_t n_cols, uint32_t* pairs) {
  for (size_t j = begin / 2 * 2; j < end; j += 2) {
    for (size_t c = 0; c < d; c += 16) {
      const auto lanes = static_cast<__mmask16>((1U << std::min<size_t>(16, d - c)) - 1);
      const __mmask16 low = j >= begin ? lanes : 0, high = j + 1 < end ? lanes : 0;
      const __m512i a = rounded_halves(v + j * d + c, low), b = rounded_halves(v + (j + 1) * d + c, high);
      _mm512_mask_storeu_epi32(pairs + j / 2 * n_cols + c, lanes, _mm512_or_si512(a, _mm512_slli_epi32(b, 16)));
    }
  }
}

void weights(const float* s, float m, float* sums, uint16_t* p) {
  const __m512 max = _mm512_set1_ps(m), zero = _mm512_setzero_ps();
  __m512 sum = _mm512_loadu_ps(sums);
  for (size_t j = 0; j < 64; j += 32) {
    const __m512 low = power_of_two(_mm512_min_ps(_mm512_sub_ps(_mm512_loadu_ps(s + j), max), zero));
    const __m512 high = power_of_two(_mm512_min_ps(_mm512_sub_ps(_mm512_loadu_ps(s + j + 16), max), zero));
    sum = _mm512_add_ps(_mm512_add_ps(sum, low), high);
    _mm512_storeu_si512(p + j, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
  }
  _mm512_storeu_ps(sums, sum);
}

void add_weighted_pairs(size_t n_rows, const uint16_t* p, size_t ldp, const uint32_t* pairs, size_t begin, size_t end,
                        size_t n_cols, float* o) {
  if (begin >= end) return;
  switch (n_rows) {
    case 1:
      return add_rows<1>(p, ldp, pairs, begin, end, n_cols, o);
    case 2:
      return add_rows<2>(p, ldp, pairs, begin, end, n_cols, o);
    case 3:
      return add_rows<3>(p, ldp, pairs, begin, end, n_cols, o);
    case 4:
      return add_rows<4>(p, ldp, pairs, begin, end, n_cols, o);
    case 5:
      return add_rows<5>(p, ldp, pairs, begin, end, n_cols, o);
    default:
      CHECK(n_rows == 6);
      return add_rows<6>(p, ldp, pairs, begin, end, n_cols, o);
  }
}

}  // namespace cento::simd

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif  // CENTO_SIMD_X86
