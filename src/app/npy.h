// NumPy's .npy format, version 1.0 (NumPy Enhancement Proposal 1): a matrix of float32.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace cento {

// Bytes of the file: values [rows, cols] in C order, little-endian. values.size() == rows * cols.
std::string npy_bytes(std::span<const float> values, size_t rows, size_t cols);

// Written beside `path` and renamed. Throws Error.
void write_npy(const std::string& path, std::span<const float> values, size_t rows, size_t cols);

}  // namespace cento
