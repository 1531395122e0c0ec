#include "base/tensor_view.h"

namespace cento {

std::string shape_text(const TensorView& t) {
  std::string s = "[";
  for (uint32_t i = 0; i < t.n_dims; ++i) s += (i ? ", " : "") + std::to_string(t.shape[i]);
  return s + "]";
}

float to_float(fp16 h) {
  const uint32_t sign = static_cast<uint32_t>(h.bits & 0x8000u) << 16;
  const uint32_t exponent = (h.bits >> 10) & 0x1fu;
  const uint32_t mantissa = h.bits & 0x3ffu;
  if (exponent == 0) {  // zero and subnormals: mantissa * 2^-24, exact in float
    const float value = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13);
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

fp16 to_fp16(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f);
  const uint32_t sign = (u >> 16) & 0x8000u;
  const uint32_t a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return {static_cast<uint16_t>(sign | 0x7e00u)};   // NaN stays NaN
  if (a >= 0x477ff000u) return {static_cast<uint16_t>(sign | 0x7c00u)};  // 65520 and above round to infinity
  if (a < 0x38800000u) {  // below 2^-14: subnormal; adding 0.5 makes the float adder round to a multiple of 2^-24
    const float r = std::bit_cast<float>(a) + 0.5f;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(r) - 0x3f000000u))};
  }
  const uint32_t rounded = a + 0xfffu + ((a >> 13) & 1u);  // nearest, ties to even
  return {static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13))};
}

}  // namespace cento
