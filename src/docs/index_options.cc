#include "docs/index_options.h"

#include <nlohmann/json.hpp>

#include "base/text.h"

namespace cento {

using nlohmann::json;

std::string stored_options(const IndexOptions& options) {
  // Globs and commands are bytes; JSON is text. What is no UTF-8 is replaced and will not match, which is all it can
  // do.
  json j;
  const auto texts = [](const std::vector<std::string>& list) {
    json array = json::array();
    for (const std::string& s : list) array.push_back(to_valid_utf8(s));
    return array;
  };
  j["include"] = texts(options.include);
  j["exclude"] = texts(options.exclude);
  j["ignore_files"] = options.use_ignore_files;
  j["hidden"] = options.hidden;
  j["follow"] = options.follow_links;
  j["max_file_bytes"] = options.max_file_bytes;
  j["converters"] = json::object();
  for (const auto& [extension, command] : options.converters)
    j["converters"][to_valid_utf8(extension)] = to_valid_utf8(command);
  return j.dump();
}

IndexOptions with_stored(const IndexOptions& given, const std::string& stored) {
  const json j = json::parse(stored, nullptr, false);
  IndexOptions options = given;
  const IndexOptions defaults;
  if (!j.is_object()) return options;
  const auto texts = [&](const char* name, std::vector<std::string>& list) {
    if (!list.empty() || !j.contains(name) || !j[name].is_array()) return;
    for (const json& item : j[name]) {
      if (item.is_string()) list.push_back(item.get<std::string>());
    }
  };
  const auto flag = [&](const char* name, bool& value, bool by_default) {
    if (value == by_default && j.contains(name) && j[name].is_boolean()) value = j[name].get<bool>();
  };
  texts("include", options.include);
  texts("exclude", options.exclude);
  flag("ignore_files", options.use_ignore_files, defaults.use_ignore_files);
  flag("hidden", options.hidden, defaults.hidden);
  flag("follow", options.follow_links, defaults.follow_links);
  if (options.max_file_bytes == defaults.max_file_bytes && j.contains("max_file_bytes") &&
      j["max_file_bytes"].is_number_unsigned()) {
    options.max_file_bytes = j["max_file_bytes"].get<uint64_t>();
  }
  if (j.contains("converters") && j["converters"].is_object()) {
    for (const auto& [extension, command] : j["converters"].items()) {
      if (command.is_string()) options.converters.emplace(extension, command.get<std::string>());
    }
  }
  return options;
}

}  // namespace cento
