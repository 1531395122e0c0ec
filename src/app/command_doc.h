// What the program says about its own flags, as plain data: help texts and completion scripts are made from it.
#pragma once

#include <string>
#include <vector>

namespace cento {

struct OptionDoc {
  std::vector<std::string> names = {};  // "-q", "--quiet", "--no-prune"; for an argument without flag: its name, "FILE"
  std::string value = {};               // "FILE", "DIR", "auto|cpu"; empty: takes no value
  std::string help = {};
  std::string default_text = {};  // empty: none worth saying
  bool positional = false, required = false, repeated = false;
};

struct CommandDoc {
  std::vector<std::string> path;   // {"cento", "cache", "rm"}
  std::string what;                // one line
  std::string more;                // paragraphs below it, may be empty
  std::string examples;            // lines "command    # comment"
  std::vector<OptionDoc> options;  // own ones; those of the program (path of one) are common to all
  std::vector<CommandDoc> subcommands;
};

// --help of `command`. `common` are the program's options, shown below a subcommand's own.
std::string help_text(const CommandDoc& command, const std::vector<OptionDoc>& common);

// The command at `topic` below `program`, or nullptr.
const CommandDoc* find_command(const CommandDoc& program, const std::vector<std::string>& topic);

// Completion script; `shell` is "bash", "zsh" or "fish".
std::string completion_script(const CommandDoc& program, const std::string& shell);

}  // namespace cento
