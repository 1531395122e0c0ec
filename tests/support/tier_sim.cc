#include "support/tier_sim.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <unordered_set>

namespace cento::test {

namespace {

using Kind = SimRequest::Kind;

Hash key_of(uint32_t id) {
  Hash key;
  const uint64_t mixed = id * 0x9e3779b97f4a7c15ull;
  std::memcpy(key.bytes.data(), &mixed, sizeof mixed);
  std::memcpy(key.bytes.data() + 8, &id, sizeof id);
  return key;
}

uint32_t id_of(const Hash& key) {
  uint32_t id = 0;
  std::memcpy(&id, key.bytes.data() + 8, sizeof id);
  return id;
}

// What a tier does whatever its rule. Pins count.
class Tier {
 public:
  Tier(const SimTrace& trace, uint64_t capacity) : trace_(&trace), capacity_(capacity), here_(trace.items.size()) {}
  virtual ~Tier() = default;
  bool has(uint32_t id) const { return here_[id]; }
  // Makes room and stores; false: too much of the tier is pinned.
  bool add(uint32_t id, uint64_t hits, double now_ms) {
    if (has(id)) return true;
    const uint64_t n_bytes = trace_->items[id].n_bytes;
    if (n_bytes > capacity_) return false;
    // The item in front must not make room for the one that continues it.
    const int32_t parent = trace_->items[id].parent;
    const bool hold = parent >= 0 && has(static_cast<uint32_t>(parent));
    if (hold) pin(static_cast<uint32_t>(parent));
    const bool room = bytes_ + n_bytes <= capacity_ || free(bytes_ + n_bytes - capacity_, now_ms);
    if (hold) unpin(static_cast<uint32_t>(parent));
    if (!room) return false;
    here_[id] = true;
    bytes_ += n_bytes;
    enter(id, hits, now_ms);
    return true;
  }
  virtual void use(uint32_t id, double now_ms) = 0;
  virtual void pin(uint32_t id) = 0;
  virtual void unpin(uint32_t id) = 0;
  virtual uint64_t hits(uint32_t) const { return 0; }
  virtual void accessed(uint32_t, double) {}  // wanted or stored, whether it is here or not

 protected:
  virtual bool free(uint64_t n_bytes, double now_ms) = 0;
  virtual void enter(uint32_t id, uint64_t hits, double now_ms) = 0;
  void gone(uint32_t id) {
    here_[id] = false;
    bytes_ -= trace_->items[id].n_bytes;
  }
  const SimTrace* trace_;

 private:
  uint64_t capacity_, bytes_ = 0;
  std::vector<bool> here_;
};

class OurTier final : public Tier {
 public:
  OurTier(const SimTrace& trace, uint64_t capacity, const SimPolicy& policy)
      : Tier(trace, capacity), index_(policy.rule) {
    if (policy.kind == SimPolicy::Kind::kDuel) duel_.emplace(capacity, policy.rule);
  }
  void accessed(uint32_t id, double now_ms) override {
    if (!duel_) return;
    const SimItem& item = trace_->items[id];
    const auto parent =
        item.parent < 0 ? std::nullopt : std::optional<Hash>(key_of(static_cast<uint32_t>(item.parent)));
    duel_->access(key_of(id), {item.n_bytes, item.cost_ms, 0}, static_cast<int64_t>(now_ms), parent);
    index_.set_by_age(duel_->by_age());
  }
  void use(uint32_t id, double now_ms) override { index_.use(key_of(id), static_cast<int64_t>(now_ms)); }
  void pin(uint32_t id) override { index_.pin(key_of(id)); }
  void unpin(uint32_t id) override { index_.unpin(key_of(id)); }
  uint64_t hits(uint32_t id) const override {
    const auto facts = index_.facts(key_of(id));
    return facts ? facts->hits : 0;
  }

 private:
  bool free(uint64_t n_bytes, double now_ms) override {
    const auto victims = index_.evict(n_bytes, static_cast<int64_t>(now_ms));
    if (!victims) return false;
    for (const Hash& key : *victims) gone(id_of(key));
    return true;
  }
  void enter(uint32_t id, uint64_t hits, double now_ms) override {
    const SimItem& item = trace_->items[id];
    const auto parent =
        item.parent < 0 ? std::nullopt : std::optional<Hash>(key_of(static_cast<uint32_t>(item.parent)));
    index_.insert(key_of(id), {item.n_bytes, item.cost_ms, hits}, static_cast<int64_t>(now_ms), parent);
  }
  EvictionIndex index_;
  std::optional<EvictionDuel> duel_;
};

// LRU or FIFO, written apart from the code under test.
class QueueTier final : public Tier {
 public:
  QueueTier(const SimTrace& trace, uint64_t capacity, bool by_use)
      : Tier(trace, capacity), by_use_(by_use), stamps_(trace.items.size()), pins_(trace.items.size()) {}
  void use(uint32_t id, double) override {
    if (by_use_ && has(id)) stamp(id);
  }
  void pin(uint32_t id) override {
    if (!has(id)) return;
    if (++pins_[id] == 1) {
      queue_.erase({stamps_[id], id});
      free_bytes_ -= trace_->items[id].n_bytes;
    }
  }
  void unpin(uint32_t id) override {
    if (!has(id) || pins_[id] == 0) return;
    if (--pins_[id] == 0) {
      queue_.insert({stamps_[id], id});
      free_bytes_ += trace_->items[id].n_bytes;
    }
  }

 private:
  bool free(uint64_t n_bytes, double) override {
    if (free_bytes_ < n_bytes) return false;
    for (uint64_t freed = 0; freed < n_bytes;) {
      const uint32_t id = queue_.begin()->second;
      freed += trace_->items[id].n_bytes;
      free_bytes_ -= trace_->items[id].n_bytes;
      queue_.erase(queue_.begin());
      gone(id);
    }
    return true;
  }
  void enter(uint32_t id, uint64_t, double) override {
    pins_[id] = 0;
    free_bytes_ += trace_->items[id].n_bytes;
    stamp(id);
  }
  void stamp(uint32_t id) {
    queue_.erase({stamps_[id], id});
    stamps_[id] = ++now_;
    if (pins_[id] == 0) queue_.insert({stamps_[id], id});
  }
  bool by_use_;
  uint64_t now_ = 0, free_bytes_ = 0;
  std::vector<uint64_t> stamps_;
  std::vector<uint32_t> pins_;
  std::set<std::pair<uint64_t, uint32_t>> queue_;
};

std::unique_ptr<Tier> make_tier(const SimTrace& trace, uint64_t capacity, const SimPolicy& policy) {
  using Policy = SimPolicy::Kind;
  if (policy.kind == Policy::kFifo || policy.kind == Policy::kLru) {
    return std::make_unique<QueueTier>(trace, capacity, policy.kind == Policy::kLru);
  }
  return std::make_unique<OurTier>(trace, capacity, policy);
}

// Tails first, so that those in front count as used last.
void use_all(Tier& tier, const std::vector<uint32_t>& needs, double now_ms) {
  for (size_t i = needs.size(); i-- > 0;) {
    tier.accessed(needs[i], now_ms);
    if (tier.has(needs[i])) tier.use(needs[i], now_ms);
  }
}

// Whether each of `needs` is there with all that it continues.
std::vector<bool> usable(const SimTrace& trace, const Tier& tier, const std::vector<uint32_t>& needs) {
  std::vector<bool> out(needs.size());
  std::unordered_set<uint32_t> broken;
  for (size_t i = 0; i < needs.size(); ++i) {
    const int32_t parent = trace.items[needs[i]].parent;
    out[i] = tier.has(needs[i]) && (parent < 0 || !broken.contains(static_cast<uint32_t>(parent)));
    if (!out[i]) broken.insert(needs[i]);
  }
  return out;
}

// Adds a turn to the tally; `seen` are the items met before.
class Counter {
 public:
  explicit Counter(const SimTrace& trace) : trace_(&trace), seen_(trace.items.size()) {}
  void turn(size_t at, const std::vector<bool>& hit, bool foreseen, double wait_ms) {
    const SimRequest& request = trace_->requests[at];
    if (at >= trace_->n_uncounted) {
      for (size_t i = 0; i < hit.size(); ++i) count(request.needs[i], hit[i], foreseen, request.resumes);
      tally_.wait_ms += wait_ms;
      ++tally_.turns;
    }
    note(request);
  }
  void note(const SimRequest& request) {  // its items exist from now on
    if (request.kind == Kind::kOpen) return;
    for (const uint32_t id : request.needs) seen_[id] = true;
    for (const uint32_t id : request.makes) seen_[id] = true;
  }
  const SimTally& tally() const { return tally_; }

 private:
  void count(uint32_t id, bool hit, bool foreseen, bool resumes) {
    const SimItem& item = trace_->items[id];
    const double n = static_cast<double>(item.n_tokens);
    tally_.tokens += n;
    if (!seen_[id]) return;
    tally_.tokens_again += n;
    tally_.cost_again += item.cost_ms;
    tally_.tokens_hit += hit ? n : 0;
    tally_.cost_hit += hit ? item.cost_ms : 0;
    if (foreseen) tally_.foreseen_again += n, tally_.foreseen_hit += hit ? n : 0;
    if (resumes) tally_.resumed_again += n, tally_.resumed_hit += hit ? n : 0;
  }
  const SimTrace* trace_;
  std::vector<bool> seen_;
  SimTally tally_;
};

}  // namespace

SimTally simulate_tier(const SimTrace& trace, uint64_t capacity, const SimPolicy& policy) {
  const auto tier = make_tier(trace, capacity, policy);
  Counter counter(trace);
  for (size_t at = 0; at < trace.requests.size(); ++at) {
    const SimRequest& request = trace.requests[at];
    const double now_ms = request.arrival_ms;
    if (request.kind == Kind::kOpen) continue;
    if (request.kind == Kind::kTurn) {
      const std::vector<bool> hit = usable(trace, *tier, request.needs);
      counter.turn(at, hit, false, 0);
      std::vector<uint32_t> pinned;
      for (const uint32_t id : request.needs) {
        if (tier->has(id)) pinned.push_back(id), tier->pin(id);
      }
      use_all(*tier, request.needs, now_ms);
      for (const uint32_t id : request.needs) {
        if (!tier->has(id) && tier->add(id, 0, now_ms)) pinned.push_back(id), tier->pin(id);
      }
      for (const uint32_t id : pinned) tier->unpin(id);
    } else {
      counter.note(request);
    }
    for (const uint32_t id : request.makes) tier->add(id, 0, now_ms);
    for (const uint32_t id : request.makes) tier->accessed(id, now_ms);
  }
  return counter.tally();
}

namespace {

// The two tiers, the server and the disk's reader.
class Machine {
 public:
  Machine(const SimTrace& trace, const SimTiers& tiers, const SimPolicy& policy)
      : trace_(&trace),
        tiers_(tiers),
        ram_(make_tier(trace, tiers.ram_bytes, policy)),
        disk_(make_tier(trace, tiers.disk_bytes, policy)),
        counter_(trace),
        pins_(trace.requests.size()),
        over_(trace.requests.size()),
        withdrawn_(trace.requests.size()) {
    for (size_t i = 0; i < trace.requests.size(); ++i) by_known_.push_back(i);
    std::stable_sort(by_known_.begin(), by_known_.end(),
                     [&](size_t a, size_t b) { return trace.requests[a].known_ms < trace.requests[b].known_ms; });
  }

  SimTally run() {
    double server_free_ms = 0;
    for (size_t at = 0; at < trace_->requests.size(); ++at) {
      const SimRequest& request = trace_->requests[at];
      if (request.kind == Kind::kTurn) {
        const double start_ms = std::max(server_free_ms, request.arrival_ms);
        read_ahead(start_ms);
        server_free_ms = turn(at, start_ms);
      } else {
        read_ahead(request.arrival_ms);
        finish(at);
        if (request.kind == Kind::kOpen) continue;
        counter_.note(request);
        store(request.makes, request.arrival_ms, false);
      }
    }
    return counter_.tally();
  }

 private:
  double turn(size_t at, double start_ms) {
    const SimRequest& request = trace_->requests[at];
    const std::vector<bool> hit = usable(*trace_, *ram_, request.needs);
    std::vector<uint32_t> pinned;
    const auto pin = [&](uint32_t id) { pinned.push_back(id), ram_->pin(id); };
    for (const uint32_t id : request.needs) {
      if (ram_->has(id)) pin(id);
    }
    use_all(*ram_, request.needs, start_ms);
    double read_ms = 0, compute_ms = 0;
    for (const uint32_t id : request.needs) {
      if (ram_->has(id)) continue;
      const SimItem& item = trace_->items[id];
      if (disk_->has(id)) {
        read_ms += read_ms_of(id);
      } else {
        compute_ms += item.cost_ms;
      }
      const uint64_t hits = disk_->hits(id);
      if (add_to_ram(id, hits + (disk_->has(id) ? 1 : 0), start_ms, 0)) pin(id);
    }
    use_all(*disk_, request.needs, start_ms);
    reader_ms_ = std::max(reader_ms_, start_ms + read_ms);
    for (const uint32_t id : request.needs) disk_->add(id, 0, start_ms);
    for (const uint32_t id : pinned) ram_->unpin(id);
    finish(at);
    store(request.makes, start_ms, true);
    const bool foreseen = start_ms > request.known_ms;
    const double ready_ms = start_ms + read_ms + compute_ms;
    counter_.turn(at, hit, foreseen, ready_ms - request.arrival_ms);
    return ready_ms + request.other_ms;
  }

  void store(const std::vector<uint32_t>& made, double now_ms, bool in_ram) {
    for (const uint32_t id : made) {
      disk_->add(id, 0, now_ms);
      disk_->accessed(id, now_ms);
      if (in_ram) ram_->accessed(id, now_ms);
      if (in_ram) add_to_ram(id, 0, now_ms, waiting_.size());
    }
  }

  // The turn is over or will not come: nothing stays on its account.
  void finish(size_t at) {
    over_[at] = true;
    withdraw(at);
    waiting_.erase(std::remove(waiting_.begin(), waiting_.end(), at), waiting_.end());
    for (const size_t other : waiting_) withdrawn_[other] = false;
  }
  void withdraw(size_t at) {
    for (const uint32_t id : pins_[at]) ram_->unpin(id);
    pins_[at].clear();
    withdrawn_[at] = true;
  }

  // If there is no room, turns in line from place `from` on give up their exemption, last first.
  bool add_to_ram(uint32_t id, uint64_t hits, double now_ms, size_t from) {
    size_t place = waiting_.size();
    while (!ram_->add(id, hits, now_ms)) {
      while (place > from && pins_[waiting_[place - 1]].empty()) --place;
      if (place <= from) return false;
      withdraw(waiting_[--place]);
    }
    return true;
  }

  double read_ms_of(uint32_t id) const {
    return 1000 * static_cast<double>(trace_->items[id].n_bytes) / tiers_.disk_bytes_s;
  }

  // What the disk's reader does until `until_ms`.
  void read_ahead(double until_ms) {
    if (!tiers_.look_ahead) return;
    while (reader_ms_ < until_ms) {
      if (in_flight_ != kNone) {
        if (in_flight_done_ms_ > until_ms) return;
        reader_ms_ = std::max(reader_ms_, in_flight_done_ms_);
        arrive();
        continue;
      }
      learn(reader_ms_);
      if (next_read()) continue;
      const double next_known_ms =
          n_known_ < by_known_.size() ? trace_->requests[by_known_[n_known_]].known_ms : until_ms;
      reader_ms_ = std::min(until_ms, std::max(next_known_ms, reader_ms_));
    }
    learn(until_ms);
    line_up(until_ms);
    for (const size_t at : waiting_) exempt(at);
  }

  void learn(double now_ms) {
    bool changed = false;
    while (n_known_ < by_known_.size() && trace_->requests[by_known_[n_known_]].known_ms <= now_ms) {
      const size_t at = by_known_[n_known_++];
      if (over_[at] || trace_->requests[at].kind == Kind::kStore) continue;
      waiting_.push_back(at);
      changed = true;
    }
    if (changed) {
      line_up(now_ms);
      for (const size_t at : waiting_) exempt(at);
    }
  }

  // Turns in the queue in their order, then sessions that are open, latest opened first.
  void line_up(double now_ms) {
    const auto rank = [&](size_t at) {
      const SimRequest& r = trace_->requests[at];
      const bool queued = r.kind == Kind::kTurn && r.arrival_ms <= now_ms;
      return std::pair(!queued, queued ? r.arrival_ms : -r.known_ms);
    };
    std::stable_sort(waiting_.begin(), waiting_.end(), [&](size_t a, size_t b) { return rank(a) < rank(b); });
  }

  void exempt(size_t at) {
    if (withdrawn_[at]) return;
    for (const uint32_t id : trace_->requests[at].needs) {
      if (ram_->has(id) && pins_[at].insert(id).second) ram_->pin(id);
    }
  }

  bool next_read() {
    for (const size_t at : waiting_) {
      if (withdrawn_[at]) continue;
      for (const uint32_t id : trace_->requests[at].needs) {
        if (ram_->has(id) || !disk_->has(id)) continue;
        in_flight_ = id;
        in_flight_for_ = at;
        in_flight_done_ms_ = reader_ms_ + read_ms_of(id);
        return true;
      }
    }
    return false;
  }
  void arrive() {
    const uint32_t id = in_flight_;
    const size_t at = in_flight_for_;
    in_flight_ = kNone;
    if (over_[at] || withdrawn_[at]) return;
    line_up(reader_ms_);
    const auto place = static_cast<size_t>(std::find(waiting_.begin(), waiting_.end(), at) - waiting_.begin());
    if (!ram_->has(id) && !add_to_ram(id, disk_->hits(id), reader_ms_, place + 1)) {
      withdrawn_[at] = true;  // keeps what it has, gets no more until a turn is over
      return;
    }
    if (pins_[at].insert(id).second) ram_->pin(id);
  }

  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  const SimTrace* trace_;
  SimTiers tiers_;
  std::unique_ptr<Tier> ram_, disk_;
  Counter counter_;
  std::vector<size_t> by_known_;  // requests in the order in which they become known
  size_t n_known_ = 0;
  std::vector<size_t> waiting_;           // known and not over, in line
  std::vector<std::set<uint32_t>> pins_;  // by request
  std::vector<bool> over_, withdrawn_;    // by request
  double reader_ms_ = 0, in_flight_done_ms_ = 0;
  uint32_t in_flight_ = kNone;
  size_t in_flight_for_ = 0;
};

}  // namespace

SimTally simulate_tiers(const SimTrace& trace, const SimTiers& tiers, const SimPolicy& policy) {
  return Machine(trace, tiers, policy).run();
}

namespace {

// The uses of items, by turn: what upper bounds are made of.
struct Interval {  // an item is there, because of request `from`, when request `to` needs it
  uint32_t id;
  size_t from, to;
};

std::vector<Interval> intervals_of(const SimTrace& trace) {
  std::vector<Interval> out;
  std::vector<size_t> last(trace.items.size(), std::numeric_limits<size_t>::max());
  for (size_t at = 0; at < trace.requests.size(); ++at) {
    const SimRequest& request = trace.requests[at];
    if (request.kind == Kind::kOpen) continue;
    for (const uint32_t id : request.needs) {
      if (last[id] < at) out.push_back({id, last[id], at});
      last[id] = at;
    }
    for (const uint32_t id : request.makes) last[id] = at;
  }
  return out;
}

// Bytes of hits in counted turns, of a tier that keeps bytes and evicts those needed furthest in the future.
double belady_bytes(const SimTrace& trace, const std::vector<Interval>& intervals, uint64_t capacity) {
  std::vector<std::vector<const Interval*>> starting(trace.requests.size());
  for (const Interval& interval : intervals) starting[interval.from].push_back(&interval);
  std::map<std::pair<size_t, uint32_t>, uint64_t> kept;  // (needed at, item) -> bytes
  uint64_t sum = 0;
  double hit = 0;
  for (size_t at = 0; at < trace.requests.size(); ++at) {
    while (!kept.empty() && kept.begin()->first.first == at) {
      if (at >= trace.n_uncounted) hit += static_cast<double>(kept.begin()->second);
      sum -= kept.begin()->second;
      kept.erase(kept.begin());
    }
    for (const Interval* interval : starting[at]) {
      const uint64_t n_bytes = trace.items[interval->id].n_bytes;
      kept[{interval->to, interval->id}] = n_bytes;
      sum += n_bytes;
    }
    while (sum > capacity) {
      const auto furthest = std::prev(kept.end());
      const uint64_t cut = std::min(sum - capacity, furthest->second);
      furthest->second -= cut;
      sum -= cut;
      if (furthest->second == 0) kept.erase(furthest);
    }
  }
  return hit;
}

// Share of value that can be had from `capacity` bytes over all requests.
template <class Value>
double occupancy_bound(const SimTrace& trace, const std::vector<Interval>& intervals, uint64_t capacity, Value value) {
  struct Offer {
    double value, occupies;
  };
  std::vector<Offer> offers;
  double total = 0, budget = 0;
  for (const Interval& interval : intervals) {
    if (interval.to < trace.n_uncounted) continue;
    const SimItem& item = trace.items[interval.id];
    const size_t from = std::max(interval.from, trace.n_uncounted);
    offers.push_back({value(item), static_cast<double>(item.n_bytes) * static_cast<double>(interval.to - from)});
    total += offers.back().value;
  }
  budget = static_cast<double>(capacity) * static_cast<double>(trace.requests.size() - trace.n_uncounted);
  std::sort(offers.begin(), offers.end(),
            [](const Offer& a, const Offer& b) { return a.value * b.occupies > b.value * a.occupies; });
  double got = 0;
  for (const Offer& offer : offers) {
    const double share = offer.occupies > 0 ? std::min(1.0, budget / offer.occupies) : 1;
    got += share * offer.value;
    budget -= share * offer.occupies;
    if (budget <= 0) break;
  }
  return total > 0 ? got / total : 0;
}

}  // namespace

SimBound best_possible(const SimTrace& trace, uint64_t capacity) {
  const std::vector<Interval> intervals = intervals_of(trace);
  double bytes = 0;
  bool uniform = true;
  const SimItem& first = trace.items.front();
  for (const SimItem& item : trace.items) uniform &= item.n_bytes * first.n_tokens == first.n_bytes * item.n_tokens;
  for (const Interval& interval : intervals) {
    if (interval.to >= trace.n_uncounted) bytes += static_cast<double>(trace.items[interval.id].n_bytes);
  }
  SimBound bound;
  bound.hit_rate = occupancy_bound(trace, intervals, capacity,
                                   [](const SimItem& item) { return static_cast<double>(item.n_tokens); });
  bound.cost_rate = occupancy_bound(trace, intervals, capacity, [](const SimItem& item) { return item.cost_ms; });
  if (uniform && bytes > 0) bound.hit_rate = belady_bytes(trace, intervals, capacity) / bytes;
  return bound;
}

}  // namespace cento::test
