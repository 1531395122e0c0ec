// A run of bytes as a part of a frame: as it is, or as one zstd frame where that is worth while. The zstd header stops
// in zstd_part.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"

namespace cento {

// Keeps zstd's contexts and buffers. One thread at a time.
class ZstdParts {
 public:
  ZstdParts();
  ~ZstdParts();
  ZstdParts(const ZstdParts&) = delete;
  ZstdParts& operator=(const ZstdParts&) = delete;

  // Appends `content`, compressed if that saves at least 1/share of it, and returns the length of what was appended: a
  // part as long as its content is the content. Throws Error(kResource).
  size_t pack(std::span<const uint8_t> content, uint64_t share, std::vector<std::byte>& out);
  // The n bytes of a part's content: in `stored` itself, or unpacked to `into`, which has room for n. A compressed part
  // must be exactly one zstd frame that states its content size.
  Result<const uint8_t*> unpack(std::span<const std::byte> stored, size_t n, uint8_t* into);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace cento
