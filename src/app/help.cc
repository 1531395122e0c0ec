#include "app/command_doc.h"

#include <algorithm>

#include "base/text.h"

namespace cento {
namespace {

constexpr size_t kWidth = 100;
constexpr size_t kIndent = 30;  // column of the descriptions

std::string joined(const std::vector<std::string>& words, const char* between) {
  std::string out;
  for (const auto& w : words) out += (out.empty() ? "" : between) + w;
  return out;
}

// `text` in lines of at most `width`, the first one after `first`, the others behind `indent` spaces.
std::string wrapped(const std::string& text, size_t indent, size_t column) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t end = std::min(text.find(' ', i), text.size());
    const std::string word = text.substr(i, end - i);
    if (!out.empty()) {
      if (column + 1 + word.size() > kWidth) {
        out += "\n" + std::string(indent, ' ');
        column = indent;
      } else {
        out += ' ';
        ++column;
      }
    }
    out += word;
    column += word.size();
    i = end + 1;
  }
  return out;
}

std::string row(const std::string& left, const std::string& help) {
  std::string out = "  " + left;
  if (out.size() + 2 > kIndent) {
    out += "\n" + std::string(kIndent, ' ');
  } else {
    out.resize(kIndent, ' ');
  }
  return out + wrapped(help, kIndent, kIndent) + "\n";
}

std::string option_row(const OptionDoc& option) {
  std::string left = joined(option.names, ", ");
  if (!left.starts_with("-")) return row(left + (option.repeated ? "..." : ""), option.help);
  if (left.starts_with("--")) left = "    " + left;
  if (!option.value.empty()) left += " " + option.value;
  std::string help = option.help;
  if (!option.default_text.empty() && !option.value.empty()) help += " [default: " + option.default_text + "]";
  return row(left, help);
}

std::string usage_line(const CommandDoc& command) {
  std::string out = "usage: " + joined(command.path, " ") + " [flags]";
  if (!command.subcommands.empty()) out += " SUBCOMMAND";
  for (const auto& option : command.options) {
    if (!option.positional) continue;
    const std::string name = option.names[0] + (option.repeated ? "..." : "");
    out += option.required ? " " + name : " [" + name + "]";
  }
  return out + "\n";
}

std::string option_rows(const std::vector<OptionDoc>& options, bool positional) {
  std::string out;
  for (const auto& option : options) {
    if (option.positional == positional) out += option_row(option);
  }
  return out;
}

}  // namespace

std::string help_text(const CommandDoc& command, const std::vector<OptionDoc>& common) {
  std::string out = usage_line(command) + "\n" + joined(command.path, " ") + ": " + command.what + "\n";
  if (!command.more.empty()) {
    for (const auto line : split_lines(command.more)) out += wrapped(std::string(line), 0, 0) + "\n";
  }
  if (!command.subcommands.empty()) {
    out += "\nsubcommands:\n";
    for (const auto& s : command.subcommands) out += row(s.path.back(), s.what);
  }
  const bool top = command.path.size() == 1;
  const std::string arguments = option_rows(command.options, true);
  if (!arguments.empty()) out += "\narguments:\n" + arguments;
  const std::string own = top ? "" : option_rows(command.options, false);
  if (!own.empty()) out += "\nflags:\n" + own;
  out += "\nflags of all subcommands:\n" + option_rows(common, false);
  if (!command.examples.empty()) {
    out += "\nexamples:\n";
    std::string line;
    for (const char c : command.examples + "\n") {
      if (c == '\n') {
        out += "  " + line + "\n";
        line.clear();
      } else {
        line += c;
      }
    }
  }
  return out;
}

const CommandDoc* find_command(const CommandDoc& program, const std::vector<std::string>& topic) {
  const CommandDoc* at = &program;
  for (const auto& word : topic) {
    const auto it = std::find_if(at->subcommands.begin(), at->subcommands.end(),
                                 [&](const CommandDoc& s) { return s.path.back() == word; });
    if (it == at->subcommands.end()) return nullptr;
    at = &*it;
  }
  return at;
}

}  // namespace cento
