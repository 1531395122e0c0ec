#include "base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>

#include "base/text.h"

namespace cento {
namespace {

class PosixFile final : public File {
 public:
  PosixFile(FileHandle handle, std::string path) : handle_(std::move(handle)), path_(std::move(path)) {}

  Status write(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t n = ::write(handle_.get(), bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return system_error("cannot write", path_, errno);
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
    return Status::done();
  }

  Status read_at(uint64_t offset, std::span<std::byte> out) const override {
    while (!out.empty()) {
      const ssize_t n = ::pread(handle_.get(), out.data(), out.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return system_error("cannot read", path_, errno);
      if (n == 0) return Error{Code::kInput, "file ends too early", path_ + ", byte " + std::to_string(offset)};
      out = out.subspan(static_cast<size_t>(n));
      offset += static_cast<uint64_t>(n);
    }
    return Status::done();
  }

  Result<uint64_t> size() const override {
    struct stat st {};
    if (::fstat(handle_.get(), &st) != 0) return system_error("cannot stat", path_, errno);
    return static_cast<uint64_t>(st.st_size);
  }

  Status sync() override {
    if (::fsync(handle_.get()) != 0) return system_error("cannot sync", path_, errno);
    return Status::done();
  }

 private:
  FileHandle handle_;
  std::string path_;
};

struct CloseDir {
  void operator()(DIR* dir) const noexcept { (void)::closedir(dir); }
};

class RealFileSystem final : public FileSystem {
 public:
  Result<std::unique_ptr<File>> create(const std::string& path) override {
    FileHandle handle(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!handle.open()) return system_error("cannot create", path, errno);
    if (::fchmod(handle.get(), 0600) != 0) return system_error("cannot set permissions of", path, errno);
    return std::unique_ptr<File>(std::make_unique<PosixFile>(std::move(handle), path));
  }
  Result<std::unique_ptr<File>> open_read(const std::string& path) override {
    // O_NONBLOCK: a fifo put in a file's place must not block us for ever; regular files ignore it.
    FileHandle handle(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!handle.open()) return system_error("cannot open", path, errno);
    struct stat st {};
    if (::fstat(handle.get(), &st) != 0) return system_error("cannot stat", path, errno);
    if (!S_ISREG(st.st_mode)) return Error{Code::kInput, "not a regular file", path};
    return std::unique_ptr<File>(std::make_unique<PosixFile>(std::move(handle), path));
  }
  Status rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) return system_error("cannot rename to", to, errno);
    return Status::done();
  }
  Status remove(const std::string& path) override {
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) return system_error("cannot remove", path, errno);
    return Status::done();
  }
  Status sync_folder(const std::string& path) override {
    FileHandle handle(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!handle.open()) return system_error("cannot open folder", path, errno);
    if (::fsync(handle.get()) != 0) return system_error("cannot sync folder", path, errno);
    return Status::done();
  }
  Status make_folders(const std::string& path) override {
    for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
      const std::string part = path.substr(0, end);
      if (!part.empty() && ::mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) {
        // A parent on a read-only file system answers EROFS even though it is there.
        struct stat st {};
        const int mkdir_errno = errno;
        if (::stat(part.c_str(), &st) != 0) return system_error("cannot create folder", part, mkdir_errno);
      }
      if (end == std::string::npos) break;
    }
    struct stat st {};
    if (::stat(path.c_str(), &st) != 0) return system_error("cannot open folder", path, errno);
    if (!S_ISDIR(st.st_mode)) return system_error("cannot open folder", path, ENOTDIR);
    return Status::done();
  }
  Result<std::vector<std::string>> list(const std::string& folder) override {
    const std::unique_ptr<DIR, CloseDir> dir(::opendir(folder.c_str()));
    if (!dir) return system_error("cannot list", folder, errno);
    std::vector<std::string> names;
    for (errno = 0; const dirent* entry = ::readdir(dir.get()); errno = 0) {
      std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(std::move(name));
    }
    if (errno != 0) return system_error("cannot list", folder, errno);
    std::sort(names.begin(), names.end());
    return names;
  }
  bool exists(const std::string& path) override {
    struct stat st {};
    return ::lstat(path.c_str(), &st) == 0;
  }
};

}  // namespace

FileHandle::~FileHandle() {
  if (fd_ >= 0) (void)::close(fd_);
}

FileHandle& FileHandle::operator=(FileHandle&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) (void)::close(fd_);
    fd_ = other.release();
  }
  return *this;
}

int FileHandle::release() noexcept { return std::exchange(fd_, -1); }

FileSystem& FileSystem::real() {
  static RealFileSystem fs;
  return fs;
}

Result<int64_t> FileSystem::modified_ms(const std::string& path) {
  struct stat st {};
  if (::lstat(path.c_str(), &st) != 0) return system_error("cannot stat", path, errno);
  return int64_t{st.st_mtim.tv_sec} * 1000 + st.st_mtim.tv_nsec / 1'000'000;
}

Result<unsigned> FileSystem::mode(const std::string& path) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) return system_error("cannot stat", path, errno);
  return static_cast<unsigned>(st.st_mode) & 07777u;
}

Status FileSystem::set_mode(const std::string& path, unsigned mode) {
  if (::chmod(path.c_str(), static_cast<mode_t>(mode)) != 0)
    return system_error("cannot set permissions of", path, errno);
  return Status::done();
}

Status FileSystem::touch(const std::string& path) {
  if (::utimensat(AT_FDCWD, path.c_str(), nullptr, 0) != 0) return system_error("cannot set the time of", path, errno);
  return Status::done();
}

Result<uint64_t> FileSystem::free_bytes(const std::string& path) {
  struct statvfs st {};
  if (::statvfs(path.c_str(), &st) != 0) return system_error("cannot ask for the free space of", path, errno);
  return uint64_t{st.f_bavail} * uint64_t{st.f_frsize};
}

Result<std::string> write_beside(FileSystem& fs, const std::string& path, std::span<const std::byte> bytes) {
  static std::atomic<uint64_t> counter{0};
  std::string temporary;
  const auto write = [&]() -> Status {
    Result<std::unique_ptr<File>> file = Error{Code::kInternal, "", path};
    // A name that is taken is that of an earlier process with our number, which was killed: in a container the numbers
    // are the same every time.
    for (int tries = 0; tries < 1000; ++tries) {
      temporary = path + ".tmp-" + std::to_string(::getpid()) + "-" + std::to_string(counter++);
      file = fs.create(temporary);
      if (file.ok() || !fs.exists(temporary)) break;
    }
    if (!file) return file.error();
    if (auto s = (*file)->write(bytes); !s) return s;
    return (*file)->sync();
  };
  if (auto s = write(); !s) {
    // The first error is the one to tell; a temporary file that cannot be removed either is left for gc.
    (void)fs.remove(temporary).ok();
    return s.error();
  }
  return temporary;
}

Status atomic_write(FileSystem& fs, const std::string& path, std::span<const std::byte> bytes) {
  const auto temporary = write_beside(fs, path, bytes);
  if (!temporary) return temporary.error();
  if (auto s = fs.rename(*temporary, path); !s) {
    (void)fs.remove(*temporary).ok();  // as above
    return s;
  }
  const size_t slash = path.find_last_of('/');
  return fs.sync_folder(slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash));
}

Result<std::string> read_file(const std::string& path, uint64_t max_bytes) {
  auto file = FileSystem::real().open_read(path);
  if (!file) return file.error();
  const auto size = (*file)->size();
  if (!size) return size.error();
  if (*size > max_bytes) {
    return Error{Code::kInput, "file of " + size_text(*size) + " is larger than " + size_text(max_bytes), path};
  }
  std::string text(*size, '\0');
  if (auto s = (*file)->read_at(0, std::as_writable_bytes(std::span(text))); !s) return s.error();
  return text;
}

}  // namespace cento
