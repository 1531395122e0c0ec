// Steps through UTF-8 that is known to be valid (encoding.h makes it so); a stray byte counts as itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cento {

// Length in bytes of the character at s[i], never past the end; i < s.size().
inline size_t utf8_length(std::string_view s, size_t i) {
  const auto b = static_cast<unsigned char>(s[i]);
  const size_t n = b < 0xc0 ? 1 : b < 0xe0 ? 2 : b < 0xf0 ? 3 : 4;
  return n <= s.size() - i ? n : s.size() - i;
}

inline uint32_t utf8_code_point(std::string_view s, size_t i) {
  const size_t n = utf8_length(s, i);
  const auto b = [&](size_t k) { return static_cast<uint32_t>(static_cast<unsigned char>(s[i + k])); };
  if (n == 1) return b(0);
  if (n == 2) return (b(0) & 0x1f) << 6 | (b(1) & 0x3f);
  if (n == 3) return (b(0) & 0x0f) << 12 | (b(1) & 0x3f) << 6 | (b(2) & 0x3f);
  return (b(0) & 0x07) << 18 | (b(1) & 0x3f) << 12 | (b(2) & 0x3f) << 6 | (b(3) & 0x3f);
}

// The largest position <= i that is not inside a character.
inline size_t utf8_floor(std::string_view s, size_t i) {
  if (i >= s.size()) return s.size();
  while (i > 0 && (static_cast<unsigned char>(s[i]) & 0xc0) == 0x80) --i;
  return i;
}

// Scripts written without spaces between words: Han, kana, Thai, Lao, Khmer, Burmese and their punctuation.
inline bool is_spaceless_script(uint32_t c) {
  return (c >= 0x0e00 && c <= 0x0eff) || (c >= 0x1000 && c <= 0x109f) || (c >= 0x1780 && c <= 0x17ff) ||
         (c >= 0x3040 && c <= 0x30ff) || (c >= 0x3400 && c <= 0x9fff) || (c >= 0xf900 && c <= 0xfaff) ||
         (c >= 0x20000 && c <= 0x3ffff) || (c >= 0xff66 && c <= 0xff9d);
}

}  // namespace cento
