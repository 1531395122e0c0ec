#include "eval/collection_prompts.h"

#include <algorithm>

#include "base/error.h"
#include "docs/retriever.h"
#include "docs/words.h"
#include "session/answer.h"

namespace cento {
namespace {

int64_t id_of_collection(DocStore& docs, const std::string& name) {
  const auto collection = docs.find_collection(name);
  if (!collection)
    throw Error{Code::kInput, "no collection named '" + name + "'", docs.catalogue().db().path(),
                "run `cento index FOLDER` first"};
  return collection->id;
}

// Folded words, one space on either side of each.
std::string spaced_words(std::string_view text) {
  std::string out = " ";
  for (const Word& word : words_of(text)) out += word.text + " ";
  return out;
}

std::string without_tags(const std::string& html) {
  std::string out;
  bool inside = false;
  for (const char c : html) {
    if (c == '<') inside = true;
    if (!inside) out += c;
    if (c == '>') inside = false;
  }
  return out;
}

bool is_from(const CollectionPassage& passage, const std::string& file) {
  return file.empty() || std::any_of(passage.places.begin(), passage.places.end(), [&](const ChunkPlace& place) {
           return place.path == file || place.path.ends_with("/" + file);
         });
}

}  // namespace

CollectionPrompts::CollectionPrompts(const LoadedModel& model, DocStore& docs, const std::string& collection,
                                     size_t top_k, const std::string& system, ChunkOrder order)
    : docs_(docs),
      collection_id_(id_of_collection(docs, collection)),
      top_k_(top_k),
      order_(order),
      layout_(model, system.empty() ? default_system_text() : system),
      contexts_(docs, collection_id_, layout_) {
  contexts_.choose_passages(false);
}

Result<CollectionPrompt> CollectionPrompts::prompt(const std::string& question, const std::string& search) {
  const Retrieved found = retrieve(docs_, collection_id_, search, top_k_);
  CollectionPrompt out;
  out.prompt.prefix = layout_.prefix();
  out.prompt.question = layout_.question(question);
  struct Candidate {
    CollectionPassage passage;
    const DocStore::ChunkInOrder* place;
  };
  std::vector<Candidate> candidates;  // by rank
  std::vector<ChunkToOrder> to_order;
  for (const Hit& hit : found.hits) {
    auto row = docs_.chunk(hit.chunk_id);
    std::vector<ChunkPlace> places = docs_.places(collection_id_, hit.chunk_id);
    const DocStore::ChunkInOrder* place = contexts_.place_of(hit.chunk_id);
    if (!row || places.empty() || place == nullptr) continue;  // changed by another process
    to_order.push_back({places[0].source_id, places[0].seq, false});
    candidates.push_back({{std::move(*row), std::move(places)}, place});
  }
  for (const size_t i : chunk_order(to_order, order_)) {
    Candidate& c = candidates[i];
    out.prompt.chunks.push_back(contexts_.ids_of(c.place->chunk_id));
    out.prompt.contexts.push_back(contexts_.context_of(*c.place));
    out.passages.push_back(std::move(c.passage));
  }
  if (out.passages.empty())
    return Error{Code::kInput, found.hits.empty() ? found.why : "what was found is gone: the collection has changed"};
  return out;
}

bool holds_evidence(std::span<const CollectionPassage> passages, std::span<const EvalEvidence> evidence) {
  return std::all_of(evidence.begin(), evidence.end(), [&](const EvalEvidence& e) {
    const std::string quote = spaced_words(e.file.ends_with(".html") ? without_tags(e.quote) : e.quote);
    return std::any_of(passages.begin(), passages.end(), [&](const CollectionPassage& p) {
      return is_from(p, e.file) && spaced_words(p.row.prompt_text()).find(quote) != std::string::npos;
    });
  });
}

}  // namespace cento
