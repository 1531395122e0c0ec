// JSON of the command line (CLI.md). The JSON library's header is used in app/ through this one.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

namespace cento {

using Json = nlohmann::ordered_json;

// Text in which bytes that are no UTF-8 became U+FFFD.
Json json_text(std::string_view text);

// object[key] = path as text; for a path that is no UTF-8 also object[key + "_b64"], its bytes.
void put_path(Json& object, const std::string& key, const std::string& path);

// Rounded to `digits` decimals, so that times do not pretend to a precision they lack; null if not finite.
Json rounded(double value, int digits);

std::string base64(std::string_view bytes);

// One line, with a line end.
std::string json_line(const Json& value);

// [{"path","reason"}, ...]
Json skipped_list(const std::vector<std::pair<std::string, std::string>>& items);

}  // namespace cento
