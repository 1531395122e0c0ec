#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/size_math.h"

namespace cento {

MappedFile::MappedFile(const std::string& path) : path_(path) {
  FileHandle handle(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!handle.open()) throw system_error("cannot open", path, errno);
  struct stat st {};
  if (::fstat(handle.get(), &st) != 0) throw system_error("cannot stat", path, errno);
  if (!S_ISREG(st.st_mode)) throw Error{Code::kInput, "not a regular file", path, "name a file"};
  if (st.st_size == 0) throw Error{Code::kInput, "the file is empty", path, "fetch it again"};
  size_ = static_cast<size_t>(st.st_size);
  stamp_ = {static_cast<uint64_t>(st.st_dev), static_cast<uint64_t>(st.st_ino), static_cast<uint64_t>(st.st_size),
            static_cast<int64_t>(st.st_mtim.tv_sec) * 1'000'000'000 + st.st_mtim.tv_nsec};
  ctime_ns_ = static_cast<int64_t>(st.st_ctim.tv_sec) * 1'000'000'000 + st.st_ctim.tv_nsec;
  void* p = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, handle.get(), 0);
  if (p == MAP_FAILED) throw system_error("cannot map", path, errno);
  data_ = static_cast<const std::byte*>(p);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) (void)::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      path_(std::move(other.path_)),
      stamp_(other.stamp_),
      ctime_ns_(other.ctime_ns_) {}

std::optional<std::span<const std::byte>> MappedFile::slice(uint64_t offset, uint64_t n_bytes) const {
  if (offset > size_ || n_bytes > size_ - offset) return std::nullopt;
  return std::span<const std::byte>(data_ + offset, n_bytes);
}

void MappedFile::release(std::span<const std::byte> bytes) const {
  if (bytes.empty()) return;
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  CHECK(bytes.data() >= data_ && bytes.data() + bytes.size() <= data_ + size_);
  // Whole pages only: what else lies in the first and last may be in use.
  const size_t first = round_up(static_cast<size_t>(bytes.data() - data_), page),
               last = (static_cast<size_t>(bytes.data() - data_) + bytes.size()) / page * page;
  if (first < last) (void)::madvise(const_cast<std::byte*>(data_) + first, last - first, MADV_DONTNEED);
}

}  // namespace cento
