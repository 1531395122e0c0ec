// Brings a collection up to date with its folders: reads only what changed, in a walk that ends whatever the tree is
// like.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "docs/doc_store.h"
#include "model/tokenizer.h"

namespace cento {

struct IndexOptions {
  std::string collection = "default";
  std::vector<std::string> paths;  // files and folders; empty: the collection's folders again
  bool dry_run = false;
  bool prune = true;                          // sources under the given roots that are gone are removed
  std::vector<std::string> include, exclude;  // globs over the path below the root, gitignore syntax
  bool use_ignore_files = true, hidden = false, follow_links = false;
  uint64_t max_file_bytes = 64ull << 20;
  uint32_t chunk_tokens = 256;  // 0: as the collection has it, 256 for a new one; a change reads everything again
  std::map<std::string, std::string> converters;  // extension without dot -> command; {} is replaced by the path
};

struct IndexReport {
  uint64_t seen = 0, added = 0, changed = 0, renamed = 0, unchanged = 0, removed = 0;
  uint64_t chunks_total = 0, chunks_new = 0, chunks_removed = 0;
  std::vector<std::pair<std::string, std::string>> skipped;  // path, reason
  uint64_t files_read = 0, bytes_read = 0;                   // contents really read: 0 when nothing changed
  double seconds = 0;
  bool stopped = false;  // `stop` said so; what was done is kept
};

struct IndexHooks {
  std::function<void(uint64_t done, uint64_t total, const std::string& path)> progress;  // may be empty
  std::function<bool()> stop;  // polled between files; may be empty
};

// `tokenizer` may be null: tokens are then estimated on the high side (TokenCounter in docs/chunker.h). Up to 64 files
// or one second of work share a transaction; that much may have to be done again when the process is killed. Throws
// Error for a missing path, a store that is locked or full; a bad file is skipped.
IndexReport index_documents(DocStore& store, const Tokenizer* tokenizer, const IndexOptions& options,
                            const IndexHooks& hooks);

}  // namespace cento
