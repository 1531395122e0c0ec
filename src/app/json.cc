#include "app/json.h"

#include <cmath>

#include "base/text.h"

namespace cento {

Json json_text(std::string_view text) { return is_valid_utf8(text) ? std::string(text) : to_valid_utf8(text); }

void put_path(Json& object, const std::string& key, const std::string& path) {
  object[key] = json_text(path);
  if (!is_valid_utf8(path)) object[key + "_b64"] = base64(path);
}

Json rounded(double value, int digits) {
  if (!std::isfinite(value)) return nullptr;
  const double scale = std::pow(10.0, digits);
  return std::round(value * scale) / scale;
}

std::string base64(std::string_view bytes) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t n = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t j = 0; j < 3; ++j) group = group << 8 | (j < n ? static_cast<unsigned char>(bytes[i + j]) : 0u);
    for (size_t j = 0; j < 4; ++j) out += j <= n ? kDigits[group >> (18 - 6 * j) & 63] : '=';
  }
  return out;
}

std::string json_line(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }

Json skipped_list(const std::vector<std::pair<std::string, std::string>>& items) {
  Json out = Json::array();
  for (const auto& [path, reason] : items) {
    Json item = Json::object();
    put_path(item, "path", path);
    item["reason"] = json_text(reason);
    out.push_back(std::move(item));
  }
  return out;
}

}  // namespace cento
