// A KV block in host memory behind the interface of a stored one: for KV that is not to be kept, and for tests.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "kv/kv_block.h"
#include "kv/kv_store.h"

namespace cento {

class MemoryKv final : public KvReader {
 public:
  MemoryKv(KvBlock block, const Hash& key) : MemoryKv(std::make_shared<const KvBlock>(std::move(block)), key) {}
  MemoryKv(std::shared_ptr<const KvBlock> block, const Hash& key) : block_(std::move(block)), key_(key) {}

  uint64_t n_tokens() const override { return block_->n_tokens(); }
  const KvShape& shape() const override { return block_->shape(); }
  const Hash& key() const override { return key_; }
  Status read_layer(uint32_t layer, std::span<std::byte> k, std::span<std::byte> v) override {
    const KvBlock& block = *block_;
    CENTO_CHECK(layer < block.shape().n_layers && k.size() == block.k(layer).size() &&
                v.size() == block.v(layer).size());
    std::copy(block.k(layer).begin(), block.k(layer).end(), k.begin());
    std::copy(block.v(layer).begin(), block.v(layer).end(), v.begin());
    return Status::done();
  }
  uint64_t bytes_read() const override { return 0; }  // nothing came from a disk

 private:
  std::shared_ptr<const KvBlock> block_;
  Hash key_;
};

}  // namespace cento
