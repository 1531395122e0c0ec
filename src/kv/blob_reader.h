// A stored KV read from its file.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "kv/blob_codec.h"
#include "kv/kv_store.h"

namespace cento {

class BlobReader final : public KvReader {
 public:
  // `header` is that of `file`; `path` is for messages; `from` is the tier's name, which lives for ever.
  BlobReader(std::unique_ptr<File> file, BlobHeader header, std::string path, const char* from = "disk")
      : file_(std::move(file)),
        header_(std::move(header)),
        path_(std::move(path)),
        from_(from),
        bytes_read_(header_.header_bytes) {}

  uint64_t n_tokens() const override { return header_.ids.size(); }
  const KvShape& shape() const override { return header_.shape; }
  const Hash& key() const override { return header_.key; }
  Status read_layer(uint32_t layer, std::span<std::byte> k, std::span<std::byte> v) override;
  uint64_t bytes_read() const override { return bytes_read_; }
  Cost cost() const override { return cost_; }
  const char* from() const override { return from_; }
  bool lossy() const override { return std::any_of(header_.codecs.begin(), header_.codecs.end(), is_lossy); }
  const BlobHeader& header() const { return header_; }

 private:
  Status read_frame(uint32_t layer, const char* side, const BlobFrame& frame, std::span<std::byte> out);

  std::unique_ptr<File> file_;
  BlobHeader header_;
  std::string path_;
  const char* from_;
  uint64_t bytes_read_;
  Cost cost_;
  FrameCodec codec_;
  std::vector<std::byte> stored_;
};

}  // namespace cento
