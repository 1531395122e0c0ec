// reStructuredText: sections by their underlines, directives, literal blocks, simple and grid tables. Line by line and
// without recursion: what a directive holds is read like the text around it.
#include <algorithm>
#include <array>
#include <cctype>

#include "base/text.h"
#include "docs/reader.h"

namespace cento {
namespace {

constexpr int kLevelsMax = 12;

// The mark of a line made of one punctuation character, else 0.
char line_of_mark(std::string_view line) {
  size_t end = line.size();
  while (end > 0 && (line[end - 1] == ' ' || line[end - 1] == '\t')) --end;
  line = line.substr(0, end);
  if (line.size() < 2 || !std::ispunct(static_cast<unsigned char>(line[0]))) return 0;
  return line.find_first_not_of(line[0]) == std::string_view::npos ? line[0] : '\0';
}

bool is_simple_table_rule(std::string_view line) {  // ====  ===
  const std::string_view s = trim(line);
  return s.size() >= 3 && s[0] == '=' && s.find(' ') != std::string_view::npos &&
         s.find_first_not_of("= ") == std::string_view::npos;
}

bool is_grid_rule(std::string_view line) {  // +---+---+ or +===+===+
  const std::string_view s = trim(line);
  return s.size() >= 3 && s[0] == '+' && s.back() == '+' && s.find_first_not_of("+-=") == std::string_view::npos;
}

struct Directive {
  bool found = false;
  std::string name;
  std::string_view argument;
};

// ".. name:: argument", also behind "|substitution|" (found with an empty name).
Directive directive_at(std::string_view line) {
  std::string_view s = trim(line);
  if (s.substr(0, 3) != ".. ") return {};
  s = trim(s.substr(3));
  const size_t colons = s.find("::");
  if (colons == std::string_view::npos || colons == 0) return {};
  const std::string_view name = s.substr(0, colons);
  if (name[0] == '|') return {true, "", {}};
  for (const char c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '_' && c != ':' && c != '+' && c != '.')
      return {};
  }
  return {true, to_lower_ascii(name), trim(s.substr(colons + 2))};
}

bool is_any_of(std::string_view name, std::string_view list) {
  return list.find(" " + std::string(name) + " ") != std::string_view::npos;
}

bool is_code_directive(std::string_view name) {
  return is_any_of(
      name,
      " code-block sourcecode code highlight-block parsed-literal literalinclude math graphviz raw productionlist "
      "prompt ipython console testcode doctest ");
}

// Describes one named thing: what stands below it belongs to that name.
bool is_definition(std::string_view name) {
  return name.find(':') != std::string_view::npos ||
         is_any_of(
             name,
             " data function class method attribute exception module decorator envvar option confval describe object "
             "cmdoption program macro type var property staticmethod classmethod ");
}

bool is_option_line(std::string_view line) {  // :name: value
  const std::string_view s = trim(line);
  if (s.size() < 3 || s[0] != ':') return false;
  const size_t end = s.find(':', 1);
  return end != std::string_view::npos && end > 1 && s[1] != ' ' && (end + 1 == s.size() || s[end + 1] == ' ');
}

class RstReader {
 public:
  explicit RstReader(std::string_view text) : lines_(lines_of(text)) {}

  Document read() {
    out_.format = "rst";
    while (i_ < lines_.size()) step();
    end_paragraph();
    for (const Block& block : out_.blocks) {
      if (block.kind != BlockKind::kHeading || block.text.empty()) continue;
      out_.title = block.text;
      break;
    }
    return std::move(out_);
  }

 private:
  void step() {
    const std::string_view line = lines_[i_];
    if (is_blank(line)) {
      end_paragraph();
      ++i_;
      return;
    }
    close_definitions(indent_of(line));
    if (!in_paragraph()) {
      if (overlined_title() || underlined_title()) return;
      if (explicit_markup(line)) return;
      if (is_simple_table_rule(line) && simple_table()) return;
      if (is_grid_rule(line) && grid_table()) return;
      if (line_of_mark(line) != 0 && trim(line).size() >= 4) {  // a transition
        ++i_;
        return;
      }
      if (sections_ == 0 && is_option_line(line)) {  // docinfo such as :orphan:
        ++i_;
        return;
      }
    }
    gather(line);
  }

  bool in_paragraph() const { return to_ > from_; }

  void gather(std::string_view line) {
    const bool item = is_item(line);
    if (in_paragraph() && (item || indent_of(line) < indent_of(lines_[from_]))) end_paragraph();
    if (!in_paragraph()) {
      from_ = i_;
      kind_ = item ? BlockKind::kListItem : BlockKind::kParagraph;
    }
    ++i_;
    to_ = i_;
    const std::string_view s = trim(line);
    if (s.size() >= 2 && s.substr(s.size() - 2) == "::" && (i_ == lines_.size() || is_blank(lines_[i_]))) {
      const size_t indent = indent_of(lines_[from_]);
      end_paragraph();
      literal(indent);
    }
  }

  static bool is_item(std::string_view line) {
    const std::string_view s = trim(line);
    if (s.size() < 2) return false;
    if ((s[0] == '-' || s[0] == '*' || s[0] == '+') && s[1] == ' ') return true;
    size_t n = 0;
    while (n < s.size() && n < 4 && std::isdigit(static_cast<unsigned char>(s[n]))) ++n;
    if (n == 0 && s[0] == '#') n = 1;
    return n > 0 && n + 1 < s.size() && (s[n] == '.' || s[n] == ')') && s[n + 1] == ' ';
  }

  // The lines after i_ that are blank or indented deeper than `indent`: [begin, end) without blank ends.
  std::pair<size_t, size_t> body_below(size_t indent) {
    size_t begin = i_;
    while (begin < lines_.size() && is_blank(lines_[begin])) ++begin;
    size_t end = begin;
    for (size_t k = begin; k < lines_.size(); ++k) {
      if (is_blank(lines_[k])) continue;
      if (indent_of(lines_[k]) <= indent) break;
      end = k + 1;
    }
    return {begin, std::max(begin, end)};
  }

  void literal(size_t indent) {
    const auto [begin, end] = body_below(indent);
    if (end > begin) {
      add(BlockKind::kCode, begin, end);
      i_ = end;
    }
  }

  bool explicit_markup(std::string_view line) {
    const std::string_view s = trim(line);
    if (s != ".." && s.substr(0, 3) != ".. ") return false;
    const size_t indent = indent_of(line);
    const Directive directive = directive_at(line);
    if (directive.found && !directive.name.empty()) {
      read_directive(directive, indent);
      return true;
    }
    if (!directive.found && s.size() > 4 && s[3] == '[') return false;  // a footnote or citation: text
    ++i_;                                                               // a target, a substitution or a comment
    const auto [begin, end] = body_below(indent);
    if (end > begin && (begin == i_ || s != "..")) i_ = end;
    return true;
  }

  void read_directive(const Directive& directive, size_t indent) {
    const size_t at = i_++;
    if (is_code_directive(directive.name)) {
      skip_options(indent);
      const auto [begin, end] = body_below(indent);
      if (directive.name != "raw" && end > begin) add(BlockKind::kCode, begin, end);
      i_ = std::max(i_, end);
      return;
    }
    if (is_any_of(directive.name,
                  " toctree contents currentmodule module highlight default-domain index meta include image "
                  "figure sectionauthor codeauthor only ")) {
      if (directive.name == "toctree" || directive.name == "meta" || directive.name == "index") {
        const auto [begin, end] = body_below(indent);
        i_ = std::max(i_, end > begin ? end : i_);
      } else {
        skip_options(indent);
      }
      return;
    }
    skip_options(indent);
    if (is_definition(directive.name) && !directive.argument.empty() && definitions_.size() < 4) {
      definitions_.push_back(indent);
      out_.blocks.push_back(
          {BlockKind::kHeading, definition_level(), plain_heading(directive.argument), number(at), number(at), -1});
      return;
    }
    // A note, a version remark, a list-table ...: its name and argument, then its text.
    std::string text = directive.name;
    if (!directive.argument.empty()) text += ": " + std::string(directive.argument);
    while (!directive.argument.empty() && i_ < lines_.size() && !is_blank(lines_[i_]) &&
           indent_of(lines_[i_]) > indent) {
      text += "\n" + std::string(trim(lines_[i_++]));
    }
    if (!directive.argument.empty() ||
        is_any_of(directive.name, " note warning tip danger caution important seealso admonition ")) {
      out_.blocks.push_back({BlockKind::kParagraph, 0, std::move(text), number(at), number(i_ - 1), -1});
    }
  }

  void skip_options(size_t indent) {
    while (i_ < lines_.size() && is_option_line(lines_[i_]) && indent_of(lines_[i_]) > indent) ++i_;
  }

  int definition_level() const { return std::min(depth_ + static_cast<int>(definitions_.size()), kLevelsMax + 4); }

  // Text that is not deeper than a definition ends it: a heading without text says so.
  void close_definitions(size_t indent) {
    while (!definitions_.empty() && indent <= definitions_.back()) {
      end_paragraph();
      out_.blocks.push_back({BlockKind::kHeading, definition_level(), "", number(i_), number(i_), -1});
      definitions_.pop_back();
    }
  }

  bool underlined_title() {
    if (i_ + 1 >= lines_.size() || indent_of(lines_[i_]) > 0) return false;
    const char mark = line_of_mark(lines_[i_ + 1]);
    const std::string_view title = trim(lines_[i_]);
    if (mark == 0 || indent_of(lines_[i_ + 1]) > 0 || line_of_mark(title) != 0) return false;
    const size_t length = trim(lines_[i_ + 1]).size();
    if (length < 3 || (length < title.size() && length < 4)) return false;
    section(mark, false, title, i_, i_ + 1);
    i_ += 2;
    return true;
  }

  bool overlined_title() {
    if (i_ + 2 >= lines_.size() || indent_of(lines_[i_]) > 0) return false;
    const char mark = line_of_mark(lines_[i_]);
    if (mark == 0 || trim(lines_[i_]).size() < 3 || is_blank(lines_[i_ + 1])) return false;
    if (line_of_mark(lines_[i_ + 2]) != mark || trim(lines_[i_ + 2]).size() < 3) return false;
    section(mark, true, trim(lines_[i_ + 1]), i_, i_ + 2);
    i_ += 3;
    return true;
  }

  void section(char mark, bool overline, std::string_view title, size_t from, size_t to) {
    const std::pair<char, bool> style{mark, overline};
    auto found = std::find(styles_.begin(), styles_.end(), style);
    if (found == styles_.end()) {
      styles_.push_back(style);
      found = styles_.end() - 1;
    }
    depth_ = std::min(static_cast<int>(found - styles_.begin()) + 1, kLevelsMax);
    ++sections_;
    std::string text = plain_heading(title);
    if (text.empty()) text = std::string(title);
    out_.blocks.push_back({BlockKind::kHeading, depth_, std::move(text), number(from), number(to), -1});
  }

  bool simple_table() {
    // Rules in the run of lines: two (no header row) or three (with one).
    std::array<size_t, 3> rules{};
    size_t n = 0;
    for (size_t k = i_; k < lines_.size() && n < 3; ++k) {
      if (!is_simple_table_rule(lines_[k])) {
        if (is_blank(lines_[k]) && n == 3) break;
        continue;
      }
      rules[n++] = k;
      if (n >= 2 && (k + 1 == lines_.size() || is_blank(lines_[k + 1]))) break;  // the last rule has a blank line below
    }
    if (n < 2) return false;
    const size_t first = n == 3 ? rules[1] + 1 : rules[0] + 1, end = rules[n - 1];
    std::string head;
    for (size_t k = rules[0] + 1; n == 3 && k < rules[1]; ++k)
      head += (head.empty() ? "" : "\n") + std::string(lines_[k]);
    rows(head, rules[0], first, end);
    i_ = end + 1;
    return true;
  }

  void rows(const std::string& head, size_t head_line, size_t first, size_t end) {
    const auto index = static_cast<int>(out_.tables.size());
    out_.tables.push_back({head});
    bool any = false;
    for (size_t k = first; k < end; ++k) {
      if (is_blank(lines_[k])) continue;
      out_.blocks.push_back(
          {BlockKind::kTableRow, 0, std::string(lines_[k]), any ? number(k) : number(head_line), number(k), index});
      any = true;
    }
    if (!any && !is_blank(head))
      out_.blocks.push_back({BlockKind::kCode, 0, head, number(head_line), number(head_line), -1});
  }

  bool grid_table() {
    size_t end = i_;
    while (end < lines_.size() && !is_blank(lines_[end]) &&
           (trim(lines_[end])[0] == '+' || trim(lines_[end])[0] == '|'))
      ++end;
    if (end - i_ < 3) return false;
    std::string head;
    size_t first = i_ + 1;
    for (size_t k = i_ + 1; k < end; ++k) {
      if (!is_grid_rule(lines_[k]) || lines_[k].find('=') == std::string_view::npos) continue;
      for (size_t h = i_ + 1; h < k; ++h) head += (head.empty() ? "" : "\n") + std::string(lines_[h]);
      first = k + 1;
      break;
    }
    const size_t top = i_;
    const auto index = static_cast<int>(out_.tables.size());
    out_.tables.push_back({head});
    size_t row = first;
    bool any = false;
    for (size_t k = first; k < end; ++k) {
      if (!is_grid_rule(lines_[k])) continue;
      if (k > row)
        out_.blocks.push_back(
            {BlockKind::kTableRow, 0, joined(row, k), any ? number(row) : number(top), number(k - 1), index});
      any = any || k > row;
      row = k + 1;
    }
    if (row < end)
      out_.blocks.push_back({BlockKind::kTableRow, 0, joined(row, end), number(row), number(end - 1), index});
    i_ = end;
    return true;
  }

  void end_paragraph() {
    if (in_paragraph()) add(kind_, from_, to_);
    from_ = to_ = 0;
  }

  std::string joined(size_t from, size_t to) const {
    std::string text;
    for (size_t k = from; k < to; ++k) {
      if (k > from) text += '\n';
      text += lines_[k];
    }
    return text;
  }

  // Lines [from, to) without the indentation they share.
  void add(BlockKind kind, size_t from, size_t to) {
    size_t shared = std::string_view::npos;
    for (size_t k = from; k < to; ++k) {
      if (!is_blank(lines_[k])) shared = std::min(shared, lines_[k].find_first_not_of(" \t"));
    }
    std::string text;
    for (size_t k = from; k < to; ++k) {
      if (k > from) text += '\n';
      if (lines_[k].size() > shared) text += lines_[k].substr(shared);
    }
    if (is_blank(text)) return;
    out_.blocks.push_back({kind, 0, std::move(text), number(from), number(to - 1), -1});
  }

  uint32_t number(size_t index) const {
    return static_cast<uint32_t>(std::min(index + 1, std::max<size_t>(1, lines_.size())));
  }

  std::vector<std::string_view> lines_;
  size_t i_ = 0;
  size_t from_ = 0, to_ = 0;
  BlockKind kind_ = BlockKind::kParagraph;
  std::vector<std::pair<char, bool>> styles_;  // section marks in the order of their first use: that is their level
  int depth_ = 0, sections_ = 0;
  std::vector<size_t> definitions_;  // indents of the open ones
  Document out_;
};

}  // namespace

Document read_rst(std::string_view text) { return RstReader(text).read(); }

}  // namespace cento
