// The documents' side of the catalogue: collections, sources, chunks and their text indexes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "kv/catalogue.h"

namespace cento {

struct Collection {
  int64_t id = 0;
  std::string name;
  uint32_t chunk_tokens = 256;
  std::string tokenizer;  // what counted the tokens: "estimate" or a tokenizer's kind
};

// One chunk in a source. Its text, as it goes into a prompt, is header + "\n" + body + "\n" (header omitted when
// empty); its identity is the hash of that text, so equal text under two names is one chunk.
struct ChunkRow {
  int64_t id = 0;
  Hash hash;
  std::string header, body;
  uint32_t n_tokens = 0;
  std::string prompt_text() const;
};
struct ChunkPlace {
  int64_t source_id = 0;
  std::string path;  // bytes as the system has them
  std::string title;
  uint32_t seq = 0, line_from = 0, line_to = 0;  // lines from 1
};

struct SourceRow {
  int64_t id = 0;
  std::string path;
  FileStamp stamp;
  Hash content_hash;
  std::string format, title;
};

struct NewChunk {
  std::string header, body;
  uint32_t n_tokens = 0, line_from = 0, line_to = 0;
};

// A file that was passed over. With a stamp, it is passed over again without being read as long as the stamp holds.
struct SkippedFile {
  std::string path, reason;
  FileStamp stamp;  // all 0: the reason may have gone, look again
};

// Used by one thread at a time; must go before the catalogue does.
class DocStore {
 public:
  explicit DocStore(Catalogue& catalogue);
  ~DocStore();
  DocStore(const DocStore&) = delete;
  DocStore& operator=(const DocStore&) = delete;
  Catalogue& catalogue() { return *catalogue_; }

  std::optional<Collection> find_collection(const std::string& name);
  Collection open_collection(const std::string& name, uint32_t chunk_tokens,
                             const std::string& tokenizer);  // creates if absent
  std::vector<Collection> collections();
  void set_collection_tokens(int64_t collection_id, uint32_t chunk_tokens, const std::string& tokenizer);

  std::vector<std::string> roots(int64_t collection_id);
  void add_root(int64_t collection_id, const std::string& path, const std::string& options_json);
  std::string root_options(int64_t collection_id, const std::string& path);

  std::vector<SourceRow> sources(int64_t collection_id);
  // One transaction: the source's old chunks go, the new ones come. Chunks that nobody uses any more are deleted.
  struct PutCounts {
    uint64_t chunks_new = 0, chunks_removed = 0;
  };
  PutCounts put_source(int64_t collection_id, const SourceRow& source, const std::vector<NewChunk>& chunks);
  void rename_source(int64_t source_id, const std::string& new_path, const FileStamp& stamp);
  void touch_source(int64_t source_id, const FileStamp& stamp);  // same content, new stamp
  uint64_t remove_source(int64_t source_id);                     // number of chunks that went with it
  // Until the batch is destroyed, what put_source, rename_source, touch_source and remove_source write is one
  // transaction with what was written since the last commit; without commit() it is rolled back. One at a time.
  class Batch {
   public:
    explicit Batch(DocStore& store);
    ~Batch();
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;
    void commit();  // and goes on with a new transaction at the next write

   private:
    DocStore* store_;
  };
  // Every source is read again by the next index run, whatever its stamp: reader, tokens per chunk changed.
  void forget_stamps(int64_t collection_id);

  void set_skipped(int64_t collection_id, const std::vector<std::pair<std::string, std::string>>& path_and_reason);
  void set_skipped(int64_t collection_id, const std::vector<SkippedFile>& files);
  std::vector<SkippedFile> skipped_files(int64_t collection_id);
  std::vector<std::pair<std::string, std::string>> skipped(int64_t collection_id);

  uint64_t chunk_count(int64_t collection_id);
  std::optional<ChunkRow> chunk(int64_t chunk_id);
  std::optional<ChunkRow> chunk_by_hash(const Hash& hash);
  std::optional<ChunkRow> chunk_by_prefix(const std::string& hex_prefix);  // nullopt: none or ambiguous
  std::vector<ChunkPlace> places(int64_t collection_id, int64_t chunk_id);
  // All chunks of a collection, in the order of paths and seq, each once (at its first place).
  struct ChunkInOrder {
    int64_t chunk_id, source_id;
    uint32_t seq;
  };
  std::vector<ChunkInOrder> chunks_in_order(int64_t collection_id);
  // Chunks in front of (source, seq), nearest first, at most n.
  std::vector<ChunkRow> preceding(int64_t source_id, uint32_t seq, uint32_t n);

  std::vector<int64_t> stand_ins(int64_t collection_id);  // pinned chunk ids in order
  void set_stand_ins(int64_t collection_id, const std::vector<int64_t>& chunk_ids);

 private:
  struct Statements;
  template <class Work>
  auto in_transaction(Work&& work);
  uint64_t drop_unused(const std::vector<int64_t>& chunk_ids);

  Catalogue* catalogue_;
  std::unique_ptr<Statements> statements_;  // prepared once
  std::unique_ptr<Transaction> batch_;      // the open transaction of a Batch
  bool in_batch_ = false;
};

Hash chunk_text_hash(const std::string& header, const std::string& body);

}  // namespace cento
