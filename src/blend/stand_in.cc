#include "blend/stand_in.h"

#include <algorithm>

namespace cento {
namespace {

size_t used_of(const std::vector<int32_t>& passage) { return std::min(passage.size(), kStandInPassageMax); }

void append(std::vector<int32_t>& context, const std::vector<int32_t>& passage) {
  context.insert(context.end(), passage.end() - static_cast<ptrdiff_t>(used_of(passage)), passage.end());
}

}  // namespace

std::vector<int32_t> stand_in_context(const std::vector<std::vector<int32_t>>& preceding,
                                      const std::vector<std::vector<int32_t>>& passages) {
  size_t n_own = 0;
  auto own = preceding.end();
  while (own != preceding.begin() && n_own < kStandInTokens) n_own += used_of(*--own);
  std::vector<int32_t> context;
  for (auto pad = passages.begin(); pad != passages.end() && context.size() + n_own < kStandInTokens; ++pad)
    append(context, *pad);
  if (context.size() + n_own < kStandInTokens) return {};
  for (; own != preceding.end(); ++own) append(context, *own);
  return context;
}

}  // namespace cento
