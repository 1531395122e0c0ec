#include "base/text.h"

#include <catch2/catch.hpp>
#include <string>

#include "base/rng.h"

namespace cento {
namespace {

const std::string kBad = "\xEF\xBF\xBD";  // U+FFFD

TEST_CASE("text: UTF-8 is valid exactly as Unicode's table of well-formed sequences says", "[base]") {
  struct Row {
    std::string text;
    bool valid;
  };
  const Row rows[] = {
      {"", true},
      {"plain", true},
      {std::string("\0", 1), true},
      {"\x7f", true},
      {"\xC2\x80", true},          // U+0080, the first of two bytes
      {"\xDF\xBF", true},          // U+07FF
      {"\xE0\xA0\x80", true},      // U+0800
      {"\xED\x9F\xBF", true},      // U+D7FF, before the surrogates
      {"\xEE\x80\x80", true},      // U+E000, after them
      {"\xEF\xBF\xBF", true},      // U+FFFF
      {"\xF0\x90\x80\x80", true},  // U+10000
      {"\xF4\x8F\xBF\xBF", true},  // U+10FFFF
      {"\x80", false},             // a tail alone
      {"\xC0\x80", false},         // two bytes for U+0000
      {"\xC1\xBF", false},
      {"\xE0\x9F\xBF", false},      // three bytes for U+07FF
      {"\xED\xA0\x80", false},      // a surrogate
      {"\xF0\x8F\xBF\xBF", false},  // four bytes for U+FFFF
      {"\xF4\x90\x80\x80", false},  // U+110000
      {"\xF5\x80\x80\x80", false},
      {"\xFF", false},
      {"\xC2", false},
      {"\xE2\x82", false},
      {"\xF0\x9F\x98", false},
      {"a\xC2z", false},
      {"\xE2\x82z", false},
  };
  for (const Row& row : rows) {
    CAPTURE(printable(row.text));
    CHECK(is_valid_utf8(row.text) == row.valid);
    CHECK((to_valid_utf8(row.text) == row.text) == row.valid);
    CHECK(is_valid_utf8(to_valid_utf8(row.text)));
  }
}

TEST_CASE("text: each code point is written as it is read", "[base]") {
  for (uint32_t c = 0; c <= 0x10ffff; c += c < 0x900 ? 1 : 251) {
    if (c >= 0xd800 && c <= 0xdfff) continue;
    std::string s;
    append_utf8(s, c);
    REQUIRE(s.size() == (c < 0x80 ? 1u : c < 0x800 ? 2u : c < 0x10000 ? 3u : 4u));
    REQUIRE(is_valid_utf8(s));
  }
  std::string euro;
  append_utf8(euro, 0x20ac);
  CHECK(euro == "\xE2\x82\xAC");
}

TEST_CASE("text: every maximal invalid part becomes one U+FFFD", "[base]") {
  CHECK(to_valid_utf8("a\xFF"
                      "b") == "a" + kBad + "b");
  CHECK(to_valid_utf8("\xE2\x82") == kBad);
  CHECK(to_valid_utf8("\xE2\x82z") == kBad + "z");
  CHECK(to_valid_utf8("\xF0\x9F\x98\xE2\x82\xAC") == kBad + "\xE2\x82\xAC");
  CHECK(to_valid_utf8("\xC0\x80") == kBad + kBad);
  CHECK(to_valid_utf8("\xED\xA0\x80") == kBad + kBad + kBad);
  // The example of Unicode 15, 3.9, table 3-11.
  CHECK(to_valid_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41") == kBad + kBad + kBad + kBad + "A");
}

TEST_CASE("text: a complete prefix leaves out only what later bytes could complete", "[base]") {
  struct Row {
    std::string text;
    size_t keep;
  };
  const Row rows[] = {
      {"", 0},          {"abc", 3},      {"ab\xC3", 2},       {"ab\xC3\xA9", 4},
      {"\xE2", 0},      {"\xE2\x82", 0}, {"\xE2\x82\xAC", 3}, {"x\xF0\x9F\x98", 1},
      {"x\xF0\x9F", 1}, {"x\xF0", 1},    {"\xFF", 1},         {"\x80\x80\x80", 3},
      {"\xE0\x80", 2},  {"\xED\xA0", 2}, {"\xF4\x90", 2},     {"\xC3\xA9\xA9", 3},
      {"\xC0", 1},      {"\xF5\x80", 2},
  };
  for (const Row& row : rows) {
    CAPTURE(printable(row.text));
    CHECK(utf8_complete_prefix(row.text) == row.keep);
  }
}

TEST_CASE("text: cut anywhere, the complete prefix and the rest give valid text again", "[base]") {
  Rng rng(1);
  std::string text;
  for (int i = 0; i < 200; ++i) {
    uint32_t c = static_cast<uint32_t>(rng.below(i % 4 == 0   ? 0x110000
                                                 : i % 4 == 1 ? 0x10000
                                                 : i % 4 == 2 ? 0x800
                                                              : 0x80));
    if (c >= 0xd800 && c <= 0xdfff) c = 'x';
    append_utf8(text, c);
  }
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    const std::string_view head = std::string_view(text).substr(0, cut);
    const size_t n = utf8_complete_prefix(head);
    REQUIRE(n <= cut);
    REQUIRE(cut - n <= 3);
    REQUIRE(is_valid_utf8(head.substr(0, n)));
  }
}

TEST_CASE("text: printable text drives no terminal and stays on one line", "[base]") {
  CHECK(printable("plain \xC3\xA9 \xE2\x82\xAC") == "plain \xC3\xA9 \xE2\x82\xAC");
  CHECK(printable("a\nb\tc") == "a\\nb\\tc");
  CHECK(printable("\x1b[31m\r\x07\x7f") == "\\x1b[31m\\x0d\\x07\\x7f");
  CHECK(printable("\xC2\x9b") == "\\x9b");  // C1: one-byte CSI
  CHECK(printable("\xE2\x80\xAEtxt") == "\\u{202e}txt");
  CHECK(printable("\xE2\x81\xA6") == "\\u{2066}");
  CHECK(printable("\xFF\xE2\x82") == "\\xff\\xe2\\x82");
  CHECK(printable(std::string("\0", 1)) == "\\x00");
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  const std::string shown = printable(all);
  CHECK(is_valid_utf8(shown));
  for (const char c : shown) CHECK((static_cast<unsigned char>(c) >= 0x20 && c != 0x7f));
}

TEST_CASE("text: sizes are read as people write them", "[base]") {
  struct Row {
    const char* text;
    std::optional<uint64_t> bytes;
  };
  const Row rows[] = {
      {"0", 0},
      {"4096", 4096},
      {"12b", 12},
      {"512MiB", 512ull << 20},
      {"2GB", 2'000'000'000},
      {"1.5GiB", 3ull << 29},
      {"1.5 gib", 3ull << 29},
      {" 7k ", 7168},
      {"7kb", 7000},
      {"3m", 3ull << 20},
      {"2t", 2ull << 40},
      {"1TiB", 1ull << 40},
      {"1tb", 1'000'000'000'000},
      {".5k", 512},
      {"", std::nullopt},
      {" ", std::nullopt},
      {"GB", std::nullopt},
      {"-1", std::nullopt},
      {"+1", std::nullopt},
      {"1e3", std::nullopt},
      {"0x10", std::nullopt},
      {"1 2", std::nullopt},
      {"1.2.3", std::nullopt},
      {".", std::nullopt},
      {"1PB", std::nullopt},
      {"1GBs", std::nullopt},
      {"nan", std::nullopt},
      {"inf", std::nullopt},
      {"99999999999999999999", std::nullopt},
      {"9000000TiB", std::nullopt},
  };
  for (const Row& row : rows) {
    CAPTURE(row.text);
    CHECK(parse_size(row.text) == row.bytes);
  }
  CHECK_FALSE(parse_size(std::string(5000, '9')));
}

TEST_CASE("text: sizes are shown in binary units", "[base]") {
  CHECK(size_text(0) == "0 B");
  CHECK(size_text(1023) == "1023 B");
  CHECK(size_text(1024) == "1.0 KiB");
  CHECK(size_text(1536) == "1.5 KiB");
  CHECK(size_text(3ull << 29) == "1.5 GiB");
  CHECK(size_text(~0ull) == "16384.0 PiB");
}

TEST_CASE("text: durations are read as people write them", "[base]") {
  CHECK(parse_duration_ms("250ms") == 250);
  CHECK(parse_duration_ms("30s") == 30000);
  CHECK(parse_duration_ms("10m") == 600000);
  CHECK(parse_duration_ms("1.5 h") == 5400000);
  CHECK(parse_duration_ms("7D") == 604800000);
  CHECK(parse_duration_ms("0s") == 0);
  for (const char* bad : {"", "30", "s", "-1s", "1w", "1 s s", "1e400d", "99999999999d"}) {
    CAPTURE(bad);
    CHECK_FALSE(parse_duration_ms(bad));
  }
}

TEST_CASE("text: lines are split at any line end, and a final one adds no line", "[base]") {
  using Lines = std::vector<std::string_view>;
  CHECK(split_lines("") == Lines{});
  CHECK(split_lines("a") == Lines{"a"});
  CHECK(split_lines("a\n") == Lines{"a"});
  CHECK(split_lines("a\n\nb") == Lines{"a", "", "b"});
  CHECK(split_lines("a\r\nb\r\n") == Lines{"a", "b"});
  CHECK(split_lines("\n") == Lines{""});
  CHECK(split_lines("a\rb\n") == Lines{"a\rb"});
}

TEST_CASE("text: trimming takes ASCII white space off both ends", "[base]") {
  CHECK(trim("") == "");
  CHECK(trim(" \t\r\n\v\f") == "");
  CHECK(trim("  a b ") == "a b");
  CHECK(trim("\xC2\xA0x") == "\xC2\xA0x");
}

TEST_CASE("text: lower case touches ASCII only", "[base]") { CHECK(to_lower_ascii("AbZ[\xC3\x89") == "abz[\xC3\x89"); }

}  // namespace
}  // namespace cento
