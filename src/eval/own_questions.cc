#include "eval/own_questions.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/hash.h"
#include "base/rng.h"
#include "base/text.h"
#include "eval/cloze.h"

namespace cento {
namespace {

// Chunks in which words are counted, and that are looked through for sentences: a bound on time and memory.
constexpr size_t kCountedMax = 20'000, kTriedMax = 200'000;

// All chunks: the first of each source, then the second of each, and so on, sources and their chunks shuffled.
std::vector<int64_t> spread(const std::vector<DocStore::ChunkInOrder>& order, uint64_t seed) {
  std::vector<std::vector<int64_t>> by_source;
  int64_t source = -1;
  for (const auto& c : order) {  // a source's chunks stand together
    if (by_source.empty() || c.source_id != source) by_source.emplace_back();
    source = c.source_id;
    by_source.back().push_back(c.chunk_id);
  }
  Rng rng(seed);
  shuffle(by_source, rng);
  for (auto& chunks : by_source) shuffle(chunks, rng);
  std::vector<int64_t> out;
  for (size_t round = 0; !by_source.empty(); ++round) {
    for (const auto& chunks : by_source) out.push_back(chunks[round]);
    std::erase_if(by_source, [round](const auto& chunks) { return chunks.size() == round + 1; });
  }
  return out;
}

uint64_t seed_of(uint64_t seed, const Hash& chunk) {
  const Hash hash = Hasher("own question").add_u64(seed).add_hash(chunk).finish();
  uint64_t out = 0;
  for (size_t i = 0; i < 8; ++i) out |= uint64_t{hash.bytes[i]} << 8 * i;
  return out;
}

// "leave.md:3-8 1f3870be": the file, its lines, and what `query --chunk` takes.
std::string id_of(const ChunkRow& chunk, const ChunkPlace& place) {
  const std::string name = place.path.substr(place.path.find_last_of('/') + 1);  // npos + 1 is 0
  return to_valid_utf8(name) + ":" + std::to_string(place.line_from) + "-" + std::to_string(place.line_to) + " " +
         chunk.hash.short_hex();
}

EvalItem item_of(Cloze cloze, const ChunkRow& chunk, const ChunkPlace& place) {
  EvalTurn turn;
  turn.question = cloze.question;
  turn.answer_groups = {{cloze.answer}};
  turn.evidence = {{"", std::move(cloze.original)}};
  if (cloze.answer.find(',') != std::string::npos &&
      cloze.answer.find_first_not_of("0123456789,") == std::string::npos) {  // 5,000 is 5000
    std::erase(cloze.answer, ',');
    turn.answer_groups[0].push_back(std::move(cloze.answer));
  }
  EvalItem item;
  item.id = id_of(chunk, place);
  item.set = kOwnDocumentsSet;
  item.kind = EvalKind::kDocqa;
  item.docqa_kind = "cloze";
  item.question = std::move(cloze.question);
  item.search = std::move(cloze.sentence);  // the words around it are nobody's question about the documents
  item.turns.push_back(std::move(turn));
  return item;
}

}  // namespace

std::vector<EvalItem> own_questions(DocStore& docs, int64_t collection_id, const OwnQuestionsOptions& options) {
  const auto stopped = [&] { return options.stop && options.stop(); };
  const std::vector<int64_t> chunks = spread(docs.chunks_in_order(collection_id), options.seed);
  WordFrequencies frequencies;
  for (size_t i = 0; i < std::min(chunks.size(), kCountedMax) && !stopped(); ++i) {
    if (const auto chunk = docs.chunk(chunks[i])) frequencies.add(to_valid_utf8(chunk->body));
  }
  std::vector<EvalItem> items;
  std::unordered_set<std::string> asked;  // sentences
  for (size_t i = 0; i < std::min(chunks.size(), kTriedMax) && items.size() < options.n && !stopped(); ++i) {
    const auto chunk = docs.chunk(chunks[i]);
    const std::vector<ChunkPlace> places = docs.places(collection_id, chunks[i]);
    if (!chunk || places.empty()) continue;  // changed by another process
    Rng rng(seed_of(options.seed, chunk->hash));
    auto cloze = make_cloze(to_valid_utf8(chunk->body), frequencies, rng);
    if (!cloze || !asked.insert(cloze->original).second) continue;
    items.push_back(item_of(std::move(*cloze), *chunk, places[0]));
  }
  return items;
}

}  // namespace cento
