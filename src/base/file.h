// Files through an interface, so that tests can make the n-th operation fail; and the one safe way to replace a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace cento {

// Owns an open descriptor.
class FileHandle {
 public:
  FileHandle() = default;
  explicit FileHandle(int fd) : fd_(fd) {}
  ~FileHandle();
  FileHandle(FileHandle&& other) noexcept : fd_(other.release()) {}
  FileHandle& operator=(FileHandle&& other) noexcept;
  FileHandle(const FileHandle&) = delete;
  FileHandle& operator=(const FileHandle&) = delete;
  int get() const { return fd_; }
  int release() noexcept;
  bool open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// What the store does to the disk. One instance may be used by several threads; each File by one thread at a time.
class File {
 public:
  virtual ~File() = default;
  virtual Status write(std::span<const std::byte> bytes) = 0;                   // appends all of it, or an error
  virtual Status read_at(uint64_t offset, std::span<std::byte> out) const = 0;  // fills all of `out`, or an error
  virtual Result<uint64_t> size() const = 0;
  virtual Status sync() = 0;  // data and size are on the disk
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  virtual Result<std::unique_ptr<File>> create(const std::string& path) = 0;  // new, mode 0600, fails if it exists
  virtual Result<std::unique_ptr<File>> open_read(const std::string& path) = 0;
  virtual Status rename(const std::string& from, const std::string& to) = 0;
  virtual Status remove(const std::string& path) = 0;  // a file that is not there is no error
  virtual Status sync_folder(const std::string& path) = 0;
  virtual Status make_folders(const std::string& path) = 0;                      // mode 0700, parents too
  virtual Result<std::vector<std::string>> list(const std::string& folder) = 0;  // names, no "." and "..", sorted
  virtual bool exists(const std::string& path) = 0;
  virtual Result<int64_t> modified_ms(const std::string& path);  // Unix time of the last change, as real() sees it
  virtual Result<uint64_t> free_bytes(const std::string& path);  // of its disk, for this process, as real() sees it
  // As real() does it: permission bits (07777), and the time of the last change set to now.
  virtual Result<unsigned> mode(const std::string& path);
  virtual Status set_mode(const std::string& path, unsigned mode);
  virtual Status touch(const std::string& path);
  static FileSystem& real();
};

// Temporary file beside `path`, write, fsync, rename over `path`, fsync of the folder. After a crash at any point
// `path` holds the old bytes or the new ones, whole; at worst a file "*.tmp-*" is left, which the store's gc removes.
Status atomic_write(FileSystem& fs, const std::string& path, std::span<const std::byte> bytes);

// The first half of that: the temporary file's name, written and synced, for a caller that renames it itself. After an
// error it is removed.
Result<std::string> write_beside(FileSystem& fs, const std::string& path, std::span<const std::byte> bytes);

// The whole of a regular file up to `max_bytes`. Anything else (fifo, device, too large) is an error.
Result<std::string> read_file(const std::string& path, uint64_t max_bytes);

}  // namespace cento
