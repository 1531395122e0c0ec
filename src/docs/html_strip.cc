#include "docs/html_strip.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

#include "base/text.h"
#include "docs/encoding.h"
#include "docs/html_blocks.h"

namespace cento {
namespace {

// Name of the tag that starts at s[i] == '<', lower case; empty if none does. `closing` tells "</".
std::string tag_name(std::string_view s, size_t i, bool& closing) {
  ++i;
  closing = i < s.size() && s[i] == '/';
  if (closing) ++i;
  size_t end = i;
  while (end < s.size() && end - i < 32 && (std::isalnum(static_cast<unsigned char>(s[end])) || s[end] == '-')) ++end;
  if (end == i || !std::isalpha(static_cast<unsigned char>(s[i]))) return {};
  return to_lower_ascii(s.substr(i, end - i));
}

// One character reference at s[i] == '&': appends what it stands for and returns the position after it.
size_t append_reference(std::string& out, std::string_view s, size_t i) {
  struct Named {
    std::string_view name;
    uint32_t code;
  };
  static constexpr std::array kNamed = {Named{"amp;", '&'},  Named{"lt;", '<'},    Named{"gt;", '>'},
                                        Named{"quot;", '"'}, Named{"apos;", '\''}, Named{"nbsp;", ' '}};
  const std::string_view rest = s.substr(i + 1, 12);
  for (const Named& named : kNamed) {
    if (rest.substr(0, named.name.size()) != named.name) continue;
    append_utf8(out, named.code);
    return i + 1 + named.name.size();
  }
  if (rest.size() > 2 && rest[0] == '#') {
    const bool hex = rest[1] == 'x' || rest[1] == 'X';
    size_t k = hex ? 2 : 1;
    uint32_t code = 0;
    const size_t first = k;
    for (; k < rest.size() && k < first + 7 && std::isxdigit(static_cast<unsigned char>(rest[k])); ++k) {
      const char c = rest[k];
      if (!hex && !std::isdigit(static_cast<unsigned char>(c))) break;
      const auto digit = static_cast<uint32_t>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
      code = code * (hex ? 16 : 10) + digit;
    }
    if (k > first && k < rest.size() && rest[k] == ';' && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff)) {
      append_utf8(out, code);
      return i + 1 + k + 1;
    }
  }
  out += '&';
  return i + 1;
}

// Position after the tag at s[i] == '<': quoted attribute values may hold '>'.
size_t tag_end(std::string_view s, size_t i) {
  char quote = 0;
  for (++i; i < s.size(); ++i) {
    if (quote != 0) {
      if (s[i] == quote) quote = 0;
    } else if ((s[i] == '"' || s[i] == '\'') && s[i - 1] == '=') {
      quote = s[i];
    } else if (s[i] == '>') {
      return i + 1;
    }
  }
  return s.size();
}

size_t find_closing(std::string_view s, size_t i, const std::string& name) {
  for (size_t at = s.find("</", i); at != std::string_view::npos; at = s.find("</", at + 2)) {
    bool closing = false;
    if (tag_name(s, at, closing) == name) return tag_end(s, at);
  }
  return s.size();
}

}  // namespace

int deepest_nesting(std::string_view s) {
  constexpr std::string_view kNotCounted =
      " area base br col embed hr img input link meta param source track wbr p li dt dd tr td th thead tbody tfoot "
      "option ";
  int depth = 0, deepest = 0;
  for (size_t i = s.find('<'); i != std::string_view::npos; i = s.find('<', i + 1)) {
    bool closing = false;
    const std::string name = tag_name(s, i, closing);
    if (name.empty() || name_is_one_of(name, kNotCounted)) continue;
    depth = closing ? std::max(0, depth - 1) : depth + 1;
    deepest = std::max(deepest, depth);
  }
  return deepest;
}

Document strip_tags(std::string_view s) {
  constexpr std::string_view kInline =
      " a abbr b bdi bdo big cite code dfn em font i ins del kbd mark q s samp small span strike "
      "strong sub sup time tt u var wbr ";
  constexpr std::string_view kDropped = " script style template noscript nav select svg iframe object textarea title ";
  const auto n_lines = static_cast<uint32_t>(std::max<size_t>(1, lines_of(s).size()));
  BlockBuilder builder(n_lines);
  uint32_t line = 1;
  std::string text;
  std::string never_closed;  // names that have no closing tag from here on, each in blanks
  size_t i = 0;
  const auto advance = [&](size_t to) {
    line += static_cast<uint32_t>(
        std::count(s.begin() + static_cast<std::ptrdiff_t>(i), s.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    i = to;
  };
  while (i < s.size()) {
    if (s[i] == '<') {
      bool closing = false;
      const std::string name = tag_name(s, i, closing);
      if (s.substr(i, 4) == "<!--") {
        const size_t end = s.find("-->", i + 4);
        advance(end == std::string_view::npos ? s.size() : end + 3);
      } else if (!name.empty() || s.substr(i, 2) == "<!" || s.substr(i, 2) == "<?") {
        if (!name_is_one_of(name, kInline)) builder.flush(BlockKind::kParagraph);
        const size_t end = tag_end(s, i);
        bool dropped = !closing && name_is_one_of(name, kDropped) && !name_is_one_of(name, never_closed);
        const size_t closed = dropped ? find_closing(s, end, name) : end;
        // A script that is never closed reaches to the end, as in a browser; anything else is taken as an empty
        // element.
        if (dropped && closed == s.size() && name != "script" && name != "style" &&
            s.find("</" + name, end) == std::string_view::npos) {
          never_closed += " " + name + " ";
          dropped = false;
        }
        if (name == "title" && builder.document.title.empty()) {
          builder.document.title =
              clean_text(trim(s.substr(end, s.find('<', end) == std::string_view::npos ? 0 : s.find('<', end) - end)));
        }
        advance(dropped ? closed : end);
      } else {
        builder.text("<", line, false);
        ++i;
      }
      continue;
    }
    text.clear();
    size_t end = i;
    while (end < s.size() && s[end] != '<') {
      if (s[end] == '&') {
        end = append_reference(text, s, end);
      } else {
        text += s[end++];
      }
    }
    builder.text(text, line, false);
    advance(end);
  }
  builder.flush(BlockKind::kParagraph);
  std::replace(builder.document.title.begin(), builder.document.title.end(), '\n', ' ');
  return std::move(builder.document);
}

}  // namespace cento
