// A file mapped read-only, with slices that cannot leave it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace cento {

// Identity of a file's present content as the system sees it; equal stamps mean "not changed since".
struct FileStamp {
  uint64_t device = 0, inode = 0, size = 0;
  int64_t mtime_ns = 0;
  bool operator==(const FileStamp&) const = default;
};

// Owns the mapping. The file must not be truncated while it is mapped: reading past its new end is a SIGBUS, which no
// check can foresee; models are replaced by rename, which leaves the mapped file whole.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);  // throws Error(kInput): not there, not regular, unreadable, empty
  ~MappedFile();
  MappedFile(MappedFile&&) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::optional<std::span<const std::byte>> slice(uint64_t offset, uint64_t n_bytes) const;
  // The bytes, which lie in the mapping, will hardly be read again: their pages no longer count as this process's
  // memory. They stay readable, from the system's page cache or the disk.
  void release(std::span<const std::byte> bytes) const;
  const std::string& path() const { return path_; }
  const FileStamp& stamp() const { return stamp_; }
  int64_t ctime_ns() const { return ctime_ns_; }  // last change of content or of what stamp() says: cannot be set back

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::string path_;
  FileStamp stamp_;
  int64_t ctime_ns_ = 0;
};

}  // namespace cento
