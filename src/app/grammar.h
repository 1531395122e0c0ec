// All subcommands and flags of the program: the one place where they are written down.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "app/option_builder.h"
#include "app/options.h"

namespace cento {

// Everything a parse needs, at addresses that stay put while CLI11 and the flag table point into it.
struct Grammar {
  CLI::App app{"", "cento"};
  CommandDoc doc;
  std::vector<FlagSpec> specs;

  CommonOptions common;
  std::string config_path;
  bool version = false;
  IndexCommand index;
  std::vector<std::string> converters;
  PrecomputeCommand precompute;
  QueryCommand query;
  CacheCommand cache;
  ModelCommand model;
  BenchCommand bench;
  EvalCommand eval;
  CompletionCommand completion;
  HelpCommand help;

  Grammar();
  void add_common(CommandBuilder& b);
  void add_index(CommandBuilder& program);
  void add_precompute(CommandBuilder& program);
  void add_query(CommandBuilder& program);
  void add_cache(CommandBuilder& program);
  void add_model(CommandBuilder& program);
  void add_bench(CommandBuilder& program);
  void add_eval(CommandBuilder& program);
  void add_small_ones(CommandBuilder& program);
};

}  // namespace cento
