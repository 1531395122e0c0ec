// The rule of kv/eviction.h on small generated traces (support/tier_sim.h), beside LRU and what is possible at best.
// Margins are what tests/bench/tier_sim.cc shows on large traces, less a part for their being small.
#include <catch2/catch.hpp>

#include "support/shared_data.h"
#include "support/tier_sim.h"

using namespace cento;
using namespace cento::test;
using Policy = SimPolicy::Kind;

namespace {

constexpr SimMachine kMachine;

uint64_t part_of(const SimTrace& trace, double share) {
  return static_cast<uint64_t>(share * static_cast<double>(trace.distinct_bytes()));
}

}  // namespace

TEST_CASE("tiers simulated: the rule without cost and hits is LRU, hit for hit", "[kv]") {
  const SimTrace trace = documents_trace(3, kMachine, 0.2);  // of items that stand alone
  for (const double share : {.02, .1, .4}) {
    CAPTURE(share);
    const SimTally lru = simulate_tier(trace, part_of(trace, share), {Policy::kLru});
    const SimTally same =
        simulate_tier(trace, part_of(trace, share), {Policy::kPriority, {.cost_power = 0, .hits_max = 0}});
    CHECK(same.tokens_hit == lru.tokens_hit);
    CHECK(lru.tokens_hit > 0);
  }
}

TEST_CASE("tiers simulated: no rule beats the best possible, and a tier that holds all misses nothing", "[kv]") {
  for (const SimTrace& trace :
       {chat_trace(4, kMachine, 0.1), documents_trace(4, kMachine, 0.1), two_models_trace(4, kMachine, 0.1)}) {
    CAPTURE(trace.name);
    for (const double share : {.02, .1, .4, 1.0}) {
      CAPTURE(share);
      const SimBound best = best_possible(trace, part_of(trace, share));
      for (const Policy kind : {Policy::kFifo, Policy::kLru, Policy::kPriority, Policy::kDuel}) {
        const SimTally tally = simulate_tier(trace, part_of(trace, share), {kind});
        CHECK(tally.hit_rate() <= best.hit_rate + 1e-12);  // sums of a few thousand terms of one order
        CHECK(tally.cost_rate() <= best.cost_rate + 1e-12);
        if (share == 1.0) CHECK(tally.hit_rate() == 1.0);
      }
    }
  }
}

TEST_CASE("tiers simulated: the best possible of four turns is what can be reckoned by hand", "[kv]") {
  SimTrace trace;
  trace.items = {{2, 2, 1, -1}, {2, 2, 1, -1}};
  for (const uint32_t id : {0, 1, 0, 1}) {
    SimRequest request;
    request.arrival_ms = static_cast<double>(trace.requests.size());
    request.needs = {id};
    trace.requests.push_back(request);
  }
  CHECK(best_possible(trace, 3).hit_rate == 0.75);  // one item and half of the other
  CHECK(best_possible(trace, 2).hit_rate == 0.5);
  CHECK(best_possible(trace, 4).hit_rate == 1.0);
  // Each hit takes two bytes for two of the four turns; two bytes all along pay for both.
  CHECK(best_possible(trace, 1).cost_rate == 0.5);
  CHECK(best_possible(trace, 2).cost_rate == 1.0);
}

TEST_CASE("tiers simulated: without look-ahead the rule saves at least what LRU saves", "[kv]") {
  for (const double share : {.02, .05, .1, .2}) {
    CAPTURE(share);
    const auto gain = [&](const SimTrace& trace) {
      const SimTally ours = simulate_tier(trace, part_of(trace, share), {Policy::kDuel});
      return ours.cost_rate() - simulate_tier(trace, part_of(trace, share), {Policy::kLru}).cost_rate();
    };
    CHECK(gain(documents_trace(5, kMachine, 0.5)) > 0.005);
    CHECK(gain(two_models_trace(5, kMachine, 0.5)) > 0.01);
    // LRU is within a few points of the best here: small traces vary by some tenths of a point.
    CHECK(gain(chat_trace(5, kMachine, 0.3)) > -0.005);
  }
}

TEST_CASE("tiers simulated: look-ahead brings what was foreseen into memory before its turn", "[kv]") {
  const SimTrace documents = documents_trace(6, kMachine, 0.5), chat = chat_trace(6, kMachine, 0.3);
  const auto run = [](const SimTrace& trace, Policy kind, bool ahead) {
    const uint64_t ram = part_of(trace, 0.05);
    return simulate_tiers(trace, {ram, 10 * ram, kMachine.disk_bytes_s, ahead}, {kind});
  };
  CHECK(run(documents, Policy::kDuel, true).foreseen_rate() >
        run(documents, Policy::kLru, false).foreseen_rate() + 0.25);
  CHECK(run(chat, Policy::kDuel, true).resumed_rate() > run(chat, Policy::kLru, false).resumed_rate() + 0.25);
  CHECK(run(chat, Policy::kDuel, true).hit_rate() > run(chat, Policy::kLru, false).hit_rate());
}

TEST_CASE("tiers simulated: a trace of blocks is read, or refused with its line", "[kv]") {
  const TempDir dir;
  write_all(dir / "good",
            "{\"timestamp\": 0, \"output_length\": 60, \"hash_ids\": [7, 8]}\n\n"
            "{\"timestamp\": 1000, \"output_length\": 60, \"hash_ids\": [7, 9]}\n");
  const SimTrace trace = read_block_trace(dir / "good", kMachine, 0.5);
  REQUIRE(trace.requests.size() == 2);
  REQUIRE(trace.items.size() == 3);
  CHECK(trace.requests[1].needs == std::vector<uint32_t>{0, 2});
  CHECK(trace.items[2].parent == 0);
  // Half of the time is busy: four blocks and twice ten seconds of decoding.
  const double busy_ms = 2 * (kMachine.compute_ms(0, 512) + kMachine.compute_ms(512, 512) + 10'000);
  CHECK(trace.requests[1].arrival_ms == Approx(2 * busy_ms));
  const SimTally tally = simulate_tier(trace, trace.distinct_bytes(), {Policy::kLru});
  CHECK(tally.tokens_again == 512);
  CHECK(tally.tokens_hit == 512);
  write_all(dir / "bad", "{\"timestamp\": 0, \"output_length\": 60, \"hash_ids\": [7, 8]}\n{\"timestamp\": 1}\n");
  CHECK_THROWS_WITH(read_block_trace(dir / "bad", kMachine, 0.5), Catch::Contains("line 2"));
  CHECK_THROWS_WITH(read_block_trace(dir / "none", kMachine, 0.5), Catch::Contains("cannot read"));
}
