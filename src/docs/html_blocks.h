// What both ways of reading HTML share: blocks from inline text, and lists of names.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "docs/reader.h"

namespace cento {

// `list` has a blank before and after each name.
inline bool name_is_one_of(std::string_view name, std::string_view list) {
  return list.find(" " + std::string(name) + " ") != std::string_view::npos;
}

// Gathers inline text into blocks.
class BlockBuilder {
 public:
  explicit BlockBuilder(uint32_t n_lines) : n_lines_(n_lines) { document.format = "html"; }

  // Text that starts in source line `line`; white space is folded unless it is kept, as in <pre>.
  void text(std::string_view s, uint32_t line, bool keep_space);
  void line_break();
  // Ends the block; what was gathered becomes one of `kind`, unless it is blank.
  void flush(BlockKind kind, int level = 0, int table = -1);

  bool empty() const { return is_blank(text_); }
  std::string& pending() { return text_; }

  Document document;

 private:
  uint32_t n_lines_;
  std::string text_;
  uint32_t from_ = 0, to_ = 0;  // lines of text_; 0: none yet
};

}  // namespace cento
