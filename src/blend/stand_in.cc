#include "blend/stand_in.h"

#include <algorithm>

namespace cento {
namespace {

size_t used_of(const std::vector<int32_t>& passage) { return std::min(passage.size(), kStandInPassageMax); }

void append(std::vector<int32_t>& context, const std::vector<int32_t>& passage) {
  context.insert(context.end(), passage.end() - static_cast<ptrdiff_t>(used_of(passage)), passage.end());
}

// Whether no chunk that begins within kLandmarkReach tokens of this one has a smaller draw. `to_end[i]`: tokens from
// the beginning of chunk i on.
bool is_landmark(const std::vector<OwnChunk>& own, const std::vector<size_t>& to_end, size_t i) {
  for (size_t j = i; j-- > 0 && to_end[j] - to_end[i] <= kLandmarkReach;) {
    if (own[j].draw <= own[i].draw) return false;
  }
  for (size_t j = i + 1; j < own.size() && to_end[i] - to_end[j] <= kLandmarkReach; ++j) {
    if (own[j].draw < own[i].draw) return false;
  }
  return true;
}

// Index of the chunk that `own` is used from on.
size_t first_used(const std::vector<OwnChunk>& own, size_t own_tokens_max) {
  std::vector<size_t> to_end(own.size());
  for (size_t i = own.size(), n = 0; i-- > 0;) to_end[i] = n += used_of(own[i].ids);
  size_t best = own.size();
  for (size_t i = own.size(); i-- > 0;) {
    if (to_end[i] < kStandInTokens) continue;
    if (best < own.size() && to_end[i] >= own_tokens_max) break;
    if (is_landmark(own, to_end, i)) return i;
    if (best == own.size() || own[i].draw < own[best].draw) best = i;
  }
  return best;
}

}  // namespace

std::vector<int32_t> stand_in_context(const std::vector<OwnChunk>& own, bool from_start,
                                      const std::vector<std::vector<int32_t>>& passages, size_t own_tokens_max) {
  size_t n_own = 0;
  for (const OwnChunk& chunk : own) n_own += used_of(chunk.ids);
  std::vector<int32_t> context;
  size_t first = 0;
  if (from_start && n_own < own_tokens_max) {
    for (auto pad = passages.begin(); pad != passages.end() && context.size() < kStandInTokens; ++pad)
      append(context, *pad);
  } else {
    first = first_used(own, own_tokens_max);
  }
  for (size_t i = first; i < own.size(); ++i) append(context, own[i].ids);
  if (context.size() < kStandInTokens) context.clear();
  return context;
}

std::vector<int32_t> stand_in_context(const std::vector<std::vector<int32_t>>& passages) {
  return stand_in_context({}, true, passages);
}

}  // namespace cento
