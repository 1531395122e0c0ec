// A simulator of the store's tiers: the eviction rule of kv/eviction.h with made-up time and sizes, beside FIFO, LRU
// and upper bounds of what any rule can reach. tests/bench/tier_sim.cc prints tables of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kv/eviction.h"

namespace cento::test {

struct SimItem {  // stored KV: a block of a prompt, a turn of a chat, a chunk of a document
  uint64_t n_bytes = 0, n_tokens = 0;
  double cost_ms = 0;   // to compute it
  int32_t parent = -1;  // the item that it continues, and without which it is of no use; -1: stands alone
};

struct SimRequest {
  enum class Kind {
    kTurn,   // a prompt made of `needs`; afterwards `makes` is stored too
    kStore,  // `makes` is stored, from the side: precomputing a folder
    kOpen,   // as if a turn of `needs` were to come, but at arrival_ms the session is closed
  };
  Kind kind = Kind::kTurn;
  double known_ms = 0;               // from when on it can be foreseen: session or document opened; <= arrival_ms
  double arrival_ms = 0;             // joins the queue
  bool resumes = false;              // the first turn after a session or a document was opened
  std::vector<uint32_t> needs = {};  // items, those in front first
  std::vector<uint32_t> makes = {};
  double other_ms = 0;  // of the server, whatever is cached: the prompt's new tokens, decoding
};

struct SimTrace {
  std::string name;
  std::vector<SimItem> items;
  std::vector<SimRequest> requests;  // by arrival
  size_t n_uncounted = 0;            // leading requests that only fill the tiers
  uint64_t distinct_bytes() const;
};

// A laptop's processor with a model of 3 G parameters: what costs and service times of all traces are made of.
struct SimMachine {
  double prefill_tokens_s = 100, decode_tokens_s = 6;
  double attention_tokens = 16384;  // position at which attention takes as long as all the rest
  uint64_t bytes_per_token = 36864;
  double disk_bytes_s = 500e6;
  double compute_ms(uint64_t pos, uint64_t n_tokens) const;
};

// One JSON object a line with timestamp (ms), output_length and hash_ids, each a block of 512 tokens that continues the
// one before. Its clock is stretched so that computing everything would keep the server busy for `load` of the time.
// Throws std::runtime_error.
SimTrace read_block_trace(const std::string& path, const SimMachine& machine, double load);

// Chats: many turns, pauses of seconds to days, sessions opened before they go on (some only to be read), documents
// attached before the turn. `scale` 1: about 4,000 turns.
SimTrace chat_trace(uint64_t seed, const SimMachine& machine, double scale = 1);
// Questions over a collection: chunks by Zipf's law with slowly changing favourites, folders precomputed in between.
SimTrace documents_trace(uint64_t seed, const SimMachine& machine, double scale = 1);
// documents_trace of two models that share the store, unlike in bytes and milliseconds a token.
SimTrace two_models_trace(uint64_t seed, const SimMachine& machine, double scale = 1);

struct SimTally {
  double tokens = 0, tokens_again = 0, tokens_hit = 0;  // of turns: all; of items met before; in the tier
  double cost_again = 0, cost_hit = 0;                  // the same in ms
  double foreseen_again = 0, foreseen_hit = 0;          // tokens of turns that were known before their turn came
  double resumed_again = 0, resumed_hit = 0;            // tokens of turns that resume
  double wait_ms = 0, turns = 0;                        // arrival until all KV is there, summed
  double hit_rate() const { return tokens_again > 0 ? tokens_hit / tokens_again : 0; }  // of what could be reused
  double cost_rate() const { return cost_again > 0 ? cost_hit / cost_again : 0; }
  double mean_wait_s() const { return turns > 0 ? wait_ms / turns / 1000 : 0; }
  double foreseen_share() const { return tokens_again > 0 ? foreseen_again / tokens_again : 0; }
  double foreseen_rate() const { return foreseen_again > 0 ? foreseen_hit / foreseen_again : 0; }
  double resumed_rate() const { return resumed_again > 0 ? resumed_hit / resumed_again : 0; }
};

struct SimPolicy {
  enum class Kind { kFifo, kLru, kPriority, kDuel };  // kPriority: EvictionIndex; kDuel: that with EvictionDuel
  Kind kind = Kind::kDuel;
  EvictionRule rule = {};
};

// One tier, requests one after another. A request's items stay while it runs.
SimTally simulate_tier(const SimTrace& trace, uint64_t capacity, const SimPolicy& policy);

struct SimTiers {
  uint64_t ram_bytes = 0, disk_bytes = 0;
  double disk_bytes_s = 0;
  bool look_ahead = false;  // KV of known turns is read from disk in the order of their turns and does not go meanwhile
};
// RAM over disk, one server, first come first served. A hit was in RAM when its turn came.
SimTally simulate_tiers(const SimTrace& trace, const SimTiers& tiers, const SimPolicy& policy);

// Upper bounds of hit_rate and cost_rate of any rule without look-ahead. hit: items cut into bytes, evicted furthest
// next use first (Belady 1966), which is exact for bytes; where bytes a token differ, and for cost, the bytes and time
// that hits would occupy, best first, until capacity x time is used up (PFOO-L of Berger et al. 2018).
struct SimBound {
  double hit_rate = 0, cost_rate = 0;
};
SimBound best_possible(const SimTrace& trace, uint64_t capacity);

}  // namespace cento::test
