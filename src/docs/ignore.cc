#include "docs/ignore.h"

#include <algorithm>
#include <cctype>

#include "docs/reader.h"

namespace cento {
namespace {

// A pattern longer than this is no pattern: matching costs its length times the path's.
constexpr size_t kPatternBytesMax = 2048;

bool in_class(std::string_view name, unsigned char c) {
  if (name == "alnum") return std::isalnum(c) != 0;
  if (name == "alpha") return std::isalpha(c) != 0;
  if (name == "blank") return c == ' ' || c == '\t';
  if (name == "cntrl") return std::iscntrl(c) != 0;
  if (name == "digit") return std::isdigit(c) != 0;
  if (name == "graph") return std::isgraph(c) != 0;
  if (name == "lower") return std::islower(c) != 0;
  if (name == "print") return std::isprint(c) != 0;
  if (name == "punct") return std::ispunct(c) != 0;
  if (name == "space") return std::isspace(c) != 0;
  if (name == "upper") return std::isupper(c) != 0;
  if (name == "xdigit") return std::isxdigit(c) != 0;
  return false;
}

// Trailing blanks do not count unless a backslash stands in front of them.
std::string_view without_trailing_blanks(std::string_view s) {
  while (!s.empty() && s.back() == '\r') s.remove_suffix(1);
  size_t end = 0;
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] == '\\' && i + 1 < s.size()) {
      end = ++i + 1;
    } else if (s[i] != ' ') {
      end = i + 1;
    }
  }
  return s.substr(0, end);
}

}  // namespace

IgnoreList::IgnoreList(std::string_view file_text) {
  if (file_text.substr(0, 3) == "\xef\xbb\xbf") file_text.remove_prefix(3);
  for (const std::string_view line : lines_of(file_text)) add(line);
}

void IgnoreList::add(std::string_view line) {
  line = without_trailing_blanks(line);
  if (line.empty() || line[0] == '#' || line.size() > kPatternBytesMax) return;
  Pattern pattern;
  if (line[0] == '!') {
    pattern.negated = true;
    line.remove_prefix(1);
  }
  if (!line.empty() && line.back() == '/') {
    pattern.folders_only = true;
    line.remove_suffix(1);
  }
  if (line.empty()) return;
  pattern.anchored = line.find('/') != std::string_view::npos;
  if (line[0] == '/') line.remove_prefix(1);
  if (line.empty() || !compile(line, pattern)) return;
  patterns_.push_back(std::move(pattern));
}

// Text -> tokens; false for a pattern that can match nothing (an unclosed class, a backslash at the end).
bool IgnoreList::compile(std::string_view s, Pattern& pattern) {
  using K = Token::Kind;
  for (size_t i = 0; i < s.size(); ++i) {
    const char c = s[i];
    if (c == '\\') {
      if (++i == s.size()) return false;
      pattern.tokens.push_back({K::kChar, s[i], 0});
    } else if (c == '?') {
      pattern.tokens.push_back({K::kAny, 0, 0});
    } else if (c == '*') {
      size_t end = i;
      while (end < s.size() && s[end] == '*') ++end;
      const bool left = i == 0 || s[i - 1] == '/', right = end == s.size() || s[end] == '/';
      // "**" spans folders only between slashes; elsewhere any number of stars is one.
      const bool spans = end - i == 2 && left && right;
      pattern.tokens.push_back({spans ? K::kStarStar : K::kStar, 0, 0});
      i = end - 1;
      if (spans && end < s.size()) ++i;  // "**/" may stand for nothing: the slash belongs to it
    } else if (c == '[') {
      size_t j = i + 1;
      const bool inverted = j < s.size() && (s[j] == '!' || s[j] == '^');
      if (inverted) ++j;
      Set set;
      const auto put = [&](unsigned char b) { set.bits[b / 64] |= uint64_t{1} << (b % 64); };
      bool first = true, closed = false;
      for (; j < s.size(); ++j) {
        if (s[j] == ']' && !first) {
          closed = true;
          break;
        }
        first = false;
        if (s[j] == '[' && j + 1 < s.size() && s[j + 1] == ':') {
          const size_t end = s.find(":]", j + 2);
          if (end == std::string_view::npos) return false;
          for (unsigned b = 0; b < 256; ++b) {
            if (in_class(s.substr(j + 2, end - j - 2), static_cast<unsigned char>(b)))
              put(static_cast<unsigned char>(b));
          }
          j = end + 1;
          continue;
        }
        if (s[j] == '\\' && ++j == s.size()) return false;
        auto low = static_cast<unsigned char>(s[j]);
        auto high = low;
        if (j + 2 < s.size() && s[j + 1] == '-' && s[j + 2] != ']') {
          j += 2;
          if (s[j] == '\\' && ++j == s.size()) return false;
          high = static_cast<unsigned char>(s[j]);
        }
        for (unsigned b = low; b <= high; ++b) put(static_cast<unsigned char>(b));
      }
      if (!closed) return false;
      if (inverted) {
        for (uint64_t& bits : set.bits) bits = ~bits;
      }
      set.bits['/' / 64] &= ~(uint64_t{1} << ('/' % 64));
      pattern.tokens.push_back({K::kSet, 0, static_cast<uint32_t>(sets_.size())});
      sets_.push_back(set);
      i = j;
    } else {
      pattern.tokens.push_back({K::kChar, c, 0});
    }
  }
  for (const Token& token : pattern.tokens) {
    pattern.is_literal = pattern.is_literal && token.kind == K::kChar;
    pattern.literal += token.c;
  }
  return true;
}

std::optional<bool> IgnoreList::match(std::string_view path, bool is_folder) const {
  const size_t slash = path.rfind('/');
  const std::string_view name = slash == std::string_view::npos ? path : path.substr(slash + 1);
  for (size_t i = patterns_.size(); i-- > 0;) {
    if (patterns_[i].folders_only && !is_folder) continue;
    if (matches(patterns_[i], path, name)) return !patterns_[i].negated;
  }
  return std::nullopt;
}

bool IgnoreList::covers(std::string_view path) const {
  for (size_t slash = path.find('/'); slash != std::string_view::npos; slash = path.find('/', slash + 1)) {
    if (match(path.substr(0, slash), true).value_or(false)) return true;
  }
  return match(path, false).value_or(false);
}

bool IgnoreList::matches(const Pattern& pattern, std::string_view path, std::string_view name) const {
  const std::string_view text = pattern.anchored ? path : name;
  return pattern.is_literal ? text == pattern.literal : run(pattern.tokens, text);
}

// All positions in the pattern at once, one step a byte of the text: linear in both, no backtracking.
bool IgnoreList::run(const std::vector<Token>& tokens, std::string_view text) const {
  using K = Token::Kind;
  const size_t n = tokens.size();
  std::vector<char> now(n + 1, 0), next(n + 1, 0);
  // A state i: tokens[0, i) are used up. Stars may be left without having eaten anything: "**/" only at a segment's
  // start.
  const auto close = [&](std::vector<char>& states, bool at_segment) {
    for (size_t i = 0; i < n; ++i) {
      if (!states[i]) continue;
      if (tokens[i].kind == K::kStar) states[i + 1] = 1;
      // A last "**" has to eat something: "a/**" is what is inside a.
      if (tokens[i].kind == K::kStarStar && i + 1 < n && at_segment) states[i + 1] = 1;
    }
  };
  now[0] = 1;
  close(now, true);
  for (const char c : text) {
    std::fill(next.begin(), next.end(), 0);
    for (size_t i = 0; i < n; ++i) {
      if (!now[i]) continue;
      const Token& token = tokens[i];
      const auto b = static_cast<unsigned char>(c);
      switch (token.kind) {
        case K::kChar:
          next[i + 1] |= token.c == c;
          break;
        case K::kAny:
          next[i + 1] |= c != '/';
          break;
        case K::kSet:
          next[i + 1] |= static_cast<char>(sets_[token.set].bits[b / 64] >> (b % 64) & 1);
          break;
        case K::kStar:
          next[i] |= c != '/';
          break;
        case K::kStarStar:
          next[i] = 1;
          if (i + 1 == n) next[n] = 1;
          break;
      }
    }
    now.swap(next);
    close(now, c == '/');
  }
  return now[n] != 0;
}

}  // namespace cento
