#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>
#include <limits>

#include "app/json.h"
#include "app/npy.h"
#include "app/terminal.h"
#include "support/shared_data.h"

namespace cento {
namespace {

TEST_CASE("json: paths that are no UTF-8 keep their bytes beside the text", "[app]") {
  Json o;
  put_path(o, "path", "caf\xE9.md");
  put_path(o, "source", "caf\xC3\xA9.md");
  CHECK(json_line(o) ==
        "{\"path\":\"caf\xEF\xBF\xBD.md\",\"path_b64\":\"Y2Fm6S5tZA==\",\"source\":\"caf\xC3\xA9.md\"}\n");
}

TEST_CASE("json: base64 of every length of the last group", "[app]") {
  CHECK(base64("") == "");
  CHECK(base64("f") == "Zg==");
  CHECK(base64("fo") == "Zm8=");
  CHECK(base64("foo") == "Zm9v");
  CHECK(base64("\xff\xfe\xfd\xfc") == "//79/A==");
}

TEST_CASE("json: numbers are rounded, and what is no number is null", "[app]") {
  CHECK(rounded(1.23456, 2).dump() == "1.23");
  CHECK(rounded(0, 3).dump() == "0.0");
  CHECK(rounded(std::nan(""), 3).is_null());
  CHECK(rounded(std::numeric_limits<double>::infinity(), 3).is_null());
}

TEST_CASE("npy: header and values are where NumPy looks for them", "[app]") {
  const float values[] = {1.0f, -2.5f, 3.0f, 4.0f, 5.0f, 6.0f};
  const std::string bytes = npy_bytes(values, 2, 3);
  CHECK(bytes.substr(0, 8) == std::string("\x93NUMPY\x01\x00", 8));
  const size_t header =
      static_cast<unsigned char>(bytes[8]) + 256 * static_cast<size_t>(static_cast<unsigned char>(bytes[9]));
  CHECK((10 + header) % 64 == 0);
  CHECK(bytes[9 + header] == '\n');
  CHECK_THAT(bytes.substr(10, header),
             Catch::StartsWith("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"));
  REQUIRE(bytes.size() == 10 + header + sizeof values);
  CHECK(std::memcmp(bytes.data() + 10 + header, values, sizeof values) == 0);
  const test::TempDir folder;
  write_npy(folder / "x.npy", values, 2, 3);
  CHECK(test::read_all(folder / "x.npy") == bytes);
  CHECK_THROWS(write_npy(folder / "no/such/x.npy", values, 2, 3));
}

TEST_CASE("progress: the line says how far, how fast and how long still", "[app]") {
  // 100 of 400 in 10 s: 30 s left.
  CHECK(progress_line("precompute", 100, 400, "chunks", "50 tokens/s", 10, 0, 1000, false) ==
        "precompute: 100 of 400 chunks, 50 tokens/s, 0:30 left");
  const std::string bar = progress_line("precompute", 100, 400, "chunks", "", 10, 0, 79, true);
  CHECK(bar == "precompute [#######.......................] 100/400 chunks, 0:30 left");
  CHECK(progress_line("index", 0, 3, "files", "", 0, 0, 1000, false) == "index: 0 of 3 files");
  CHECK(progress_line("index", 3, 3, "files", "", 9, 0, 1000, false) == "index: 3 of 3 files");
  CHECK(progress_line("index", 0, 0, "files", "", 9, 0, 1000, false) == "index: 0 of 0 files");
  // What was done before does not count as speed.
  CHECK(progress_line("index", 60, 70, "files", "", 10, 50, 1000, false) == "index: 60 of 70 files, 0:10 left");
  for (const size_t width : {0, 1, 10, 20, 40, 60, 200}) {
    CHECK(progress_line("precompute", 5, 7, "chunks", "9 tokens/s", 10, 0, width, true).size() <= width);
  }
}

TEST_CASE("progress: times are read at a glance", "[app]") {
  CHECK(time_text(0) == "0:00");
  CHECK(time_text(6.2) == "0:07");
  CHECK(time_text(62) == "1:02");
  CHECK(time_text(3723) == "1:02:03");
  CHECK(time_text(1e30) == "99:59:59");
  CHECK(time_text(-4) == "0:00");
}

TEST_CASE("terminal: foreign text cannot drive it", "[app]") {
  CHECK(printable_lines("one\ntwo\tx\n") == "one\ntwo\tx\n");
  CHECK(printable_lines("a\x1b[31mb\r\n") == "a\\x1b[31mb\\x0d\n");
  CHECK(printable_lines("") == "");
  CHECK(printable_lines("\n\n") == "\n\n");
  CHECK(printable_lines("\xC3\xA9 \xff") == "\xC3\xA9 \\xff");
}

}  // namespace
}  // namespace cento
