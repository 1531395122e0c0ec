// Which stored KV goes first when a tier is full: the same rule for memory, disk and the simulator (tests/bench/
// tier_sim.cc; docs/STORE.md has what it measured). Pure: no clock, no files, no random choice.
//
// An item's priority is fixed when it is stored or used; whatever has the lowest goes first:
//
//     priority = floor + worth(item)
//
// `floor` is one number a tier: the highest priority that was ever evicted by need. It rises as the tier turns over, so
// an item that is not used any more sinks relative to newer ones and goes at last, however much it is worth: this is
// GreedyDual (Young 1994; with size and frequency: Cherkasova 1998). With equal worths it is exactly LRU.
//
// No fixed rule beats LRU on every load: where sessions come back soon or not at all, LRU is near the best possible,
// and preferring what was used often costs up to two points of the hit rate. EvictionDuel finds out which of the two a
// tier should follow.
//
// Memory: EvictionIndex below. SQL: a REAL column `priority`, written when a row is put or used, and `floor` among the
// tier's settings. To make room, take unpinned rows that no other row continues, in the order
//     (last_used_ms < now_ms - ttl_ms) DESC, priority, last_used_ms, key
// (without `priority` while the tier goes by age) and raise `floor` to the priority of each that went before its time
// to live was over. A row of a store that had no such column gets eviction_priority(0, facts); `last_used_ms` keeps
// their order among equals.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "base/hash.h"

namespace cento {

// What the worth of an item depends on: columns of its row.
struct EvictionFacts {
  uint64_t n_bytes = 0;  // what it takes in this tier
  double cost_ms = 0;    // what computing it anew would take, on any one scale for the whole tier
  uint64_t hits = 0;     // uses after it was stored first, by anyone, ever; storing it is none
};

// The constants of the rule; the defaults are the measured choice. {0, 0} is LRU.
struct EvictionRule {
  double cost_power = 0.7;  // worth follows (cost / bytes) to this power; 0: all bytes are equal
  uint64_t hits_max = 7;    // worth is 1 + hits times that of an item without hits; hits beyond are not counted
};

// (ms per KiB)^cost_power x (1 + hits); > 0 and finite whatever the facts (no bytes count as one, a cost that is
// negative or no number as 0).
double eviction_worth(const EvictionFacts& facts, const EvictionRule& rule = {});

// floor + worth. Computed when the item is stored and again, with the floor and the hits of then, at each use.
double eviction_priority(double floor, const EvictionFacts& facts, const EvictionRule& rule = {});

// The items of one tier in memory and who goes next. Knows no capacity: the tier asks for room before it stores.
// A victim is never pinned, and never one that another item continues (`parent`): of a chain the tail goes first,
// because a block is of no use without those in front of it. All operations are O(log n), pin and unpin at worst the
// length of the chain. Times are Unix milliseconds; one that lies before an item's last use counts as that. Not
// synchronised. Same calls, same victims.
class EvictionIndex {
 public:
  explicit EvictionIndex(const EvictionRule& rule = {}) : rule_(rule) {}
  EvictionIndex(const EvictionIndex&) = delete;
  EvictionIndex& operator=(const EvictionIndex&) = delete;

  // Adds an item used now; true if it was new. If it is there already, its facts are replaced and it counts as used,
  // but hits stay the larger of the two, and pins and parent what they were.
  // `parent`: the item that this one continues. One that is not here counts as none, and will not be linked later.
  bool insert(const Hash& key, const EvictionFacts& facts, int64_t now_ms,
              const std::optional<Hash>& parent = std::nullopt);
  bool use(const Hash& key, int64_t now_ms);  // one more hit; false: not here
  // Removes it whether pinned or not; items that continued it have no parent any more. False: not here.
  bool erase(const Hash& key);

  // Pins count: an item may be a victim again when each pin is undone. An item whose continuation is pinned is not a
  // victim either. False: not here, or unpin of one that has no pin.
  bool pin(const Hash& key);
  bool unpin(const Hash& key);

  // By age alone (LRU) instead of by priority, from now on; what EvictionDuel says. Priorities are kept all the while.
  void set_by_age(bool by_age) { by_age_only_ = by_age; }

  // Items whose last use is longer ago than this are expired: they go before all others, oldest first, and `expired`
  // lists them. Default: never. Negative counts as 0.
  void set_ttl_ms(int64_t ttl_ms) { ttl_ms_ = ttl_ms < 0 ? 0 : ttl_ms; }

  // The next victim, nullopt if there is none. Nothing changes.
  std::optional<Hash> victim(int64_t now_ms) const;
  // Removes victims until they free at least `n_bytes`; returns them in order (none for 0). If all that may go is less
  // than that, nothing changes and the answer is nullopt.
  std::optional<std::vector<Hash>> evict(uint64_t n_bytes, int64_t now_ms);
  // Removes and returns what has expired and may go, oldest first.
  std::vector<Hash> evict_expired(int64_t now_ms);

  bool contains(const Hash& key) const { return items_.contains(key); }
  std::optional<EvictionFacts> facts(const Hash& key) const;
  size_t size() const { return items_.size(); }
  uint64_t bytes() const { return bytes_; }            // of all items
  uint64_t bytes_held() const { return bytes_held_; }  // of pinned items and those in front of them

  double floor() const { return floor_; }
  void set_floor(double floor) { floor_ = floor; }  // for items to come: of a tier that was saved; NaN counts as 0

 private:
  struct Item {
    EvictionFacts facts;
    int64_t last_used_ms = 0;
    uint64_t sequence = 0;  // of the last use: the order of uses within a millisecond
    double priority = 0;
    uint64_t pins = 0;
    size_t n_children = 0, n_held_children = 0;
    Item* parent = nullptr;
    const Hash* key = nullptr;  // of the map's node
    bool held() const { return pins > 0 || n_held_children > 0; }
    bool may_go() const { return pins == 0 && n_children == 0; }
  };
  struct KeyHash {
    size_t operator()(const Hash& key) const;
  };
  struct Goes {  // priority, then age, then order of use
    bool operator()(const Item* a, const Item* b) const {
      return std::tie(a->priority, a->last_used_ms, a->sequence) < std::tie(b->priority, b->last_used_ms, b->sequence);
    }
  };
  struct Older {
    bool operator()(const Item* a, const Item* b) const {
      return std::tie(a->last_used_ms, a->sequence) < std::tie(b->last_used_ms, b->sequence);
    }
  };

  Item* find(const Hash& key);
  const Item* next(int64_t now_ms) const;
  bool expired(const Item& item, int64_t now_ms) const;
  void refresh(Item& item, int64_t now_ms);
  void remove(Item& item);
  void enlist(Item& item);
  void delist(Item& item);
  void change_hold(Item& item, int change);

  EvictionRule rule_;
  bool by_age_only_ = false;
  double floor_ = 0;
  int64_t ttl_ms_ = std::numeric_limits<int64_t>::max();
  uint64_t sequence_ = 0, bytes_ = 0, bytes_held_ = 0;
  std::unordered_map<Hash, Item, KeyHash> items_;  // nodes do not move: the sets and parents point to them
  std::set<Item*, Goes> by_priority_;              // only those that may go
  std::set<Item*, Older> by_age_;                  // the same items
};

// Whether a tier should go by priority or by age: both rules run on the keys of all accesses, as if each had the tier
// for itself. Priority leads once it has saved more recomputation than chance explains (three standard deviations); age
// leads again once the balance is on its side (one). Holds keys and facts, no KV: some 500 bytes an item. A tier that
// has just begun goes by age; a process too short to tell keeps to what the last long one left among the settings. Not
// synchronised.
class EvictionDuel {
 public:
  explicit EvictionDuel(uint64_t capacity_bytes, const EvictionRule& rule = {});
  // An item was wanted (whether it was in the tier or not) or newly stored. Of one request those at the tail first, as
  // for EvictionIndex::use, so that those in front count as used last. `facts.hits` counts when the item is new here.
  void access(const Hash& key, const EvictionFacts& facts, int64_t now_ms,
              const std::optional<Hash>& parent = std::nullopt);
  bool by_age() const { return by_age_; }  // for EvictionIndex::set_by_age

 private:
  bool touch(EvictionIndex& index, const Hash& key, const EvictionFacts& facts, int64_t now_ms,
             const std::optional<Hash>& parent);

  uint64_t capacity_bytes_;
  EvictionIndex by_priority_, by_recency_;
  double lead_ms_ = 0;  // saved by priority and not by age, less the reverse; old accesses fade
  double squares_ = 0;  // ms^2, of the accesses in which the two differed: chance alone makes a lead of its root
  bool by_age_ = true;
};

}  // namespace cento
