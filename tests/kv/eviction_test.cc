#include "kv/eviction.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "base/rng.h"

using namespace cento;

namespace {

Hash key_of(uint64_t n) {
  Hash key;
  std::memcpy(key.bytes.data(), &n, sizeof n);
  return key;
}

// What EvictionIndex promises, in O(n): a list of items that is searched.
class ListModel {
 public:
  struct Item {
    uint64_t id = 0;
    EvictionFacts facts;
    int64_t last_used_ms = 0;
    uint64_t sequence = 0, pins = 0;
    double priority = 0;
    std::optional<uint64_t> parent;
  };

  void insert(uint64_t id, EvictionFacts facts, int64_t now_ms, std::optional<uint64_t> parent) {
    Item* item = find(id);
    if (item == nullptr) {
      if (parent && (*parent == id || find(*parent) == nullptr)) parent.reset();
      items.push_back({id, facts, now_ms, 0, 0, 0, parent});
      item = &items.back();
    }
    const uint64_t hits = std::max(item->facts.hits, facts.hits);
    item->facts = facts;
    item->facts.hits = hits;
    refresh(*item, now_ms);
  }
  bool use(uint64_t id, int64_t now_ms) {
    Item* const item = find(id);
    if (item == nullptr) return false;
    ++item->facts.hits;
    refresh(*item, now_ms);
    return true;
  }
  bool erase(uint64_t id) {
    for (Item& other : items) {
      if (other.parent == id) other.parent.reset();
    }
    return std::erase_if(items, [&](const Item& item) { return item.id == id; }) > 0;
  }
  bool has_child(uint64_t id) const {
    return std::any_of(items.begin(), items.end(), [&](const Item& other) { return other.parent == id; });
  }
  bool held(const Item& item) const {
    return item.pins > 0 || std::any_of(items.begin(), items.end(),
                                        [&](const Item& other) { return other.parent == item.id && held(other); });
  }
  bool expired(const Item& item, int64_t now_ms) const { return now_ms - item.last_used_ms > ttl_ms; }
  std::optional<uint64_t> victim(int64_t now_ms) const {
    const Item* best = nullptr;
    const auto order = [&](const Item& item) {
      const bool old = expired(item, now_ms);
      return std::tuple(!old, old ? 0.0 : item.priority, item.last_used_ms, item.sequence);
    };
    for (const Item& item : items) {
      if (item.pins > 0 || has_child(item.id)) continue;
      if (best == nullptr || order(item) < order(*best)) best = &item;
    }
    return best == nullptr ? std::nullopt : std::optional<uint64_t>(best->id);
  }
  std::optional<std::vector<Hash>> evict(uint64_t n_bytes, int64_t now_ms) {
    if (bytes(false) - bytes(true) < n_bytes) return std::nullopt;
    std::vector<Hash> gone;
    for (uint64_t freed = 0; freed < n_bytes;) {
      const uint64_t id = *victim(now_ms);
      const Item item = *find(id);
      freed += item.facts.n_bytes;
      if (!expired(item, now_ms)) floor = std::max(floor, item.priority);
      erase(id);
      gone.push_back(key_of(id));
    }
    return gone;
  }
  uint64_t bytes(bool only_held) const {
    uint64_t sum = 0;
    for (const Item& item : items) sum += !only_held || held(item) ? item.facts.n_bytes : 0;
    return sum;
  }
  Item* find(uint64_t id) {
    const auto at = std::find_if(items.begin(), items.end(), [&](const Item& item) { return item.id == id; });
    return at == items.end() ? nullptr : &*at;
  }

  std::vector<Item> items;
  int64_t ttl_ms = std::numeric_limits<int64_t>::max();
  double floor = 0;

 private:
  void refresh(Item& item, int64_t now_ms) {
    item.last_used_ms = std::max(item.last_used_ms, now_ms);
    item.sequence = ++sequence_;
    item.priority = eviction_priority(floor, item.facts);
  }
  uint64_t sequence_ = 0;
};

constexpr EvictionFacts kPlain{1024, 1.0, 0};

std::vector<Hash> keys_of(std::initializer_list<uint64_t> ids) {
  std::vector<Hash> out;
  for (const uint64_t id : ids) out.push_back(key_of(id));
  return out;
}

}  // namespace

TEST_CASE("eviction: thousands of random steps agree with a list that is searched", "[kv]") {
  const uint64_t seed = GENERATE(1, 2, 3, 4, 5, 6);
  CAPTURE(seed);
  Rng rng(seed);
  EvictionIndex index;
  ListModel model;
  int64_t now_ms = 1'700'000'000'000;
  uint64_t n_evicted = 0, n_refused = 0, n_linked = 0;
  for (int step = 0; step < 3000; ++step) {
    CAPTURE(step);
    now_ms += static_cast<int64_t>(rng.below(4) == 0 ? rng.below(2000) : 0);  // many uses within one millisecond
    if (rng.below(50) == 0) now_ms -= 500;                                    // a clock that was set back
    const uint64_t id = rng.below(60);
    const Hash key = key_of(id);
    switch (rng.below(10)) {
      case 0:
      case 1:
      case 2: {
        const EvictionFacts facts{rng.below(5000), rng.uniform() * 100, rng.below(3)};
        const auto parent = rng.below(2) == 0 ? std::optional<uint64_t>(rng.below(60)) : std::nullopt;
        CHECK(index.insert(key, facts, now_ms, parent ? std::optional<Hash>(key_of(*parent)) : std::nullopt) ==
              (model.find(id) == nullptr));
        model.insert(id, facts, now_ms, parent);
        n_linked += model.find(id)->parent ? 1 : 0;
        break;
      }
      case 3:
      case 4:
        CHECK(index.use(key, now_ms) == model.use(id, now_ms));
        break;
      case 5:
        CHECK(index.pin(key) == (model.find(id) != nullptr));
        if (auto* item = model.find(id)) ++item->pins;
        break;
      case 6:
      case 7: {
        auto* const item = model.find(id);
        const bool pinned = item != nullptr && item->pins > 0;
        CHECK(index.unpin(key) == pinned);
        if (pinned) --item->pins;
        break;
      }
      case 8: {
        const uint64_t n_bytes = rng.below(20) == 0 ? 200'000 : rng.below(9000);
        const auto got = index.evict(n_bytes, now_ms);
        const auto wanted = model.evict(n_bytes, now_ms);
        REQUIRE(got == wanted);
        n_evicted += got ? got->size() : 0;
        n_refused += got ? 0 : 1;
        break;
      }
      default:
        if (rng.below(10) == 0) {
          CHECK(index.erase(key) == model.erase(id));
        } else if (rng.below(10) == 0) {
          model.ttl_ms =
              rng.below(2) == 0 ? std::numeric_limits<int64_t>::max() : static_cast<int64_t>(rng.below(9000));
          index.set_ttl_ms(model.ttl_ms);
        }
    }
    const auto victim = model.victim(now_ms);
    REQUIRE(index.victim(now_ms) == (victim ? std::optional<Hash>(key_of(*victim)) : std::nullopt));
    REQUIRE(index.size() == model.items.size());
    REQUIRE(index.bytes() == model.bytes(false));
    REQUIRE(index.bytes_held() == model.bytes(true));
    REQUIRE(index.floor() == model.floor);
  }
  CHECK(n_evicted > 100);  // the walk went where it should
  CHECK(n_refused > 5);
  CHECK(n_linked > 50);
}

TEST_CASE("eviction: of equal items the one used least recently goes first", "[kv]") {
  EvictionIndex index({.cost_power = 0, .hits_max = 0});
  for (const uint64_t id : {1, 2, 3, 4}) index.insert(key_of(id), kPlain, 100);
  index.use(key_of(2), 100);  // in the same millisecond: the order of calls decides
  index.use(key_of(1), 101);
  CHECK(index.evict(4 * 1024, 200) == keys_of({3, 4, 2, 1}));
}

TEST_CASE("eviction: what costs more a byte stays longer, but not for ever", "[kv]") {
  EvictionIndex index;
  index.insert(key_of(0), {1024, 10, 0}, 0);  // ten times the others
  uint64_t n_before = 0;
  for (uint64_t id = 1; index.contains(key_of(0)); ++id) {
    index.insert(key_of(id), kPlain, static_cast<int64_t>(id));
    if (index.size() > 4) n_before += index.evict(1, static_cast<int64_t>(id)).value() == keys_of({0}) ? 0 : 1;
    REQUIRE(id < 1000);
  }
  CHECK(n_before > 4);  // LRU would have taken it first
  CHECK(eviction_worth({1024, 10, 0}) > eviction_worth({1024, 1, 0}));
  CHECK(eviction_worth({1024, 10, 0}) > eviction_worth({4096, 10, 0}));
}

TEST_CASE("eviction: what was used stays longer than what was only stored", "[kv]") {
  EvictionIndex index;
  index.insert(key_of(1), kPlain, 0);
  index.use(key_of(1), 1);
  for (uint64_t id = 2; id < 6; ++id) index.insert(key_of(id), kPlain, static_cast<int64_t>(id));
  CHECK(index.evict(4 * 1024, 10) == keys_of({2, 3, 4, 5}));
  CHECK(index.contains(key_of(1)));
  const auto facts = index.facts(key_of(1));
  REQUIRE(facts.has_value());
  CHECK(facts->hits == 1);
  CHECK_FALSE(index.facts(key_of(2)).has_value());
}

TEST_CASE("eviction: hits count up to a limit, so that what was popular once goes too", "[kv]") {
  const EvictionRule rule;
  CHECK(eviction_worth({1024, 1, rule.hits_max}) == eviction_worth({1024, 1, rule.hits_max + 1000}));
  CHECK(eviction_worth({1024, 1, std::numeric_limits<uint64_t>::max()}) == 1.0 + static_cast<double>(rule.hits_max));
  EvictionIndex index;
  index.insert(key_of(0), {1024, 1, 1'000'000}, 0);
  for (uint64_t id = 1; index.contains(key_of(0)); ++id) {
    index.insert(key_of(id), kPlain, static_cast<int64_t>(id));
    if (index.size() > 4) index.evict(1, static_cast<int64_t>(id));
    REQUIRE(id < 100);
  }
}

TEST_CASE("eviction: a pinned item never goes, nor one in front of it", "[kv]") {
  EvictionIndex index;
  index.insert(key_of(1), kPlain, 0);
  index.insert(key_of(2), kPlain, 0, key_of(1));
  index.insert(key_of(3), kPlain, 0, key_of(2));
  CHECK(index.pin(key_of(2)));
  CHECK(index.pin(key_of(2)));
  CHECK(index.bytes_held() == 2 * 1024);
  CHECK(index.evict(2 * 1024, 1) == std::nullopt);  // all or nothing
  CHECK(index.size() == 3);
  CHECK(index.evict(1024, 1) == keys_of({3}));
  CHECK(index.unpin(key_of(2)));
  CHECK(index.victim(1) == std::nullopt);  // pinned twice
  CHECK(index.unpin(key_of(2)));
  CHECK_FALSE(index.unpin(key_of(2)));
  CHECK(index.bytes_held() == 0);
  CHECK(index.evict(1025, 1) == keys_of({2, 1}));
  CHECK_FALSE(index.pin(key_of(2)));
}

TEST_CASE("eviction: of a chain the tail goes first, however dear it is", "[kv]") {
  EvictionIndex index;
  index.insert(key_of(1), {1024, 1, 0}, 0);
  index.insert(key_of(2), {1024, 50, 0}, 0, key_of(1));
  index.insert(key_of(3), {1024, 99, 0}, 0, key_of(2));
  index.insert(key_of(4), {1024, 98, 0}, 0, key_of(2));
  CHECK(index.evict(4 * 1024, 1) == keys_of({4, 3, 2, 1}));
}

TEST_CASE("eviction: what follows an erased item stands alone", "[kv]") {
  EvictionIndex index;
  index.insert(key_of(1), kPlain, 0);
  index.insert(key_of(2), kPlain, 1, key_of(1));
  index.pin(key_of(1));
  CHECK(index.erase(key_of(1)));  // even a pinned one
  CHECK(index.bytes_held() == 0);
  CHECK(index.insert(key_of(1), kPlain, 2));
  CHECK(index.evict(1024, 3) == keys_of({2}));
  CHECK(index.evict(1024, 3) == keys_of({1}));
}

TEST_CASE("eviction: expired items go before all others, oldest first", "[kv]") {
  EvictionIndex index;
  index.set_ttl_ms(100);
  index.insert(key_of(1), {1024, 500, 9}, 0);
  index.insert(key_of(2), {1024, 900, 9}, 10);
  index.insert(key_of(3), {1024, 1, 0}, 60);
  CHECK(index.victim(100) == key_of(3));  // after exactly the time to live it still lives
  CHECK(index.victim(101) == key_of(1));
  CHECK(index.evict(2 * 1024, 120) == keys_of({1, 2}));
  CHECK(index.floor() == 0);  // age took them, not need
  CHECK(index.evict_expired(160).empty());
  CHECK(index.evict_expired(161) == keys_of({3}));
  CHECK(index.size() == 0);
  CHECK(index.bytes() == 0);
}

TEST_CASE("eviction: a pinned item does not expire, and times at the ends of their range do no harm", "[kv]") {
  EvictionIndex index;
  index.set_ttl_ms(-5);  // counts as 0
  index.insert(key_of(1), kPlain, std::numeric_limits<int64_t>::min());
  index.insert(key_of(2), kPlain, std::numeric_limits<int64_t>::max());
  index.pin(key_of(1));
  CHECK(index.evict_expired(std::numeric_limits<int64_t>::max()).empty());
  index.unpin(key_of(1));
  CHECK(index.evict_expired(std::numeric_limits<int64_t>::max()) == keys_of({1}));
}

TEST_CASE("eviction: a floor that was saved ranks items to come above those of before", "[kv]") {
  EvictionIndex index;
  index.insert(key_of(1), kPlain, 0);
  index.insert(key_of(2), {1024, 7, 0}, 0);
  REQUIRE(index.evict(1, 1) == keys_of({1}));
  CHECK(index.floor() == eviction_priority(0, kPlain));
  EvictionIndex later;
  later.set_floor(index.floor());
  later.insert(key_of(1), kPlain, 2);
  REQUIRE(later.evict(1, 3).has_value());
  CHECK(later.floor() == eviction_priority(index.floor(), kPlain));
}

TEST_CASE("eviction: no facts, however odd, make a priority that cannot be compared", "[kv]") {
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  for (const double cost_ms : {0.0, -1.0, nan, inf, -inf, 1e308, 1e-308}) {
    for (const uint64_t n_bytes : {uint64_t{0}, uint64_t{1}, std::numeric_limits<uint64_t>::max()}) {
      CAPTURE(cost_ms, n_bytes);
      const double worth = eviction_worth({n_bytes, cost_ms, 1});
      CHECK(std::isfinite(worth));
      CHECK(worth >= 0);
      CHECK(eviction_priority(nan, {n_bytes, cost_ms, 1}) == worth);
    }
  }
  // Sizes whose sum is beyond 64 bits: no endless loop, no crash.
  EvictionIndex index;
  for (const uint64_t id : {1, 2, 3}) index.insert(key_of(id), {std::numeric_limits<uint64_t>::max(), 1, 0}, 0);
  const auto gone = index.evict(5, 1);
  CHECK((!gone || gone->size() <= 3));
}

TEST_CASE("eviction: a tier that goes by age is LRU, and returns to its priorities", "[kv]") {
  EvictionIndex index;
  index.insert(key_of(1), {1024, 99, 5}, 0);
  index.insert(key_of(2), {1024, 1, 0}, 1);
  index.insert(key_of(3), {1024, 2, 0}, 2);
  CHECK(index.victim(3) == key_of(2));
  index.set_by_age(true);
  CHECK(index.victim(3) == key_of(1));
  index.set_by_age(false);
  CHECK(index.victim(3) == key_of(2));
}

namespace {

// Accesses to 1,000 items of which a tenth fit. Few are wanted often, and all others once each, in rounds: only what
// was used before deserves a place. Or each of the latest 90 is as likely as the other and none before: only age tells.
void feed(EvictionDuel& duel, bool frequency_pays, int n, Rng& rng, const EvictionFacts& facts = kPlain) {
  for (int i = 0; i < n; ++i) {
    if (frequency_pays) {
      const uint64_t id = i % 4 == 0 ? rng.below(40) : 100 + static_cast<uint64_t>(i) % 900;
      duel.access(key_of(id), facts, i);
    } else {
      const uint64_t newest = 10'000 + static_cast<uint64_t>(i) / 4;
      duel.access(key_of(newest - rng.below(90)), facts, i);
    }
  }
}

}  // namespace

TEST_CASE("eviction: a duel goes by priority where hits foretell use, and by age where they do not", "[kv]") {
  Rng rng(5);
  EvictionDuel duel(100 * 1024);
  CHECK(duel.by_age());  // at the beginning
  feed(duel, true, 200'000, rng);
  CHECK_FALSE(duel.by_age());
  feed(duel, false, 60'000, rng);
  CHECK(duel.by_age());
  feed(duel, true, 60'000, rng);
  CHECK_FALSE(duel.by_age());
}

TEST_CASE("eviction: a duel bears items that are too large and costs that are no numbers", "[kv]") {
  EvictionDuel duel(10);
  for (int i = 0; i < 10; ++i) {
    duel.access(key_of(1), {1024, 5, 0}, i);
    duel.access(key_of(2), {5, std::nan(""), 0}, i);
    duel.access(key_of(3), {10, std::numeric_limits<double>::infinity(), 0}, i);
  }
  CHECK(duel.by_age());
  Rng rng(6);
  EvictionDuel later(100 * 1024);
  for (const double cost_ms : {std::nan(""), std::numeric_limits<double>::infinity(), -1.0}) {
    feed(later, true, 5'000, rng, {1024, cost_ms, 0});
    CHECK(later.by_age());
  }
  feed(later, true, 20'000, rng);
  CHECK_FALSE(later.by_age());
  EvictionDuel none(0);
  none.access(key_of(1), kPlain, 0);
  CHECK(none.by_age());
}
