// What the chunks of a collection are computed behind: one piece for whoever stores their KV and whoever measures what
// storing it costs.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "docs/doc_store.h"
#include "session/prompt_layout.h"

namespace cento {

class CollectionContexts {
 public:
  // Lists the collection's chunks as they are now. `docs` and `layout` outlive it.
  CollectionContexts(DocStore& docs, int64_t collection_id, const PromptLayout& layout);

  // The passages in front of every chunk: those that are pinned; where they hold too little, drawn anew, with a fixed
  // seed from order(). `keep`: what was drawn is pinned, since other passages would make every stored KV stale. Without
  // a call there are none.
  void choose_passages(bool keep);

  // Each chunk once, at its first place.
  const std::vector<DocStore::ChunkInOrder>& order() const { return order_; }
  // nullptr: not among them. Valid as long as the object.
  const DocStore::ChunkInOrder* place_of(int64_t chunk_id);

  // As in a prompt; empty for a chunk that is gone. The reference holds until the object goes.
  const std::vector<int32_t>& ids_of(int64_t chunk_id);
  // Between the fixed prefix and the chunk: passages, and its own preceding chunks (stand_in.h). In order() a chunk's
  // context is mostly the context of the one before it with that chunk behind it.
  std::vector<int32_t> context_of(const DocStore::ChunkInOrder& place);

 private:
  std::vector<int64_t> draw() const;

  DocStore* docs_;
  int64_t collection_id_;
  const PromptLayout* layout_;
  uint32_t context_max_;  // tokens
  std::vector<DocStore::ChunkInOrder> order_;
  std::unordered_map<int64_t, size_t> places_;  // chunk -> index into order_; filled when first asked for
  std::vector<int64_t> passages_;
  std::unordered_map<int64_t, std::vector<int32_t>> ids_;  // of chunks seen
};

}  // namespace cento
