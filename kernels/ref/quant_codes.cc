#include "kernels/ref/quant_codes.h"

#include <cstring>

#include "base/check.h"

namespace cento {
namespace {

uint8_t u8(const std::byte* b) { return std::to_integer<uint8_t>(*b); }
fp16 half(const std::byte* b) {
  fp16 h;
  std::memcpy(&h.bits, b, sizeof h.bits);
  return h;
}

// 32 values: byte j holds value j in its low nibble and j + 16 in its high one.
void nibbles32(const std::byte* qs, uint8_t* code) {
  for (int j = 0; j < 16; ++j) {
    code[j] = u8(qs + j) & 15u;
    code[j + 16] = static_cast<uint8_t>(u8(qs + j) >> 4);
  }
}

void fifth_bits32(const std::byte* bits, uint8_t* code) {
  for (int j = 0; j < 32; ++j) code[j] = static_cast<uint8_t>(code[j] | (u8(bits + j / 8) >> (j % 8) & 1u) << 4);
}

// 128 nibble bytes of Q4_K and Q5_K: 32 of them hold two neighbouring sub-blocks.
void nibbles256(const std::byte* qs, uint8_t* code) {
  for (int v = 0; v < 256; ++v) {
    const int pair = v / 64, high = v / 32 % 2, l = v % 32;
    code[v] = static_cast<uint8_t>(u8(qs + pair * 32 + l) >> (4 * high) & 15u);
  }
}

// 64 bytes of 2-bit planes of Q2_K and Q3_K: 32 bytes hold 128 values, 32 apart.
void planes256(const std::byte* qs, uint8_t* code) {
  for (int v = 0; v < 256; ++v) code[v] = static_cast<uint8_t>(u8(qs + v / 128 * 32 + v % 32) >> (v / 32 % 4 * 2) & 3u);
}

// The 12 bytes of Q4_K and Q5_K: see quant.cc.
void scales_and_mins(const std::byte* p, QuantBlock& out) {
  for (int j = 0; j < 4; ++j) {
    out.scale[j] = static_cast<int8_t>(u8(p + j) & 63u);
    out.min_code[j] = u8(p + j + 4) & 63u;
    out.scale[j + 4] = static_cast<int8_t>((u8(p + j + 8) & 15u) | u8(p + j) >> 6 << 4);
    out.min_code[j + 4] = static_cast<uint8_t>(u8(p + j + 8) >> 4 | u8(p + j + 4) >> 6 << 4);
  }
}

void read_q2_k(const std::byte* b, QuantBlock& out) {
  for (int g = 0; g < 16; ++g) {
    out.scale[g] = static_cast<int8_t>(u8(b + g) & 15u);
    out.min_code[g] = static_cast<uint8_t>(u8(b + g) >> 4);
  }
  planes256(b + 16, out.code);
  out.d = half(b + 80);
  out.m = half(b + 82);
}

void read_q3_k(const std::byte* b, QuantBlock& out) {
  planes256(b + 32, out.code);
  for (int v = 0; v < 256; ++v) out.code[v] = static_cast<uint8_t>(out.code[v] | (u8(b + v % 32) >> (v / 32) & 1u) << 2);
  const std::byte* packed = b + 96;
  for (int g = 0; g < 16; ++g) {
    const int low = u8(packed + g % 8) >> (g / 8 * 4) & 15;
    const int high = u8(packed + 8 + g % 4) >> (g / 4 * 2) & 3;
    out.scale[g] = static_cast<int8_t>((low | high << 4) - 32);
  }
  out.d = half(b + 108);
}

void read_q6_k(const std::byte* b, QuantBlock& out) {
  for (int v = 0; v < 256; ++v) {
    const int h = v / 128, plane = v / 32 % 4, l = v % 32;
    const unsigned low = u8(b + h * 64 + plane % 2 * 32 + l) >> (plane / 2 * 4) & 15u;
    const unsigned high = u8(b + 128 + h * 32 + l) >> (plane * 2) & 3u;
    out.code[v] = static_cast<uint8_t>(low | high << 4);
  }
  std::memcpy(out.scale, b + 192, 16);
  out.d = half(b + 208);
}

}  // namespace

const QuantFormat* quant_format(DType type) {
  switch (type) {
    case DType::kQ4_0: return &kQ4_0;
    case DType::kQ4_1: return &kQ4_1;
    case DType::kQ5_0: return &kQ5_0;
    case DType::kQ5_1: return &kQ5_1;
    case DType::kQ8_0: return &kQ8_0;
    case DType::kQ2_K: return &kQ2_K;
    case DType::kQ3_K: return &kQ3_K;
    case DType::kQ4_K: return &kQ4_K;
    case DType::kQ5_K: return &kQ5_K;
    case DType::kQ6_K: return &kQ6_K;
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16: return nullptr;
  }
  return nullptr;
}

void read_quant_block(DType type, const std::byte* b, QuantBlock& out) {
  out.m = {};
  switch (type) {
    case DType::kQ4_0:
      out.d = half(b);
      nibbles32(b + 2, out.code);
      return;
    case DType::kQ4_1:
      out.d = half(b);
      out.m = half(b + 2);
      nibbles32(b + 4, out.code);
      return;
    case DType::kQ5_0:
      out.d = half(b);
      nibbles32(b + 6, out.code);
      fifth_bits32(b + 2, out.code);
      return;
    case DType::kQ5_1:
      out.d = half(b);
      out.m = half(b + 2);
      nibbles32(b + 8, out.code);
      fifth_bits32(b + 4, out.code);
      return;
    case DType::kQ8_0:  // signed bytes; the code is the byte plus 128
      out.d = half(b);
      for (int j = 0; j < 32; ++j) out.code[j] = u8(b + 2 + j) ^ 0x80u;
      return;
    case DType::kQ2_K: return read_q2_k(b, out);
    case DType::kQ3_K: return read_q3_k(b, out);
    case DType::kQ4_K:
    case DType::kQ5_K: {
      const bool five = type == DType::kQ5_K;
      out.d = half(b);
      out.m = half(b + 2);
      scales_and_mins(b + 4, out);
      nibbles256(b + (five ? 48 : 16), out.code);
      for (int v = 0; five && v < 256; ++v) {
        out.code[v] = static_cast<uint8_t>(out.code[v] | (u8(b + 16 + v % 32) >> (v / 32) & 1u) << 4);
      }
      return;
    }
    case DType::kQ6_K: return read_q6_k(b, out);
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16: break;
  }
  CHECK(false);
}

}  // namespace cento
