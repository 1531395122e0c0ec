#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "base/error.h"
#include "support/shared_data.h"

namespace cento {
namespace {

std::span<const std::byte> bytes_of(std::string_view s) { return std::as_bytes(std::span(s.data(), s.size())); }

mode_t mode_of(const std::string& path) {
  struct stat st {};
  REQUIRE(::stat(path.c_str(), &st) == 0);
  return st.st_mode & 07777u;
}

// Passes on to the real file system until `budget` operations are done; from then on every one fails, as after a crash.
class Failing final : public FileSystem {
 public:
  explicit Failing(int budget) : budget_(budget) {}
  bool failed() const { return failed_; }
  const std::vector<std::string>& log() const { return log_; }

  Result<std::unique_ptr<File>> create(const std::string& path) override {
    if (auto s = step("create"); !s) return s.error();
    auto file = real_.create(path);
    if (!file) return file.error();
    return std::unique_ptr<File>(std::make_unique<Wrapped>(*this, std::move(file).or_throw()));
  }
  Result<std::unique_ptr<File>> open_read(const std::string& path) override { return real_.open_read(path); }
  Status rename(const std::string& from, const std::string& to) override {
    if (auto s = step("rename"); !s) return s;
    return real_.rename(from, to);
  }
  Status remove(const std::string& path) override {
    if (auto s = step("remove"); !s) return s;
    return real_.remove(path);
  }
  Status sync_folder(const std::string& path) override {
    if (auto s = step("sync_folder " + path); !s) return s;
    return real_.sync_folder(path);
  }
  Status make_folders(const std::string& path) override { return real_.make_folders(path); }
  Result<std::vector<std::string>> list(const std::string& folder) override { return real_.list(folder); }
  bool exists(const std::string& path) override { return real_.exists(path); }

 private:
  class Wrapped final : public File {
   public:
    Wrapped(Failing& fs, std::unique_ptr<File> file) : fs_(fs), file_(std::move(file)) {}
    Status write(std::span<const std::byte> bytes) override {
      if (auto s = fs_.step("write"); !s) {
        (void)file_->write(bytes.first(bytes.size() / 2)).ok();  // half of it got through
        return s;
      }
      return file_->write(bytes);
    }
    Status read_at(uint64_t offset, std::span<std::byte> out) const override { return file_->read_at(offset, out); }
    Result<uint64_t> size() const override { return file_->size(); }
    Status sync() override {
      if (auto s = fs_.step("sync"); !s) return s;
      return file_->sync();
    }

   private:
    Failing& fs_;
    std::unique_ptr<File> file_;
  };

  Status step(const std::string& what) {
    log_.push_back(what);
    if (budget_-- > 0) return Status::done();
    failed_ = true;
    return Error{Code::kResource, "the disk is gone"};
  }

  FileSystem& real_ = FileSystem::real();
  int budget_;
  bool failed_ = false;
  std::vector<std::string> log_;
};

TEST_CASE("atomic write: makes or replaces a file, private and without leftovers", "[base]") {
  test::TempDir dir;
  FileSystem& fs = FileSystem::real();
  for (const std::string& text :
       {std::string("first"), std::string("second, longer"), std::string(), std::string(1 << 20, 'x')}) {
    REQUIRE(atomic_write(fs, dir / "f", bytes_of(text)).ok());
    CHECK(test::read_all(dir / "f") == text);
    CHECK(mode_of(dir / "f") == 0600);
    CHECK(*fs.list(dir.path()) == std::vector<std::string>{"f"});
  }
}

TEST_CASE("atomic write: whichever operation fails, the file holds the old bytes or the new ones", "[base][crash]") {
  int n = 0;
  for (;; ++n) {
    test::TempDir dir;
    test::write_all(dir / "f", "old");
    Failing fs(n);
    const Status status = atomic_write(fs, dir / "f", bytes_of("new bytes"));
    CAPTURE(n);
    const std::string found = test::read_all(dir / "f");
    CHECK(status.ok() == !fs.failed());
    CHECK((found == "old" || found == "new bytes"));
    if (status.ok()) {
      CHECK(found == "new bytes");
      // Data before the name, the name before success is told.
      CHECK(fs.log() == std::vector<std::string>{"create", "write", "sync", "rename", "sync_folder " + dir.path()});
      break;
    }
    CHECK(status.error().message() == "the disk is gone");
    const auto names = FileSystem::real().list(dir.path());
    for (const std::string& name : *names) {
      CHECK((name == "f" || name.starts_with("f.tmp-")));
    }
  }
  CHECK(n == 5);
}

// In a container a process may well have the number of the one before it, which was killed in the middle of a write.
TEST_CASE("atomic write: names that an earlier process of the same number left behind are passed over",
          "[base][crash]") {
  test::TempDir dir;
  Failing fs(2);  // create and write; from then on nothing goes, the removal of the temporary file included
  REQUIRE(!atomic_write(fs, dir / "f", bytes_of("x")).ok());
  const auto left = FileSystem::real().list(dir.path());
  REQUIRE((left.ok() && left->size() == 1));
  const size_t dash = left->front().rfind('-');
  const int counter = std::stoi(left->front().substr(dash + 1));
  for (int i = 1; i <= 3; ++i)
    test::write_all(dir / (left->front().substr(0, dash + 1) + std::to_string(counter + i)), "");
  CHECK(atomic_write(FileSystem::real(), dir / "f", bytes_of("new")).ok());
  CHECK(test::read_all(dir / "f") == "new");
}

TEST_CASE("atomic write: into a folder that is not there is an error and makes nothing", "[base]") {
  test::TempDir dir;
  const Status status = atomic_write(FileSystem::real(), dir / "no/f", bytes_of("x"));
  REQUIRE_FALSE(status.ok());
  CHECK(status.error().code() == Code::kInput);
  CHECK(FileSystem::real().list(dir.path())->empty());
}

TEST_CASE("file: reads exactly what is asked for or says that the file ends", "[base]") {
  test::TempDir dir;
  test::write_all(dir / "f", "0123456789");
  const auto file = FileSystem::real().open_read(dir / "f");
  REQUIRE(file.ok());
  CHECK(*(*file)->size() == 10u);
  std::string out(4, '?');
  CHECK((*file)->read_at(6, std::as_writable_bytes(std::span(out))).ok());
  CHECK(out == "6789");
  const Status late = (*file)->read_at(7, std::as_writable_bytes(std::span(out)));
  REQUIRE_FALSE(late.ok());
  CHECK(late.error().message() == "file ends too early");
  CHECK_FALSE((*file)->read_at(~0ull, std::as_writable_bytes(std::span(out))).ok());
  CHECK((*file)->read_at(100, {}).ok());
  CHECK_FALSE((*file)->write(bytes_of("x")).ok());  // opened for reading
}

TEST_CASE("file: writing appends", "[base]") {
  test::TempDir dir;
  auto file = FileSystem::real().create(dir / "f");
  REQUIRE(file.ok());
  CHECK((*file)->write(bytes_of("ab")).ok());
  CHECK((*file)->write(bytes_of("")).ok());
  CHECK((*file)->write(bytes_of("cd")).ok());
  CHECK((*file)->sync().ok());
  CHECK(*(*file)->size() == 4u);
  CHECK(test::read_all(dir / "f") == "abcd");
}

TEST_CASE("file system: create never touches what is there, nor what a link names", "[base]") {
  test::TempDir dir;
  test::write_all(dir / "f", "keep");
  REQUIRE(::symlink((dir / "elsewhere").c_str(), (dir / "link").c_str()) == 0);
  CHECK_FALSE(FileSystem::real().create(dir / "f").ok());
  CHECK_FALSE(FileSystem::real().create(dir / "link").ok());
  CHECK(test::read_all(dir / "f") == "keep");
  CHECK_FALSE(FileSystem::real().exists(dir / "elsewhere"));
  CHECK(FileSystem::real().exists(dir / "link"));  // the link itself
}

TEST_CASE("file system: folders are made with parents, private; a file in the way is an error", "[base]") {
  test::TempDir dir;
  FileSystem& fs = FileSystem::real();
  CHECK(fs.make_folders(dir / "a/b/c").ok());
  CHECK(mode_of(dir / "a") == 0700);
  CHECK(mode_of(dir / "a/b/c") == 0700);
  CHECK(fs.make_folders(dir / "a/b/c").ok());
  CHECK(fs.make_folders(dir / "a/b/d/").ok());
  test::write_all(dir / "f", "");
  CHECK_FALSE(fs.make_folders(dir / "f").ok());
  CHECK_FALSE(fs.make_folders(dir / "f/g").ok());
  CHECK_FALSE(fs.make_folders("").ok());
  CHECK(*fs.list(dir / "a/b") == std::vector<std::string>{"c", "d"});
  CHECK_FALSE(fs.list(dir / "none").ok());
}

TEST_CASE("file system: removing what is not there is done already; renaming it is an error", "[base]") {
  test::TempDir dir;
  FileSystem& fs = FileSystem::real();
  CHECK(fs.remove(dir / "none").ok());
  CHECK_FALSE(fs.rename(dir / "none", dir / "other").ok());
  CHECK_FALSE(fs.remove(dir.path()).ok());
  test::write_all(dir / "f", "x");
  CHECK(fs.rename(dir / "f", dir / "g").ok());
  CHECK(fs.remove(dir / "g").ok());
  CHECK(fs.list(dir.path())->empty());
  CHECK(fs.sync_folder(dir.path()).ok());
  CHECK_FALSE(fs.sync_folder(dir / "none").ok());
}

TEST_CASE("read_file: takes regular files up to a size; a fifo or device neither blocks nor fills memory", "[base]") {
  test::TempDir dir;
  test::write_all(dir / "f", std::string("a\0b", 3));
  CHECK(*read_file(dir / "f", 3) == std::string("a\0b", 3));
  const auto large = read_file(dir / "f", 2);
  REQUIRE_FALSE(large.ok());
  CHECK(large.error().message() == "file of 3 B is larger than 2 B");
  test::write_all(dir / "empty", "");
  CHECK(read_file(dir / "empty", 10)->empty());
  REQUIRE(::mkfifo((dir / "fifo").c_str(), 0600) == 0);
  for (const std::string& path : {dir / "fifo", dir.path(), dir / "none", std::string("/dev/zero")}) {
    CAPTURE(path);
    const auto result = read_file(path, 10);
    REQUIRE_FALSE(result.ok());
    CHECK(result.error().code() == Code::kInput);
    CHECK(result.error().where() == path);
  }
}

TEST_CASE("file handle: closes once, also when moved onto", "[base]") {
  int fds[2];
  REQUIRE(::pipe(fds) == 0);
  {
    FileHandle a(fds[0]), b(fds[1]);
    a = std::move(b);  // closes fds[0]
    CHECK(a.get() == fds[1]);
    CHECK_FALSE(b.open());  // NOLINT(bugprone-use-after-move): the state is promised
    CHECK(::fcntl(fds[0], F_GETFD) == -1);
    FileHandle& same = a;
    a = std::move(same);
    CHECK(a.open());
  }
  CHECK(::fcntl(fds[1], F_GETFD) == -1);
}

}  // namespace
}  // namespace cento
