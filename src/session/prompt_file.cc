#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "session/answer.h"

namespace cento {

PromptFile parse_prompt_file(const std::string& json) {
  const auto wrong = [](const std::string& what) {
    throw Error{Code::kUsage, "prompt file: " + what, "",
                R"(give {"system": TEXT, "chunks": [TEXT, ...], "question": TEXT, "answer"?: TEXT})"};
  };
  const nlohmann::json j = nlohmann::json::parse(json, nullptr, false);
  if (j.is_discarded() || !j.is_object()) wrong("not a JSON object");
  const auto text = [&](const char* name, bool required) -> std::string {
    if (!j.contains(name) || j[name].is_null()) {
      if (required) wrong(std::string("\"") + name + "\" is missing");
      return {};
    }
    if (!j[name].is_string()) wrong(std::string("\"") + name + "\" is not a text");
    return j[name].get<std::string>();
  };
  const auto texts = [&](const char* name) {
    std::vector<std::string> out;
    if (!j.contains(name) || j[name].is_null()) return out;
    if (!j[name].is_array()) wrong(std::string("\"") + name + "\" is not a list");
    for (const auto& item : j[name]) {
      if (!item.is_string()) wrong(std::string("\"") + name + "\" holds something that is not a text");
      out.push_back(item.get<std::string>());
    }
    return out;
  };
  for (const auto& [key, value] : j.items()) {
    static constexpr const char* kKnown[] = {"system", "chunks", "question", "answer", "stand_in"};
    if (std::none_of(std::begin(kKnown), std::end(kKnown), [&](const char* k) { return key == k; }))
      wrong("unknown field \"" + key + "\"");
  }
  PromptFile p;
  p.system = text("system", false);
  p.chunks = texts("chunks");
  p.question = text("question", true);
  if (trim(p.question).empty()) wrong("\"question\" is empty");
  if (j.contains("answer") && !j["answer"].is_null()) p.answer = text("answer", true);
  p.stand_in = texts("stand_in");
  return p;
}

}  // namespace cento
