// Inner loops of matmul for AArch64 with the int8 dot product (ARMv8.2): a panel's 16 outputs are four quads of 4
// lanes. sdot multiplies signed bytes with signed ones. Codes below 128 are that as they are; 8-bit codes lose their
// offset, which leaves the file's signed bytes.
#include "kernels/simd/matmul_driver.h"
#include "kernels/simd/simd_ops.h"

#if CENTO_SIMD_ARM
#include <arm_neon.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("dotprod"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+dotprod")  // GCC's vdotq_s32 is inlined only where all of this is on
#pragma GCC optimize("O3")                    // tiles are arrays of registers only once their loops are unrolled
#endif

namespace cento::N_NEON {
namespace {

#include "kernels/simd/matmul_target-inl.h"

const uint8_t* bytes_at(const std::byte* p) { return reinterpret_cast<const uint8_t*>(p); }
template <class T>
T value_at(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
float32x4_t load_halves(const std::byte* p) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(bytes_at(p)))); }
uint8x8_t load_4_bytes(const std::byte* p) { return vreinterpret_u8_u32(vdup_n_u32(value_at<uint32_t>(p))); }
float32x4_t load_int8(const std::byte* p) {
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(load_4_bytes(p))))));
}
float32x4_t load_uint8(const std::byte* p) { return vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(load_4_bytes(p))))); }
uint8x16_t load_vector(const std::byte* p, int i) { return vld1q_u8(bytes_at(p + i * 64)); }

// Bits [kFrom, kFrom + kBits) of every byte, at bit 0.
template <int kBits, int kFrom>
[[gnu::always_inline]] inline uint8x16_t field(uint8x16_t v) {
  if constexpr (kFrom > 0) v = vshrq_n_u8(v, kFrom);
  if constexpr (kFrom + kBits < 8) v = vandq_u8(v, vdupq_n_u8((1 << kBits) - 1));
  return v;
}

// One quad of the eight vectors of 32 values, one code a byte (matmul_layout.h); 8-bit codes less their offset of 128.
template <int kBits>
[[gnu::always_inline]] inline void unpack(const std::byte* codes, int8x16_t (&w)[8]) {
  constexpr int kLow = kBits == 8 ? 8 : kBits >= 4 ? 4 : 2, kHigh = kBits - kLow;  // bits of a code in the two parts
  unrolled<8>([&](auto j) CENTO_INLINE {
    constexpr int kPerVector = 8 / kLow;
    uint8x16_t v = field<kLow, j % kPerVector * kLow>(load_vector(codes, j / kPerVector));
    if constexpr (kBits == 8) v = veorq_u8(v, vdupq_n_u8(128));
    if constexpr (kHigh > 0) {
      constexpr int kHighPerVector = 8 / kHigh;
      const uint8x16_t high = load_vector(codes, kLow + j / kHighPerVector);
      v = vsliq_n_u8(v, field<kHigh, j % kHighPerVector * kHigh>(high), kLow);
    }
    w[j] = vreinterpretq_s8_u8(v);
  });
}

// As many lanes of p as there are, at most 4; the others 0.
float32x4_t load_lanes(const float* p, size_t n) {
  if (n >= 4) return vld1q_f32(p);
  float v[4] = {};
  std::copy_n(p, n, v);
  return vld1q_f32(v);
}

// Lanes [0, n) of y (+)= acc + bias. Once a panel, and inlined it would be most of the code.
[[gnu::noinline]] void store_lanes(float32x4_t acc, const float* bias, bool add, float* y, size_t n) {
  n = std::min<size_t>(n, 4);
  if (bias != nullptr) acc = vaddq_f32(acc, load_lanes(bias, n));
  if (add) acc = vaddq_f32(load_lanes(y, n), acc);
  if (n == 4) {
    vst1q_f32(y, acc);
    return;
  }
  float v[4];
  vst1q_f32(v, acc);
  std::copy_n(v, n, y);
}

// Scales and mins of 32 values, a vector a sub-block.
template <QuantFormat kFormat>
struct Scales {
  static constexpr int kSubs = simd::sub_blocks(kFormat);
  float32x4_t scale[kSubs], min[kSubs];
  [[gnu::always_inline]] void load(const std::byte* p, float32x4_t d, float32x4_t m) {
    unrolled<kSubs>([&](auto s) CENTO_INLINE {
      scale[s] = d;
      min[s] = m;
      if constexpr (kFormat.super_block) scale[s] = vmulq_f32(d, load_int8(p + s * 16));
      if constexpr (kFormat.super_block && kFormat.has_min) {
        min[s] = vfmsq_f32(vdupq_n_f32(0), m, load_uint8(p + (kSubs + s) * 16));  // -m * code, exact
      }
    });
  }
};

// Rows kRow .. kRow + kGroup - 1 of a tile of kRows and 32 values: what quant_codes.h says, in its order. The rows' dot
// products are interleaved word by word: each is a chain.
template <QuantFormat kFormat, int kRows, int kRow, int kGroup>
[[gnu::always_inline]] inline void add_32(const std::byte* a, const std::byte* b, const int8x16_t (&w)[8],
                                          const Scales<kFormat>& scales, float32x4_t* acc) {
  constexpr int kSubs = simd::sub_blocks(kFormat), kWords = 8 / kSubs;  // sub-blocks in 32 values, words in one
  unrolled<kSubs>([&](auto s) CENTO_INLINE {
    int32x4_t dot[kGroup];
    unrolled<kGroup>([&](auto r) CENTO_INLINE {
      dot[r] = vdupq_n_s32(0);
      if constexpr (kFormat.offset != 0 && kFormat.bits != 8) {  // -offset * sum q
        constexpr int kShift = std::countr_zero(static_cast<unsigned>(kFormat.offset));
        const std::byte* minus_sum = kSubs == 1 ? a + kRows * 36 + (kRow + r) * 4 : b + (s * kRows + kRow + r) * 4;
        dot[r] = vshlq_n_s32(vld1q_dup_s32(reinterpret_cast<const int32_t*>(minus_sum)), kShift);
      }
    });
    unrolled<kWords / 4>([&](auto four) CENTO_INLINE {
      constexpr int kFirst = s * kWords + four * 4;
      int8x16_t q[kGroup];
      unrolled<kGroup>([&](auto r) CENTO_INLINE {
        q[r] = vreinterpretq_s8_u8(vld1q_u8(bytes_at(a + (kRow + r) * 32 + kFirst * 4)));
      });
      unrolled<4>([&](auto j) CENTO_INLINE {
        unrolled<kGroup>(
            [&](auto r) CENTO_INLINE { dot[r] = vdotq_laneq_s32(dot[r], w[kFirst + j], q[r], decltype(j)::value); });
      });
    });
    unrolled<kGroup>([&](auto r) CENTO_INLINE {
      const float sx = value_at<float>(a + kRows * 32 + (kRow + r) * 4);
      acc[kRow + r] = vfmaq_f32(acc[kRow + r], vcvtq_f32_s32(dot[r]), vmulq_n_f32(scales.scale[s], sx));
    });
  });
  if constexpr (kFormat.has_min) {
    unrolled<kSubs>([&](auto s) CENTO_INLINE {
      unrolled<kGroup>([&](auto r) CENTO_INLINE {
        const std::byte* sx_sum = kSubs == 1 ? a + kRows * 40 + (kRow + r) * 4 : b + ((2 + s) * kRows + kRow + r) * 4;
        acc[kRow + r] = vfmaq_n_f32(acc[kRow + r], scales.min[s], value_at<float>(sx_sum));
      });
    });
  }
}

// Quads quad .. quad + kQuads - 1 of a panel, all rows of the tile.
template <QuantFormat kFormat, int kRows, int kQuads>
void panel_quads(const PanelJob& job, size_t quad) {
  const std::byte* p = job.panel;
  const std::byte* a = job.a;
  const std::byte* b = job.b;
  const uint16_t* masks = job.masks;
  const std::byte* second = job.second;
  constexpr int kGroup = std::min(kRows, 4);
  static_assert(kRows % kGroup == 0);
  float32x4_t acc[kQuads][kRows];
  unrolled<kQuads>([&](auto i)
                       CENTO_INLINE { unrolled<kRows>([&](auto r) CENTO_INLINE { acc[i][r] = vdupq_n_f32(0); }); });
  for (size_t n = job.n_records; n > 0; --n) {
    float32x4_t d[kQuads], m[kQuads];
    unrolled<kQuads>([&](auto i) CENTO_INLINE {
      d[i] = load_halves(p + (quad + i) * 8);
      m[i] = kFormat.has_min ? load_halves(p + 32 + (quad + i) * 8) : vdupq_n_f32(0);
    });
    p += simd::head_bytes(kFormat);
    for (size_t block = 0; block < simd::record_values(kFormat) / 32; ++block) {
      const unsigned mask = *masks++;
      unrolled<kQuads>([&](auto i) CENTO_INLINE {
        Scales<kFormat> scales;
        scales.load(p + (quad + i) * 4, d[i], m[i]);
        int8x16_t w[8];
        unpack<kFormat.bits>(p + simd::scale_bytes(kFormat) + (quad + i) * 16, w);
        unrolled<kRows / kGroup>(
            [&](auto g) CENTO_INLINE { add_32<kFormat, kRows, g * kGroup, kGroup>(a, b, w, scales, acc[i]); });
        if (mask == 0) [[likely]]
          return;
        const std::byte* at = second;
        unrolled<kRows>([&](auto r) CENTO_INLINE {
          if ((mask >> r & 1u) == 0) return;
          add_32<kFormat, 1, 0, 1>(at, at + simd::kTileBytesA, w, scales, &acc[i][r]);
          at += simd::kSecondBytes;
        });
      });
      second += static_cast<size_t>(std::popcount(mask)) * simd::kSecondBytes;
      p += simd::scale_bytes(kFormat) + simd::code_bytes(kFormat);
      a += simd::kTileBytesA * kRows;
      if constexpr (simd::sub_blocks(kFormat) == 2) b += simd::kTileBytesB * kRows;  // else null
    }
  }
  unrolled<kQuads>([&](auto i) CENTO_INLINE {
    const size_t lane = (quad + i) * 4;
    if (lane >= job.n_lanes) return;
    const float* bias = job.bias == nullptr ? nullptr : job.bias + lane;
    unrolled<kRows>([&](auto r) CENTO_INLINE {
      store_lanes(acc[i][r], bias, job.add, job.y + static_cast<size_t>(r) * job.ldy + lane, job.n_lanes - lane);
    });
  });
}

// Sums, eight words and the operands of a group have to fit 32 registers: the taller the tile, the fewer quads at once.
// A single row, which waits for memory, reads the panel front to back.
template <QuantFormat kFormat, int kRows>
void panel(const PanelJob& job) {
  constexpr int kQuads = kRows >= 8 ? 1 : kRows == 4 ? 2 : 4;
  for (size_t quad = 0; quad * 4 < job.n_lanes; quad += kQuads) panel_quads<kFormat, kRows, kQuads>(job, quad);
}

// The block's energy, sum q^2, q and sx.
struct Rounded {
  float32x4_t q[8];
  float sx;
  int32_t energy;
};

int8x16_t narrow(const int32x4_t (&q)[8], size_t first) {
  return vcombine_s8(vmovn_s16(vcombine_s16(vmovn_s32(q[first]), vmovn_s32(q[first + 1]))),
                     vmovn_s16(vcombine_s16(vmovn_s32(q[first + 2]), vmovn_s32(q[first + 3]))));
}

Rounded quantize_block(const float32x4_t (&x)[8], const RowPlace& to) {
  // As integers, magnitudes order like floats, NaN on top.
  uint32x4_t most = vdupq_n_u32(0);
  for (const float32x4_t& v : x) most = vmaxq_u32(most, vreinterpretq_u32_f32(vabsq_f32(v)));
  const uint32_t top = vmaxvq_u32(most);
  const bool finite = top < 0x7f800000u;
  const float amax = std::bit_cast<float>(top);
  const bool zero = !finite || amax < kTinyBlock;
  Rounded out;
  out.sx = !finite ? std::numeric_limits<float>::quiet_NaN() : zero ? 0.0f : amax / 127.0f;
  const float inverse = zero ? 0.0f : 127.0f / amax;
  int32x4_t q[8];
  for (size_t i = 0; i < 8; ++i) {
    q[i] = zero ? vdupq_n_s32(0) : vcvtnq_s32_f32(vmulq_n_f32(x[i], inverse));
    out.q[i] = vcvtq_f32_s32(q[i]);
  }
  const int8x16_t low = narrow(q, 0), high = narrow(q, 4);
  int8_t* bytes = reinterpret_cast<int8_t*>(to.a + to.row * 32);
  vst1q_s8(bytes, low);
  vst1q_s8(bytes + 16, high);
  out.energy = vaddvq_s32(vdotq_s32(vdotq_s32(vdupq_n_s32(0), low, low), high, high));
  put_sums(to, out.sx, vaddlvq_s8(low), vaddlvq_s8(high));
  return out;
}

void quantize(const float* x, size_t n_rows, size_t ldx, size_t k, const simd::QuantTile& tile) {
  std::byte* second = tile.second;
  for (size_t i = 0; i < k / 32; ++i) {
    std::byte* a = tile.a + i * n_rows * simd::kTileBytesA;
    std::byte* b = tile.b == nullptr ? nullptr : tile.b + i * n_rows * simd::kTileBytesB;
    unsigned mask = 0;
    for (size_t r = 0; r < n_rows; ++r) {
      float32x4_t values[8];
      for (size_t v = 0; v < 8; ++v) values[v] = vld1q_f32(x + r * ldx + i * 32 + v * 4);
      const Rounded first = quantize_block(values, {a, b, r, n_rows});
      if (first.energy > kOutlierEnergy || first.energy == 0) continue;
      for (size_t v = 0; v < 8; ++v) values[v] = vfmaq_n_f32(values[v], first.q[v], -first.sx);
      const Rounded rest = quantize_block(values, {second, second + simd::kTileBytesA, 0, 1});
      if (rest.sx == 0) continue;
      mask |= 1u << r;
      second += simd::kSecondBytes;
    }
    tile.masks[i] = static_cast<uint16_t>(mask);
  }
}

// Four weights as floats.
template <DType kType>
float32x4_t load_weights(const std::byte* p) {
  if constexpr (kType == DType::kF32) return vreinterpretq_f32_u8(vld1q_u8(bytes_at(p)));
  if constexpr (kType == DType::kF16) return load_halves(p);
  return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(bytes_at(p))), 16));
}

// ((l0 + l4) + (l2 + l6)) + ((l1 + l5) + (l3 + l7)), as AVX2 adds its eight lanes; four pairs of vectors at a time.
float32x4_t sum_four(float32x4_t a, float32x4_t b, float32x4_t c, float32x4_t d) {
  const float32x4_t ab = vaddq_f32(vzip1q_f32(a, b), vzip2q_f32(a, b));  // a0+a2 b0+b2 a1+a3 b1+b3
  const float32x4_t cd = vaddq_f32(vzip1q_f32(c, d), vzip2q_f32(c, d));
  return vaddq_f32(vcombine_f32(vget_low_f32(ab), vget_low_f32(cd)),
                   vcombine_f32(vget_high_f32(ab), vget_high_f32(cd)));
}

// Adds the products of 8 values of k.
template <DType kType, int kRows, int kCols>
[[gnu::always_inline]] inline void dot_step(const float* x, size_t ldx, const std::byte* w, size_t row_bytes,
                                            float32x4_t (&acc)[kRows][kCols][2]) {
  unrolled<2>([&](auto half) CENTO_INLINE {
    constexpr size_t kBytes = kType == DType::kF32 ? 4 : 2;
    float32x4_t xv[kRows];
    unrolled<kRows>([&](auto r) CENTO_INLINE { xv[r] = vld1q_f32(x + static_cast<size_t>(r) * ldx + half * 4); });
    unrolled<kCols>([&](auto c) CENTO_INLINE {
      const float32x4_t wv = load_weights<kType>(w + static_cast<size_t>(c) * row_bytes + half * 4 * kBytes);
      unrolled<kRows>([&](auto r) CENTO_INLINE { acc[r][c][half] = vfmaq_f32(acc[r][c][half], wv, xv[r]); });
    });
  });
}

// 3 rows by 4 columns are the 24 sums that leave registers for their operands.
template <DType kType, int kRows, int kCols>
void dot_tile(const DotJob& job, size_t t, size_t n) {
  constexpr size_t kBytes = kType == DType::kF32 ? 4 : 2;
  const float* x = job.x + t * job.ldx;
  const std::byte* w = job.w + n * job.row_bytes;
  float32x4_t acc[kRows][kCols][2];
  unrolled<kRows>([&](auto r) CENTO_INLINE {
    unrolled<kCols>([&](auto c) CENTO_INLINE { acc[r][c][0] = acc[r][c][1] = vdupq_n_f32(0); });
  });
  const size_t whole = job.k / 8 * 8, rest = job.k - whole;
  for (size_t k = 0; k < whole; k += 8)
    dot_step<kType, kRows, kCols>(x + k, job.ldx, w + k * kBytes, job.row_bytes, acc);
  if (rest > 0) {  // the last values, zeros after them
    float xs[kRows][8] = {};
    std::byte ws[kCols][8 * kBytes] = {};
    for (size_t r = 0; r < kRows; ++r) std::copy_n(x + r * job.ldx + whole, rest, xs[r]);
    for (size_t c = 0; c < kCols; ++c) std::memcpy(ws[c], w + c * job.row_bytes + whole * kBytes, rest * kBytes);
    dot_step<kType, kRows, kCols>(xs[0], 8, ws[0], sizeof ws[0], acc);
  }
  unrolled<kRows>([&](auto r) CENTO_INLINE {
    float32x4_t part[4] = {vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)};
    unrolled<kCols>([&](auto c) CENTO_INLINE { part[c] = vaddq_f32(acc[r][c][0], acc[r][c][1]); });
    store_lanes(sum_four(part[0], part[1], part[2], part[3]), job.bias == nullptr ? nullptr : job.bias + n, job.add,
                job.y + (t + static_cast<size_t>(r)) * job.ldy + n, kCols);
  });
}

// Four columns even for a single row: two chains of sums would leave the multipliers waiting for each other.
template <DType kType, int kRows>
void dot_rows(const DotJob& job, size_t t) {
  size_t n = 0;
  for (; n + 4 <= job.n_cols; n += 4) dot_tile<kType, kRows, 4>(job, t, n);
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

}  // namespace cento::N_NEON

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif  // CENTO_SIMD_ARM
