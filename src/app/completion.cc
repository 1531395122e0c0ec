// Completion scripts, written from the description of the flags, so that they cannot fall behind the program.
#include <algorithm>
#include <map>

#include "app/command_doc.h"
#include "base/check.h"

namespace cento {
namespace {

enum class Completes { kNothing, kFiles, kFolders, kWords };

struct ValueCompletion {
  Completes kind = Completes::kNothing;
  std::vector<std::string> words;
};

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> out(1);
  for (const char c : text) {
    if (c == at) {
      out.emplace_back();
    } else {
      out.back() += c;
    }
  }
  return out;
}

bool lower_case(const std::string& s) {
  for (const char c : s) {
    if (c >= 'A' && c <= 'Z') return false;
  }
  return true;
}

// From the way values are written in help: "auto|cpu" is a choice, FILE and DIR are names on the disk.
ValueCompletion completion_of(const std::string& value) {
  if (value.find("FILE") != std::string::npos || value == "PATH" || value == "LLAMA_BENCH")
    return {Completes::kFiles, {}};
  if (value == "DIR") return {Completes::kFolders, {}};
  if (value.find('|') != std::string::npos && lower_case(value)) return {Completes::kWords, split(value, '|')};
  return {};
}

std::string joined(const std::vector<std::string>& words, const std::string& between) {
  std::string out;
  for (const auto& w : words) out += (out.empty() ? "" : between) + w;
  return out;
}

std::string quoted(const std::string& text) {  // for sh, bash and zsh
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

std::string fish_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return out + "'";
}

void all_commands(const CommandDoc& command, std::vector<const CommandDoc*>& out) {
  out.push_back(&command);
  for (const auto& s : command.subcommands) all_commands(s, out);
}

// Value completion, by a shell's pattern of "COMMAND FLAG": a flag mostly means the same wherever it occurs, *" FLAG";
// one that does not has a pattern for each of its commands.
std::map<std::string, ValueCompletion> flag_values(const std::vector<const CommandDoc*>& commands) {
  std::map<std::string, std::map<std::string, ValueCompletion>> by_flag;  // flag -> command -> completion
  for (const auto* command : commands) {
    for (const auto& option : command->options) {
      if (option.positional || option.value.empty()) continue;
      for (const auto& name : option.names) by_flag[name][joined(command->path, " ")] = completion_of(option.value);
    }
  }
  std::map<std::string, ValueCompletion> out;
  for (const auto& [flag, by_command] : by_flag) {
    const ValueCompletion& first = by_command.begin()->second;
    const bool same = std::all_of(by_command.begin(), by_command.end(), [&](const auto& c) {
      return c.second.kind == first.kind && c.second.words == first.words;
    });
    for (const auto& [command, value] : by_command) {
      out[same ? "*\" " + flag + "\"" : "\"" + command + " " + flag + "\""] = value;
    }
  }
  return out;
}

// What may stand in place of an argument: names of subcommands, choices of a positional argument.
std::vector<std::string> argument_words(const CommandDoc& program, const CommandDoc& command) {
  std::vector<std::string> out;
  for (const auto& s : command.subcommands) out.push_back(s.path.back());
  for (const auto& option : command.options) {
    if (!option.positional) continue;
    const auto value = completion_of(option.names[0]);
    out.insert(out.end(), value.words.begin(), value.words.end());
    if (option.names[0] == "SUBCOMMAND") {
      for (const auto& s : program.subcommands) out.push_back(s.path.back());
    }
  }
  return out;
}

// "cento cache"|"cento cache rm"|...: the patterns of all subcommands for a shell's `case`.
std::string path_patterns(const std::vector<const CommandDoc*>& commands) {
  std::vector<std::string> out;
  for (const auto* c : commands) {
    if (c->path.size() > 1) out.push_back("\"" + joined(c->path, " ") + "\"");
  }
  return joined(out, "|");
}

std::vector<OptionDoc> flags_of(const CommandDoc& program, const CommandDoc& command) {
  std::vector<OptionDoc> out;
  for (const auto& option : command.options) {
    if (!option.positional) out.push_back(option);
  }
  if (command.path.size() > 1) {
    for (const auto& option : program.options) out.push_back(option);
  }
  return out;
}

std::string bash_script(const CommandDoc& program, const std::vector<const CommandDoc*>& commands) {
  std::string out =
      "# bash completion for cento, printed by: cento completion bash\n"
      "_cento() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} at=cento words= i\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    case \"$at ${COMP_WORDS[i]}\" in\n"
      "      " +
      path_patterns(commands) +
      ") at=\"$at ${COMP_WORDS[i]}\" ;;\n"
      "    esac\n"
      "  done\n"
      "  case \"$at $prev\" in\n";
  for (const auto& [name, value] : flag_values(commands)) {
    out += "    " + name + ") ";
    switch (value.kind) {
      case Completes::kFolders:
        out += "mapfile -t COMPREPLY < <(compgen -d -- \"$cur\"); return ;;\n";
        break;
      case Completes::kFiles:
        out += "mapfile -t COMPREPLY < <(compgen -f -- \"$cur\"); return ;;\n";
        break;
      case Completes::kWords:
        out += "mapfile -t COMPREPLY < <(compgen -W " + quoted(joined(value.words, " ")) + " -- \"$cur\"); return ;;\n";
        break;
      case Completes::kNothing:
        out += "COMPREPLY=(); return ;;\n";
        break;
    }
  }
  out += "  esac\n  case \"$at\" in\n";
  for (const auto* command : commands) {
    std::vector<std::string> flags;
    for (const auto& option : flags_of(program, *command))
      flags.insert(flags.end(), option.names.begin(), option.names.end());
    out += "    \"" + joined(command->path, " ") +
           "\")\n      if [[ $cur == -* ]]; then words=" + quoted(joined(flags, " ")) +
           "; else words=" + quoted(joined(argument_words(program, *command), " ")) + "; fi ;;\n";
  }
  return out +
         "  esac\n"
         "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
         "}\n"
         "complete -o default -F _cento cento\n";
}

std::string zsh_item(const std::string& name, const std::string& help) {
  std::string escaped;
  for (const char c : name) escaped += c == ':' ? "\\:" : std::string(1, c);
  return quoted(escaped + ":" + help);
}

std::string zsh_script(const CommandDoc& program, const std::vector<const CommandDoc*>& commands) {
  std::string out =
      "#compdef cento\n"
      "# zsh completion for cento, printed by: cento completion zsh\n"
      "_cento() {\n"
      "  local at=cento\n"
      "  local -a flags arguments\n"
      "  integer i\n"
      "  for ((i = 2; i < CURRENT; i++)); do\n"
      "    case \"$at ${words[i]}\" in\n"
      "      (" +
      path_patterns(commands) +
      ") at=\"$at ${words[i]}\" ;;\n"
      "    esac\n"
      "  done\n"
      "  case \"$at ${words[CURRENT-1]}\" in\n";
  for (const auto& [name, value] : flag_values(commands)) {
    out += "    (" + name + ") ";
    switch (value.kind) {
      case Completes::kFolders:
        out += "_files -/; return ;;\n";
        break;
      case Completes::kFiles:
        out += "_files; return ;;\n";
        break;
      case Completes::kWords:
        out += "compadd -- " + joined(value.words, " ") + "; return ;;\n";
        break;
      case Completes::kNothing:
        out += "_message value; return ;;\n";
        break;
    }
  }
  out += "  esac\n  case \"$at\" in\n";
  for (const auto* command : commands) {
    out += "    (\"" + joined(command->path, " ") + "\")\n      flags=(";
    for (const auto& option : flags_of(program, *command)) {
      for (const auto& name : option.names) out += "\n        " + zsh_item(name, option.help);
    }
    out += ")\n      arguments=(";
    for (const auto& word : argument_words(program, *command)) {
      const CommandDoc* sub =
          find_command(program, command->path.size() == 1 ? std::vector<std::string>{word}
                                                          : std::vector<std::string>{command->path[1], word});
      out += "\n        " + zsh_item(word, sub == nullptr ? word : sub->what);
    }
    out += ") ;;\n";
  }
  return out +
         "  esac\n"
         "  if [[ ${words[CURRENT]} == -* ]]; then\n"
         "    _describe -o flag flags\n"
         "  elif (( ${#arguments} )); then\n"
         "    _describe argument arguments\n"
         "  else\n"
         "    _files\n"
         "  fi\n"
         "}\n"
         "if [[ ${funcstack[1]} == _cento ]]; then _cento \"$@\"; else compdef _cento cento; fi\n";
}

// When a command's own flags and arguments apply.
std::string fish_condition(const CommandDoc& command) {
  std::string out;
  if (command.path.size() == 1) return "__fish_use_subcommand";
  for (size_t i = 1; i < command.path.size(); ++i) {
    out += (out.empty() ? "" : "; and ") + ("__fish_seen_subcommand_from " + command.path[i]);
  }
  return out;
}

std::string fish_script(const CommandDoc& program, const std::vector<const CommandDoc*>& commands) {
  std::string out = "# fish completion for cento, printed by: cento completion fish\n";
  for (const auto* command : commands) {
    const bool top = command->path.size() == 1;
    const std::string condition = top ? "" : " -n " + fish_quoted(fish_condition(*command));
    for (const auto& option : command->options) {
      if (option.positional) continue;
      std::string line = "complete -c cento" + condition;
      for (const auto& name : option.names)
        line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      const auto value = completion_of(option.value);
      if (option.value.empty()) {
        line += " -f";
      } else if (value.kind == Completes::kWords) {
        line += " -x -a " + fish_quoted(joined(value.words, " "));
      } else if (value.kind == Completes::kFolders) {
        line += " -x -a '(__fish_complete_directories)'";
      } else {
        line += value.kind == Completes::kFiles ? " -r" : " -x";
      }
      out += line + " -d " + fish_quoted(option.help) + "\n";
    }
    std::vector<std::string> known;
    for (const auto& s : command->subcommands) known.push_back(s.path.back());
    for (const auto& word : argument_words(program, *command)) {
      const CommandDoc* sub = find_command(*command, {word});
      std::string when = fish_condition(*command);
      if (!top && !known.empty()) when += "; and not __fish_seen_subcommand_from " + joined(known, " ");
      out += "complete -c cento -n " + fish_quoted(when) + " -f -a " + word +
             (sub == nullptr ? "" : " -d " + fish_quoted(sub->what)) + "\n";
    }
  }
  return out;
}

}  // namespace

std::string completion_script(const CommandDoc& program, const std::string& shell) {
  std::vector<const CommandDoc*> commands;
  all_commands(program, commands);
  if (shell == "bash") return bash_script(program, commands);
  if (shell == "zsh") return zsh_script(program, commands);
  CHECK(shell == "fish");
  return fish_script(program, commands);
}

}  // namespace cento
