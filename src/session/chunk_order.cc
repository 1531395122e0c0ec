#include "session/chunk_order.h"

#include <algorithm>
#include <iterator>

namespace cento {

std::optional<ChunkOrder> find_chunk_order(std::string_view name) {
  if (name == "rank") return ChunkOrder::kRank;
  if (name == "reading") return ChunkOrder::kReading;
  return std::nullopt;
}

const char* chunk_order_name(ChunkOrder order) { return order == ChunkOrder::kRank ? "rank" : "reading"; }

std::vector<size_t> chunk_order(const std::vector<ChunkToOrder>& chunks, ChunkOrder order) {
  // Groups that stay together, by the rank of their best chunk.
  std::vector<std::vector<size_t>> groups;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const std::vector<size_t>& group) {
      return order == ChunkOrder::kReading && chunks[group.front()].source_id == chunks[i].source_id;
    });
    if (same == groups.end()) {
      groups.push_back({i});
    } else {
      same->push_back(i);
    }
  }
  for (std::vector<size_t>& group : groups)
    std::sort(group.begin(), group.end(), [&](size_t a, size_t b) { return chunks[a].seq < chunks[b].seq; });
  std::reverse(groups.begin(), groups.end());  // the best last
  // Only the first chunk of a group can lead without tearing it.
  const auto last = groups.empty() ? groups.end() : std::prev(groups.end());
  const auto leader =
      std::find_if(groups.begin(), last, [&](const std::vector<size_t>& group) { return chunks[group.front()].exact; });
  if (leader != last) std::rotate(groups.begin(), leader, std::next(leader));
  std::vector<size_t> out;
  for (const std::vector<size_t>& group : groups) out.insert(out.end(), group.begin(), group.end());
  return out;
}

}  // namespace cento
