// Plain text, source code, logs and the like, and tables of separated values.
#include <algorithm>
#include <cctype>

#include "base/text.h"
#include "docs/reader.h"

namespace cento {
namespace {

uint32_t number(size_t index) { return static_cast<uint32_t>(index + 1); }

std::string joined(const std::vector<std::string_view>& lines, size_t from, size_t to) {
  std::string text;
  for (size_t k = from; k < to; ++k) {
    if (k > from) text += '\n';
    text += lines[k];
  }
  return text;
}

// Level of a heading whose underline is `line`: 1 for ===, 2 for ---, 0 for none. The rule must be about as long as the
// heading, or a rule between two parts would make headings.
int underline_level(std::string_view heading, std::string_view line) {
  const std::string_view s = trim(line), h = trim(heading);
  if (s.size() < 3 || (s[0] != '=' && s[0] != '-') || s.find_first_not_of(s[0]) != std::string_view::npos) return 0;
  if (h.empty() || h.size() > 100 || s.size() + 4 < h.size() || s.size() > h.size() + 12) return 0;
  if (h.find_first_not_of("=-+|* ") == std::string_view::npos) return 0;
  return s[0] == '=' ? 1 : 2;
}

// Many short lines are a list or a log, whose lines are its structure, not prose that was wrapped.
bool is_line_wise(const std::vector<std::string_view>& lines, size_t from, size_t to) {
  if (to - from < 8) return false;
  size_t bytes = 0;
  for (size_t k = from; k < to; ++k) bytes += lines[k].size();
  return bytes / (to - from) < 45;
}

// A short first line with nothing right below it, not the end of a sentence.
bool is_title(const std::vector<std::string_view>& lines, size_t at) {
  const std::string_view s = trim(lines[at]);
  if (s.size() < 2 || s.size() > 80 || (at + 1 < lines.size() && !is_blank(lines[at + 1]))) return false;
  if (at + 2 >= lines.size()) return false;
  return s.back() != '.' && s.back() != ',' && s.back() != ';' && std::isalnum(static_cast<unsigned char>(s[0])) != 0;
}

// End of the record that starts at `line`: quoted fields may hold line ends. A quote that is not closed within 100
// lines is taken as a plain character.
size_t record_end(const std::vector<std::string_view>& lines, size_t line) {
  constexpr size_t kLinesMax = 100;
  size_t quotes = 0;
  for (size_t k = line; k < lines.size() && k < line + kLinesMax; ++k) {
    quotes += static_cast<size_t>(std::count(lines[k].begin(), lines[k].end(), '"'));
    if (quotes % 2 == 0) return k + 1;
  }
  return line + 1;
}

}  // namespace

Document read_plain(std::string_view text) {
  const std::vector<std::string_view> lines = lines_of(text);
  Document out;
  out.format = "text";
  size_t start = 0;
  while (start < lines.size() && is_blank(lines[start])) ++start;
  if (start < lines.size() && is_title(lines, start)) {
    out.title = plain_heading(lines[start]);
    out.blocks.push_back({BlockKind::kHeading, 1, out.title, number(start), number(start), -1});
    ++start;
  }
  for (size_t i = start; i < lines.size();) {
    if (is_blank(lines[i])) {
      ++i;
      continue;
    }
    if (const int level = i + 1 < lines.size() ? underline_level(lines[i], lines[i + 1]) : 0) {
      std::string heading = plain_heading(lines[i]);
      if (out.title.empty() && level == 1) out.title = heading;
      out.blocks.push_back({BlockKind::kHeading, level, std::move(heading), number(i), number(i + 1), -1});
      i += 2;
      continue;
    }
    size_t end = i + 1;
    while (end < lines.size() && !is_blank(lines[end]) &&
           (end + 1 >= lines.size() || underline_level(lines[end], lines[end + 1]) == 0)) {
      ++end;
    }
    const BlockKind kind = is_line_wise(lines, i, end) ? BlockKind::kCode : BlockKind::kParagraph;
    out.blocks.push_back({kind, 0, joined(lines, i, end), number(i), number(end - 1), -1});
    i = end;
  }
  return out;
}

Document read_code(std::string_view text) {
  const std::vector<std::string_view> lines = lines_of(text);
  Document out;
  out.format = "code";
  for (size_t i = 0; i < lines.size();) {
    if (is_blank(lines[i])) {
      ++i;
      continue;
    }
    size_t end = i + 1;
    while (end < lines.size() && !is_blank(lines[end])) ++end;
    out.blocks.push_back({BlockKind::kCode, 0, joined(lines, i, end), number(i), number(end - 1), -1});
    i = end;
  }
  return out;
}

Document read_csv(std::string_view text) {
  const std::vector<std::string_view> lines = lines_of(text);
  Document out;
  out.format = "csv";
  out.tables.push_back({});
  size_t i = 0;
  while (i < lines.size() && is_blank(lines[i])) ++i;
  const size_t head = i;
  size_t first_end = i < lines.size() ? record_end(lines, i) : i;
  // A header row is a record with a separator and without digits alone in a field's place: its first character is no
  // digit.
  const bool has_head = i < lines.size() && first_end < lines.size() &&
                        lines[i].find_first_of(",;\t") != std::string_view::npos &&
                        std::isdigit(static_cast<unsigned char>(trim(lines[i]).front())) == 0;
  if (has_head) {
    out.tables[0].head = joined(lines, i, first_end);
    i = first_end;
  }
  bool any = false;
  while (i < lines.size()) {
    if (is_blank(lines[i])) {
      ++i;
      continue;
    }
    const size_t end = record_end(lines, i);
    const uint32_t from = !any && has_head ? number(head) : number(i);
    out.blocks.push_back({BlockKind::kTableRow, 0, joined(lines, i, end), from, number(end - 1), 0});
    any = true;
    i = end;
  }
  if (!any && has_head)
    out.blocks.push_back({BlockKind::kCode, 0, out.tables[0].head, number(head), number(first_end - 1), -1});
  return out;
}

}  // namespace cento
