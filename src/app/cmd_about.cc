// The small ones that tell about the program itself: config, completion, help.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <vector>

#include "app/commands.h"
#include "app/json.h"
#include "app/store_options.h"
#include "base/text.h"

namespace cento {

int cmd_config(Run& run, const ConfigCommand&) {
  Json out;
  if (run.options.config_file.empty()) {
    out["file"] = nullptr;
  } else {
    put_path(out, "file", run.options.config_file);
  }
  out["file_found"] = run.options.config_found;
  out["settings"] = Json::array();
  std::string text = "configuration file: " + printable(run.options.config_file) +
                     (run.options.config_found ? "" : " (not there)") + "\n";
  for (const Setting& s : run.options.settings) {
    Json item;
    item["name"] = s.name;
    item["value"] = json_text(s.value);
    item["from"] = setting_from_name(s.from);
    if (!s.where.empty()) item["where"] = json_text(s.where);
    out["settings"].push_back(std::move(item));
    text += s.name + " = " + printable(s.value) + "  (" + setting_from_name(s.from) +
            (s.where.empty() ? "" : ": " + printable(s.where)) + ")\n";
  }
  run.terminal.out(run.common().json ? json_line(out) : text);
  return 0;
}

int cmd_completion(Run& run, const CompletionCommand& command) {
  run.terminal.out(completion_script(describe_program(), command.shell));
  return 0;
}

namespace {

// Runs `args`; nullopt if the program is not there. Output goes where ours goes, or nowhere.
std::optional<int> run_program(const std::vector<std::string>& args, bool silent) {
  std::vector<char*> argv;
  for (const auto& a : args) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  const pid_t child = ::fork();
  if (child < 0) return std::nullopt;
  if (child == 0) {
    if (silent) {
      ::close(STDOUT_FILENO);
      ::close(STDERR_FILENO);
    }
    ::signal(SIGPIPE, SIG_DFL);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return std::nullopt;
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) == 127) return std::nullopt;
  return WEXITSTATUS(status);
}

}  // namespace

int cmd_help(Run& run, const HelpCommand& command) {
  const CommandDoc program = describe_program();
  // A page a subcommand: `cache rm` is described in cento-cache(1).
  const std::string page = command.topic.empty() ? "cento" : "cento-" + command.topic.front();
  if (run_program({"man", "-w", page}, true) == 0 && run_program({"man", page}, false) == 0) return 0;
  const CommandDoc* found = find_command(program, command.topic);
  run.terminal.out(help_text(found == nullptr ? program : *found, program.options));
  return 0;
}

}  // namespace cento
