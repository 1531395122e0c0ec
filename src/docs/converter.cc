#include "docs/converter.h"

#include <utility>

#include "base/text.h"

namespace cento {

Result<std::vector<std::string>> split_command(const std::string& command) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (size_t i = 0; i < command.size(); ++i) {
    const char c = command[i];
    if (c == '\\' && quote != '\'' && i + 1 < command.size()) {
      word += command[++i];
      in_word = true;
    } else if (quote != 0) {
      if (c == quote) {
        quote = 0;
      } else {
        word += c;
      }
    } else if (c == '"' || c == '\'') {
      quote = c;
      in_word = true;
    } else if (c == ' ' || c == '\t' || c == '\n') {
      if (in_word) words.push_back(std::move(word));
      word.clear();
      in_word = false;
    } else {
      word += c;
      in_word = true;
    }
  }
  if (quote != 0) return Error{Code::kUsage, "quote not closed in the converter's command", command};
  if (in_word) words.push_back(std::move(word));
  if (words.empty()) return Error{Code::kUsage, "empty converter command"};
  return words;
}

Result<std::string> convert_file(const std::string& command, const std::string& path, const ConverterLimits& limits) {
  auto words = split_command(command);
  if (!words) return words.error();
  bool named = false;
  for (std::string& word : *words) {
    for (size_t at = word.find("{}"); at != std::string::npos; at = word.find("{}", at + path.size())) {
      word.replace(at, 2, path);
      named = true;
    }
  }
  if (!named) words->push_back(path);
  auto end = run_process(*words, limits);
  if (!end) return end.error();
  if (!end->ok()) {
    return Error{Code::kInput, "converter \"" + printable(command) + "\" " + process_failure(*end, limits)};
  }
  return std::move(end->out);
}

}  // namespace cento
