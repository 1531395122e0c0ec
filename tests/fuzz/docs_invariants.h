// What must hold for every document, whatever was in the file: used by the fuzz targets of the readers.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>

#include "base/text.h"
#include "docs/chunker.h"
#include "docs/encoding.h"
#include "docs/reader.h"
#include "support/fake_tokenizer.h"

namespace cento::test {

inline void require(bool good) {
  if (!good) std::abort();
}

// Decodes, reads and chunks; aborts unless every block and chunk is valid UTF-8, its lines are lines of the text, and
// every chunk is within its budget by a tokenizer and by the estimate.
inline void check_document(std::string_view bytes, const std::string& format) {
  const auto decoded = decode_text(bytes);
  if (!decoded) return;
  require(is_valid_utf8(decoded->text));
  const auto document = read_document(bytes, format);
  if (!document) return;
  const auto n_lines = std::max<size_t>(1, lines_of(decoded->text).size());
  require(is_valid_utf8(document->title));
  for (const Block& block : document->blocks) {
    require(is_valid_utf8(block.text));
    require(block.line_from >= 1 && block.line_from <= block.line_to && block.line_to <= n_lines);
    require(block.table < static_cast<int>(document->tables.size()));
    require((block.kind == BlockKind::kTableRow) == (block.table >= 0));
  }
  const FakeTokenizer tokenizer;
  for (const TokenCounter& counter : {TokenCounter(&tokenizer), TokenCounter(nullptr)}) {
    for (const uint32_t budget : {32u, 200u}) {
      for (const NewChunk& chunk : chunk_document(*document, counter, budget)) {
        require(is_valid_utf8(chunk.header) && is_valid_utf8(chunk.body) && !is_blank(chunk.body));
        require(chunk.header.find('\n') == std::string::npos);
        require(chunk.line_from >= 1 && chunk.line_from <= chunk.line_to && chunk.line_to <= n_lines);
        const std::string prompt = chunk.header.empty() ? chunk.body + "\n" : chunk.header + "\n" + chunk.body + "\n";
        require(counter.count(prompt) == chunk.n_tokens && chunk.n_tokens <= budget);
      }
    }
  }
}

}  // namespace cento::test
