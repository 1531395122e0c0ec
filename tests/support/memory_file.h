// Bytes as a file that can be read.
#pragma once

#include <cstring>
#include <utility>
#include <vector>

#include "base/file.h"

namespace cento::test {

class MemoryFile final : public File {
 public:
  explicit MemoryFile(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}
  Status write(std::span<const std::byte>) override { return Error{Code::kInput, "not writable"}; }
  Status read_at(uint64_t offset, std::span<std::byte> out) const override {
    if (offset > bytes_.size() || out.size() > bytes_.size() - offset)
      return Error{Code::kInput, "file ends too early"};
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return Status::done();
  }
  Result<uint64_t> size() const override { return uint64_t{bytes_.size()}; }
  Status sync() override { return Status::done(); }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace cento::test
