// One function a subcommand. Each returns the exit status and throws Error for what it cannot go on from.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "app/options.h"
#include "app/terminal.h"

namespace cento {

inline constexpr int kPartlyDoneStatus = 5;
inline constexpr int kNothingFoundStatus = 6;

struct Run {
  const Options& options;
  Terminal& terminal;
  const CommonOptions& common() const { return options.common; }
};

int cmd_index(Run& run, const IndexCommand& command);
int cmd_precompute(Run& run, const PrecomputeCommand& command);
int cmd_query(Run& run, const QueryCommand& command);
int cmd_cache(Run& run, const CacheCommand& command);
int cmd_model(Run& run, const ModelCommand& command);
int cmd_bench(Run& run, const BenchCommand& command);
int cmd_eval(Run& run, const EvalCommand& command);
int cmd_config(Run& run, const ConfigCommand& command);
int cmd_doctor(Run& run, const DoctorCommand& command);
int cmd_completion(Run& run, const CompletionCommand& command);
int cmd_help(Run& run, const HelpCommand& command);

// "skipped: PATH: REASON" on stderr for each.
void name_skipped(Terminal& terminal, const std::vector<std::pair<std::string, std::string>>& items);

}  // namespace cento
