#include "docs/split.h"

#include <algorithm>

#include "docs/utf8.h"

namespace cento {
namespace {

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t'; }

bool ends_cjk_sentence(uint32_t c) { return c == 0x3002 || c == 0xff01 || c == 0xff1f || c == 0xff0e; }
bool is_cjk_comma(uint32_t c) { return c == 0x3001 || c == 0xff0c || c == 0xff1b || c == 0xff1a; }

// Position behind the sentence that starts at `from`: behind . ! ? (and closing quotes) with white space after it and
// no small letter next, behind a full-width mark, or behind an empty line.
size_t sentence_end(std::string_view s, size_t from) {
  for (size_t i = from; i < s.size();) {
    const size_t n = utf8_length(s, i);
    if (n > 1) {
      if (ends_cjk_sentence(utf8_code_point(s, i))) return i + n;
      i += n;
      continue;
    }
    const char c = s[i++];
    if (c == '\n' && i < s.size() && s[i] == '\n') return i;
    if (c != '.' && c != '!' && c != '?') continue;
    size_t end = i;
    while (end < s.size() && (s[end] == '"' || s[end] == '\'' || s[end] == ')' || s[end] == ']' || s[end] == '*'))
      ++end;
    if (end == s.size()) return end;
    if (!is_space(s[end])) continue;
    size_t next = end;
    while (next < s.size() && is_space(s[next])) ++next;
    if (next == s.size() || !(s[next] >= 'a' && s[next] <= 'z')) return end;
  }
  return s.size();
}

size_t line_end(std::string_view s, size_t from) {
  const size_t end = s.find('\n', from + 1);  // the line end itself leads the next line
  return end == std::string_view::npos ? s.size() : end;
}

// A word with the white space in front of it.
size_t word_end(std::string_view s, size_t from) {
  size_t i = from;
  while (i < s.size() && is_space(s[i])) ++i;
  while (i < s.size() && !is_space(s[i])) ++i;
  return i;
}

class Splitter {
 public:
  Splitter(std::string_view text, size_t room, const CountTokens& count)
      : s_(text), room_(std::max<size_t>(room, 1)), count_(count) {}

  std::vector<TextRange> split(SplitAt where) {
    keep_indent_ = where == SplitAt::kLines;
    for (size_t i = 0; i < s_.size();) {
      const size_t end = where == SplitAt::kLines ? line_end(s_, i) : sentence_end(s_, i);
      const size_t tokens = count_(s_.substr(i, end - i));
      if (tokens <= room_) {
        add(i, end, tokens);
      } else {
        words(i, end);
      }
      i = end;
    }
    flush();
    return std::move(out_);
  }

 private:
  void words(size_t begin, size_t end) {
    for (size_t i = begin; i < end;) {
      const size_t next = std::min(end, word_end(s_, i));
      // A word of more bytes than eight a token is not counted whole: it may be megabytes.
      const size_t tokens = next - i > room_ * 8 ? room_ + 1 : count_(s_.substr(i, next - i));
      if (tokens <= room_) {
        add(i, next, tokens);
      } else {
        characters(i, next);
      }
      i = next;
    }
  }

  void characters(size_t begin, size_t end) {
    flush();
    for (size_t i = begin; i < end;) {
      size_t next = utf8_floor(s_, std::min(end, i + room_ * 6));
      size_t tokens = count_(s_.substr(i, next - i));
      while (tokens > room_) {
        const size_t shorter = utf8_floor(s_, i + std::min(next - i - 1, (next - i) * room_ / tokens));
        next = shorter > i ? shorter : i + utf8_length(s_, i);
        tokens = count_(s_.substr(i, next - i));
        if (shorter <= i) break;  // one character
      }
      if (next < end) {
        const size_t comma = behind_comma(i, next);
        if (comma > 0) {
          next = comma;
          tokens = count_(s_.substr(i, next - i));
        }
      }
      add(i, next, tokens);
      if (next < end) flush();
      i = next;
    }
  }

  // Behind the last full-width comma in the second half of [begin, end); 0: none.
  size_t behind_comma(size_t begin, size_t end) const {
    size_t found = 0;
    for (size_t i = utf8_floor(s_, begin + (end - begin) / 2); i < end; i += utf8_length(s_, i)) {
      if (is_cjk_comma(utf8_code_point(s_, i))) found = i + utf8_length(s_, i);
    }
    return found < end ? found : 0;
  }

  void add(size_t begin, size_t end, size_t tokens) {
    if (open_.end > open_.begin && tokens_ + tokens > room_) flush();
    if (open_.end == open_.begin) open_ = {begin, begin};
    open_.end = end;
    tokens_ += tokens;
  }

  void flush() {
    size_t begin = open_.begin, end = open_.end;
    while (begin < end && (s_[begin] == '\n' || (!keep_indent_ && is_space(s_[begin])))) ++begin;
    while (end > begin && is_space(s_[end - 1])) --end;
    size_t first = begin;
    while (first < end && is_space(s_[first])) ++first;
    if (first < end) out_.push_back({begin, end});
    open_ = {};
    tokens_ = 0;
  }

  std::string_view s_;
  size_t room_;
  const CountTokens& count_;
  TextRange open_;
  size_t tokens_ = 0;
  bool keep_indent_ = false;  // blanks in front of a line of code are its indentation
  std::vector<TextRange> out_;
};

}  // namespace

std::vector<TextRange> split_text(std::string_view text, SplitAt where, size_t room, const CountTokens& count) {
  return Splitter(text, room, count).split(where);
}

size_t middle_cut(std::string_view s) {
  const size_t middle = s.size() / 2, reach = s.size() / 4;
  const auto near = [&](auto&& good) -> size_t {
    for (size_t d = 0; d <= reach; ++d) {
      if (middle + d < s.size() && good(middle + d)) return middle + d;
      if (d < middle && good(middle - d)) return middle - d;
    }
    return 0;
  };
  if (const size_t at = near([&](size_t i) { return i > 0 && s[i] == '\n'; })) return at;
  if (const size_t at = near(
          [&](size_t i) { return i > 1 && s[i] == ' ' && (s[i - 1] == '.' || s[i - 1] == '?' || s[i - 1] == '!'); }))
    return at;
  if (const size_t at = near([&](size_t i) { return i > 0 && s[i] == ' '; })) return at;
  size_t at = utf8_floor(s, middle);
  if (at == 0 && !s.empty()) at = utf8_length(s, 0);
  return at < s.size() ? at : 0;
}

}  // namespace cento
