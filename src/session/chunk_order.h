// In which order the chunks that were found stand in a prompt. It is ours to choose, and it decides how much of their
// KV is right.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace cento {

enum class ChunkOrder {
  kRank,     // the best last, next to the question
  kReading,  // chunks of one source side by side as they stand in it; the source of the best one last
};
std::optional<ChunkOrder> find_chunk_order(std::string_view name);  // "rank", "reading"
const char* chunk_order_name(ChunkOrder order);

struct ChunkToOrder {
  int64_t source_id = 0;
  uint32_t seq = 0;    // in its source
  bool exact = false;  // its KV right behind the fixed prefix is known: exact if it stands first
};

// Indices into `chunks`, which come by rank, the best first, in the order of the prompt. Of the chunks that are exact
// in front the last by rank is put there, with its neighbours in reading order behind it; the best chunk is not moved
// there unless it is alone.
std::vector<size_t> chunk_order(const std::vector<ChunkToOrder>& chunks, ChunkOrder order);

}  // namespace cento
