// One chunk's K and V for all layers, in host memory, as it is stored: K not rotated.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "compute/ops.h"

namespace cento {

struct KvShape {
  uint32_t n_layers = 0, n_kv_heads = 0, head_dim = 0;
  KvType type = KvType::kF16;
  bool operator==(const KvShape&) const = default;
  uint64_t row_values() const { return uint64_t{n_kv_heads} * head_dim; }
  uint64_t side_bytes(uint64_t n_tokens) const {
    return n_tokens * row_values() * kv_type_bytes(type);
  }  // K or V of one layer
};

// Owns its bytes. Layer l's K is [T, Hkv, D], its V alike.
class KvBlock {
 public:
  KvBlock() = default;
  KvBlock(const KvShape& shape, uint64_t n_tokens)
      : shape_(shape), n_tokens_(n_tokens), bytes_(2 * shape.n_layers * shape.side_bytes(n_tokens)) {}
  const KvShape& shape() const { return shape_; }
  uint64_t n_tokens() const { return n_tokens_; }
  std::span<std::byte> k(uint32_t layer) { return side(2 * uint64_t{layer}); }
  std::span<std::byte> v(uint32_t layer) { return side(2 * uint64_t{layer} + 1); }
  std::span<const std::byte> k(uint32_t layer) const { return const_cast<KvBlock*>(this)->k(layer); }
  std::span<const std::byte> v(uint32_t layer) const { return const_cast<KvBlock*>(this)->v(layer); }

 private:
  std::span<std::byte> side(uint64_t index) {
    const uint64_t n = shape_.side_bytes(n_tokens_);
    return std::span(bytes_).subspan(index * n, n);
  }
  KvShape shape_;
  uint64_t n_tokens_ = 0;
  std::vector<std::byte> bytes_;
};

// Value i of K or V of a layer, whatever its type.
inline float kv_value(KvType type, std::span<const std::byte> side, size_t i) {
  const auto read = [&]<class T>(T value) {
    std::memcpy(&value, side.data() + i * sizeof value, sizeof value);
    return value;
  };
  return type == KvType::kF32 ? read(0.0f) : to_float(read(fp16{}));
}

// Rows [first, first + n) of a block as a block of their own.
inline KvBlock rows_of(const KvBlock& block, uint64_t first, uint64_t n) {
  KvBlock out(block.shape(), n);
  const uint64_t from = block.shape().side_bytes(first), n_bytes = block.shape().side_bytes(n);
  for (uint32_t layer = 0; layer < block.shape().n_layers; ++layer) {
    const auto copy = [&](std::span<const std::byte> side, std::span<std::byte> to) {
      const auto part = side.subspan(from, n_bytes);
      std::copy(part.begin(), part.end(), to.begin());
    };
    copy(block.k(layer), out.k(layer));
    copy(block.v(layer), out.v(layer));
  }
  return out;
}

}  // namespace cento
