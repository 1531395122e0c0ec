// Block formats of quantised GGUF weights, and their exact expansion to float32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/tensor_view.h"

namespace cento {

// n values (a whole number of blocks) of `type` at `blocks` to float32. Formats: ggml's block_q* layouts, as described
// in the GGUF specification's tensor types. Bit-exact with the formula d * q (+ m), evaluated in float32.
void dequantize(DType type, const std::byte* blocks, float* out, size_t n);

// Row r of a matrix view.
void dequantize_row(const TensorView& matrix, uint64_t row, float* out);

}  // namespace cento
