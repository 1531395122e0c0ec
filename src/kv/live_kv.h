// The KV that attention reads: one buffer a layer and side, slot = absolute position, K rotated.
#pragma once

#include <cstdint>
#include <vector>

#include "compute/ops.h"
#include "kv/kv_block.h"

namespace cento {

// Owns device memory. Slots hold anything until rows are placed in them.
class LiveKv {
 public:
  LiveKv(Device& device, const KvShape& shape)
      : device_(&device), shape_(shape), k_(shape.n_layers), v_(shape.n_layers) {}

  const KvShape& shape() const { return shape_; }
  uint64_t capacity() const { return capacity_; }
  uint64_t n_bytes() const { return 2ull * shape_.n_layers * shape_.side_bytes(capacity_); }
  KvLayerView layer(uint32_t index) const {
    return {k_[index].as<std::byte>(), v_[index].as<std::byte>(), shape_.type,
            shape_.n_kv_heads,         shape_.head_dim,           capacity_};
  }
  // Room for at least `slots`; the first `used` ones keep their content. Throws Error(kResource); then nothing has
  // changed.
  void reserve(uint64_t slots, uint64_t used);

 private:
  Device* device_;
  KvShape shape_;
  uint64_t capacity_ = 0;
  std::vector<Buffer> k_, v_;  // [Hkv, capacity, D] each
};

}  // namespace cento
