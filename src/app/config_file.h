// The configuration file: the part of TOML that settings need, read strictly, so that a slip is an error with its line
// and not a value that silently means something else. (CLI11's own reader cuts strings at '#', takes any stray word for
// a flag and knows no lines.)
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cento {

struct ConfigItem {
  std::string section;  // "" or "query" or "cache.trim"
  std::string key;
  std::vector<std::string> values;  // one, or those of an array; booleans as "true" and "false"
  bool array = false;
  size_t line = 0;  // from 1
};

// Comments, [sections], keys with strings ("..." with escapes, '...' literal), numbers, booleans and arrays of these
// over any number of lines. Throws Error(kUsage) with `file_name` and line for anything else, and for a key given
// twice.
std::vector<ConfigItem> parse_config(std::string_view text, const std::string& file_name);

}  // namespace cento
