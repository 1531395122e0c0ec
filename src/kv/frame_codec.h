// K or V of one layer <-> its bytes in a blob, by codec. man/cento-blob.5 has them byte by byte. Damage is a Result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "kv/kv_block.h"
#include "kv/kv_types.h"

namespace cento {

// What a frame holds: [T, Hkv, D].
struct FrameShape {
  KvType type = KvType::kF16;
  uint64_t n_tokens = 0;
  uint32_t n_kv_heads = 0, head_dim = 0;
  uint32_t layer = 0;
  bool is_k = true;
  uint64_t row_values() const { return uint64_t{n_kv_heads} * head_dim; }
  uint64_t raw_bytes() const { return n_tokens * row_values() * kv_type_bytes(type); }
};
inline FrameShape frame_shape(const KvShape& shape, uint64_t n_tokens, uint32_t layer, bool is_k) {
  return {shape.type, n_tokens, shape.n_kv_heads, shape.head_dim, layer, is_k};
}

// Why the codec does not take values of this type; "" if it does.
std::string not_for_codec(KvCodec codec, KvType type);

// Encodes and decodes frames; keeps the buffers and contexts for that. One thread at a time.
class FrameCodec {
 public:
  FrameCodec();
  ~FrameCodec();
  FrameCodec(const FrameCodec&) = delete;
  FrameCodec& operator=(const FrameCodec&) = delete;

  // Appends the frame of `raw`, shape.raw_bytes() long, of a type that the codec takes. A frame that a lossy codec
  // cannot represent (a value is not finite), or does not make smaller, is lossless within its bytes.
  void encode(KvCodec codec, const FrameShape& shape, std::span<const std::byte> raw, std::vector<std::byte>& out);
  // Fills all of `raw`, shape.raw_bytes() long, from exactly one frame. On an error its content is unspecified.
  Status decode(KvCodec codec, const FrameShape& shape, std::span<const std::byte> stored, std::span<std::byte> raw);

 private:
  struct State;
  void encode_lossless(KvType type, std::span<const std::byte> raw, std::vector<std::byte>& out);
  Status decode_lossless(KvType type, std::span<const std::byte> stored, std::span<std::byte> raw);
  bool encode_quantised(KvCodec codec, const FrameShape& shape, std::span<const std::byte> raw,
                        std::vector<std::byte>& out);
  Status decode_quantised(const FrameShape& shape, std::span<const std::byte> stored, std::span<std::byte> raw);

  std::unique_ptr<State> state_;
};

// What comes back of a block that is stored with a codec. Single precision, which the lossy ones do not take, is
// rounded to half for them: to measure what they lose without the noise of faster arithmetic.
KvBlock through_codec(const KvBlock& block, KvCodec codec);

}  // namespace cento
