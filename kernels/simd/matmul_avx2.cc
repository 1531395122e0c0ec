// Inner loops of matmul for AVX2: a panel's 16 outputs are two halves of 8 lanes, a tile is taken four rows at a time.
#include "kernels/simd/matmul_driver.h"
#include "kernels/simd/simd_ops.h"

#if CENTO_SIMD_X86
#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#pragma GCC optimize("O3")  // tiles are arrays of registers only once their loops are unrolled
#endif

namespace cento::N_AVX2 {
namespace {

#include "kernels/simd/matmul_target-inl.h"

__m128i load_16_bytes(const std::byte* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
__m128i load_8_bytes(const std::byte* p) { return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)); }
__m256 load_halves(const std::byte* p) { return _mm256_cvtph_ps(load_16_bytes(p)); }
__m256 load_int8(const std::byte* p) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load_8_bytes(p))); }
__m256 load_uint8(const std::byte* p) { return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(load_8_bytes(p))); }
__m256i load_vector(const std::byte* p, int i) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + i * 64));
}
__m256i broadcast_int(const std::byte* p) {
  int32_t v;
  std::memcpy(&v, p, sizeof v);
  return _mm256_set1_epi32(v);
}
__m256 broadcast_float(const std::byte* p) {
  float v;
  std::memcpy(&v, p, sizeof v);
  return _mm256_set1_ps(v);
}

// The lower or upper half of the eight vectors of 32 values, one code a byte (matmul_layout.h); 8-bit codes less their
// offset of 128.
template <int kBits>
[[gnu::always_inline]] inline void unpack(const std::byte* codes, __m256i (&w)[8]) {
  if constexpr (kBits == 8) {
    unrolled<8>([&](auto j) CENTO_INLINE { w[j] = _mm256_xor_si256(load_vector(codes, j), _mm256_set1_epi8(-128)); });
  } else {
    constexpr int kLow = kBits >= 4 ? 4 : 2, kHigh = kBits - kLow;  // bits of a code in the two parts
    const __m256i low_mask = _mm256_set1_epi8(kLow == 4 ? 15 : 3);
    unrolled<8>([&](auto j) CENTO_INLINE {
      constexpr int kPerVector = 8 / kLow, kFrom = j % kPerVector * kLow;
      const __m256i v = load_vector(codes, j / kPerVector);
      w[j] = _mm256_and_si256(kFrom == 0 ? v : _mm256_srli_epi16(v, kFrom), low_mask);
    });
    if constexpr (kHigh > 0) {
      const __m256i high_mask = _mm256_set1_epi8(static_cast<char>(((1 << kHigh) - 1) << kLow));
      unrolled<8>([&](auto j) CENTO_INLINE {
        constexpr int kPerVector = 8 / kHigh, kFrom = j % kPerVector * kHigh;  // bit of the field; it goes to bit kLow
        const __m256i v = load_vector(codes, kLow + j / kPerVector);
        __m256i shifted = v;
        if constexpr (kFrom < kLow) shifted = _mm256_slli_epi16(v, kLow - kFrom);
        if constexpr (kFrom > kLow) shifted = _mm256_srli_epi16(v, kFrom - kLow);
        w[j] = _mm256_or_si256(w[j], _mm256_and_si256(shifted, high_mask));
      });
    }
  }
}

// sum over kWords words, from word kFirst on, of w * q; w unsigned of kBits < 8 or signed of 8 bits. A maddubs pair of
// kBits codes is at most 2 * (2^kBits - 1) * 127 in magnitude; as many as fit 32767 are added in 16 bits: 8 of 4 bits
// (30480), 4 of 5 bits (31496), 2 of 6 bits (32004). For 8 bits |w| <= 128 multiplies q with the sign of w:
// 2 * 128 * 127 = 32512.
template <int kBits, int kFirst, int kWords>
[[gnu::always_inline]] inline __m256i dot_words(const __m256i (&w)[8], const std::byte* q, __m256i sum) {
  constexpr int kMost = kBits <= 4 ? 8 : kBits == 5 ? 4 : kBits == 6 ? 2 : 1;
  constexpr int kRun = std::min(kMost, kWords);
  unrolled<kWords / kRun>([&](auto run) CENTO_INLINE {
    __m256i pairs = _mm256_setzero_si256();
    unrolled<kRun>([&](auto i) CENTO_INLINE {
      constexpr int kWord = kFirst + run * kRun + i;
      const __m256i x = broadcast_int(q + kWord * 4);
      const __m256i p = kBits == 8 ? _mm256_maddubs_epi16(_mm256_abs_epi8(w[kWord]), _mm256_sign_epi8(x, w[kWord]))
                                   : _mm256_maddubs_epi16(w[kWord], x);
      pairs = i == 0 ? p : _mm256_add_epi16(pairs, p);
    });
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  });
  return sum;
}

__m256i lane_mask(size_t n_lanes) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n_lanes)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

// Rows row .. row + kRows - 1 of a tile, lanes lane .. lane + 7 of a panel.
struct Corner {
  size_t row, lane;
};

template <int kRows>
[[gnu::always_inline]] inline void store(const PanelJob& job, Corner at, const __m256 (&acc)[kRows]) {
  const __m256i lanes = lane_mask(std::min<size_t>(8, job.n_lanes - at.lane));
  const __m256 bias = job.bias == nullptr ? _mm256_setzero_ps() : _mm256_maskload_ps(job.bias + at.lane, lanes);
  unrolled<kRows>([&](auto r) CENTO_INLINE {
    float* y = job.y + (at.row + static_cast<size_t>(r)) * job.ldy + at.lane;
    __m256 v = job.bias == nullptr ? acc[r] : _mm256_add_ps(acc[r], bias);
    if (job.add) v = _mm256_add_ps(_mm256_maskload_ps(y, lanes), v);
    _mm256_maskstore_ps(y, lanes, v);
  });
}

// Scales and mins of 32 values, a vector a sub-block.
template <QuantFormat kFormat>
struct Scales {
  static constexpr int kSubs = simd::sub_blocks(kFormat);
  __m256 scale[kSubs], min[kSubs];
  [[gnu::always_inline]] void load(const std::byte* p, __m256 d, __m256 m) {
    unrolled<kSubs>([&](auto s) CENTO_INLINE {
      scale[s] = d;
      min[s] = m;
      if constexpr (kFormat.super_block) scale[s] = _mm256_mul_ps(d, load_int8(p + s * 16));
      if constexpr (kFormat.super_block && kFormat.has_min) {
        min[s] = _mm256_fnmadd_ps(m, load_uint8(p + (kSubs + s) * 16), _mm256_setzero_ps());  // -m * code, exact
      }
    });
  }
};

// Row `row` of a tile of kTile and 32 values: what quant_codes.h says, in its order.
template <QuantFormat kFormat, int kTile>
[[gnu::always_inline]] inline __m256 add_32(const std::byte* a, const std::byte* b, size_t row, const __m256i (&w)[8],
                                            const Scales<kFormat>& scales, __m256 acc) {
  constexpr int kSubs = simd::sub_blocks(kFormat), kWords = 8 / kSubs;  // sub-blocks in 32 values, words in one
  const std::byte* q = a + row * 32;
  a += kTile * 32 + row * 4;
  if constexpr (kSubs == 2) b += row * 4;
  const __m256 sx = broadcast_float(a);
  unrolled<kSubs>([&](auto s) CENTO_INLINE {
    __m256i dot = _mm256_setzero_si256();
    if constexpr (kFormat.offset != 0 && kFormat.bits != 8) {
      constexpr int kShift = std::countr_zero(static_cast<unsigned>(kFormat.offset));
      dot =
          _mm256_slli_epi32(broadcast_int(kSubs == 1 ? a + kTile * 4 : b + s * kTile * 4), kShift);  // -offset * sum q
    }
    dot = dot_words<kFormat.bits, s * kWords, kWords>(w, q, dot);
    acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_mul_ps(scales.scale[s], sx), acc);
  });
  if constexpr (kFormat.has_min) {
    unrolled<kSubs>([&](auto s) CENTO_INLINE {
      acc = _mm256_fmadd_ps(scales.min[s], broadcast_float(kSubs == 1 ? a + kTile * 8 : b + (2 + s) * kTile * 4), acc);
    });
  }
  return acc;
}

template <QuantFormat kFormat, int kTile, int kRows>
void panel_corner(const PanelJob& job, Corner at) {
  const std::byte* p = job.panel;
  const std::byte* a = job.a;
  const std::byte* b = job.b;
  const uint16_t* masks = job.masks;
  const std::byte* second = job.second;
  __m256 acc[kRows];
  unrolled<kRows>([&](auto r) CENTO_INLINE { acc[r] = _mm256_setzero_ps(); });
  for (size_t n = job.n_records; n > 0; --n) {
    const __m256 d = load_halves(p + at.lane * 2);
    const __m256 m = kFormat.has_min ? load_halves(p + 32 + at.lane * 2) : _mm256_setzero_ps();
    p += simd::head_bytes(kFormat);
    for (size_t block = 0; block < simd::record_values(kFormat) / 32; ++block) {
      Scales<kFormat> scales;
      scales.load(p + at.lane, d, m);
      p += simd::scale_bytes(kFormat);
      __m256i w[8];
      unpack<kFormat.bits>(p + at.lane * 4, w);
      p += simd::code_bytes(kFormat);
      unrolled<kRows>([&](auto r) CENTO_INLINE {
        acc[r] = add_32<kFormat, kTile>(a, b, at.row + static_cast<size_t>(r), w, scales, acc[r]);
      });
      if (const unsigned mask = *masks++; mask != 0) [[unlikely]] {
        // Rows of the tile that other corners take have their records here too.
        const std::byte* here =
            second + static_cast<size_t>(std::popcount(mask & ((1u << at.row) - 1))) * simd::kSecondBytes;
        unrolled<kRows>([&](auto r) CENTO_INLINE {
          if ((mask >> (at.row + static_cast<size_t>(r)) & 1u) == 0) return;
          acc[r] = add_32<kFormat, 1>(here, here + simd::kTileBytesA, 0, w, scales, acc[r]);
          here += simd::kSecondBytes;
        });
        second += static_cast<size_t>(std::popcount(mask)) * simd::kSecondBytes;
      }
      a += simd::kTileBytesA * kTile;
      if constexpr (simd::sub_blocks(kFormat) == 2) b += simd::kTileBytesB * kTile;  // else null
    }
  }
  store<kRows>(job, at, acc);
}

template <QuantFormat kFormat, int kTile>
void panel(const PanelJob& job) {
  constexpr int kRows = std::min(kTile, 4);
  for (size_t lane = 0; lane < job.n_lanes; lane += 8) {
    for (size_t row = 0; row < kTile; row += kRows) panel_corner<kFormat, kTile, kRows>(job, {row, lane});
  }
}

uint32_t top_of(__m256i v) {
  __m128i m = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(m));
}
int32_t sum_of(__m256i v) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
  return _mm_cvtsi128_si32(s);
}

// The block's energy, sum q^2, q and sx.
struct Rounded {
  __m256 q[4];
  float sx;
  int32_t energy;
};

Rounded quantize_block(const __m256 (&x)[4], const RowPlace& to) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);  // as integers, magnitudes order like floats, NaN on top
  __m256i most = _mm256_setzero_si256();
  for (int i = 0; i < 4; ++i) most = _mm256_max_epu32(most, _mm256_and_si256(_mm256_castps_si256(x[i]), magnitude));
  const uint32_t top = top_of(most);
  const bool finite = top < 0x7f800000u;
  const float amax = std::bit_cast<float>(top);
  const bool zero = !finite || amax < kTinyBlock;
  Rounded out;
  out.sx = !finite ? std::numeric_limits<float>::quiet_NaN() : zero ? 0.0f : amax / 127.0f;
  const __m256 inverse = _mm256_set1_ps(zero ? 0.0f : 127.0f / amax);
  int32_t sums[2] = {0, 0};
  __m256i squares = _mm256_setzero_si256();
  for (int i = 0; i < 4; ++i) {
    __m256i q = _mm256_setzero_si256();
    if (!zero) q = _mm256_cvtps_epi32(_mm256_mul_ps(x[i], inverse));
    sums[i / 2] += sum_of(q);
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to.a + to.row * 32 + static_cast<size_t>(i) * 8),
                     _mm_packs_epi16(words, words));
    // Squares of 16-bit halves: the upper half of a q is its sign, whose square is 0 or 1, so that it is masked off.
    const __m256i low = _mm256_and_si256(q, _mm256_set1_epi32(0xffff));
    squares = _mm256_add_epi32(squares, _mm256_madd_epi16(low, low));
    out.q[i] = _mm256_cvtepi32_ps(q);
  }
  out.energy = sum_of(squares);
  put_sums(to, out.sx, sums[0], sums[1]);
  return out;
}

void quantize(const float* x, size_t n_rows, size_t ldx, size_t k, const simd::QuantTile& tile) {
  std::byte* second = tile.second;
  for (size_t i = 0; i < k / 32; ++i) {
    std::byte* a = tile.a + i * n_rows * simd::kTileBytesA;
    std::byte* b = tile.b == nullptr ? nullptr : tile.b + i * n_rows * simd::kTileBytesB;
    unsigned mask = 0;
    for (size_t r = 0; r < n_rows; ++r) {
      __m256 values[4];
      for (size_t v = 0; v < 4; ++v) values[v] = _mm256_loadu_ps(x + r * ldx + i * 32 + v * 8);
      const Rounded first = quantize_block(values, {a, b, r, n_rows});
      if (first.energy > kOutlierEnergy || first.energy == 0) continue;
      for (size_t v = 0; v < 4; ++v) values[v] = _mm256_fmadd_ps(_mm256_set1_ps(-first.sx), first.q[v], values[v]);
      const Rounded rest = quantize_block(values, {second, second + simd::kTileBytesA, 0, 1});
      if (rest.sx == 0) continue;
      mask |= 1u << r;
      second += simd::kSecondBytes;
    }
    tile.masks[i] = static_cast<uint16_t>(mask);
  }
}

template <DType kType>
__m256 load_weights(const std::byte* p) {
  if constexpr (kType == DType::kF32) return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
  const __m128i raw = load_16_bytes(p);
  if constexpr (kType == DType::kF16) return _mm256_cvtph_ps(raw);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(raw), 16));
}

// (l0 + l4) + (l2 + l6) and so on down to one lane; four vectors at a time, each in the same order.
__m128 sum_lanes(__m256 v) { return _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1)); }
__m128 sum_four(__m128 a, __m128 b, __m128 c, __m128 d) {
  const __m128 ab = _mm_add_ps(_mm_unpacklo_ps(a, b), _mm_unpackhi_ps(a, b));  // a0+a2 b0+b2 a1+a3 b1+b3
  const __m128 cd = _mm_add_ps(_mm_unpacklo_ps(c, d), _mm_unpackhi_ps(c, d));
  return _mm_add_ps(_mm_movelh_ps(ab, cd), _mm_movehl_ps(cd, ab));
}

// The last values of a row, zeros after them.
template <DType kType>
__m256 load_rest(const std::byte* p, size_t n) {
  alignas(32) std::byte padded[32] = {};
  std::memcpy(padded, p, n * (kType == DType::kF32 ? 4 : 2));
  return load_weights<kType>(padded);
}

// 3 rows by 4 columns are the 12 sums that leave registers for their operands.
template <DType kType, int kRows, int kCols>
void dot_tile(const DotJob& job, size_t t, size_t n) {
  constexpr size_t kBytes = kType == DType::kF32 ? 4 : 2;
  const float* x = job.x + t * job.ldx;
  const std::byte* w = job.w + n * job.row_bytes;
  __m256 acc[kRows][kCols];
  unrolled<kRows>([&](auto r)
                      CENTO_INLINE { unrolled<kCols>([&](auto c) CENTO_INLINE { acc[r][c] = _mm256_setzero_ps(); }); });
  const size_t whole = job.k / 8 * 8, rest = job.k - whole;
  for (size_t k = 0; k < whole; k += 8) {
    __m256 xv[kRows];
    unrolled<kRows>([&](auto r) CENTO_INLINE { xv[r] = _mm256_loadu_ps(x + static_cast<size_t>(r) * job.ldx + k); });
    unrolled<kCols>([&](auto c) CENTO_INLINE {
      const __m256 wv = load_weights<kType>(w + static_cast<size_t>(c) * job.row_bytes + k * kBytes);
      unrolled<kRows>([&](auto r) CENTO_INLINE { acc[r][c] = _mm256_fmadd_ps(wv, xv[r], acc[r][c]); });
    });
  }
  if (rest > 0) {
    __m256 xv[kRows];
    unrolled<kRows>([&](auto r) CENTO_INLINE {
      xv[r] = _mm256_maskload_ps(x + static_cast<size_t>(r) * job.ldx + whole, lane_mask(rest));
    });
    unrolled<kCols>([&](auto c) CENTO_INLINE {
      const __m256 wv = load_rest<kType>(w + static_cast<size_t>(c) * job.row_bytes + whole * kBytes, rest);
      unrolled<kRows>([&](auto r) CENTO_INLINE { acc[r][c] = _mm256_fmadd_ps(wv, xv[r], acc[r][c]); });
    });
  }
  const __m128i columns = _mm256_castsi256_si128(lane_mask(kCols));
  unrolled<kRows>([&](auto r) CENTO_INLINE {
    __m128 part[4] = {_mm_setzero_ps(), _mm_setzero_ps(), _mm_setzero_ps(), _mm_setzero_ps()};
    unrolled<kCols>([&](auto c) CENTO_INLINE { part[c] = sum_lanes(acc[r][c]); });
    __m128 v = sum_four(part[0], part[1], part[2], part[3]);
    float* y = job.y + (t + static_cast<size_t>(r)) * job.ldy + n;
    if (job.bias != nullptr) v = _mm_add_ps(v, _mm_maskload_ps(job.bias + n, columns));
    if (job.add) v = _mm_add_ps(_mm_maskload_ps(y, columns), v);
    _mm_maskstore_ps(y, columns, v);
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
  for (; t + 3 <= job.n_rows; t += 3) dot_rows<kType, 3>(job, t);
  for (; t < job.n_rows; ++t) dot_rows<kType, 1>(job, t);
}

constexpr simd::MatmulTarget kTarget = {quantize, panels, dot};

}  // namespace

PackedMatrix pack(const ExecContext& ctx, const PackArgs& args) { return simd::pack_panels(ctx, args); }
void matmul(const ExecContext& ctx, const MatmulArgs& args) { simd::run_matmul(kTarget, ctx, args); }

}  // namespace cento::N_AVX2

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif  // CENTO_SIMD_X86
