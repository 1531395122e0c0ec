// KvBlock <-> bytes of a blob (blob_format.h). Damage is a Result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "base/result.h"
#include "kv/frame_codec.h"
#include "kv/kv_block.h"
#include "kv/kv_types.h"

namespace cento {

// One K or V of one layer in the file.
struct BlobFrame {
  uint64_t offset = 0, stored_bytes = 0, raw_bytes = 0;
  uint32_t crc = 0;  // CRC-32C of the stored bytes
};

// What a blob says about itself. `frames` holds K and V of each layer in turn: [2 * L].
struct BlobHeader {
  Hash fingerprint, layout, key, prefix_id, context_id;
  KvShape shape;
  KvKind kind = KvKind::kPrefix;
  std::vector<int32_t> ids;     // [T]
  std::vector<KvCodec> codecs;  // [L]
  std::vector<BlobFrame> frames;
  uint64_t header_bytes = 0, file_bytes = 0;
};

// The whole file. `about` gives identity, shape, kind and ids; its codecs, frames and sizes are not read.
// Error(kInput): shape or ids outside the format's limits, or not those of `block`, or not a type the codec takes.
Result<std::vector<std::byte>> encode_blob(const BlobHeader& about, const KvBlock& block, KvCodec codec);

// Length of everything before the frames.
uint64_t blob_header_bytes(uint64_t n_tokens, uint64_t n_layers);

// Reads and checks everything before the frames: lengths against the file's size, limits, CRC, and that the frames lie
// one behind the other from the header to the end of the file. The error's message is a few words: "not a KV blob",
// "unknown version 7", "file cut short", "header checksum mismatch", ...; `where` is the path to name in it.
Result<BlobHeader> read_blob_header(const File& file, const std::string& where);

}  // namespace cento
