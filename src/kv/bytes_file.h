// Bytes in memory as a file that may only be read.
#pragma once

#include <algorithm>
#include <span>

#include "base/error.h"
#include "base/file.h"

namespace cento {

// The bytes must outlive it.
class BytesFile final : public File {
 public:
  explicit BytesFile(std::span<const std::byte> bytes) : bytes_(bytes) {}

  Status write(std::span<const std::byte>) override {
    return Error{Code::kInternal, "bytes in memory are not written"};
  }
  Status sync() override { return Status::done(); }
  Result<uint64_t> size() const override { return uint64_t{bytes_.size()}; }
  Status read_at(uint64_t offset, std::span<std::byte> out) const override {
    if (offset > bytes_.size() || out.size() > bytes_.size() - offset) return Error{Code::kInput, "file cut short"};
    const auto part = bytes_.subspan(offset, out.size());
    std::copy(part.begin(), part.end(), out.begin());
    return Status::done();
  }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace cento
