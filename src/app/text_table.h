// Tables for a terminal.
#pragma once

#include <string>
#include <vector>

namespace cento {

// A line a row. Columns are as wide as their widest cell; the first is left-aligned, the others right.
std::string text_table(const std::vector<std::vector<std::string>>& rows);

}  // namespace cento
