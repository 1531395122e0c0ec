// Inner loops of matmul for AVX-512 with VNNI: 16 lanes are the 16 outputs of a panel.
#include "kernels/simd/matmul_driver.h"
#include "kernels/simd/simd_ops.h"

#if CENTO_SIMD_X86
#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 takes the "undefined" operands of its own intrinsics for a mistake (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")
#pragma GCC optimize("O3")  // tiles are arrays of registers only once their loops are unrolled
#endif

namespace cento::N_AVX3 {
namespace {

#include "kernels/simd/matmul_target-inl.h"

__m512 load_halves(const std::byte* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
__m128i load_16_bytes(const std::byte* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
__m512 load_int8(const std::byte* p) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_16_bytes(p))); }
__m512 load_uint8(const std::byte* p) { return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(load_16_bytes(p))); }
__m512i load_vector(const std::byte* p, int i) { return _mm512_loadu_si512(p + i * 64); }
__m512i broadcast_int(const std::byte* p) {
  int32_t v;
  std::memcpy(&v, p, sizeof v);
  return _mm512_set1_epi32(v);
}
__m512 broadcast_float(const std::byte* p) {
  float v;
  std::memcpy(&v, p, sizeof v);
  return _mm512_set1_ps(v);
}

// The eight vectors of 32 values, one code a byte (matmul_layout.h).
template <int kBits>
[[gnu::always_inline]] inline void unpack(const std::byte* codes, __m512i (&w)[8]) {
  if constexpr (kBits == 8) {
    unrolled<8>([&](auto j) CENTO_INLINE { w[j] = load_vector(codes, j); });
  } else {
    constexpr int kLow = kBits >= 4 ? 4 : 2, kHigh = kBits - kLow;  // bits of a code in the two parts
    const __m512i low_mask = _mm512_set1_epi8(kLow == 4 ? 15 : 3);
    unrolled<8>([&](auto j) CENTO_INLINE {
      constexpr int kPerVector = 8 / kLow, kFrom = j % kPerVector * kLow;
      const __m512i v = load_vector(codes, j / kPerVector);
      w[j] = _mm512_and_si512(kFrom == 0 ? v : _mm512_srli_epi16(v, kFrom), low_mask);
    });
    if constexpr (kHigh > 0) {
      const __m512i high_mask = _mm512_set1_epi8(static_cast<char>(((1 << kHigh) - 1) << kLow));
      unrolled<8>([&](auto j) CENTO_INLINE {
        constexpr int kPerVector = 8 / kHigh, kFrom = j % kPerVector * kHigh;  // bit of the field; it goes to bit kLow
        const __m512i v = load_vector(codes, kLow + j / kPerVector);
        __m512i shifted = v;
        if constexpr (kFrom < kLow) shifted = _mm512_slli_epi16(v, kLow - kFrom);
        if constexpr (kFrom > kLow) shifted = _mm512_srli_epi16(v, kFrom - kLow);
        w[j] = _mm512_ternarylogic_epi32(w[j], shifted, high_mask, 0xf8);  // w | (shifted & mask)
      });
    }
  }
}

template <int kRows>
[[gnu::always_inline]] inline void store(const PanelJob& job, const __m512 (&acc)[kRows]) {
  const __mmask16 lanes = static_cast<__mmask16>((1u << job.n_lanes) - 1);
  const __m512 bias = job.bias == nullptr ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(lanes, job.bias);
  unrolled<kRows>([&](auto r) CENTO_INLINE {
    float* y = job.y + static_cast<size_t>(r) * job.ldy;
    __m512 v = job.bias == nullptr ? acc[r] : _mm512_add_ps(acc[r], bias);
    if (job.add) v = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, y), v);
    _mm512_mask_storeu_ps(y, lanes, v);
  });
}

// Scales and mins of 32 values, a vector a sub-block.
template <QuantFormat kFormat>
struct Scales {
  static constexpr int kSubs = simd::sub_blocks(kFormat);
  __m512 scale[kSubs], min[kSubs];
  [[gnu::always_inline]] void load(const std::byte* p, __m512 d, __m512 m) {
    unrolled<kSubs>([&](auto s) CENTO_INLINE {
      scale[s] = d;
      min[s] = m;
      if constexpr (kFormat.super_block) scale[s] = _mm512_mul_ps(d, load_int8(p + s * 16));
      if constexpr (kFormat.super_block && kFormat.has_min) {
        min[s] = _mm512_fnmadd_ps(m, load_uint8(p + (kSubs + s) * 16), _mm512_setzero_ps());  // -m * code, exact
      }
    });
  }
};

// Rows kRow .. kRow + kGroup - 1 of a tile of kRows and 32 values: what quant_codes.h says, in its order. The rows'
// dot products are interleaved word by word: each is a chain of eight, and the scheduler cannot look past many.
template <QuantFormat kFormat, int kRows, int kRow, int kGroup>
[[gnu::always_inline]] inline void add_32(const std::byte* a, const std::byte* b, const __m512i (&w)[8],
                                          const Scales<kFormat>& scales, __m512* acc) {
  constexpr int kSubs = simd::sub_blocks(kFormat), kWords = 8 / kSubs;  // sub-blocks in 32 values, words in one
  unrolled<kSubs>([&](auto s) CENTO_INLINE {
    __m512i dot[kGroup];
    unrolled<kGroup>([&](auto r) CENTO_INLINE {
      dot[r] = _mm512_setzero_si512();
      if constexpr (kFormat.offset != 0) {
        constexpr unsigned kShift = std::countr_zero(static_cast<unsigned>(kFormat.offset));
        const std::byte* minus_sum = kSubs == 1 ? a + kRows * 36 + (kRow + r) * 4 : b + (s * kRows + kRow + r) * 4;
        dot[r] = _mm512_slli_epi32(broadcast_int(minus_sum), kShift);
      }
    });
    unrolled<kWords>([&](auto j) CENTO_INLINE {
      constexpr int kWord = s * kWords + j;
      unrolled<kGroup>([&](auto r) CENTO_INLINE {
        dot[r] = _mm512_dpbusd_epi32(dot[r], w[kWord], broadcast_int(a + (kRow + r) * 32 + kWord * 4));
      });
    });
    unrolled<kGroup>([&](auto r) CENTO_INLINE {
      const __m512 sx = broadcast_float(a + kRows * 32 + (kRow + r) * 4);
      acc[kRow + r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r]), _mm512_mul_ps(scales.scale[s], sx), acc[kRow + r]);
    });
  });
  if constexpr (kFormat.has_min) {
    unrolled<kSubs>([&](auto s) CENTO_INLINE {
      unrolled<kGroup>([&](auto r) CENTO_INLINE {
        const std::byte* sx_sum = kSubs == 1 ? a + kRows * 40 + (kRow + r) * 4 : b + ((2 + s) * kRows + kRow + r) * 4;
        acc[kRow + r] = _mm512_fmadd_ps(scales.min[s], broadcast_float(sx_sum), acc[kRow + r]);
      });
    });
  }
}

template <QuantFormat kFormat, int kRows>
void panel(const PanelJob& job) {
  const std::byte* p = job.panel;
  const std::byte* a = job.a;
  const std::byte* b = job.b;
  const uint16_t* masks = job.masks;
  const std::byte* second = job.second;
  constexpr int kGroup = kRows % 6 == 0 ? 6 : std::min(kRows, 4);
  static_assert(kRows % kGroup == 0);
  __m512 acc[kRows];
  unrolled<kRows>([&](auto r) CENTO_INLINE { acc[r] = _mm512_setzero_ps(); });
  for (size_t n = job.n_records; n > 0; --n) {
    const __m512 d = load_halves(p);
    const __m512 m = kFormat.has_min ? load_halves(p + 32) : _mm512_setzero_ps();
    p += simd::head_bytes(kFormat);
    for (size_t block = 0; block < simd::record_values(kFormat) / 32; ++block) {
      Scales<kFormat> scales;
      scales.load(p, d, m);
      p += simd::scale_bytes(kFormat);
      __m512i w[8];
      unpack<kFormat.bits>(p, w);
      p += simd::code_bytes(kFormat);
      unrolled<kRows / kGroup>([&](auto g)
                                   CENTO_INLINE { add_32<kFormat, kRows, g * kGroup, kGroup>(a, b, w, scales, acc); });
      if (const unsigned mask = *masks++; mask != 0) [[unlikely]] {
        unrolled<kRows>([&](auto r) CENTO_INLINE {
          if ((mask >> r & 1u) == 0) return;
          add_32<kFormat, 1, 0, 1>(second, second + simd::kTileBytesA, w, scales, &acc[r]);
          second += simd::kSecondBytes;
        });
      }
      a += simd::kTileBytesA * kRows;
      if constexpr (simd::sub_blocks(kFormat) == 2) b += simd::kTileBytesB * kRows;  // else null
    }
  }
  store<kRows>(job, acc);
}

// Returns the block's energy, sum q^2, and leaves q (as floats) and sx behind.
struct Rounded {
  __m512 q0, q1;
  float sx;
  int32_t energy;
};

Rounded quantize_block(__m512 x0, __m512 x1, const RowPlace& to) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);  // as integers, magnitudes order like floats, NaN on top
  const __m512i m0 = _mm512_and_si512(_mm512_castps_si512(x0), magnitude);
  const __m512i m1 = _mm512_and_si512(_mm512_castps_si512(x1), magnitude);
  const uint32_t top = _mm512_reduce_max_epu32(_mm512_max_epu32(m0, m1));
  const bool finite = top < 0x7f800000u;
  const float amax = std::bit_cast<float>(top);
  const bool zero = !finite || amax < kTinyBlock;
  const float sx = !finite ? std::numeric_limits<float>::quiet_NaN() : zero ? 0.0f : amax / 127.0f;
  const __mmask16 keep = zero ? 0 : 0xffff;
  const __m512 inverse = _mm512_set1_ps(zero ? 0.0f : 127.0f / amax);
  const __m512i q0 = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(x0, inverse));
  const __m512i q1 = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(x1, inverse));
  const __m256i q =
      _mm256_inserti128_si256(_mm256_castsi128_si256(_mm512_cvtepi32_epi8(q0)), _mm512_cvtepi32_epi8(q1), 1);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to.a + to.row * 32), q);
  // Sums of four neighbours each: q times 1 and |q| times |q|. Added up: [sum, energy, ..] of either half.
  const __m256i size = _mm256_abs_epi8(q), none = _mm256_setzero_si256();
  const __m256i fours =
      _mm256_hadd_epi32(_mm256_dpbusd_epi32(none, _mm256_set1_epi8(1), q), _mm256_dpbusd_epi32(none, size, size));
  const __m256i sums = _mm256_hadd_epi32(fours, fours);
  const __m128i low = _mm256_castsi256_si128(sums), high = _mm256_extracti128_si256(sums, 1);
  const int32_t s0 = _mm_cvtsi128_si32(low), s1 = _mm_cvtsi128_si32(high);
  const int32_t energy = _mm_extract_epi32(low, 1) + _mm_extract_epi32(high, 1);
  put_sums(to, sx, s0, s1);
  return {_mm512_cvtepi32_ps(q0), _mm512_cvtepi32_ps(q1), sx, energy};
}

void quantize(const float* x, size_t n_rows, size_t ldx, size_t k, const simd::QuantTile& tile) {
  std::byte* second = tile.second;
  for (size_t i = 0; i < k / 32; ++i) {
    std::byte* a = tile.a + i * n_rows * simd::kTileBytesA;
    std::byte* b = tile.b == nullptr ? nullptr : tile.b + i * n_rows * simd::kTileBytesB;
    unsigned mask = 0;
    for (size_t r = 0; r < n_rows; ++r) {
      const float* from = x + r * ldx + i * 32;
      const __m512 x0 = _mm512_loadu_ps(from), x1 = _mm512_loadu_ps(from + 16);
      const Rounded first = quantize_block(x0, x1, {a, b, r, n_rows});
      if (first.energy > kOutlierEnergy || first.energy == 0) continue;
      const __m512 minus_sx = _mm512_set1_ps(-first.sx);
      const Rounded rest =
          quantize_block(_mm512_fmadd_ps(minus_sx, first.q0, x0), _mm512_fmadd_ps(minus_sx, first.q1, x1),
                         {second, second + simd::kTileBytesA, 0, 1});
      if (rest.sx == 0) continue;
      mask |= 1u << r;
      second += simd::kSecondBytes;
    }
    tile.masks[i] = static_cast<uint16_t>(mask);
  }
}

// Sixteen weights as floats, those past the mask zero.
template <DType kType>
__m512 load_weights(const std::byte* p, __mmask16 lanes) {
  if constexpr (kType == DType::kF32) return _mm512_maskz_loadu_ps(lanes, p);
  const __m256i raw = _mm256_maskz_loadu_epi16(lanes, p);
  if constexpr (kType == DType::kF16) return _mm512_cvtph_ps(raw);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(raw), 16));
}

// ((l0 + l8) + (l4 + l12)) and so on down to one lane; four vectors at a time, each in the same order.
__m128 sum_lanes(__m512 v) {
  const __m256 v8 = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  return _mm_add_ps(_mm256_castps256_ps128(v8), _mm256_extractf128_ps(v8, 1));
}
__m128 sum_four(__m128 a, __m128 b, __m128 c, __m128 d) {
  const __m128 ab = _mm_add_ps(_mm_unpacklo_ps(a, b), _mm_unpackhi_ps(a, b));  // a0+a2 b0+b2 a1+a3 b1+b3
  const __m128 cd = _mm_add_ps(_mm_unpacklo_ps(c, d), _mm_unpackhi_ps(c, d));
  return _mm_add_ps(_mm_movelh_ps(ab, cd), _mm_movehl_ps(cd, ab));
}

// Adds the products of 16 values of k.
template <DType kType, int kRows, int kCols>
[[gnu::always_inline]] inline void dot_step(const DotJob& job, const float* x, const std::byte* w, __mmask16 lanes,
                                            __m512 (&acc)[kRows][kCols]) {
  __m512 wv[kCols];
  unrolled<kCols>([&](auto c)
                      CENTO_INLINE { wv[c] = load_weights<kType>(w + static_cast<size_t>(c) * job.row_bytes, lanes); });
  unrolled<kRows>([&](auto r) CENTO_INLINE {
    const __m512 xv = _mm512_maskz_loadu_ps(lanes, x + static_cast<size_t>(r) * job.ldx);
    unrolled<kCols>([&](auto c) CENTO_INLINE { acc[r][c] = _mm512_fmadd_ps(wv[c], xv, acc[r][c]); });
  });
}

template <DType kType, int kRows, int kCols>
void dot_tile(const DotJob& job, size_t t, size_t n) {
  constexpr size_t kBytes = kType == DType::kF32 ? 4 : 2;
  const float* x = job.x + t * job.ldx;
  const std::byte* w = job.w + n * job.row_bytes;
  __m512 acc[kRows][kCols];
  unrolled<kRows>([&](auto r)
                      CENTO_INLINE { unrolled<kCols>([&](auto c) CENTO_INLINE { acc[r][c] = _mm512_setzero_ps(); }); });
  const size_t whole = job.k / 16 * 16;
  for (size_t k = 0; k < whole; k += 16) dot_step<kType, kRows, kCols>(job, x + k, w + k * kBytes, 0xffff, acc);
  if (whole < job.k) {
    const auto lanes = static_cast<__mmask16>((1u << (job.k - whole)) - 1);
    dot_step<kType, kRows, kCols>(job, x + whole, w + whole * kBytes, lanes, acc);
  }
  constexpr __mmask8 kColumns = (1u << kCols) - 1;
  unrolled<kRows>([&](auto r) CENTO_INLINE {
    __m128 part[4] = {_mm_setzero_ps(), _mm_setzero_ps(), _mm_setzero_ps(), _mm_setzero_ps()};
    unrolled<kCols>([&](auto c) CENTO_INLINE { part[c] = sum_lanes(acc[r][c]); });
    __m128 v = sum_four(part[0], part[1], part[2], part[3]);
    float* y = job.y + (t + static_cast<size_t>(r)) * job.ldy + n;
    if (job.bias != nullptr) v = _mm_add_ps(v, _mm_maskz_loadu_ps(kColumns, job.bias + n));
    if (job.add) v = _mm_add_ps(_mm_maskz_loadu_ps(kColumns, y), v);
    _mm_mask_storeu_ps(y, kColumns, v);
  });
}

template <DType kType, int kRows>
void dot_rows(const DotJob& job, size_t t) {
  size_t n = 0;
  // Weights that are used once or twice are read row after row: one stream that the processor foresees.
  for (; kRows > 2 && n + 4 <= job.n_cols; n += 4) dot_tile<kType, kRows, 4>(job, t, n);
  for (; n < job.n_cols; ++n) dot_tile<kType, kRows, 1>(job, t, n);
}

template <DType kType>
void dot_all(const DotJob& job) {
  size_t t = 0;
  for (; t + 6 <= job.n_rows; t += 6) dot_rows<kType, 6>(job, t);
  for (; t + 2 <= job.n_rows; t += 2) dot_rows<kType, 2>(job, t);
  for (; t < job.n_rows; ++t) dot_rows<kType, 1>(job, t);
}

constexpr simd::MatmulTarget kTarget = {quantize, panels, dot};

}  // namespace

PackedMatrix pack(const ExecContext& ctx, const PackArgs& args) { return simd::pack_panels(ctx, args); }
void matmul(const ExecContext& ctx, const MatmulArgs& args) { simd::run_matmul(kTarget, ctx, args); }

}  // namespace cento::N_AVX3

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif  // CENTO_SIMD_X86
