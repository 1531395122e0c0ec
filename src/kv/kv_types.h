// The small words about stored KV that the catalogue, the blobs and their users share.
#pragma once

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

// How the bytes of a K or V frame are written. The values are stored.
enum class KvCodec : uint8_t {
  kRaw = 0,       // as they are in memory
  kLossless = 1,  // byte planes, each compressed where that saves something
};

constexpr const char* kv_codec_name(KvCodec codec) {
  switch (codec) {
    case KvCodec::kRaw:
      return "raw";
    case KvCodec::kLossless:
      return "lossless";
  }
  return "unknown";
}

constexpr std::optional<KvCodec> find_kv_codec(std::string_view name) {
  for (const KvCodec codec : {KvCodec::kRaw, KvCodec::kLossless}) {
    if (name == kv_codec_name(codec)) return codec;
  }
  return std::nullopt;
}

}  // namespace cento
