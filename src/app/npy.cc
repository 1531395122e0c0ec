#include "app/npy.h"

#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/file.h"

namespace cento {

std::string npy_bytes(std::span<const float> values, size_t rows, size_t cols) {
  static_assert(std::endian::native == std::endian::little);
  CHECK(values.size() == rows * cols);
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::to_string(rows) + ", " +
                       std::to_string(cols) + "), }";
  constexpr size_t kMagicBytes = 10;  // "\x93NUMPY", version 1.0, header length
  constexpr size_t kAlign = 64;       // of the data, so that it can be mapped
  while ((kMagicBytes + header.size() + 1) % kAlign != 0) header += ' ';
  header += '\n';
  std::string out("\x93NUMPY\x01\x00", 8);
  out += static_cast<char>(header.size() & 0xff);
  out += static_cast<char>(header.size() >> 8);
  out += header;
  const size_t at = out.size();
  out.resize(at + values.size_bytes());
  if (!values.empty()) std::memcpy(out.data() + at, values.data(), values.size_bytes());
  return out;
}

void write_npy(const std::string& path, std::span<const float> values, size_t rows, size_t cols) {
  const std::string bytes = npy_bytes(values, rows, cols);
  atomic_write(FileSystem::real(), path, std::as_bytes(std::span(bytes))).or_throw();
}

}  // namespace cento
