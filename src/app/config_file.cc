#include "app/config_file.h"

#include <cstdint>
#include <set>

#include "base/error.h"
#include "base/text.h"

namespace cento {
namespace {

bool is_bare(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

class Parser {
 public:
  Parser(std::string_view text, const std::string& file_name) : text_(text), file_name_(file_name) {}

  std::vector<ConfigItem> run() {
    if (text_.substr(0, 3) == "\xEF\xBB\xBF") i_ = 3;
    if (!is_valid_utf8(text_)) fail("not UTF-8 text");
    for (;;) {
      skip_blank_lines();
      if (at_end()) return std::move(items_);
      if (peek() == '[') {
        section();
      } else {
        assignment();
      }
      end_of_line();
    }
  }

 private:
  bool at_end() const { return i_ >= text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[i_]; }
  char take() {
    if (peek() == '\n') ++line_;
    return text_[i_++];
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw Error{Code::kUsage, "configuration file: " + what, file_name_ + ", line " + std::to_string(line_),
                "settings read: name = value, e.g. threads = 4 or model = \"file.gguf\""};
  }

  void skip_spaces() {
    while (peek() == ' ' || peek() == '\t' || (peek() == '\r' && i_ + 1 < text_.size() && text_[i_ + 1] == '\n'))
      take();
    if (peek() == '#') {
      while (!at_end() && peek() != '\n') take();
    }
  }
  void skip_blank_lines() {
    for (skip_spaces(); peek() == '\n'; skip_spaces()) take();
  }
  void end_of_line() {
    skip_spaces();
    if (!at_end() && peek() != '\n') fail("unexpected text after the value");
  }

  std::string bare_or_quoted_key() {
    if (peek() == '"' || peek() == '\'') return string();
    std::string key;
    while (is_bare(peek()) && !at_end()) key += take();
    if (key.empty()) fail("a name is missing");
    return key;
  }

  void section() {
    take();
    if (peek() == '[') fail("arrays of tables are not used here");
    section_.clear();
    for (;;) {
      skip_inline();
      section_ += bare_or_quoted_key();
      skip_inline();
      if (peek() == '.') {
        section_ += take();
        continue;
      }
      if (peek() != ']') fail("']' is missing");
      take();
      return;
    }
  }
  void skip_inline() {
    while (peek() == ' ' || peek() == '\t') take();
  }

  void assignment() {
    ConfigItem item;
    item.line = line_;
    item.section = section_;
    item.key = bare_or_quoted_key();
    skip_inline();
    while (peek() == '.') {  // query.top-k = 3 is [query] top-k = 3
      take();
      item.section += (item.section.empty() ? "" : ".") + item.key;
      item.key = bare_or_quoted_key();
      skip_inline();
    }
    if (peek() != '=') fail("'=' is missing after \"" + item.key + "\"");
    take();
    skip_inline();
    if (peek() == '[') {
      item.array = true;
      array(item.values);
    } else {
      item.values.push_back(value());
    }
    if (!seen_.insert(item.section + "\n" + item.key).second) fail("\"" + item.key + "\" is given twice");
    items_.push_back(std::move(item));
  }

  void array(std::vector<std::string>& out) {
    take();
    for (;;) {
      skip_blank_lines();
      if (at_end()) fail("']' is missing");
      if (peek() == ']') {
        take();
        return;
      }
      out.push_back(value());
      skip_blank_lines();
      if (peek() == ',') {
        take();
      } else if (peek() != ']') {
        fail("',' or ']' is missing in a list");
      }
    }
  }

  std::string value() {
    if (peek() == '"' || peek() == '\'') return string();
    std::string word;
    while (!at_end() && (is_bare(peek()) || peek() == '.' || peek() == '+')) word += take();
    if (word.empty()) fail("a value is missing");
    const bool number = word.find_first_not_of("0123456789+-._eE") == std::string::npos &&
                        word.find_first_of("0123456789") != std::string::npos;
    if (word != "true" && word != "false" && !number) fail("\"" + word + "\" needs quotation marks");
    std::string plain;
    for (const char c : word) {
      if (c != '_' || !number) plain += c;  // 1_000 is 1000
    }
    return plain;
  }

  std::string string() {
    const char quote = take();
    if (peek() == quote && i_ + 1 < text_.size() && text_[i_ + 1] == quote)
      fail("strings over several lines are not read");
    std::string out;
    for (;;) {
      if (at_end() || peek() == '\n') fail("a string is not closed");
      const char c = take();
      if (c == quote) return out;
      if (c == '\\' && quote == '"') {
        escape(out);
      } else {
        out += c;
      }
    }
  }

  void escape(std::string& out) {
    if (at_end()) fail("a string is not closed");
    const char c = take();
    switch (c) {
      case 'n':
        out += '\n';
        return;
      case 't':
        out += '\t';
        return;
      case 'r':
        out += '\r';
        return;
      case 'b':
        out += '\b';
        return;
      case 'f':
        out += '\f';
        return;
      case '"':
      case '\\':
        out += c;
        return;
      case 'u':
        append_utf8(out, code_point(4));
        return;
      case 'U':
        append_utf8(out, code_point(8));
        return;
      default:
        fail("unknown escape in a string (use '...' for text with backslashes)");
    }
  }

  uint32_t code_point(int digits) {
    uint32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const char c = at_end() ? '\0' : take();
      const int d = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
      if (d < 0) fail("bad \\u escape in a string");
      value = value << 4 | static_cast<uint32_t>(d);
    }
    if (value == 0 || value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) fail("bad \\u escape in a string");
    return value;
  }

  std::string_view text_;
  const std::string& file_name_;
  size_t i_ = 0, line_ = 1;
  std::string section_;
  std::set<std::string> seen_;
  std::vector<ConfigItem> items_;
};

}  // namespace

std::vector<ConfigItem> parse_config(std::string_view text, const std::string& file_name) {
  return Parser(text, file_name).run();
}

}  // namespace cento
