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

// to[i] = or_into ? to[i] | field : field, with field = (from[i] >> shift & mask) << up, for 8 * kWords bytes. Eight
// bytes at a time: packing a model goes through here.
template <int kWords, bool kOrInto = false>
void fields(const std::byte* from, int shift, unsigned mask, uint8_t* to, int up = 0) {
  const uint64_t masks = mask * 0x0101010101010101ull;
  for (int i = 0; i < kWords; ++i) {
    uint64_t word, old = 0;
    std::memcpy(&word, from + 8 * i, 8);
    if (kOrInto) std::memcpy(&old, to + 8 * i, 8);
    word = old | (word >> shift & masks) << up;
    std::memcpy(to + 8 * i, &word, 8);
  }
}

// 32 values: byte j holds value j in its low nibble and j + 16 in its high one.
void nibbles32(const std::byte* qs, uint8_t* code) {
  fields<2>(qs, 0, 15, code);
  fields<2>(qs, 4, 15, code + 16);
}

// 32 bits, one a value.
void fifth_bits32(const std::byte* bits, uint8_t* code) {
  for (int i = 0; i < 4; ++i) {
    // Eight copies of the byte; copy k keeps bit k; adding 0x7f sets the top bit of those that are not zero.
    const uint64_t spread = (u8(bits + i) * 0x0101010101010101ull) & 0x8040201008040201ull;
    const uint64_t fifth = ((spread + 0x7f7f7f7f7f7f7f7full) & 0x8080808080808080ull) >> 3;
    uint64_t codes;
    std::memcpy(&codes, code + 8 * i, 8);
    codes |= fifth;
    std::memcpy(code + 8 * i, &codes, 8);
  }
}

// 128 nibble bytes of Q4_K and Q5_K: 32 of them hold two neighbouring sub-blocks.
void nibbles256(const std::byte* qs, uint8_t* code) {
  for (int g = 0; g < 8; ++g) fields<4>(qs + g / 2 * 32, g % 2 * 4, 15, code + 32 * g);
}

// 64 bytes of 2-bit planes of Q2_K and Q3_K: 32 bytes hold 128 values, 32 apart.
void planes256(const std::byte* qs, uint8_t* code) {
  for (int g = 0; g < 8; ++g) fields<4>(qs + g / 4 * 32, g % 4 * 2, 3, code + 32 * g);
}

// 32 bytes, bit g of which belongs to the values of the g-th 32: goes to bit `up` of the code.
void high_bits256(const std::byte* bits, uint8_t* code, int up) {
  for (int g = 0; g < 8; ++g) fields<4, true>(bits, g, 1, code + 32 * g, up);
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
  high_bits256(b, out.code, 2);
  const std::byte* packed = b + 96;
  for (int g = 0; g < 16; ++g) {
    const int low = u8(packed + g % 8) >> (g / 8 * 4) & 15;
    const int high = u8(packed + 8 + g % 4) >> (g / 4 * 2) & 3;
    out.scale[g] = static_cast<int8_t>((low | high << 4) - 32);
  }
  out.d = half(b + 108);
}

void read_q6_k(const std::byte* b, QuantBlock& out) {
  for (int g = 0; g < 8; ++g) {
    const int half = g / 4, plane = g % 4;
    fields<4>(b + half * 64 + plane % 2 * 32, plane / 2 * 4, 15, out.code + 32 * g);
    fields<4, true>(b + 128 + half * 32, plane * 2, 3, out.code + 32 * g, 4);
  }
  std::memcpy(out.scale, b + 192, 16);
  out.d = half(b + 208);
}

}  // namespace

const QuantFormat* quant_format(DType type) {
  switch (type) {
    case DType::kQ4_0:
      return &kQ4_0;
    case DType::kQ4_1:
      return &kQ4_1;
    case DType::kQ5_0:
      return &kQ5_0;
    case DType::kQ5_1:
      return &kQ5_1;
    case DType::kQ8_0:
      return &kQ8_0;
    case DType::kQ2_K:
      return &kQ2_K;
    case DType::kQ3_K:
      return &kQ3_K;
    case DType::kQ4_K:
      return &kQ4_K;
    case DType::kQ5_K:
      return &kQ5_K;
    case DType::kQ6_K:
      return &kQ6_K;
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      return nullptr;
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
    case DType::kQ2_K:
      return read_q2_k(b, out);
    case DType::kQ3_K:
      return read_q3_k(b, out);
    case DType::kQ4_K:
    case DType::kQ5_K: {
      const bool five = type == DType::kQ5_K;
      out.d = half(b);
      out.m = half(b + 2);
      scales_and_mins(b + 4, out);
      nibbles256(b + (five ? 48 : 16), out.code);
      if (five) high_bits256(b + 16, out.code, 4);
      return;
    }
    case DType::kQ6_K:
      return read_q6_k(b, out);
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      break;
  }
  CHECK(false);
}

}  // namespace cento
