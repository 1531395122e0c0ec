// Small helpers on text: UTF-8, control characters, sizes and durations as people write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cento {

// Length of the longest prefix of `s` that does not end inside a UTF-8 character that later bytes could complete.
// Invalid bytes count as complete.
size_t utf8_complete_prefix(std::string_view s);

bool is_valid_utf8(std::string_view s);

// `s` with every invalid byte sequence replaced by U+FFFD, one for each maximal invalid part (Unicode 15, 3.9).
std::string to_valid_utf8(std::string_view s);

void append_utf8(std::string& out, uint32_t code_point);

// `s` safe for a terminal and for one line: C0, DEL, C1 controls and bad UTF-8 become \xHH; line ends \n, tabs \t.
// Bidirectional overrides (U+202A..U+202E, U+2066..U+2069) become \u{...}.
std::string printable(std::string_view s);

// "512MiB", "2GB", "1.5GiB", "4096" -> bytes. Decimal units are powers of 1000, binary ones of 1024; case is ignored.
std::optional<uint64_t> parse_size(std::string_view s);
std::string size_text(uint64_t bytes);  // "1.5 GiB"

// "30s", "10m", "2h", "7d", "250ms" -> milliseconds.
std::optional<int64_t> parse_duration_ms(std::string_view s);

std::vector<std::string_view> split_lines(std::string_view s);  // without line ends; a final line end adds no line
std::string_view trim(std::string_view s);                      // ASCII white space at both ends
std::string to_lower_ascii(std::string_view s);

}  // namespace cento
