// Registers each flag once: with CLI11, which splits the command line, and with the description that help, completion
// and `cento config` are made from.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "app/command_doc.h"
#include "app/options.h"

namespace cento {

// What a value-setting function throws for a value that it cannot take: why, in words that follow "--flag: ".
struct BadValue {
  std::string why;
};
// Takes all values given: the last one counts unless the flag is repeated.
using SetValues = std::function<void(const std::vector<std::string>& values)>;

struct FlagSpec {
  CLI::Option* option = nullptr;
  CLI::App* app = nullptr;
  std::string scope;  // "", "query", "cache.trim"
  std::string key;  // "top-k": long name without dashes; empty for positional arguments, which only a command line has
  bool takes_value = false, repeated = false;
  std::string value_name;  // "N", "FILE"; empty for switches
  std::string default_text;
  SetValues set;
};

// One command: the program or a subcommand.
class CommandBuilder {
 public:
  CommandBuilder(CLI::App& app, CommandDoc& doc, std::vector<FlagSpec>& specs, std::string scope)
      : app_(&app), doc_(&doc), specs_(&specs), scope_(std::move(scope)) {}

  // `names`: "--threads" or "-0,--null".
  void value(const std::string& names, const std::string& value_name, const std::string& help,
             const std::string& default_text, SetValues set);
  void list(const std::string& names, const std::string& value_name, const std::string& help,
            std::vector<std::string>& out);
  // --NAME or --NAME VALUE; `value_name` is written "[N]".
  void optional_value(const std::string& names, const std::string& value_name, const std::string& help, SetValues set);
  void flag(const std::string& names, const std::string& help, bool& out);     // absent: out keeps its value
  void toggle(const std::string& name, const std::string& help, bool& out);    // --NAME and --no-NAME
  void inverse(const std::string& names, const std::string& help, bool& out);  // given: out becomes false
  void positional(const std::string& name, const std::string& help, bool required, SetValues set,
                  bool repeated = false);

  // The reference stays good while the program's description lives: subcommands are kept in a list of fixed capacity.
  CommandBuilder subcommand(const std::string& name, const std::string& what, const std::string& more,
                            const std::string& examples);
  CLI::App& app() { return *app_; }

 private:
  void add(CLI::Option* option, OptionDoc doc, FlagSpec spec);
  CLI::App* app_;
  CommandDoc* doc_;
  std::vector<FlagSpec>* specs_;
  std::string scope_;
};

// Values -> variables.
SetValues to_text(std::string& out);
SetValues to_texts(std::vector<std::string>& out);
SetValues to_size(uint64_t& out);
SetValues to_duration_ms(int64_t& out);
SetValues to_optional_size(std::optional<uint64_t>& out);
SetValues to_real(double& out, double min, double max);
SetValues to_optional_real(std::optional<double>& out, double min, double max);
// Of an optional value: `if_bare` where the flag stands alone (or is true, and 0 where it is false), else a whole
// number.
SetValues to_number_or(size_t& out, uint64_t min, uint64_t max, size_t if_bare);
// One of `choices`, handed to `take`.
SetValues to_choice(std::vector<std::string> choices, std::function<void(const std::string&)> take);

// A whole number min..max; nothing else on the line.
uint64_t whole_number(const std::string& text, uint64_t min, uint64_t max);  // throws BadValue
template <class T>
SetValues to_number(T& out, uint64_t min, uint64_t max) {
  return
      [&out, min, max](const std::vector<std::string>& v) { out = static_cast<T>(whole_number(v.back(), min, max)); };
}

bool bool_of(const std::string& text);  // true/false, yes/no, on/off, 1/0; throws BadValue

// "index, query or cache": for messages.
std::string one_of(const std::vector<std::string>& words);
// The word of `words` that `typed` is probably meant to be, or "".
std::string nearest_word(const std::string& typed, const std::vector<std::string>& words);

}  // namespace cento
