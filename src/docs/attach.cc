#include "docs/attach.h"

#include "base/file.h"
#include "docs/chunker.h"
#include "docs/reader.h"

namespace cento {

std::vector<NewChunk> chunks_of_file(const std::string& path, const Tokenizer& tokenizer, uint32_t chunk_tokens,
                                     uint64_t max_bytes) {
  const std::string bytes = read_file(path, max_bytes).or_throw();
  const FormatOfName format = format_of_name(path);
  if (format.format.empty()) {
    throw Error{Code::kInput, "files of format ." + format.extension + " are not read", path,
                "convert it to text first"};
  }
  const Result<Document> document = read_document(bytes, format.format);
  if (!document.ok()) throw Error{Code::kInput, document.error().message(), path, "name a text file"};
  return chunk_document(*document, TokenCounter(&tokenizer), chunk_tokens);
}

}  // namespace cento
