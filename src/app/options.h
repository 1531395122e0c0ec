// The command line as plain structs: flag, then environment, then configuration file, then default (CLI.md). No I/O of
// its own: environment and files come in through ParseEnvironment.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "app/command_doc.h"
#include "compute/ops.h"
#include "docs/indexer.h"
#include "eval/evaluation.h"
#include "eval/speed.h"
#include "kv/kv_store.h"
#include "session/answer.h"
#include "session/precompute.h"

namespace cento {

enum class ColorMode { kAuto, kAlways, kNever };

struct CommonOptions {
  std::string store;  // "": the default folder
  std::string model;  // file or name; "": the only one found
  std::string collection = "default";
  std::string device = "auto";
  size_t threads = 0;  // 0: one for each processor
  StoreLimits limits;
  std::string key_file;  // "": $CENTO_KEY, or none
  std::string remote;    // URL of the remote tier; "": none
  bool json = false, quiet = false, verbose = false, progress = true;
  ColorMode color = ColorMode::kAuto;
};

// How a model is run; the same values must be used by precompute and query for stored KV to fit.
struct RunOptions {
  Precision precision = Precision::kFast;
  std::string target = "auto";
  std::string chat_template;  // "": the file's own
};

struct IndexCommand {
  IndexOptions options;
  bool nul_separated = false;  // of the list on stdin, which a path "-" asks for
};

struct PrecomputeCommand {
  PrecomputeOptions options;
  RunOptions run;
};

struct QueryCommand {
  std::string question;     // "-": from stdin
  std::string prompt_file;  // instead of a question
  bool keep = false;
  AskOptions ask;
  RunOptions run;
  bool show_sources = false;
  bool stream = true;
  std::string logits_file;
};

struct CacheCommand {
  enum class Action { kStatus, kList, kVerify, kGc, kRemove, kTrim, kExport, kImport, kFolder, kRekey };
  Action action = Action::kStatus;
  std::vector<std::string> ids;  // of rm
  std::string file;              // of export and import
  std::string folder;            // of folder
  bool remove_folder = false;
  std::string new_key_file;  // of rekey
  bool decrypt = false;      // of rekey
  bool repair = false;       // of verify: damaged pieces are set aside
  uint64_t max_bytes = 0;    // of trim and folder
};

struct ModelCommand {
  enum class Action { kList, kShow, kTokenize, kCheck } action = Action::kList;
  std::string file;       // of check: "": --model
  bool calibrate = true;  // check
  RunOptions run;         // check
  std::string text;       // "-": from stdin
  bool specials = false;
};

struct BenchCommand {
  SpeedOptions speed;
  std::string peer;  // llama-bench; "": none
  RunOptions run;
};

inline constexpr double kDefaultRatio = -1;  // in EvalCommand::ratios: the policy's own budget

struct EvalCommand {
  EvalOptions eval;  // its settings are made of the lists below, each with each
  std::vector<std::string> policies = {"query", "dev-kv"};
  std::vector<double> ratios = {0.05, 0.15};
  std::vector<std::string> contexts = {"stand-in"};
  std::vector<std::string> repairs = {"none"};
  std::vector<std::string> codecs = {"lossless"};
  std::vector<double> layer_ratios;  // instead of the ratios: one for each layer, the last for all that follow
  BlendSettings blend;               // the rest, the same for all
  std::string logits_folder;
  RunOptions run;
};
// The settings that the lists ask for. Throws Error(kUsage).
std::vector<TrialSetting> settings_of(const EvalCommand& command, size_t n_layers);

struct ConfigCommand {};
struct DoctorCommand {};
struct CompletionCommand {
  std::string shell;
};
struct HelpCommand {
  std::vector<std::string> topic;  // names of a subcommand, outermost first; empty: the program
};

// One setting and where its value came from, for `cento config`.
struct Setting {
  enum class From { kFlag, kEnvironment, kFile, kDefault };
  std::string name = {};   // "threads", "query.top-k"
  std::string value = {};  // as text; several joined by ", "
  From from = From::kDefault;
  std::string where = {};  // variable, or file and line
};
const char* setting_from_name(Setting::From from);

struct Options {
  CommonOptions common;
  std::variant<IndexCommand, PrecomputeCommand, QueryCommand, CacheCommand, ModelCommand, BenchCommand, EvalCommand,
               ConfigCommand, DoctorCommand, CompletionCommand, HelpCommand>
      command;
  std::vector<Setting> settings;  // all of them, in the order of --help
  std::string config_file;        // that was read, or would be
  bool config_found = false;
};

struct ParseEnvironment {
  std::function<std::optional<std::string>(const std::string& name)> variable;
  // Content of a configuration file; nullopt if there is none. Throws Error for one that cannot be read.
  std::function<std::optional<std::string>(const std::string& path)> read_file;
};

struct ParseOutcome {
  std::optional<std::string> print;  // --help or --version: this text, and nothing else is to be done
  Options options;
};

// `args` without the program's name. Throws Error(kUsage).
ParseOutcome parse_options(const std::vector<std::string>& args, const ParseEnvironment& environment);

// The program's own description of itself: all subcommands with their flags.
CommandDoc describe_program();

}  // namespace cento
