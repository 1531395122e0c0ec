#include "docs/encoding.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "base/rng.h"
#include "base/text.h"

using namespace cento;
using namespace std::string_literals;

namespace {

std::string utf16(const std::u16string& s, bool big, bool mark) {
  std::string out;
  const auto put = [&](unsigned u) {
    out += static_cast<char>(big ? u >> 8 : u & 0xff);
    out += static_cast<char>(big ? u & 0xff : u >> 8);
  };
  if (mark) put(0xfeff);
  for (const char16_t c : s) put(c);
  return out;
}

std::string utf32le(const std::u32string& s) {
  std::string out = "\xff\xfe\0\0"s;
  for (const char32_t c : s) {
    for (int k = 0; k < 4; ++k) out += static_cast<char>(c >> (8 * k) & 0xff);
  }
  return out;
}

}  // namespace

TEST_CASE("encoding: text in the encodings people have is read", "[docs]") {
  struct Row {
    const char* what;
    std::string bytes, encoding, text;
  };
  const std::u16string wide = u"Tide \u00e9 \u6f6e \U0001F30A\n";
  const std::string narrow = "Tide \u00e9 \u6f6e \U0001F30A\n";
  const Row rows[] = {
      {"empty", "", "utf-8", ""},
      {"ascii", "plain\n", "utf-8", "plain\n"},
      {"utf-8", narrow, "utf-8", narrow},
      {"utf-8 with a mark", "\xef\xbb\xbf" + narrow, "utf-8", narrow},
      {"utf-16 le", utf16(wide, false, true), "utf-16le", narrow},
      {"utf-16 be", utf16(wide, true, true), "utf-16be", narrow},
      {"utf-16 le without a mark", utf16(u"Some words of text\n", false, false), "utf-16le", "Some words of text\n"},
      {"utf-16 be without a mark", utf16(u"Some words of text\n", true, false), "utf-16be", "Some words of text\n"},
      {"utf-16 of odd length", utf16(wide, false, true) + "A", "utf-16le", narrow},
      {"utf-32 le", utf32le(U"Tide \u00e9 \U0001F30A"), "utf-32le", "Tide \u00e9 \U0001F30A"},
      {"latin-1", "gar\xe7on \xe0 Besan\xe7on", "windows-1252", "gar\u00e7on \u00e0 Besan\u00e7on"},
      {"windows-1252", "\x93Quoted\x94 \x96 it\x92s 50 \x80 \x85", "windows-1252",
       "\u201cQuoted\u201d \u2013 it\u2019s 50 \u20ac \u2026"},
      {"mostly good utf-8", "h\u00e9 l\u00e0 caf\u00e9 \xe2\x82", "utf-8", "h\u00e9 l\u00e0 caf\u00e9 \ufffd"},
      {"one NUL", "before\0after some more words of plain text here\n"s, "utf-8",
       "beforeafter some more words of plain text here\n"},
      {"CRLF", "a\r\nb\r\n", "utf-8", "a\nb\n"},
      {"CR", "a\rb\r", "utf-8", "a\nb\n"},
      {"mixed ends keep the count", "a\r\n\rb\n\nc", "utf-8", "a\n\nb\n\nc"},
      {"form feed, vertical tab, NEL, LS, PS", "a\fb\vc\u0085d\u2028e\u2029f", "utf-8", "a b c d e f"},
      {"colours and titles", "\x1b[31mERROR\x1b[0m \x1b]0;title\x07 done\x1b(B", "utf-8", "ERROR  done"},
      {"an escape that never ends", "\x1b]0;title and text\nnext", "utf-8", "0;title and text\nnext"},
      {"an escape at the end", "text\x1b", "utf-8", "text"},
      {"bell and backspace", "a\x07\x08z", "utf-8", "az"},
      {"bidirectional override", "a\u202eb\u202cc\u2066d", "utf-8", "abcd"},
      {"no-break space, soft hyphen, inner mark", "a\u00a0b\u00adc\ufeffd", "utf-8", "a bcd"},
      {"invisible tags", "a\U000E0041\U000E0042z", "utf-8", "az"},
      {"joiners and variation selectors stay", "\U0001F468\u200d\U0001F469 \u2764\ufe0f", "utf-8",
       "\U0001F468\u200d\U0001F469 \u2764\ufe0f"},
  };
  for (const Row& row : rows) {
    INFO(row.what);
    const auto got = decode_text(row.bytes);
    REQUIRE(got.ok());
    CHECK(got->encoding == row.encoding);
    CHECK(got->text == row.text);
  }
}

TEST_CASE("encoding: bytes that are no text are named", "[docs]") {
  Rng rng(7);
  std::string noise(20000, '\0'), high(20000, '\0'), cyrillic;
  for (char& c : noise) c = static_cast<char>(rng.below(256));
  for (char& c : high) c = static_cast<char>(128 + rng.below(128));
  for (int i = 0; i < 200; ++i) cyrillic += "\xcf\xf0\xe8\xe2\xe5\xf2 \xec\xe8\xf0 ";
  struct Row {
    std::string bytes, reason;
  };
  const Row rows[] = {
      {"\x89PNG\r\n\x1a\nrest", "a PNG picture"},
      {"\x7f"
       "ELF\x02\x01\x01",
       "a program"},
      {"\x1f\x8b\x08\x00 text", "gzip-compressed data"},
      {"PK\x03\x04"
       "abc",
       "a zip archive or an office document"},
      {"%PDF-1.4\n", "a PDF document"},
      {"GGUF\x03", "a GGUF model"},
      {noise, "binary data"},
      {"\xff\xfe" + noise, "binary data"},
      {high, "not UTF-8, UTF-16 or Windows-1252 (convert it to UTF-8)"},
      {cyrillic, "not UTF-8, UTF-16 or Windows-1252 (convert it to UTF-8)"},
      {std::string(5000, '\0'), "binary data"},
  };
  for (const Row& row : rows) {
    const auto got = decode_text(row.bytes);
    INFO(row.reason);
    REQUIRE(!got.ok());
    CHECK(got.error().message() == row.reason);
  }
}

TEST_CASE("encoding: whatever the bytes are, what comes out is clean", "[docs]") {
  Rng rng(11);
  for (int round = 0; round < 3000; ++round) {
    std::string bytes(rng.below(60), '\0');
    const uint64_t kind = rng.below(4);
    for (char& c : bytes) {
      c = static_cast<char>(kind == 0   ? rng.below(256)
                            : kind == 1 ? 0x80 + rng.below(128)
                            : kind == 2 ? rng.below(128)
                                        : "\x1b[]\\\r\n\x07 aZ\xc2\x85\xe2\x80\xae"[rng.below(16)]);
    }
    if (rng.below(4) == 0) bytes = "\xff\xfe" + bytes;
    CAPTURE(round);
    const auto got = decode_text(bytes);
    if (!got.ok()) continue;
    CHECK(is_valid_utf8(got->text));
    CHECK(std::none_of(got->text.begin(), got->text.end(), [](char c) {
      const auto b = static_cast<unsigned char>(c);
      return (b < 0x20 && c != '\n' && c != '\t') || b == 0x7f;
    }));
    CHECK(clean_text(got->text) == got->text);
  }
}

TEST_CASE("encoding: payloads of data addresses are cut, short examples stay", "[docs]") {
  const std::string payload(500, 'A');
  CHECK(without_data_urls("x ![p](data:image/png;base64," + payload + ") y") == "x ![p](data:image/png;base64,) y");
  CHECK(without_data_urls("data:;base64,QUJD end") == "data:;base64,QUJD end");
  CHECK(without_data_urls(";base64," + payload + ";base64," + payload) == ";base64,;base64,");
  CHECK(without_data_urls("nothing") == "nothing");
}
