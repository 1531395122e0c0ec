#include "base/mapped_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "base/error.h"
#include "support/shared_data.h"

namespace cento {
namespace {

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Error error_of(const std::string& path) {
  try {
    const MappedFile file(path);
  } catch (const Error& e) {
    return e;
  }
  FAIL("no error for " << path);
  return {Code::kInternal, ""};
}

TEST_CASE("mapped file: shows the bytes of the file and slices of them", "[base]") {
  test::TempDir dir;
  test::write_all(dir / "f", "0123456789");
  const MappedFile file(dir / "f");
  CHECK(text_of(file.bytes()) == "0123456789");
  CHECK(file.path() == dir / "f");
  CHECK(text_of(*file.slice(0, 10)) == "0123456789");
  CHECK(text_of(*file.slice(3, 4)) == "3456");
  CHECK(file.slice(10, 0)->empty());
  CHECK(file.slice(0, 0)->empty());
}

TEST_CASE("mapped file: no slice leaves the file, however large its numbers", "[base]") {
  test::TempDir dir;
  test::write_all(dir / "f", "0123456789");
  const MappedFile file(dir / "f");
  CHECK_FALSE(file.slice(0, 11));
  CHECK_FALSE(file.slice(10, 1));
  CHECK_FALSE(file.slice(11, 0));
  CHECK_FALSE(file.slice(5, ~0ull));
  CHECK_FALSE(file.slice(~0ull, 1));
  CHECK_FALSE(file.slice(~0ull - 3, 8));
}

TEST_CASE("mapped file: a moved file keeps its mapping", "[base]") {
  test::TempDir dir;
  test::write_all(dir / "f", "abc");
  MappedFile first(dir / "f");
  const FileStamp stamp = first.stamp();
  const MappedFile second(std::move(first));
  CHECK(text_of(second.bytes()) == "abc");
  CHECK(second.stamp() == stamp);
  CHECK(first.bytes().empty());  // NOLINT(bugprone-use-after-move): the state is promised
}

TEST_CASE("mapped file: a replaced file has another stamp, and the old mapping keeps the old bytes", "[base]") {
  test::TempDir dir;
  test::write_all(dir / "f", "old");
  const MappedFile before(dir / "f");
  test::write_all(dir / "g", "new");
  REQUIRE(::rename((dir / "g").c_str(), (dir / "f").c_str()) == 0);
  const MappedFile after(dir / "f");
  CHECK(text_of(before.bytes()) == "old");
  CHECK(text_of(after.bytes()) == "new");
  CHECK_FALSE(before.stamp() == after.stamp());
  CHECK(MappedFile(dir / "f").stamp() == after.stamp());
}

TEST_CASE("mapped file: what is no readable, non-empty regular file is an error, and a fifo does not block", "[base]") {
  test::TempDir dir;
  test::write_all(dir / "empty", "");
  REQUIRE(::mkfifo((dir / "fifo").c_str(), 0600) == 0);
  CHECK(error_of(dir / "none").message().find("cannot open") != std::string::npos);
  CHECK(error_of(dir / "empty").message() == "the file is empty");
  CHECK(error_of(dir / "fifo").message() == "not a regular file");
  CHECK(error_of(dir.path()).message() == "not a regular file");
  CHECK(error_of("/dev/zero").message() == "not a regular file");
  CHECK(error_of(dir / "none").code() == Code::kInput);
}

// Kilobytes of file pages that count as this process's memory.
long resident_file_kb() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("RssFile:", 0) == 0) return std::stol(line.substr(8));
  }
  return -1;
}

TEST_CASE("mapped file: released bytes stay readable and leave the process's memory", "[base]") {
  test::TempDir dir;
  std::string content(8 << 20, 'x');
  for (size_t i = 0; i < content.size(); i += 997) content[i] = static_cast<char>(i % 251);
  const std::string path = dir / "file";
  test::write_all(path, content);
  const MappedFile file(path);
  const auto same = [&] { return std::memcmp(file.bytes().data(), content.data(), content.size()) == 0; };
  REQUIRE(same());
  const long before = resident_file_kb();
  file.release(file.bytes().subspan(5000, content.size() - 10000));  // whole pages inside, about 8,180 kB
  const long after = resident_file_kb();
  CHECK(before - after > 8000);  // what other threads or the loader touch in between is far less than 100 kB
  CHECK(same());
  file.release({});
  file.release(file.bytes().subspan(10, 20));  // no whole page
  CHECK(same());
}

}  // namespace
}  // namespace cento
