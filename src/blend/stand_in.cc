#include "blend/stand_in.h"

#include <algorithm>

namespace cento {

std::vector<int32_t> stand_in_context(std::span<const int32_t> preceding,
                                      const std::vector<std::vector<int32_t>>& passages) {
  if (preceding.size() > kStandInTokens) preceding = preceding.last(kStandInTokens);
  const size_t pad = kStandInTokens - preceding.size();
  std::vector<int32_t> context;
  for (const std::vector<int32_t>& passage : passages) {
    const size_t n = std::min(passage.size(), pad - context.size());
    context.insert(context.end(), passage.begin(), passage.begin() + static_cast<ptrdiff_t>(n));
    if (context.size() == pad) break;
  }
  if (context.size() < pad) return {};
  context.insert(context.end(), preceding.begin(), preceding.end());
  return context;
}

}  // namespace cento
