// What a chunk is precomputed behind (BLENDING.md, finding 1): its own preceding text, padded in front with passages of
// the same set. KV that has seen neighbours of its kind is far closer to what it will be in a prompt.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cento {

inline constexpr size_t kStandInTokens = 700;      // at least, where there is so much text
inline constexpr size_t kStandInPassageMax = 700;  // of one passage; a longer one keeps its end
inline constexpr size_t kOwnTokensMax = 2100;      // of a chunk's own preceding text
inline constexpr size_t kLandmarkReach = 350;      // tokens to both sides

// A chunk that precedes another one in its document.
struct OwnChunk {
  std::vector<int32_t> ids;
  uint64_t draw = 0;  // as good as random, and the same on every run: of the hash of its text
};

// Ids of the context between the fixed prefix and the chunk: [pad][own], each of whole passages, because a chunk stands
// behind the end of one in a prompt: behind a torn sentence its first rows, and what attends to them, come out wrong
// (docs/BLENDING.md).
//   own         the chunk's own preceding chunks, oldest first: all of its document, or the nearest that hold
//               own_tokens_max + kLandmarkReach at least
//   from_start  they are all of its document
//   passages    the pinned passages in order, the chunk itself left out; the pad is their beginning, kStandInTokens
//
// Contexts of chunks that follow each other begin alike wherever that can be, so that the KV of one is most of what the
// next one needs: near the document's start the pad and everything since then; further on, without a pad, what begins
// with a landmark. That is a chunk with the smallest `draw` within kLandmarkReach, so that an edit moves no landmark
// far from it; the nearest one is taken that leaves kStandInTokens to own_tokens_max, else the smallest draw of these.
// Empty if it would be shorter than kStandInTokens: then the chunk is computed behind the prefix.
std::vector<int32_t> stand_in_context(const std::vector<OwnChunk>& own, bool from_start,
                                      const std::vector<std::vector<int32_t>>& passages,
                                      size_t own_tokens_max = kOwnTokensMax);

// Of a chunk with no document of its own.
std::vector<int32_t> stand_in_context(const std::vector<std::vector<int32_t>>& passages);

}  // namespace cento
