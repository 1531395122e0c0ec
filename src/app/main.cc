// Parse, dispatch, and the command line's only catch: what was thrown becomes three lines and an exit status.
#include <algorithm>
#include <exception>
#include <filesystem>
#include <new>
#include <string>
#include <variant>
#include <vector>

#include "app/commands.h"
#include "app/interrupt.h"
#include "app/options.h"
#include "app/store_options.h"
#include "app/terminal.h"
#include "base/error.h"
#include "base/file.h"

namespace cento {
namespace {

constexpr uint64_t kConfigBytesMax = 1 << 20;

std::optional<std::string> read_config_file(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !error) return std::nullopt;
  return read_file(path, kConfigBytesMax).or_throw();
}

int dispatch(Run& run) {
  struct Visitor {
    Run& run;
    int operator()(const IndexCommand& c) const { return cmd_index(run, c); }
    int operator()(const PrecomputeCommand& c) const { return cmd_precompute(run, c); }
    int operator()(const QueryCommand& c) const { return cmd_query(run, c); }
    int operator()(const CacheCommand& c) const { return cmd_cache(run, c); }
    int operator()(const ModelCommand& c) const { return cmd_model(run, c); }
    int operator()(const BenchCommand& c) const { return cmd_bench(run, c); }
    int operator()(const EvalCommand& c) const { return cmd_eval(run, c); }
    int operator()(const ConfigCommand& c) const { return cmd_config(run, c); }
    int operator()(const DoctorCommand& c) const { return cmd_doctor(run, c); }
    int operator()(const CompletionCommand& c) const { return cmd_completion(run, c); }
    int operator()(const HelpCommand& c) const { return cmd_help(run, c); }
  };
  return std::visit(Visitor{run}, run.options.command);
}

// `options` keeps its defaults while nothing has been understood yet; errors are shown by what is in it.
int run_command(const std::vector<std::string>& args, Options& options) {
  const ParseOutcome outcome = parse_options(args, {environment_variable, read_config_file});
  if (outcome.print) {
    Terminal(options.common).out(*outcome.print);
    return 0;
  }
  options = outcome.options;
  Terminal terminal(options.common);
  Run run{options, terminal};
  return dispatch(run);
}

int failed(const CommonOptions& options, const Error& error) {
  Terminal(options).error(error);
  return exit_status(error.code());
}

int guarded(const std::vector<std::string>& args) {
  Options options;
  try {
    return run_command(args, options);
  } catch (const Error& e) {
    return failed(options.common, e);
  } catch (const ReaderGone&) {
    return 0;
  } catch (const Interrupted&) {
    return kInterruptedStatus;
  } catch (const std::bad_alloc&) {
    return failed(options.common,
                  {Code::kResource, "not enough memory", "", "close other programs, or use a smaller model"});
  } catch (const std::exception& e) {
    return failed(options.common,
                  {Code::kInternal, e.what(), "", "this is a defect of cento; please report it with the command line"});
  }
}

}  // namespace
}  // namespace cento

int main(int argc, char** argv) {
  cento::watch_interrupts();
  return cento::guarded({argv + std::min(1, argc), argv + argc});
}
