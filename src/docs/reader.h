// A document's bytes -> blocks of text with their kind and source lines. One file format each in reader_*.cc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace cento {

enum class BlockKind { kHeading, kParagraph, kListItem, kCode, kTableRow };

struct Block {
  BlockKind kind = BlockKind::kParagraph;
  int level = 0;     // of a heading, from 1; a heading without text ends the sections of its level and below
  std::string text;  // clean UTF-8 without a line end at its end
  uint32_t line_from = 1, line_to = 1;  // source lines, from 1
  int table = -1;                       // of a row: index into Document::tables
};

struct Table {
  std::string head;  // header row as it is repeated in front of rows; may be empty
};

struct Document {
  std::string format;  // "markdown", "rst", "html", "notebook", "csv", "code", "text"
  std::string title;   // from the content alone, one line; may be empty
  std::vector<Block> blocks;
  std::vector<Table> tables;
};

// The reader a file name calls for, by its extension in any case: a format as in Document, or, for a document format
// that has no reader yet, "" with `extension` set ("docx").
struct FormatOfName {
  std::string format, extension;
};
FormatOfName format_of_name(std::string_view path);

// What a converter printed: HTML, Markdown or plain text by its looks.
std::string format_of_converted(std::string_view text);

// Error(kInput) with the reason if `bytes` are no text or hold no text.
Result<Document> read_document(std::string_view bytes, const std::string& format);

// The readers, over clean text (encoding.h).
Document read_markdown(std::string_view text);
Document read_rst(std::string_view text);
Document read_html(std::string_view text);
Document read_notebook(const std::string& text);
Document read_plain(std::string_view text);  // prose: paragraphs, underlined headings, a title in the first line
Document read_code(std::string_view text);   // anything whose lines are its structure
Document read_csv(std::string_view text);    // comma, semicolon or tab; the first record is the header row

// Lines of `text` without their ends; a last empty line is not one.
std::vector<std::string_view> lines_of(std::string_view text);
size_t indent_of(std::string_view line);  // leading blanks, a tab up to the next multiple of 8
bool is_blank(std::string_view line);

// Takes markup out of a heading's line: emphasis, code quotes, link targets, anchors; folds white space.
std::string plain_heading(std::string_view text);

}  // namespace cento
