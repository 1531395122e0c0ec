#include "base/text.h"

#include <array>
#include <cctype>
#include <charconv>
#include <cstdio>

namespace cento {
namespace {

// Bytes of the well-formed sequence at s[i], or 0; Unicode 15 table 3-7.
size_t well_formed_at(std::string_view s, size_t i) {
  const auto byte = [&](size_t k) -> unsigned { return k < s.size() ? static_cast<unsigned char>(s[k]) : 0u; };
  const auto tail = [&](size_t k) { return byte(k) >= 0x80 && byte(k) <= 0xbf; };
  const unsigned b = byte(i);
  if (b < 0x80) return 1;
  if (b >= 0xc2 && b <= 0xdf) return tail(i + 1) ? 2 : 0;
  if (b >= 0xe0 && b <= 0xef) {
    const unsigned low = b == 0xe0 ? 0xa0 : 0x80, high = b == 0xed ? 0x9f : 0xbf;
    return byte(i + 1) >= low && byte(i + 1) <= high && tail(i + 2) ? 3 : 0;
  }
  if (b >= 0xf0 && b <= 0xf4) {
    const unsigned low = b == 0xf0 ? 0x90 : 0x80, high = b == 0xf4 ? 0x8f : 0xbf;
    return byte(i + 1) >= low && byte(i + 1) <= high && tail(i + 2) && tail(i + 3) ? 4 : 0;
  }
  return 0;
}

// Bytes at s[i] that start a well-formed sequence and are cut by the end of `s` or by a wrong byte; at least 1.
size_t maximal_bad_part(std::string_view s, size_t i) {
  const auto byte = [&](size_t k) -> unsigned { return k < s.size() ? static_cast<unsigned char>(s[k]) : 0u; };
  const unsigned b = byte(i);
  size_t want = 1;
  unsigned low = 0x80, high = 0xbf;
  if (b >= 0xc2 && b <= 0xdf) want = 2;
  if (b >= 0xe0 && b <= 0xef) {
    want = 3;
    low = b == 0xe0 ? 0xa0 : 0x80;
    high = b == 0xed ? 0x9f : 0xbf;
  }
  if (b >= 0xf0 && b <= 0xf4) {
    want = 4;
    low = b == 0xf0 ? 0x90 : 0x80;
    high = b == 0xf4 ? 0x8f : 0xbf;
  }
  size_t n = 1;
  while (n < want && byte(i + n) >= low && byte(i + n) <= high) {
    ++n;
    low = 0x80;
    high = 0xbf;
  }
  return n;
}

void append_hex(std::string& out, const char* format, unsigned value) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), format, value);
  out += text.data();
}

uint32_t decode(std::string_view s, size_t i, size_t n) {
  const auto b = [&](size_t k) { return static_cast<uint32_t>(static_cast<unsigned char>(s[i + k])); };
  if (n == 1) return b(0);
  if (n == 2) return (b(0) & 0x1f) << 6 | (b(1) & 0x3f);
  if (n == 3) return (b(0) & 0x0f) << 12 | (b(1) & 0x3f) << 6 | (b(2) & 0x3f);
  return (b(0) & 0x07) << 18 | (b(1) & 0x3f) << 12 | (b(2) & 0x3f) << 6 | (b(3) & 0x3f);
}

// A number and the letters after it; nullopt unless the number is finite, not negative and the letters are all of the
// rest.
struct NumberUnit {
  double number;
  std::string unit;  // lower case
};
std::optional<NumberUnit> parse_number_unit(std::string_view s) {
  s = trim(s);
  size_t i = 0;
  while (i < s.size() && (std::isdigit(static_cast<unsigned char>(s[i])) || s[i] == '.')) ++i;
  if (i == 0) return std::nullopt;
  double number = 0;
  const auto [end, error] = std::from_chars(s.data(), s.data() + i, number, std::chars_format::fixed);
  if (error != std::errc() || end != s.data() + i) return std::nullopt;
  return NumberUnit{number, to_lower_ascii(trim(s.substr(i)))};
}

}  // namespace

size_t utf8_complete_prefix(std::string_view s) {
  for (size_t back = 1; back <= 3 && back <= s.size(); ++back) {
    const size_t i = s.size() - back;
    const auto b = static_cast<unsigned char>(s[i]);
    if (b < 0x80) break;
    if (b < 0xc0) continue;  // a tail byte: look further back for its start
    const size_t want = b >= 0xf0 ? 4 : b >= 0xe0 ? 3 : 2;
    if (back < want && maximal_bad_part(s, i) == back && b >= 0xc2 && b <= 0xf4) return i;
    break;
  }
  return s.size();
}

bool is_valid_utf8(std::string_view s) {
  for (size_t i = 0; i < s.size();) {
    const size_t n = well_formed_at(s, i);
    if (n == 0) return false;
    i += n;
  }
  return true;
}

std::string to_valid_utf8(std::string_view s) {
  std::string out;
  out.reserve(s.size());
  for (size_t i = 0; i < s.size();) {
    const size_t n = well_formed_at(s, i);
    if (n > 0) {
      out.append(s.substr(i, n));
      i += n;
    } else {
      out += "\xEF\xBF\xBD";
      i += maximal_bad_part(s, i);
    }
  }
  return out;
}

void append_utf8(std::string& out, uint32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xc0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xe0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    out += static_cast<char>(0x80 | (c & 0x3f));
  } else {
    out += static_cast<char>(0xf0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3f));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    out += static_cast<char>(0x80 | (c & 0x3f));
  }
}

std::string printable(std::string_view s) {
  std::string out;
  out.reserve(s.size());
  for (size_t i = 0; i < s.size();) {
    const size_t n = well_formed_at(s, i);
    if (n == 0) {
      append_hex(out, "\\x%02x", static_cast<unsigned char>(s[i]));
      ++i;
      continue;
    }
    const uint32_t c = decode(s, i, n);
    if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else if (c < 0x20 || (c >= 0x7f && c < 0xa0))
      append_hex(out, "\\x%02x", c);
    else if ((c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069))
      append_hex(out, "\\u{%x}", c);
    else
      out.append(s.substr(i, n));
    i += n;
  }
  return out;
}

std::optional<uint64_t> parse_size(std::string_view s) {
  const auto parsed = parse_number_unit(s);
  if (!parsed) return std::nullopt;
  static constexpr struct {
    const char* name;
    double factor;
  } kUnits[] = {{"", 1},       {"b", 1},         {"kb", 1e3},         {"mb", 1e6},           {"gb", 1e9},
                {"tb", 1e12},  {"k", 1024},      {"m", 1048576},      {"g", 1073741824},     {"t", 1099511627776},
                {"kib", 1024}, {"mib", 1048576}, {"gib", 1073741824}, {"tib", 1099511627776}};
  for (const auto& unit : kUnits) {
    if (parsed->unit != unit.name) continue;
    const double bytes = parsed->number * unit.factor;
    if (!(bytes < 9.2e18)) return std::nullopt;
    return static_cast<uint64_t>(bytes);
  }
  return std::nullopt;
}

std::string size_text(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text.data();
}

std::optional<int64_t> parse_duration_ms(std::string_view s) {
  const auto parsed = parse_number_unit(s);
  if (!parsed) return std::nullopt;
  static constexpr struct {
    const char* name;
    double ms;
  } kUnits[] = {{"ms", 1}, {"s", 1e3}, {"m", 6e4}, {"h", 3.6e6}, {"d", 8.64e7}};
  for (const auto& unit : kUnits) {
    if (parsed->unit != unit.name) continue;
    const double ms = parsed->number * unit.ms;
    if (!(ms < 9e15)) return std::nullopt;
    return static_cast<int64_t>(ms);
  }
  return std::nullopt;
}

std::vector<std::string_view> split_lines(std::string_view s) {
  std::vector<std::string_view> lines;
  while (!s.empty()) {
    const size_t end = s.find('\n');
    std::string_view line = s.substr(0, end);
    s.remove_prefix(end == std::string_view::npos ? s.size() : end + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    lines.push_back(line);
  }
  return lines;
}

std::string_view trim(std::string_view s) {
  const auto space = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  while (!s.empty() && space(s.front())) s.remove_prefix(1);
  while (!s.empty() && space(s.back())) s.remove_suffix(1);
  return s;
}

std::string to_lower_ascii(std::string_view s) {
  std::string out(s);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

}  // namespace cento
