#include <catch2/catch.hpp>

#include <cstdlib>
#include <functional>

#include "app/command_doc.h"
#include "app/options.h"
#include "base/text.h"
#include "support/shared_data.h"

namespace cento {
namespace {

void for_each_command(const CommandDoc& command, const std::function<void(const CommandDoc&)>& visit) {
  visit(command);
  for (const auto& s : command.subcommands) for_each_command(s, visit);
}

TEST_CASE("help: every subcommand has examples, fits 100 columns and lists its flags with the common ones", "[app]") {
  const CommandDoc program = describe_program();
  for_each_command(program, [&](const CommandDoc& command) {
    const std::string text = help_text(command, program.options);
    CAPTURE(text);
    CHECK_THAT(text, Catch::Contains("\nexamples:\n  cento ") || Catch::Contains("\nexamples:\n  echo "));
    CHECK_THAT(text, Catch::Contains("--store DIR") && Catch::Contains("-h, --help"));
    for (const auto line : split_lines(text)) CHECK(line.size() <= 100);
    for (const auto& option : command.options) {
      for (const auto& name : option.names) CHECK_THAT(text, Catch::Contains(name));
    }
  });
}

TEST_CASE("help: what does not exist yet is not announced", "[app]") {
  const CommandDoc program = describe_program();
  for (const char* name : {"chat", "serve"}) CHECK(find_command(program, {name}) == nullptr);
  CHECK(find_command(program, {"cache", "rm"}) != nullptr);
  CHECK(find_command(program, {}) == &program);
}

// Runs `script` in bash; what it printed.
std::string bash(const std::string& script) {
  const test::TempDir folder;
  test::write_all(folder / "s.sh", script);
  REQUIRE(std::system(("bash '" + folder / "s.sh" + "' > '" + folder / "out" + "' 2>&1").c_str()) == 0);
  return test::read_all(folder / "out");
}

std::string completed(const std::string& words_before, const std::string& word) {
  const std::string script = completion_script(describe_program(), "bash");
  return bash(script + "\nCOMP_WORDS=(" + words_before + " '" + word +
              "')\nCOMP_CWORD=$((${#COMP_WORDS[@]}-1))\n_cento\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n");
}

TEST_CASE("completion: bash completes subcommands, flags and values", "[app]") {
  CHECK(completed("cento", "qu") == "query\n");
  CHECK(completed("cento cache", "tr") == "trim\n");
  CHECK(completed("cento query", "--top-k-") == "--top-k-tokens\n");
  CHECK(completed("cento --json cache trim", "--max-b") == "--max-bytes\n");
  CHECK(completed("cento query --prefill", "b") == "blend\n");
  CHECK(completed("cento completion", "z") == "zsh\n");
  // --prompt is a file of one command and a number of the other.
  CHECK(completed("cento query --prompt", "/usr/bi") == "/usr/bin\n");
  CHECK(completed("cento bench --prompt", "/usr/bi") == "\n");
  CHECK(completed("cento bench --against", "/usr/bi") == "/usr/bin\n");
  CHECK_THAT(completed("cento help", ""), Catch::Contains("doctor"));
  CHECK_THAT(completed("cento index", "--"), Catch::Contains("--no-prune") && Catch::Contains("--store"));
}

TEST_CASE("completion: scripts for zsh and fish name every flag", "[app]") {
  const CommandDoc program = describe_program();
  const std::string zsh = completion_script(program, "zsh"), fish = completion_script(program, "fish");
  CHECK(zsh.starts_with("#compdef cento\n"));
  for_each_command(program, [&](const CommandDoc& command) {
    for (const auto& option : command.options) {
      if (option.positional) continue;
      for (const auto& name : option.names) {
        CAPTURE(name);
        CHECK_THAT(zsh, Catch::Contains("'" + name + ":"));
        CHECK_THAT(fish, Catch::Contains(name.starts_with("--") ? " -l " + name.substr(2) + " "
                                                                : " -s " + name.substr(1) + " "));
      }
    }
  });
  // Where the shells are there, they read the scripts themselves.
  const test::TempDir folder;
  for (const auto& [shell, text] : {std::pair{"zsh", zsh}, std::pair{"fish", fish}}) {
    if (std::system(("command -v " + std::string(shell) + " > /dev/null").c_str()) != 0) {
      WARN("skipped: no " << shell << " here to read its script");
      continue;
    }
    test::write_all(folder / shell, text);
    CHECK(std::system((std::string(shell) + " -n '" + folder / shell + "'").c_str()) == 0);
  }
}

}  // namespace
}  // namespace cento
