// What a chunk is precomputed behind (BLENDING.md, finding 1): its own preceding text, padded in front with passages of
// the same set. KV that has seen neighbours of its kind is far closer to what it will be in a prompt.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cento {

inline constexpr size_t kStandInTokens = 700;      // and a passage more at most
inline constexpr size_t kStandInPassageMax = 700;  // of one passage; a longer one keeps its end

// Ids of the context between the fixed prefix and the chunk: [pad][preceding], each of whole passages, because a chunk
// stands behind the end of one in a prompt: behind a torn sentence its first rows, and what attends to them, come out
// wrong (docs/BLENDING.md).
//   preceding  the chunk's own preceding chunks, oldest first; the nearest are used until they hold kStandInTokens
//   passages   the pinned passages in order, the chunk itself left out; the pad is their beginning, so that the chunks
//              of a collection share leading ids and their KV need be computed once only
// Empty if preceding and passages together are shorter than kStandInTokens: then the chunk is computed behind the
// prefix.
std::vector<int32_t> stand_in_context(const std::vector<std::vector<int32_t>>& preceding,
                                      const std::vector<std::vector<int32_t>>& passages);

}  // namespace cento
