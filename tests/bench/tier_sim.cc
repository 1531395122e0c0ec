// What the store's eviction rule is worth: tier_sim [--trace FILE] [--seeds N] [--first-seed N] [--scale X] [--all]
// Runs kv/eviction.h with made-up time and sizes over a trace of a chat service (FILE, by default the shared data's;
// its second half is counted) and over generated chats and questions about documents (averages of N seeds, 3 by
// default), and prints hit rates beside FIFO, LRU and the best possible. Rates are shares of the tokens that could be
// reused: those of items met before. The constants of the rule were chosen with seeds 1 and 2 and the trace as a whole;
// the default seeds begin at
// 11. --all counts the whole of the trace.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/shared_data.h"
#include "support/tier_sim.h"

namespace {

using namespace cento;
using namespace cento::test;
using Policy = SimPolicy::Kind;

constexpr double kShares[] = {.01, .02, .05, .1, .2, .5};
constexpr SimMachine kMachine;

uint64_t part_of(uint64_t bytes, double share) { return static_cast<uint64_t>(share * static_cast<double>(bytes)); }

using Figure = double (SimTally::*)() const;

// One setting on the trace of each seed.
class Runs {
 public:
  template <class Simulate>
  Runs(const std::vector<SimTrace>& traces, Simulate simulate) {
    for (const SimTrace& trace : traces) tallies_.push_back(simulate(trace));
  }
  // In percent, averaged; and where it is furthest below another's.
  double mean(Figure figure) const {
    double sum = 0;
    for (const SimTally& tally : tallies_) sum += (tally.*figure)();
    return 100 * sum / static_cast<double>(tallies_.size());
  }
  double least_gain(const Runs& over, Figure figure) const {
    double least = 100;
    for (size_t i = 0; i < tallies_.size(); ++i) {
      least = std::min(least, 100 * ((tallies_[i].*figure)() - (over.tallies_[i].*figure)()));
    }
    return least;
  }

 private:
  std::vector<SimTally> tallies_;
};

void describe(const std::vector<SimTrace>& traces) {
  const SimTrace& trace = traces.front();
  const SimTally all = simulate_tier(trace, trace.distinct_bytes(), {Policy::kLru});
  double busy_ms = 0;
  for (const SimRequest& request : trace.requests) {
    if (request.kind != SimRequest::Kind::kTurn) continue;
    busy_ms += request.other_ms;
    for (const uint32_t id : request.needs) busy_ms += trace.items[id].cost_ms;
  }
  std::printf(
      "\n%s: %.0f turns, %zu items, %.0f GB, %.0f %% of the tokens met before; computing all: %.0f %% of the time\n",
      trace.name.c_str(), all.turns, trace.items.size(), static_cast<double>(trace.distinct_bytes()) / 1e9,
      100 * all.tokens_again / all.tokens, 100 * busy_ms / trace.requests.back().arrival_ms);
}

void print_one_tier(const std::vector<SimTrace>& traces) {
  std::printf(
      "one tier    hit rate by tokens                            by cost\n"
      "capacity    FIFO   LRU priority  ours  best  ours-LRU    LRU priority  ours  best  ours-LRU (worst seed)\n");
  for (const double share : kShares) {
    const auto run = [&](Policy kind) {
      return Runs(traces, [&](const SimTrace& trace) {
        return simulate_tier(trace, part_of(trace.distinct_bytes(), share), {kind});
      });
    };
    const Runs fifo = run(Policy::kFifo), lru = run(Policy::kLru), priority = run(Policy::kPriority),
               ours = run(Policy::kDuel);
    double best_hit = 0, best_cost = 0;
    for (const SimTrace& trace : traces) {
      const SimBound bound = best_possible(trace, part_of(trace.distinct_bytes(), share));
      best_hit += 100 * bound.hit_rate / static_cast<double>(traces.size());
      best_cost += 100 * bound.cost_rate / static_cast<double>(traces.size());
    }
    const Figure hit = &SimTally::hit_rate, cost = &SimTally::cost_rate;
    std::printf("%6.0f %%   %5.1f %5.1f    %5.1f %5.1f %5.1f     %+5.1f", 100 * share, fifo.mean(hit), lru.mean(hit),
                priority.mean(hit), ours.mean(hit), best_hit, ours.mean(hit) - lru.mean(hit));
    std::printf("  %5.1f    %5.1f %5.1f %5.1f     %+5.1f (%+.1f)\n", lru.mean(cost), priority.mean(cost),
                ours.mean(cost), best_cost, ours.mean(cost) - lru.mean(cost), ours.least_gain(lru, cost));
  }
}

void print_two_tiers(const std::vector<SimTrace>& traces) {
  std::printf(
      "RAM over a disk of ten times its size; a hit was in RAM when its turn came\n"
      "            all turns             of those known before       of those that resume     wait, s\n"
      "RAM         LRU  ours  +ahead    share   LRU +ahead  gain     LRU +ahead  gain     LRU +ahead\n");
  for (const double share : kShares) {
    const auto run = [&](Policy kind, bool ahead) {
      return Runs(traces, [&](const SimTrace& trace) {
        const uint64_t ram = part_of(trace.distinct_bytes(), share);
        return simulate_tiers(trace, {ram, 10 * ram, kMachine.disk_bytes_s, ahead}, {kind});
      });
    };
    const Runs lru = run(Policy::kLru, false), ours = run(Policy::kDuel, false), ahead = run(Policy::kDuel, true);
    const Figure hit = &SimTally::hit_rate, known = &SimTally::foreseen_rate, resumed = &SimTally::resumed_rate;
    std::printf("%6.0f %%   %5.1f %5.1f   %5.1f    %5.0f %% %5.1f  %5.1f %+5.1f", 100 * share, lru.mean(hit),
                ours.mean(hit), ahead.mean(hit), ahead.mean(&SimTally::foreseen_share), lru.mean(known),
                ahead.mean(known), ahead.mean(known) - lru.mean(known));
    std::printf("   %5.1f  %5.1f %+5.1f  %6.1f %6.1f\n", lru.mean(resumed), ahead.mean(resumed),
                ahead.mean(resumed) - lru.mean(resumed), lru.mean(&SimTally::mean_wait_s) / 100,
                ahead.mean(&SimTally::mean_wait_s) / 100);
  }
}

void report(const std::vector<SimTrace>& traces) {
  describe(traces);
  print_one_tier(traces);
  print_two_tiers(traces);
  std::fflush(stdout);
}

struct Options {
  std::string trace;
  uint64_t n_seeds = 3, first_seed = 11;
  double scale = 1;
  bool all = false;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--all") {
      options.all = true;
      continue;
    }
    if (i + 1 == argc)
      throw std::runtime_error("usage: tier_sim [--trace FILE] [--seeds N] [--first-seed N] [--scale X] [--all]");
    const char* const value = argv[++i];
    if (name == "--trace")
      options.trace = value;
    else if (name == "--seeds")
      options.n_seeds = std::strtoull(value, nullptr, 10);
    else if (name == "--first-seed")
      options.first_seed = std::strtoull(value, nullptr, 10);
    else if (name == "--scale")
      options.scale = std::strtod(value, nullptr);
    else
      throw std::runtime_error("unknown option " + name);
  }
  if (options.n_seeds == 0 || !(options.scale > 0 && options.scale <= 20))
    throw std::runtime_error("--seeds from 1, --scale up to 20");
  if (options.trace.empty()) options.trace = find_shared_path("data/traces/mooncake-conversation.jsonl").value_or("");
  return options;
}

}  // namespace

int main(int argc, char** argv) try {
  const Options options = parse(argc, argv);
  std::printf("disk %.0f MB/s, prefill %.0f tokens/s, %llu bytes a token; seeds %llu to %llu\n",
              kMachine.disk_bytes_s / 1e6, kMachine.prefill_tokens_s,
              static_cast<unsigned long long>(kMachine.bytes_per_token),
              static_cast<unsigned long long>(options.first_seed),
              static_cast<unsigned long long>(options.first_seed + options.n_seeds - 1));
  if (!options.trace.empty()) {
    std::vector<SimTrace> traces = {read_block_trace(options.trace, kMachine, 0.9)};
    if (!options.all) traces[0].n_uncounted = traces[0].requests.size() / 2;
    report(traces);
  }
  for (const auto make : {chat_trace, documents_trace, two_models_trace}) {
    std::vector<SimTrace> traces;
    for (uint64_t i = 0; i < options.n_seeds; ++i)
      traces.push_back(make(options.first_seed + i, kMachine, options.scale));
    report(traces);
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "tier_sim: %s\n", error.what());
  return 1;
}
