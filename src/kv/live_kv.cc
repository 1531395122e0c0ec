#include "kv/live_kv.h"

#include <algorithm>

#include "base/size_math.h"

namespace cento {
namespace {

constexpr uint64_t kSlotStep = 256;  // capacity grows in steps, so that a decode does not reallocate for every token

}  // namespace

void LiveKv::reserve(uint64_t slots, uint64_t used) {
  if (slots <= capacity_) return;
  const uint64_t wanted = round_up(slots, kSlotStep);
  const uint64_t head_bytes = shape_.head_dim * kv_type_bytes(shape_.type);
  const auto grown = [&](const Buffer& old) {
    Buffer buffer(*device_, shape_.side_bytes(wanted));
    const uint64_t kept = std::min(used, capacity_) * head_bytes;
    for (uint32_t head = 0; head < shape_.n_kv_heads && kept > 0; ++head) {
      device_->copy(buffer.as<std::byte>(head * wanted * head_bytes), old.as<std::byte>(head * capacity_ * head_bytes),
                    kept);
    }
    return buffer;
  };
  std::vector<Buffer> k, v;
  for (uint32_t layer = 0; layer < shape_.n_layers; ++layer) {
    k.push_back(grown(k_[layer]));
    v.push_back(grown(v_[layer]));
  }
  k_.swap(k);
  v_.swap(v);
  capacity_ = wanted;
}

}  // namespace cento
