// What a blob's header has to say to be the KV that is wanted, and the row that goes with it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "kv/blob_codec.h"
#include "kv/kv_store.h"

namespace cento {

Hash key_of(const BlobHeader& header);
// Identity, shape, kind, ids and key; the rest of the header is empty.
BlobHeader header_of(const KvIdentity& identity);
// What KV of one chunk has in common whatever its context: model, layout, prefix, token ids. For RemoteTier::find.
Hash group_of(const BlobHeader& header);

KvRow row_of(const BlobHeader& header, uint64_t n_bytes, const std::optional<Hash>& chunk_hash, int64_t now_ms);

// The first difference, in words; "" if there is none. With `any_context` context, kind and key may be others, as long
// as the key is that of what the header says.
std::string difference(const BlobHeader& found, const BlobHeader& wanted, bool any_context = false);
// How far a row agrees with what is wanted, and where it stops: for the reason of a miss.
std::pair<int, const char*> agreement(const KvRow& row, const BlobHeader& wanted);

// Reads and checks a whole blob that is not encrypted: header, key, every frame. `wanted`: the key it must have.
Result<BlobHeader> check_blob(std::unique_ptr<File> file, const std::string& where, const std::optional<Hash>& wanted);

// The bytes of such a blob, once they have been checked.
Result<std::vector<std::byte>> read_checked(const File& file, const std::string& where, const Hash& wanted);

// Header, K of layer 0, V of layer 0, ...: lengths in bytes (kv/tier.h).
std::vector<uint64_t> parts_of(const BlobHeader& header);

// The whole of a file in memory.
Result<std::vector<std::byte>> read_whole(const File& file, const std::string& where);

}  // namespace cento
