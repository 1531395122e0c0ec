// Blocks of a document -> chunks of text, cut at the document's structure and bounded in tokens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "docs/doc_store.h"
#include "docs/reader.h"
#include "model/tokenizer.h"

namespace cento {

// Counts tokens with a tokenizer, or estimates them: with null, 1 for 3 ASCII letters or blanks, 1 for each digit, mark
// and line end, 1 for 2 bytes of anything else. The estimate is above what the usual vocabularies give for text in a
// language (chunker_test measures it on 273 documents); noise such as random letters can take more.
class TokenCounter {
 public:
  explicit TokenCounter(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}
  uint32_t count(std::string_view text) const;

 private:
  const Tokenizer* tokenizer_;
};

constexpr uint32_t kChunkTokensMin = 32, kChunkTokensMax = 1 << 16, kHeaderTokensMax = 40;

// Each chunk's text as it goes into a prompt (header, body, line ends) counts at most `chunk_tokens` (clamped to
// [kChunkTokensMin, kChunkTokensMax]). The header is the title and the trail of headings, "Leave policy > Carrying
// over", of what all of the chunk stands under; headings below that are in the body. Small sections that follow each
// other share a chunk; long text is cut at line ends (code), sentence ends, words, and at last between characters; rows
// of a table carry its header row along. Chunks do not overlap. Lines say where the chunk's text stands in the source.
std::vector<NewChunk> chunk_document(const Document& document, const TokenCounter& counter, uint32_t chunk_tokens);

}  // namespace cento
