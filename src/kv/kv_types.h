// The small words about stored KV that the catalogue, the blobs and their users share.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace cento {

// Fixed prefix; chunk behind it; chunk behind a stand-in context. The values are stored.
enum class KvKind : int { kPrefix = 0, kChunkPrefix = 1, kChunkStandIn = 2 };

constexpr const char* kv_kind_name(KvKind kind) {
  switch (kind) {
    case KvKind::kPrefix:
      return "prefix";
    case KvKind::kChunkPrefix:
      return "chunk";
    case KvKind::kChunkStandIn:
      return "chunk-stand-in";
  }
  return "unknown";
}

// How the bytes of a K or V frame are written (kv_quant.h). The values are stored.
enum class KvCodec : uint8_t {
  kRaw = 0,       // as they are in memory
  kLossless = 1,  // byte planes, each compressed where that saves something
  kInt8 = 2,      // lossy from here on, of half precision only: 8 bits a value
  kK8v4 = 3,      // K 8 bits, V about 4
  kInt4 = 4,      // about 4 bits
};

inline constexpr std::array kKvCodecs = {KvCodec::kRaw, KvCodec::kLossless, KvCodec::kInt8, KvCodec::kK8v4,
                                         KvCodec::kInt4};

constexpr const char* kv_codec_name(KvCodec codec) {
  switch (codec) {
    case KvCodec::kRaw:
      return "raw";
    case KvCodec::kLossless:
      return "lossless";
    case KvCodec::kInt8:
      return "int8";
    case KvCodec::kK8v4:
      return "k8v4";
    case KvCodec::kInt4:
      return "int4";
  }
  return "unknown";
}

constexpr std::optional<KvCodec> find_kv_codec(std::string_view name) {
  for (const KvCodec codec : kKvCodecs) {
    if (name == kv_codec_name(codec)) return codec;
  }
  return std::nullopt;
}

// What `cento precompute` stores unless told otherwise: the smallest whose mean KL of exact reuse is within 2e-3 on
// every model measured (docs/STORE.md). KV that counts as exact, right behind the fixed prefix, is lossless.
inline constexpr KvCodec kDefaultCodec = KvCodec::kInt8;

// About what share of half-precision KV is stored, for a foretold size.
constexpr double kv_codec_share(KvCodec codec) {
  constexpr std::array kShares = {1.0, 0.85, 0.47, 0.36, 0.24};
  return kShares[static_cast<size_t>(codec)];
}

constexpr bool is_lossy(KvCodec codec) { return codec != KvCodec::kRaw && codec != KvCodec::kLossless; }

}  // namespace cento
