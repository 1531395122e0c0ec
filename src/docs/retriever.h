// A question -> ranked chunks, by BM25 over words and over trigrams (for languages without spaces).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "docs/doc_store.h"

namespace cento {

struct Hit {
  int64_t chunk_id = 0;
  double score = 0;     // higher is better; comparable within one answer only
  double coverage = 0;  // share of the question's telling terms (by rarity weight) that the chunk holds, 0..1
};

struct Retrieved {
  std::vector<Hit> hits;      // best first, each text once
  bool nothing_fits = false;  // no hit is close enough to the question to be worth citing; hits is empty then
  std::string why;            // in words, for the report
};

// Any text is a legal question: operators of FTS5 in it are plain words.
Retrieved retrieve(DocStore& store, int64_t collection_id, const std::string& question, size_t top_k);

}  // namespace cento
