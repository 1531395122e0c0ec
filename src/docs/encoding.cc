#include "docs/encoding.h"

#include <array>
#include <cctype>
#include <cstdint>
#include <optional>

#include "base/text.h"
#include "docs/utf8.h"

namespace cento {
namespace {

struct Magic {
  std::string_view bytes;
  const char* what;
};
using std::string_view_literals::operator""sv;
constexpr std::array kMagic = {
    Magic{"\x89PNG\r\n\x1a\n"sv, "a PNG picture"},
    Magic{"\xff\xd8\xff"sv, "a JPEG picture"},
    Magic{"GIF87a"sv, "a GIF picture"},
    Magic{"GIF89a"sv, "a GIF picture"},
    Magic{"\x7f"
          "ELF"sv,
          "a program"},
    Magic{"MZ\x90\0"sv, "a program"},
    Magic{"\x1f\x8b\x08"sv, "gzip-compressed data"},
    Magic{"BZh9"sv, "bzip2-compressed data"},
    Magic{"\xfd"
          "7zXZ\0"sv,
          "xz-compressed data"},
    Magic{"\x28\xb5\x2f\xfd"sv, "zstd-compressed data"},
    Magic{"7z\xbc\xaf\x27\x1c"sv, "a 7z archive"},
    Magic{"PK\x03\x04"sv, "a zip archive or an office document"},
    Magic{"PK\x05\x06"sv, "an empty zip archive"},
    Magic{"%PDF-"sv, "a PDF document"},
    Magic{"GGUF"sv, "a GGUF model"},
    Magic{"SQLite format 3\0"sv, "an SQLite database"},
    Magic{"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"sv, "an old office document"},
    Magic{"{\\rtf"sv, "an RTF document"},
    Magic{"RIFF"sv, "a sound, picture or film"},
    Magic{"OggS"sv, "a sound"},
    Magic{"ID3"sv, "a sound"},
    Magic{"wOFF"sv, "a font"},
    Magic{"wOF2"sv, "a font"},
};

// Windows-1252 0x80..0x9f; 0: not assigned there.
constexpr std::array<uint16_t, 32> kCp1252 = {0x20ac, 0,      0x201a, 0x0192, 0x201e, 0x2026, 0x2020, 0x2021,
                                              0x02c6, 0x2030, 0x0160, 0x2039, 0x0152, 0,      0x017d, 0,
                                              0,      0x2018, 0x2019, 0x201c, 0x201d, 0x2022, 0x2013, 0x2014,
                                              0x02dc, 0x2122, 0x0161, 0x203a, 0x0153, 0,      0x017e, 0x0178};

std::string from_cp1252(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() + bytes.size() / 8);
  for (const char c : bytes) {
    const auto b = static_cast<unsigned char>(c);
    const uint32_t code = b < 0x80 || b >= 0xa0 ? b : kCp1252[b - 0x80u];
    append_utf8(out, code == 0 && b != 0 ? 0xfffd : code);
  }
  return out;
}

std::string from_utf16(std::string_view bytes, bool big_endian) {
  std::string out;
  out.reserve(bytes.size());
  const auto unit = [&](size_t i) -> uint32_t {
    const auto a = static_cast<unsigned char>(bytes[i]), b = static_cast<unsigned char>(bytes[i + 1]);
    return big_endian ? static_cast<uint32_t>(a << 8 | b) : static_cast<uint32_t>(b << 8 | a);
  };
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    const uint32_t u = unit(i);
    if (u >= 0xd800 && u < 0xdc00 && i + 3 < bytes.size()) {
      const uint32_t low = unit(i + 2);
      if (low >= 0xdc00 && low < 0xe000) {
        append_utf8(out, 0x10000 + ((u - 0xd800) << 10) + (low - 0xdc00));
        i += 2;
        continue;
      }
    }
    append_utf8(out, u >= 0xd800 && u < 0xe000 ? 0xfffd : u);
  }
  return out;
}

std::string from_utf32(std::string_view bytes, bool big_endian) {
  std::string out;
  for (size_t i = 0; i + 3 < bytes.size(); i += 4) {
    uint32_t u = 0;
    for (size_t k = 0; k < 4; ++k) u = u << 8 | static_cast<unsigned char>(bytes[i + (big_endian ? k : 3 - k)]);
    append_utf8(out, u > 0x10ffff || (u >= 0xd800 && u < 0xe000) ? 0xfffd : u);
  }
  return out;
}

struct Counts {
  size_t zero_even = 0, zero_odd = 0, control = 0, high = 0, high_runs = 0;
};

Counts count_bytes(std::string_view bytes) {
  Counts n;
  bool in_run = false;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto b = static_cast<unsigned char>(bytes[i]);
    if (b == 0) ++(i % 2 == 0 ? n.zero_even : n.zero_odd);
    // Tab to CR, ESC, BEL and BS occur in logs; the rest of C0 and DEL do not occur in text.
    if ((b < 0x20 && !(b >= 0x07 && b <= 0x0d) && b != 0x1b) || b == 0x7f) ++n.control;
    const bool high = b >= 0x80;
    n.high += high;
    n.high_runs += high && !in_run;
    in_run = high;
  }
  return n;
}

// Share of the characters that are U+FFFD, control characters or private: what decoding noise as UTF-16 or UTF-32
// gives.
bool looks_like_noise(std::string_view utf8) {
  size_t n = 0, bad = 0;
  for (size_t i = 0; i < utf8.size(); i += utf8_length(utf8, i)) {
    const uint32_t c = utf8_code_point(utf8, i);
    ++n;
    bad += c == 0xfffd || (c < 0x20 && !(c >= 0x07 && c <= 0x0d) && c != 0x1b) || (c & 0xfffe) == 0xfffe ||
           (c >= 0xe000 && c <= 0xf8ff);
  }
  return bad * 20 > n + 20;  // one in twenty, and a few in a short text
}

Error no_text(std::string what) { return Error{Code::kInput, std::move(what)}; }

Result<DecodedText> wide(std::string text, const char* encoding) {
  if (looks_like_noise(text)) return no_text("binary data");
  return DecodedText{clean_text(text), encoding};
}

std::optional<Result<DecodedText>> by_mark(std::string_view s) {
  const auto starts = [&](std::string_view mark) { return s.substr(0, mark.size()) == mark; };
  if (starts("\xff\xfe\0\0"sv) && s.size() % 4 == 0) {
    std::string text = from_utf32(s, false);
    if (!looks_like_noise(text)) return wide(std::move(text), "utf-32le");
  }
  if (starts("\0\0\xfe\xff"sv)) return wide(from_utf32(s, true), "utf-32be");
  if (starts("\xff\xfe"sv)) return wide(from_utf16(s, false), "utf-16le");
  if (starts("\xfe\xff"sv)) return wide(from_utf16(s, true), "utf-16be");
  return std::nullopt;
}

// Text without a mark whose every other byte is mostly zero.
std::optional<Result<DecodedText>> by_zeros(std::string_view s, const Counts& n) {
  const size_t pairs = s.size() / 2;
  if (pairs < 4) return std::nullopt;
  const bool little = n.zero_odd * 10 > pairs * 6 && n.zero_even * 50 < pairs;
  const bool big = n.zero_even * 10 > pairs * 6 && n.zero_odd * 50 < pairs;
  if (!little && !big) return std::nullopt;
  return wide(from_utf16(s, big), big ? "utf-16be" : "utf-16le");
}

// Not valid UTF-8: broken UTF-8 (more good sequences than bad), Western text in one byte a letter, or something else.
Result<DecodedText> by_high_bytes(std::string_view s, const Counts& n) {
  std::string mended = to_valid_utf8(s);
  size_t good = 0, bad = 0;
  for (size_t i = 0; i < mended.size(); i += utf8_length(mended, i)) {
    if (static_cast<unsigned char>(mended[i]) < 0x80) continue;
    ++(utf8_code_point(mended, i) == 0xfffd ? bad : good);
  }
  if (good >= bad) return DecodedText{clean_text(mended), "utf-8"};
  // In Western languages accented letters and quotes stand alone between ASCII letters and are few; a page of Cyrillic,
  // Greek or Chinese in an old encoding, or noise, is made of long runs.
  const bool many = n.high * 100 > s.size() * 30;
  const bool long_runs = n.high > 3 * n.high_runs && n.high * 100 > s.size() * 10;
  if (many || long_runs) return no_text("not UTF-8, UTF-16 or Windows-1252 (convert it to UTF-8)");
  return DecodedText{clean_text(from_cp1252(s)), "windows-1252"};
}

// Position after the terminal escape sequence whose ESC is at s[i].
size_t skip_escape(std::string_view s, size_t i) {
  if (++i >= s.size()) return i;
  const char kind = s[i++];
  if (kind == '[') {  // CSI: parameters, then one final byte
    while (i < s.size() && s[i] >= 0x20 && s[i] < 0x40) ++i;
    return i < s.size() && s[i] >= 0x40 && s[i] <= 0x7e ? i + 1 : i;
  }
  if (kind == ']' || kind == 'P' || kind == 'X' || kind == '^' || kind == '_') {  // a string up to BEL or ESC backslash
    size_t j = i;
    while (j < s.size() && s[j] != '\n' && s[j] != '\r' && s[j] != '\x07' && s[j] != '\x1b') ++j;
    if (j < s.size() && s[j] == '\x07') return j + 1;
    if (j + 1 < s.size() && s[j] == '\x1b' && s[j + 1] == '\\') return j + 2;
    return i;  // never closed on its line: only the start of it goes
  }
  while (i < s.size() && kind >= 0x20 && kind < 0x30 && s[i] >= 0x30 && s[i] <= 0x7e) return i + 1;  // ESC ( B
  return kind >= 0x20 && kind <= 0x7e ? i : i - 1;
}

// What a character above ASCII becomes: itself, a space (0x20) or nothing (0).
uint32_t cleaned(uint32_t c) {
  if (c < 0xa0) return c == 0x85 ? 0x20 : 0;  // C1
  if (c == 0xa0 || c == 0x2007 || c == 0x202f || c == 0x2028 || c == 0x2029) return 0x20;
  if (c == 0xad || c == 0xfeff || (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069)) return 0;
  if ((c >= 0xfff9 && c <= 0xfffb) || (c >= 0xe0000 && c <= 0xe007f)) return 0;
  if ((c & 0xfffe) == 0xfffe || (c >= 0xfdd0 && c <= 0xfdef)) return 0;
  return c;
}

}  // namespace

Result<DecodedText> decode_text(std::string_view bytes) {
  for (const Magic& magic : kMagic) {
    if (bytes.substr(0, magic.bytes.size()) == magic.bytes) return no_text(magic.what);
  }
  if (auto marked = by_mark(bytes)) return std::move(*marked);
  if (bytes.substr(0, 3) == "\xef\xbb\xbf") bytes.remove_prefix(3);
  const Counts n = count_bytes(bytes);
  if (auto zeros = by_zeros(bytes, n)) return std::move(*zeros);
  // A stray NUL or two in a text is dropped; one control character in fifty bytes is not text.
  if (n.control * 50 > bytes.size() + 50) return no_text("binary data");
  if (is_valid_utf8(bytes)) return DecodedText{clean_text(bytes), "utf-8"};
  return by_high_bytes(bytes, n);
}

std::string clean_text(std::string_view s) {
  std::string out;
  out.reserve(s.size());
  for (size_t i = 0; i < s.size();) {
    const auto b = static_cast<unsigned char>(s[i]);
    if (b >= 0x80) {
      const size_t n = utf8_length(s, i);
      const uint32_t c = utf8_code_point(s, i), kept = cleaned(c);
      if (kept == c) out.append(s.substr(i, n));
      if (kept == 0x20) out += ' ';
      i += n;
    } else if (b == '\r') {
      out += '\n';
      i += i + 1 < s.size() && s[i + 1] == '\n' ? 2 : 1;
    } else if (b == 0x1b) {
      i = skip_escape(s, i);
    } else {
      if ((b >= 0x20 && b != 0x7f) || b == '\n' || b == '\t') out += static_cast<char>(b);
      if (b == 0x0b || b == 0x0c) out += ' ';
      ++i;
    }
  }
  return out;
}

std::string without_data_urls(std::string text) {
  constexpr std::string_view kMark = ";base64,";
  constexpr size_t kShort = 64;  // a payload below this is left alone: it may be an example in a text
  size_t at = 0;
  std::string out;
  for (size_t from = 0; (from = text.find(kMark, from)) != std::string::npos;) {
    const size_t begin = from + kMark.size();
    size_t end = begin;
    while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '+' ||
                                 text[end] == '/' || text[end] == '=')) {
      ++end;
    }
    if (end - begin > kShort) {
      out.append(text, at, begin - at);
      at = end;
    }
    from = end;
  }
  if (at == 0) return text;
  return out.append(text, at);
}

}  // namespace cento
