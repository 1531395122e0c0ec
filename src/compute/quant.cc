#include "compute/quant.h"

#include <bit>
#include <cstring>

#include "base/check.h"

// Every function below expands one block: `b` points to dtype_info(type).bytes bytes of any alignment, `y` to
// dtype_info(type).elements floats. In the formats of 256 values the value order is that of the bit planes, which
// the loops follow: a byte holds values that lie 32 apart (Q2_K, Q3_K, Q6_K: planes of 2 bits) or 32 apart in a pair of
// neighbouring sub-blocks (Q4_K, Q5_K: nibbles).
namespace cento {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF blocks are read as they lie");

unsigned u8(const std::byte* b) { return std::to_integer<unsigned>(*b); }
int i8(const std::byte* b) { return static_cast<int8_t>(std::to_integer<uint8_t>(*b)); }
float half_at(const std::byte* b) {
  fp16 h;
  std::memcpy(&h.bits, b, sizeof h.bits);
  return to_float(h);
}
uint32_t u32_at(const std::byte* b) {
  uint32_t v;
  std::memcpy(&v, b, sizeof v);
  return v;
}

// d, 16 bytes of nibbles: low ones are values 0..15, high ones 16..31.
void q4_0(const std::byte* b, float* y) {
  const float d = half_at(b);
  for (int j = 0; j < 16; ++j) {
    const unsigned q = u8(b + 2 + j);
    y[j] = d * static_cast<float>(static_cast<int>(q & 15u) - 8);
    y[j + 16] = d * static_cast<float>(static_cast<int>(q >> 4) - 8);
  }
}

// d, m, nibbles.
void q4_1(const std::byte* b, float* y) {
  const float d = half_at(b), m = half_at(b + 2);
  for (int j = 0; j < 16; ++j) {
    const unsigned q = u8(b + 4 + j);
    y[j] = d * static_cast<float>(q & 15u) + m;
    y[j + 16] = d * static_cast<float>(q >> 4) + m;
  }
}

// d, 32 fifth bits, nibbles.
void q5_0(const std::byte* b, float* y) {
  const float d = half_at(b);
  const uint32_t high = u32_at(b + 2);
  for (int j = 0; j < 16; ++j) {
    const unsigned q = u8(b + 6 + j);
    const unsigned q0 = (q & 15u) | (high >> j & 1u) << 4, q1 = q >> 4 | (high >> (j + 16) & 1u) << 4;
    y[j] = d * static_cast<float>(static_cast<int>(q0) - 16);
    y[j + 16] = d * static_cast<float>(static_cast<int>(q1) - 16);
  }
}

// d, m, 32 fifth bits, nibbles.
void q5_1(const std::byte* b, float* y) {
  const float d = half_at(b), m = half_at(b + 2);
  const uint32_t high = u32_at(b + 4);
  for (int j = 0; j < 16; ++j) {
    const unsigned q = u8(b + 8 + j);
    y[j] = d * static_cast<float>((q & 15u) | (high >> j & 1u) << 4) + m;
    y[j + 16] = d * static_cast<float>(q >> 4 | (high >> (j + 16) & 1u) << 4) + m;
  }
}

// d, 32 signed bytes.
void q8_0(const std::byte* b, float* y) {
  const float d = half_at(b);
  for (int j = 0; j < 32; ++j) y[j] = d * static_cast<float>(i8(b + 2 + j));
}

// 16 bytes (scale, min nibbles, one a 16 values), 64 bytes of 2-bit values, d, dmin.
void q2_k(const std::byte* b, float* y) {
  const std::byte* scales = b;
  const std::byte* qs = b + 16;
  const float d = half_at(b + 80), d_min = half_at(b + 82);
  for (int g = 0; g < 16; ++g) {  // 16 values each
    const int half = g / 8, plane = g / 2 % 4, at = half * 32 + g % 2 * 16;
    const float scale = d * static_cast<float>(u8(scales + g) & 15u);
    const float min = d_min * static_cast<float>(u8(scales + g) >> 4);
    for (int l = 0; l < 16; ++l) y[16 * g + l] = scale * static_cast<float>(u8(qs + at + l) >> (2 * plane) & 3u) - min;
  }
}

// 32 bytes of third bits, 64 bytes of 2-bit values, 12 bytes of 16 scales of 6 bits, d. A third bit that is not set
// subtracts 4.
void q3_k(const std::byte* b, float* y) {
  const std::byte* high = b;
  const std::byte* qs = b + 32;
  const std::byte* packed = b + 96;
  const float d = half_at(b + 108);
  for (int g = 0; g < 16; ++g) {
    const unsigned low4 = u8(packed + g % 8) >> (g < 8 ? 0 : 4) & 15u;
    const unsigned high2 = u8(packed + 8 + g % 4) >> (2 * (g / 4)) & 3u;
    const float scale = d * static_cast<float>(static_cast<int>(low4 | high2 << 4) - 32);
    const int half = g / 8, plane = g / 2 % 4, at = g % 2 * 16;
    for (int l = 0; l < 16; ++l) {
      const int q = static_cast<int>(u8(qs + half * 32 + at + l) >> (2 * plane) & 3u);
      const bool third = (u8(high + at + l) >> (4 * half + plane) & 1u) != 0;
      y[16 * g + l] = scale * static_cast<float>(third ? q : q - 4);
    }
  }
}

// The 8 scales and 8 mins of 6 bits that Q4_K and Q5_K keep in 12 bytes: the low six bits of bytes 0..3 and 4..7 are
// those of sub-blocks 0..3; the nibbles of bytes 8..11 are the low halves of sub-blocks 4..7, whose two upper bits are
// the upper bits of bytes 0..7.
struct ScaleMin {
  float scale, min;
};
ScaleMin scale_min(const std::byte* packed, int j) {
  if (j < 4) return {static_cast<float>(u8(packed + j) & 63u), static_cast<float>(u8(packed + j + 4) & 63u)};
  const unsigned low = u8(packed + j + 4);
  return {static_cast<float>((low & 15u) | u8(packed + j - 4) >> 6 << 4),
          static_cast<float>(low >> 4 | u8(packed + j) >> 6 << 4)};
}

// d, dmin, 12 bytes of scales and mins, 128 bytes of nibbles.
void q4_k(const std::byte* b, float* y) {
  const float d = half_at(b), d_min = half_at(b + 2);
  for (int j = 0; j < 8; ++j) {
    const ScaleMin sm = scale_min(b + 4, j);
    const float scale = d * sm.scale, min = d_min * sm.min;
    const std::byte* qs = b + 16 + j / 2 * 32;
    for (int l = 0; l < 32; ++l) y[32 * j + l] = scale * static_cast<float>(u8(qs + l) >> (j % 2 * 4) & 15u) - min;
  }
}

// d, dmin, 12 bytes of scales and mins, 32 bytes of fifth bits (bit j for sub-block j), 128 bytes of nibbles.
void q5_k(const std::byte* b, float* y) {
  const float d = half_at(b), d_min = half_at(b + 2);
  const std::byte* high = b + 16;
  for (int j = 0; j < 8; ++j) {
    const ScaleMin sm = scale_min(b + 4, j);
    const float scale = d * sm.scale, min = d_min * sm.min;
    const std::byte* qs = b + 48 + j / 2 * 32;
    for (int l = 0; l < 32; ++l) {
      const unsigned q = (u8(qs + l) >> (j % 2 * 4) & 15u) | (u8(high + l) >> j & 1u) << 4;
      y[32 * j + l] = scale * static_cast<float>(q) - min;
    }
  }
}

// 128 bytes of nibbles, 64 bytes of upper 2-bit pairs, 16 signed scales, d. In each half of 128 values, nibble byte l
// holds values l and l + 64; the four pairs of upper byte l belong to values l, l + 32, l + 64, l + 96.
void q6_k(const std::byte* b, float* y) {
  const float d = half_at(b + 208);
  for (int g = 0; g < 16; ++g) {
    const int half = g / 8, plane = g / 2 % 4, at = g % 2 * 16;
    const float scale = d * static_cast<float>(i8(b + 192 + g));
    const std::byte* low = b + half * 64 + plane % 2 * 32 + at;
    const std::byte* high = b + 128 + half * 32 + at;
    for (int l = 0; l < 16; ++l) {
      const unsigned q = (u8(low + l) >> (plane / 2 * 4) & 15u) | (u8(high + l) >> (2 * plane) & 3u) << 4;
      y[16 * g + l] = scale * static_cast<float>(static_cast<int>(q) - 32);
    }
  }
}

template <void (*kExpand)(const std::byte*, float*)>
void each_block(DTypeInfo info, const std::byte* blocks, float* out, size_t n) {
  for (size_t i = 0; i < n; i += info.elements, blocks += info.bytes) kExpand(blocks, out + i);
}

}  // namespace

void dequantize(DType type, const std::byte* blocks, float* out, size_t n) {
  const DTypeInfo info = dtype_info(type);
  CHECK(n % info.elements == 0);
  if (n == 0) return;
  switch (type) {
    case DType::kF32:
      std::memcpy(out, blocks, n * sizeof(float));
      return;
    case DType::kF16:
      for (size_t i = 0; i < n; ++i) out[i] = half_at(blocks + 2 * i);
      return;
    case DType::kBF16:
      for (size_t i = 0; i < n; ++i) {
        bf16 value;
        std::memcpy(&value.bits, blocks + 2 * i, sizeof value.bits);
        out[i] = to_float(value);
      }
      return;
    case DType::kQ4_0:
      return each_block<q4_0>(info, blocks, out, n);
    case DType::kQ4_1:
      return each_block<q4_1>(info, blocks, out, n);
    case DType::kQ5_0:
      return each_block<q5_0>(info, blocks, out, n);
    case DType::kQ5_1:
      return each_block<q5_1>(info, blocks, out, n);
    case DType::kQ8_0:
      return each_block<q8_0>(info, blocks, out, n);
    case DType::kQ2_K:
      return each_block<q2_k>(info, blocks, out, n);
    case DType::kQ3_K:
      return each_block<q3_k>(info, blocks, out, n);
    case DType::kQ4_K:
      return each_block<q4_k>(info, blocks, out, n);
    case DType::kQ5_K:
      return each_block<q5_k>(info, blocks, out, n);
    case DType::kQ6_K:
      return each_block<q6_k>(info, blocks, out, n);
  }
  CHECK(false);
}

void dequantize_row(const TensorView& matrix, uint64_t row, float* out) {
  CHECK(row < matrix.rows());
  dequantize(matrix.dtype, matrix.data + row * matrix.row_bytes(), out, matrix.cols());
}

}  // namespace cento
