#include "session/identify.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "model/fingerprint.h"
#include "support/gguf_writer.h"
#include "support/shared_data.h"

using namespace cento;
using namespace cento::test;

namespace {

// A clock far ahead, so that a file made just now counts as settled.
class Later final : public Clock {
 public:
  int64_t unix_ms() const override { return Clock::system().unix_ms() + 60'000; }
  int64_t steady_us() const override { return Clock::system().steady_us(); }
};

struct Place {
  TempDir dir;
  Later clock;
  std::string model = dir / "model.gguf";
  Place() { write_tiny_model(model, {}); }
};

Hash identified(const std::string& path, Catalogue& catalogue) {
  ModelOptions options;
  options.path = path;
  options.threads = 1;
  LoadedModel model(options);
  identify(model, &catalogue);
  return model.fingerprint();
}

Hash hashed(const std::string& path) {
  const GgufFile file(path);
  return model_fingerprint(file, read_model_config(file));
}

struct Times {
  explicit Times(const std::string& path) {
    struct stat st {};
    if (::stat(path.c_str(), &st) != 0) throw std::runtime_error("stat");
    times[0] = st.st_atim;
    times[1] = st.st_mtim;
  }
  void set(const std::string& path) const {
    if (::utimensat(AT_FDCWD, path.c_str(), times, 0) != 0) throw std::runtime_error("utimensat");
  }
  timespec times[2];
};

// In place: the inode stays.
void flip_last_byte(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR);
  REQUIRE(fd >= 0);
  const off_t last = ::lseek(fd, -1, SEEK_END);
  char byte = 0;
  REQUIRE(::pread(fd, &byte, 1, last) == 1);
  byte = static_cast<char>(byte ^ 1);
  REQUIRE(::pwrite(fd, &byte, 1, last) == 1);
  REQUIRE(::close(fd) == 0);
}

}  // namespace

TEST_CASE("identify: a file that was hashed is known again, by its copy too", "[session]") {
  const Place place;
  Catalogue catalogue(place.dir / "store", Db::Mode::kReadWrite, place.clock);
  const Hash hash = identified(place.model, catalogue);
  CHECK(hash == hashed(place.model));
  const auto stamp = MappedFile(place.model).stamp();
  REQUIRE(catalogue.remembered_models(stamp.size, stamp.mtime_ns).size() == 1);
  CHECK(catalogue.remembered_models(stamp.size, stamp.mtime_ns)[0].fingerprint == hash);
  // What is remembered is believed: another hash planted there comes back.
  auto planted = catalogue.remembered_models(stamp.size, stamp.mtime_ns)[0];
  planted.fingerprint.bytes.fill(7);
  catalogue.remember_model(planted);
  CHECK(identified(place.model, catalogue) == planted.fingerprint);

  const std::string copy = place.dir / "copy.gguf";
  std::filesystem::copy_file(place.model, copy);
  Times(place.model).set(copy);
  CHECK(identified(copy, catalogue) == planted.fingerprint);  // by the sample
  CHECK(catalogue.remembered_models(stamp.size, stamp.mtime_ns).size() == 2);
}

TEST_CASE("identify: other weights under the same name, size and time are told apart", "[session]") {
  const Place place;
  Catalogue catalogue(place.dir / "store", Db::Mode::kReadWrite, place.clock);
  const Hash before = identified(place.model, catalogue);
  const Times times(place.model);
  SECTION("changed in place, the time set back") {
    flip_last_byte(place.model);
    times.set(place.model);
  }
  SECTION("another file in its place, the time set back") {
    const std::string other = place.dir / "other.gguf";
    std::filesystem::copy_file(place.model, other);
    flip_last_byte(other);
    times.set(other);
    std::filesystem::rename(other, place.model);
  }
  const Hash after = identified(place.model, catalogue);
  CHECK(after != before);
  CHECK(after == hashed(place.model));
}

TEST_CASE("identify: a file that was changed just now is not remembered yet", "[session]") {
  const Place place;
  Catalogue catalogue(place.dir / "store", Db::Mode::kReadWrite);
  const Hash hash = identified(place.model, catalogue);
  const auto stamp = MappedFile(place.model).stamp();
  CHECK(catalogue.remembered_models(stamp.size, stamp.mtime_ns).empty());
  CHECK(identified(place.model, catalogue) == hash);
}

TEST_CASE("identify: a sample tells files of one size apart by any sampled page, and sees the whole of a small one",
          "[session]") {
  const TempDir dir;
  std::string bytes(3 * 4096 + 17, 'a');
  write_all(dir / "a", bytes);
  const Hash a = model_sample(MappedFile(dir / "a"));
  for (const size_t at : {size_t{0}, size_t{4095}, size_t{4096}, size_t{9000}, bytes.size() - 1}) {
    bytes[at] = 'b';
    write_all(dir / "b", bytes);
    CHECK(model_sample(MappedFile(dir / "b")) != a);
    bytes[at] = 'a';
  }
  bytes.assign(4096 * 1000, 'a');
  write_all(dir / "a", bytes);
  const Hash large = model_sample(MappedFile(dir / "a"));
  for (const size_t at : {size_t{0}, bytes.size() - 1}) {
    bytes[at] = 'b';
    write_all(dir / "b", bytes);
    CHECK(model_sample(MappedFile(dir / "b")) != large);
    bytes[at] = 'a';
  }
}
