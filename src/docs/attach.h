// A single file as chunks for one prompt, outside any collection.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "docs/doc_store.h"
#include "model/tokenizer.h"

namespace cento {

// Reads and cuts the file as the indexer would. Throws Error(kInput) if it cannot be read or is no text; `max_bytes`
// bounds it.
std::vector<NewChunk> chunks_of_file(const std::string& path, const Tokenizer& tokenizer, uint32_t chunk_tokens,
                                     uint64_t max_bytes = 64ull << 20);

}  // namespace cento
