#include "session/collection_contexts.h"

#include <algorithm>
#include <cstring>

#include "base/rng.h"
#include "blend/stand_in.h"

namespace cento {
namespace {

// Passages are pinned until they hold this many tokens more than a stand-in context needs, so that leaving out the
// chunk itself still leaves enough.
constexpr size_t kPinnedSpare = 1024;
constexpr uint64_t kStandInSeed = 20250;   // any fixed number: the draw is the same on every run
constexpr uint32_t kPrecedingChunks = 64;  // more than fill a context, unless they are very short
// A context holds pad, own text and chunk: up to 3,800 tokens with passages of 256 and the usual prefix. A model that
// has not so much room gets the shortest contexts there are.
constexpr uint32_t kRoomyContext = 4096;

}  // namespace

CollectionContexts::CollectionContexts(DocStore& docs, int64_t collection_id, const PromptLayout& layout)
    : docs_(&docs),
      collection_id_(collection_id),
      layout_(&layout),
      context_max_(layout.context_max()),
      order_(docs.chunks_in_order(collection_id)) {}

void CollectionContexts::choose_passages(bool keep) {
  passages_ = docs_->stand_ins(collection_id_);
  size_t tokens = 0;
  for (const int64_t id : passages_) tokens += ids_of(id).size();
  if (tokens >= kStandInTokens) return;
  passages_ = draw();
  if (keep) docs_->set_stand_ins(collection_id_, passages_);
}

std::vector<int64_t> CollectionContexts::draw() const {
  std::vector<int64_t> ids;
  for (const auto& c : order_) ids.push_back(c.chunk_id);
  Rng rng(kStandInSeed);
  shuffle(ids, rng);
  std::vector<int64_t> drawn;
  size_t tokens = 0;
  for (const int64_t id : ids) {
    if (tokens >= kStandInTokens + kPinnedSpare) break;
    const auto chunk = docs_->chunk(id);
    if (!chunk) continue;
    tokens += layout_->chunk(chunk->prompt_text()).size();
    drawn.push_back(id);
  }
  return drawn;
}

const DocStore::ChunkInOrder* CollectionContexts::place_of(int64_t chunk_id) {
  if (places_.empty()) {
    for (size_t i = 0; i < order_.size(); ++i) places_.emplace(order_[i].chunk_id, i);
  }
  const auto found = places_.find(chunk_id);
  return found == places_.end() ? nullptr : &order_[found->second];
}

const std::vector<int32_t>& CollectionContexts::ids_of(int64_t chunk_id) {
  const auto found = ids_.find(chunk_id);
  if (found != ids_.end()) return found->second;
  const auto chunk = docs_->chunk(chunk_id);
  return ids_[chunk_id] = chunk ? layout_->chunk(chunk->prompt_text()) : std::vector<int32_t>{};
}

std::vector<int32_t> CollectionContexts::context_of(const DocStore::ChunkInOrder& place) {
  const size_t own_max = context_max_ >= kRoomyContext ? kOwnTokensMax : kStandInTokens;
  std::vector<OwnChunk> own;
  const std::vector<ChunkRow> before = docs_->preceding(place.source_id, place.seq, kPrecedingChunks);
  size_t n_tokens = 0, n_seen = 0;
  for (; n_seen < before.size() && n_tokens < own_max + kLandmarkReach; ++n_seen) {  // nearest first
    const ChunkRow& row = before[n_seen];
    if (row.id == place.chunk_id) continue;  // the same text twice in one document
    uint64_t draw = 0;
    std::memcpy(&draw, row.hash.bytes.data(), sizeof draw);
    own.push_back({ids_of(row.id), draw});
    n_tokens += std::min(own.back().ids.size(), kStandInPassageMax);
  }
  const bool from_start = n_seen == before.size() && before.size() < kPrecedingChunks;
  std::reverse(own.begin(), own.end());
  std::vector<std::vector<int32_t>> passages;
  for (const int64_t id : passages_) {
    if (id != place.chunk_id) passages.push_back(ids_of(id));
  }
  return stand_in_context(own, from_start, passages, own_max);
}

}  // namespace cento
