// Element types of tensors in files, and a view of one: pointer, type, shape. It owns nothing.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cento {

// The values are those of GGUF's ggml_type (GGUF specification, "ggml_type").
enum class DType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30,
};

// One row of a tensor of this type is a whole number of blocks of `elements` values in `bytes` bytes.
struct DTypeInfo {
  const char* name;
  uint32_t elements;
  uint32_t bytes;
};

constexpr std::optional<DTypeInfo> dtype_info(uint32_t type) {
  switch (static_cast<DType>(type)) {
    case DType::kF32:
      return DTypeInfo{"F32", 1, 4};
    case DType::kF16:
      return DTypeInfo{"F16", 1, 2};
    case DType::kBF16:
      return DTypeInfo{"BF16", 1, 2};
    case DType::kQ4_0:
      return DTypeInfo{"Q4_0", 32, 18};
    case DType::kQ4_1:
      return DTypeInfo{"Q4_1", 32, 20};
    case DType::kQ5_0:
      return DTypeInfo{"Q5_0", 32, 22};
    case DType::kQ5_1:
      return DTypeInfo{"Q5_1", 32, 24};
    case DType::kQ8_0:
      return DTypeInfo{"Q8_0", 32, 34};
    case DType::kQ2_K:
      return DTypeInfo{"Q2_K", 256, 84};
    case DType::kQ3_K:
      return DTypeInfo{"Q3_K", 256, 110};
    case DType::kQ4_K:
      return DTypeInfo{"Q4_K", 256, 144};
    case DType::kQ5_K:
      return DTypeInfo{"Q5_K", 256, 176};
    case DType::kQ6_K:
      return DTypeInfo{"Q6_K", 256, 210};
  }
  return std::nullopt;
}
constexpr DTypeInfo dtype_info(DType type) { return *dtype_info(static_cast<uint32_t>(type)); }

// A tensor in host memory, dense. Shape is written slowest axis first: a weight matrix is [N outputs, K inputs], so
// that row n is the contiguous weights of output n. GGUF lists the fastest axis first; the reader turns it round.
struct TensorView {
  const std::byte* data = nullptr;
  DType dtype = DType::kF32;
  std::array<uint64_t, 4> shape = {1, 1, 1, 1};  // [.., N, K]; unused leading axes are absent: see n_dims
  uint32_t n_dims = 0;
  uint64_t n_bytes = 0;

  uint64_t cols() const { return n_dims == 0 ? 1 : shape[n_dims - 1]; }
  uint64_t rows() const {
    uint64_t r = 1;
    for (uint32_t i = 0; i + 1 < n_dims; ++i) r *= shape[i];
    return r;
  }
  uint64_t row_bytes() const { return cols() / dtype_info(dtype).elements * dtype_info(dtype).bytes; }
};

std::string shape_text(const TensorView& t);  // "[576, 1536]"

// IEEE 754 half, stored as bits. Conversions are exact (to float) and round to nearest even (from float).
struct fp16 {
  uint16_t bits = 0;
};
float to_float(fp16 h);
fp16 to_fp16(float f);

// Upper half of a float32.
struct bf16 {
  uint16_t bits = 0;
};
inline float to_float(bf16 b) { return std::bit_cast<float>(static_cast<uint32_t>(b.bits) << 16); }

}  // namespace cento
