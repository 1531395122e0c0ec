// KV blocks and identities for tests.
#pragma once

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/tensor_view.h"
#include "kv/kv_store.h"

namespace cento::test {

inline Hash hash_filled(uint8_t n) {
  Hash hash;
  hash.bytes.fill(n);
  return hash;
}

enum class KvPattern { kZero, kRandomBits, kNan, kNormal };

// kRandomBits: every bit pattern, NaN and infinity among them. kNormal: a scale of its own for each channel, as in
// models.
inline KvBlock sample_block(const KvShape& shape, uint64_t n_tokens, KvPattern pattern, uint64_t seed) {
  KvBlock block(shape, n_tokens);
  Rng rng(seed);
  for (uint32_t side = 0; side < 2 * shape.n_layers; ++side) {
    const std::span<std::byte> out = side % 2 == 0 ? block.k(side / 2) : block.v(side / 2);
    const size_t width = kv_type_bytes(shape.type);
    for (size_t i = 0; i < out.size() / width; ++i) {
      uint32_t bits = 0;
      if (pattern == KvPattern::kRandomBits) bits = static_cast<uint32_t>(rng.next());
      if (pattern == KvPattern::kNan)
        bits = width == 2 ? 0x7e00u + static_cast<uint32_t>(i % 512) : 0xffc00000u + static_cast<uint32_t>(i);
      if (pattern == KvPattern::kNormal) {
        const double scale = 0.1 + 0.05 * static_cast<double>(i % shape.row_values() % 37);
        const auto value = static_cast<float>(scale * (rng.uniform() + rng.uniform() + rng.uniform() - 1.5));
        bits = width == 2 ? to_fp16(value).bits : std::bit_cast<uint32_t>(value);
      }
      std::memcpy(out.data() + i * width, &bits, width);
    }
  }
  return block;
}

inline bool same_bytes(const KvBlock& a, const KvBlock& b) {
  if (!(a.shape() == b.shape()) || a.n_tokens() != b.n_tokens()) return false;
  for (uint32_t l = 0; l < a.shape().n_layers; ++l) {
    if (!std::ranges::equal(a.k(l), b.k(l)) || !std::ranges::equal(a.v(l), b.v(l))) return false;
  }
  return true;
}

// All layers of `reader`, last one first; the first error instead.
inline Result<KvBlock> read_all_layers(KvReader& reader) {
  KvBlock block(reader.shape(), reader.n_tokens());
  for (uint32_t l = reader.shape().n_layers; l-- > 0;) {
    if (auto s = reader.read_layer(l, block.k(l), block.v(l)); !s) return s.error();
  }
  return block;
}

// An identity that owns its token ids.
struct SampleIdentity {
  Hash fingerprint = hash_filled(1), layout = hash_filled(2);
  KvShape shape{2, 3, 8, KvType::kF16};
  KvKind kind = KvKind::kChunkStandIn;
  std::vector<int32_t> prefix = {1, 2, 3}, context = {1, 2, 3, 40, 50}, ids = {7, -8, 9, 10, 11};
  KvIdentity get() const { return {fingerprint, layout, shape, kind, prefix, context, ids}; }
  KvBlock block(uint64_t seed, KvPattern pattern = KvPattern::kNormal) const {
    return sample_block(shape, ids.size(), pattern, seed);
  }
};

}  // namespace cento::test
