// Jupyter notebooks: the text of their cells and the text of their outputs; pictures and metadata are left out.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "docs/encoding.h"
#include "docs/reader.h"

namespace cento {
namespace {

using nlohmann::json;

// A string, or an array of strings that are joined; anything else is no text.
std::string text_of(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  std::string out;
  if (value.is_array()) {
    for (const json& part : value) {
      if (part.is_string()) out += part.get_ref<const std::string&>();
    }
  }
  return out;
}

const json* member(const json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

class NotebookReader {
 public:
  NotebookReader(const json& root, uint32_t n_lines) : n_lines_(n_lines) {
    out_.format = "notebook";
    const json* cells = member(root, "cells");
    if (cells == nullptr || !cells->is_array()) return;
    for (const json& cell : *cells) read_cell(cell);
  }
  Document take() { return std::move(out_); }

 private:
  void read_cell(const json& cell) {
    const json* source = member(cell, "source");
    const json* type = member(cell, "cell_type");
    const std::string text = source ? clean_text(text_of(*source)) : "";
    if (type != nullptr && *type == "markdown") {
      append(read_markdown(without_data_urls(text)));
    } else {
      append(read_code(text));
    }
    const json* outputs = member(cell, "outputs");
    if (outputs == nullptr || !outputs->is_array()) return;
    for (const json& output : *outputs) {
      if (const json* stream = member(output, "text")) append(read_code(clean_text(text_of(*stream))));
      const json* data = member(output, "data");
      const json* plain = data != nullptr ? member(*data, "text/plain") : nullptr;
      if (plain != nullptr) append(read_code(clean_text(text_of(*plain))));
    }
  }

  // The lines of a cell are not lines of the file: every block names the whole file.
  void append(Document part) {
    if (out_.title.empty()) out_.title = part.title;
    const auto first_table = static_cast<int>(out_.tables.size());
    for (Table& table : part.tables) out_.tables.push_back(std::move(table));
    for (Block& block : part.blocks) {
      block.line_from = 1;
      block.line_to = n_lines_;
      if (block.table >= 0) block.table += first_table;
      out_.blocks.push_back(std::move(block));
    }
  }

  uint32_t n_lines_;
  Document out_;
};

}  // namespace

Document read_notebook(const std::string& text) {
  const json root = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded() || member(root, "cells") == nullptr) return read_code(text);
  return NotebookReader(root, static_cast<uint32_t>(std::max<size_t>(1, lines_of(text).size()))).take();
}

}  // namespace cento
