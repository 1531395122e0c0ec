// The first value of a blob in a store of keys and values: what parts the blob has, then its first part, the header.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace cento {

// Limits of what is believed of another machine. A header is some 4 MiB at most (kv/blob_format.h), sealing adds 8
// bytes a part.
inline constexpr size_t kRemotePartsMax = 1 + 2 * 1024;
inline constexpr uint64_t kRemoteHeaderBytesMax = uint64_t{8} << 20;
inline constexpr uint64_t kRemotePartBytesMax = uint64_t{512} << 20;  // the most that a Redis value holds

struct RemoteParts {
  std::vector<uint64_t> lengths;  // of all parts; the first is that of the header
  size_t header_at = 0;           // where the first part begins
};

// Error(kResource): more or longer parts than there may be.
Result<std::string> remote_parts_text(std::span<const uint64_t> lengths);
// Error(kInput): not such a value, damaged, cut short or too long.
Result<RemoteParts> parse_remote_parts(std::span<const std::byte> bytes);

}  // namespace cento
