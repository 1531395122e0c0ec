// Markdown as people write it: CommonMark's block structure without its nesting, pipe tables, front matter.
#include <algorithm>
#include <cctype>

#include "base/text.h"
#include "docs/reader.h"

namespace cento {
namespace {

struct Fence {
  char mark = 0;  // '`' or '~'; 0: the line opens none
  size_t length = 0;
};

Fence fence_at(std::string_view line) {
  const std::string_view s = trim(line);
  if (s.size() < 3 || (s[0] != '`' && s[0] != '~')) return {};
  size_t n = s.find_first_not_of(s[0]);
  if (n == std::string_view::npos) n = s.size();
  if (n < 3) return {};
  if (s[0] == '`' && s.find('`', n) != std::string_view::npos) return {};  // inline code
  return {s[0], n};
}

bool closes(std::string_view line, const Fence& fence) {
  const std::string_view s = trim(line);
  return s.size() >= fence.length && s.find_first_not_of(fence.mark) == std::string_view::npos;
}

// Level of an ATX heading, 0 if it is none; `text` gets what stands in it.
int atx_level(std::string_view line, std::string_view& text) {
  if (indent_of(line) > 3) return 0;
  const std::string_view s = trim(line);
  const size_t n = std::min(s.find_first_not_of('#'), s.size());
  if (n < 1 || n > 6) return 0;
  if (n < s.size() && s[n] != ' ' && s[n] != '\t') return 0;
  text = trim(s.substr(n));
  const size_t last = text.find_last_not_of('#');
  if (last == std::string_view::npos) {
    text = {};
  } else if (last + 1 < text.size() && (text[last] == ' ' || text[last] == '\t')) {
    text = trim(text.substr(0, last));
  }
  return static_cast<int>(n);
}

int setext_level(std::string_view line) {
  if (indent_of(line) > 3) return 0;
  const std::string_view s = trim(line);
  if (s.empty() || (s[0] != '=' && s[0] != '-')) return 0;
  return s.find_first_not_of(s[0]) == std::string_view::npos ? (s[0] == '=' ? 1 : 2) : 0;
}

bool is_rule(std::string_view line) {  // thematic break
  if (indent_of(line) > 3) return false;
  const std::string_view s = trim(line);
  if (s.empty() || (s[0] != '-' && s[0] != '*' && s[0] != '_')) return false;
  return std::count(s.begin(), s.end(), s[0]) >= 3 &&
         s.find_first_not_of(std::string{s[0], ' ', '\t'}) == std::string_view::npos;
}

bool is_list_item(std::string_view line) {
  const size_t start = line.find_first_not_of(" \t");
  if (start == std::string_view::npos) return false;
  size_t i = start;
  if (line[i] == '-' || line[i] == '*' || line[i] == '+') {
    ++i;
  } else {
    while (i < line.size() && i - start < 9 && std::isdigit(static_cast<unsigned char>(line[i]))) ++i;
    if (i == start || i >= line.size() || (line[i] != '.' && line[i] != ')')) return false;
    ++i;
  }
  return i < line.size() ? line[i] == ' ' || line[i] == '\t' : true;
}

bool is_link_definition(std::string_view line) {  // [name]: target; not a footnote's [^1]:
  if (indent_of(line) > 3) return false;
  const std::string_view s = trim(line);
  if (s.size() < 4 || s[0] != '[' || s[1] == '^') return false;
  const size_t close = s.find("]:");
  if (close == std::string_view::npos || close == 1 || s.substr(0, close).find('[', 1) != std::string_view::npos)
    return false;
  const std::string_view rest = trim(s.substr(close + 2));
  const size_t gap = rest.find_first_of(" \t");
  if (rest.empty()) return false;
  if (gap == std::string_view::npos) return true;
  const char quote = trim(rest.substr(gap))[0];
  return quote == '"' || quote == '\'' || quote == '(';
}

bool is_table_rule(std::string_view line) {  // |---|:-:|
  const std::string_view s = trim(line);
  return s.size() >= 3 && s.find('-') != std::string_view::npos && s.find('|') != std::string_view::npos &&
         s.find_first_not_of("|-: \t") == std::string_view::npos;
}

class MarkdownReader {
 public:
  explicit MarkdownReader(std::string_view text) : lines_(lines_of(text)) {}

  Document read() {
    out_.format = "markdown";
    i_ = front_matter();
    while (i_ < lines_.size()) step();
    end_paragraph();
    if (out_.title.empty()) title_from_heading();
    return std::move(out_);
  }

 private:
  void step() {
    const std::string_view line = lines_[i_];
    std::string_view text;
    if (in_comment_ || starts_comment(line)) return comment(line);
    if (is_blank(line)) {
      end_paragraph();
      ++i_;
    } else if (fence_allowed(line) && fence_at(line).mark != 0) {
      fence();
    } else if (const int level = atx_level(line, text)) {
      end_paragraph();
      heading(level, plain_heading(text), i_, i_);
      ++i_;
    } else if (is_setext()) {
      setext();
    } else if (is_rule(line)) {
      end_paragraph();
      ++i_;
    } else if (line.find('|') != std::string_view::npos && i_ + 1 < lines_.size() && is_table_rule(lines_[i_ + 1])) {
      table();
    } else if (!in_paragraph() && is_link_definition(line)) {
      ++i_;
    } else if (!in_paragraph() && !in_list_ && indent_of(line) >= 4) {
      indented_code();
    } else {
      if (is_list_item(line)) {
        end_paragraph();
        kind_ = BlockKind::kListItem;
        in_list_ = true;
      } else if (!in_paragraph()) {
        kind_ = BlockKind::kParagraph;
        if (indent_of(line) == 0) in_list_ = false;
      }
      if (!in_paragraph()) from_ = i_;
      ++i_;
      to_ = i_;
    }
  }

  bool in_paragraph() const { return to_ > from_; }

  // Inside a list a fence may be indented by any depth of it.
  bool fence_allowed(std::string_view line) const { return in_list_ || indent_of(line) <= 3; }

  bool is_setext() const {
    return in_paragraph() && kind_ == BlockKind::kParagraph && to_ - from_ <= 3 && setext_level(lines_[i_]) != 0 &&
           trim(lines_[from_])[0] != '>' && !is_list_item(lines_[i_]);
  }

  void setext() {
    const int level = setext_level(lines_[i_]);
    std::string text;
    for (size_t k = from_; k < to_; ++k) text += std::string(lines_[k]) + " ";
    heading(level, plain_heading(text), from_, i_);
    from_ = to_ = 0;
    ++i_;
  }

  void heading(int level, std::string text, size_t from, size_t to) {
    in_list_ = false;
    if (text.empty()) return;
    out_.blocks.push_back({BlockKind::kHeading, level, std::move(text), line_number(from), line_number(to), -1});
  }

  void end_paragraph() {
    if (in_paragraph()) add(kind_, from_, to_);
    from_ = to_ = 0;
  }

  void fence() {
    end_paragraph();
    const Fence fence = fence_at(lines_[i_]);
    const size_t from = i_++;
    while (i_ < lines_.size() && !closes(lines_[i_], fence)) ++i_;
    if (i_ < lines_.size()) ++i_;  // else never closed: code to the end
    add(BlockKind::kCode, from, i_);
  }

  void indented_code() {
    const size_t from = i_;
    size_t end = i_;
    while (i_ < lines_.size() && (is_blank(lines_[i_]) || indent_of(lines_[i_]) >= 4)) {
      if (!is_blank(lines_[i_++])) end = i_;
    }
    i_ = end;
    add(BlockKind::kCode, from, end);
  }

  void table() {
    end_paragraph();
    const auto index = static_cast<int>(out_.tables.size());
    const size_t head = i_;
    out_.tables.push_back({std::string(lines_[head]) + "\n" + std::string(lines_[head + 1])});
    i_ += 2;
    const size_t first = i_;
    for (; i_ < lines_.size() && lines_[i_].find('|') != std::string_view::npos && !is_blank(lines_[i_]); ++i_) {
      const uint32_t from = i_ == first ? line_number(head) : line_number(i_);
      out_.blocks.push_back({BlockKind::kTableRow, 0, std::string(lines_[i_]), from, line_number(i_), index});
    }
    if (i_ == first) add(BlockKind::kCode, head, first);  // a header row alone
  }

  bool starts_comment(std::string_view line) const { return !in_paragraph() && trim(line).substr(0, 4) == "<!--"; }

  void comment(std::string_view line) {
    const size_t begin = in_comment_ ? 0 : line.find("<!--") + 4;
    const size_t end = line.find("-->", begin);
    in_comment_ = end == std::string_view::npos;
    const size_t here = i_++;
    if (in_comment_ || is_blank(line.substr(end + 3))) return;
    out_.blocks.push_back(
        {BlockKind::kParagraph, 0, std::string(trim(line.substr(end + 3))), line_number(here), line_number(here), -1});
  }

  // Lines [from, to) as they stand, without blank ends.
  void add(BlockKind kind, size_t from, size_t to) {
    std::string text;
    for (size_t k = from; k < to; ++k) {
      if (k > from) text += '\n';
      text += lines_[k];
    }
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.pop_back();
    if (is_blank(text)) return;
    out_.blocks.push_back({kind, 0, std::move(text), line_number(from), line_number(to - 1), -1});
  }

  // Index of the first line after a front matter of YAML (---) or TOML (+++).
  size_t front_matter() {
    constexpr size_t kLinesMax = 200;
    if (lines_.empty()) return 0;
    const std::string_view mark = trim(lines_[0]);
    if (mark != "---" && mark != "+++") return 0;
    size_t end = 1;
    while (end < lines_.size() && end < kLinesMax && trim(lines_[end]) != mark && trim(lines_[end]) != "...") ++end;
    if (end == lines_.size() || end == kLinesMax) return 0;
    for (size_t k = 1; k < end; ++k) field(lines_[k], k);
    return end + 1;
  }

  void field(std::string_view text, size_t at) {
    const size_t colon = text.find_first_of(":=");
    if (colon == std::string_view::npos || indent_of(text) > 0) return;
    const std::string key = to_lower_ascii(trim(text.substr(0, colon)));
    std::string_view value = trim(text.substr(colon + 1));
    if (value.size() >= 2 && (value[0] == '"' || value[0] == '\'') && value.back() == value[0]) {
      value = value.substr(1, value.size() - 2);
    }
    if (key == "title") out_.title = plain_heading(value);
    if ((key == "description" || key == "summary") && value.size() > 3) {
      out_.blocks.push_back({BlockKind::kParagraph, 0, std::string(value), line_number(at), line_number(at), -1});
    }
  }

  void title_from_heading() {
    for (const Block& block : out_.blocks) {
      if (block.kind == BlockKind::kHeading && block.level == 1) {
        out_.title = block.text;
        return;
      }
    }
  }

  static uint32_t line_number(size_t index) { return static_cast<uint32_t>(index + 1); }

  std::vector<std::string_view> lines_;
  size_t i_ = 0;
  size_t from_ = 0, to_ = 0;  // lines of the paragraph or list item being gathered
  BlockKind kind_ = BlockKind::kParagraph;
  bool in_list_ = false, in_comment_ = false;
  Document out_;
};

}  // namespace

Document read_markdown(std::string_view text) { return MarkdownReader(text).read(); }

}  // namespace cento
