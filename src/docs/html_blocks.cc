#include "docs/html_blocks.h"

#include <algorithm>

#include "docs/encoding.h"

namespace cento {
namespace {

// White space folded; a paragraph sign or hash that links to the heading itself taken off.
std::string heading_text(std::string_view s) {
  std::string out;
  for (const char c : s) {
    const bool space = c == '\n' || c == '\t' || c == ' ';
    if (space && (out.empty() || out.back() == ' ')) continue;
    out += space ? ' ' : c;
  }
  for (const std::string_view end : {"\xc2\xb6", "#", " "}) {
    while (out.size() > end.size() && out.compare(out.size() - end.size(), end.size(), end) == 0)
      out.resize(out.size() - end.size());
  }
  return out;
}

}  // namespace

void BlockBuilder::text(std::string_view s, uint32_t line, bool keep_space) {
  line = std::clamp(line, 1u, n_lines_);
  if (is_blank(s) && text_.empty()) {
    if (!keep_space) return;
  } else if (!is_blank(s)) {
    if (from_ == 0) from_ = line;
    const auto n = static_cast<uint32_t>(std::count(s.begin(), s.end(), '\n'));
    to_ = std::max(to_, std::min(n_lines_, line + n));
  }
  if (keep_space) {
    text_ += s;
    return;
  }
  for (const char c : s) {
    const bool space = c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\f';
    if (!space) {
      text_ += c;
    } else if (!text_.empty() && text_.back() != ' ' && text_.back() != '\n') {
      text_ += ' ';
    }
  }
}

void BlockBuilder::line_break() {
  if (!text_.empty()) text_ += '\n';
}

void BlockBuilder::flush(BlockKind kind, int level, int table) {
  std::string clean = clean_text(text_);
  const size_t last = clean.find_last_not_of(" \n\t");
  clean.resize(last == std::string::npos ? 0 : last + 1);
  const size_t first = kind == BlockKind::kCode ? std::min(clean.find_first_not_of('\n'), clean.size())
                                                : std::min(clean.find_first_not_of(" \n\t"), clean.size());
  clean.erase(0, first);
  if (kind == BlockKind::kHeading) clean = heading_text(clean);
  if (!clean.empty()) {
    const uint32_t from = std::max(1u, from_);
    document.blocks.push_back({kind, level, std::move(clean), from, std::max(from, to_), table});
  }
  text_.clear();
  from_ = to_ = 0;
}

}  // namespace cento
