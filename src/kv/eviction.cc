#include "kv/eviction.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace cento {

double eviction_worth(const EvictionFacts& facts, const EvictionRule& rule) {
  // Bounded on both sides, so that a floor raised by any item stays a number that others can be compared with.
  constexpr double kLeast = 1e-9, kMost = 1e9;
  const double cost_ms = std::isfinite(facts.cost_ms) ? std::max(facts.cost_ms, 0.0) : 0.0;
  const double kib = static_cast<double>(std::max<uint64_t>(facts.n_bytes, 1)) / 1024;
  const double by_cost = std::pow(std::clamp(cost_ms / kib, kLeast, kMost), rule.cost_power);
  return by_cost * static_cast<double>(1 + std::min({facts.hits, rule.hits_max, uint64_t{1} << 30}));
}

double eviction_priority(double floor, const EvictionFacts& facts, const EvictionRule& rule) {
  return (std::isfinite(floor) ? floor : 0) + eviction_worth(facts, rule);
}

size_t EvictionIndex::KeyHash::operator()(const Hash& key) const {
  size_t word = 0;  // keys are hashes: any of their bytes will do
  std::memcpy(&word, key.bytes.data(), sizeof word);
  return word;
}

bool EvictionIndex::insert(const Hash& key, const EvictionFacts& facts, int64_t now_ms,
                           const std::optional<Hash>& parent) {
  const auto [place, is_new] = items_.try_emplace(key);
  Item& item = place->second;
  if (is_new) {
    item.key = &place->first;
    item.facts = facts;
    item.last_used_ms = now_ms;
    Item* const front = parent ? find(*parent) : nullptr;
    if (front != nullptr && front != &item) {
      delist(*front);
      ++front->n_children;
      item.parent = front;
    }
  } else {
    delist(item);
    bytes_ -= item.facts.n_bytes;
    if (item.held()) bytes_held_ -= item.facts.n_bytes;
    const uint64_t hits = std::max(item.facts.hits, facts.hits);
    item.facts = facts;
    item.facts.hits = hits;
    if (item.held()) bytes_held_ += item.facts.n_bytes;
  }
  bytes_ += item.facts.n_bytes;
  refresh(item, now_ms);
  return is_new;
}

bool EvictionIndex::use(const Hash& key, int64_t now_ms) {
  Item* const item = find(key);
  if (item == nullptr) return false;
  delist(*item);
  ++item->facts.hits;
  refresh(*item, now_ms);
  return true;
}

bool EvictionIndex::erase(const Hash& key) {
  Item* const item = find(key);
  if (item == nullptr) return false;
  remove(*item);
  return true;
}

bool EvictionIndex::pin(const Hash& key) {
  Item* const item = find(key);
  if (item == nullptr) return false;
  delist(*item);
  const bool was_held = item->held();
  ++item->pins;
  if (!was_held) change_hold(*item, +1);
  return true;
}

bool EvictionIndex::unpin(const Hash& key) {
  Item* const item = find(key);
  if (item == nullptr || item->pins == 0) return false;
  --item->pins;
  if (!item->held()) change_hold(*item, -1);
  enlist(*item);
  return true;
}

std::optional<Hash> EvictionIndex::victim(int64_t now_ms) const {
  const Item* const item = next(now_ms);
  return item == nullptr ? std::nullopt : std::optional<Hash>(*item->key);
}

std::optional<std::vector<Hash>> EvictionIndex::evict(uint64_t n_bytes, int64_t now_ms) {
  if (bytes_ - bytes_held_ < n_bytes) return std::nullopt;
  std::vector<Hash> gone;
  for (uint64_t wanted = n_bytes; wanted > 0;) {
    const Item* const item = next(now_ms);
    if (item == nullptr) break;  // only if the sum of sizes went beyond 64 bits
    wanted -= std::min(wanted, item->facts.n_bytes);
    gone.push_back(*item->key);
    if (!expired(*item, now_ms)) floor_ = std::max(floor_, item->priority);
    remove(*find(gone.back()));
  }
  return gone;
}

std::vector<Hash> EvictionIndex::evict_expired(int64_t now_ms) {
  std::vector<Hash> gone;
  while (!by_age_.empty() && expired(**by_age_.begin(), now_ms)) {
    gone.push_back(*(*by_age_.begin())->key);
    remove(**by_age_.begin());
  }
  return gone;
}

std::optional<EvictionFacts> EvictionIndex::facts(const Hash& key) const {
  const auto place = items_.find(key);
  return place == items_.end() ? std::nullopt : std::optional<EvictionFacts>(place->second.facts);
}

EvictionIndex::Item* EvictionIndex::find(const Hash& key) {
  const auto place = items_.find(key);
  return place == items_.end() ? nullptr : &place->second;
}

const EvictionIndex::Item* EvictionIndex::next(int64_t now_ms) const {
  if (by_priority_.empty()) return nullptr;
  const Item* const oldest = *by_age_.begin();
  return by_age_only_ || expired(*oldest, now_ms) ? oldest : *by_priority_.begin();
}

bool EvictionIndex::expired(const Item& item, int64_t now_ms) const {
  // Written so that no difference overflows: times come from rows.
  return now_ms > item.last_used_ms &&
         static_cast<uint64_t>(now_ms) - static_cast<uint64_t>(item.last_used_ms) > static_cast<uint64_t>(ttl_ms_);
}

// The item, which is in no list, was used now.
void EvictionIndex::refresh(Item& item, int64_t now_ms) {
  item.last_used_ms = std::max(item.last_used_ms, now_ms);
  item.sequence = ++sequence_;
  item.priority = eviction_priority(floor_, item.facts, rule_);
  enlist(item);
}

void EvictionIndex::remove(Item& item) {
  delist(item);
  if (item.held()) {
    item.pins = item.n_held_children = 0;
    change_hold(item, -1);
  }
  if (item.parent != nullptr) {
    --item.parent->n_children;
    enlist(*item.parent);
  }
  if (item.n_children > 0) {  // only an explicit erase: linear, and rare
    for (auto& [key, other] : items_) {
      if (other.parent == &item) other.parent = nullptr;
    }
  }
  bytes_ -= item.facts.n_bytes;
  items_.erase(Hash(*item.key));
}

void EvictionIndex::enlist(Item& item) {
  if (!item.may_go()) return;
  by_priority_.insert(&item);
  by_age_.insert(&item);
}

// Before anything changes that the lists are sorted by, or that keeps the item out of them.
void EvictionIndex::delist(Item& item) {
  by_priority_.erase(&item);
  by_age_.erase(&item);
}

// The item became held (+1) or stopped to be (-1): so may those in front of it.
void EvictionIndex::change_hold(Item& item, int change) {
  for (Item* at = &item; at != nullptr; at = at->parent) {
    if (change > 0) {
      bytes_held_ += at->facts.n_bytes;
    } else {
      bytes_held_ -= at->facts.n_bytes;
    }
    Item* const front = at->parent;
    if (front == nullptr) return;
    const bool was_held = front->held();
    front->n_held_children += change > 0 ? 1 : static_cast<size_t>(-1);
    if (front->held() == was_held) return;
  }
}

EvictionDuel::EvictionDuel(uint64_t capacity_bytes, const EvictionRule& rule)
    : capacity_bytes_(capacity_bytes), by_priority_(rule), by_recency_({.cost_power = 0, .hits_max = 0}) {}

void EvictionDuel::access(const Hash& key, const EvictionFacts& facts, int64_t now_ms,
                          const std::optional<Hash>& parent) {
  constexpr double kFade = 0.9999;               // an access counts e times less after 10,000 further ones
  constexpr double kToPriority = 3, kToAge = 1;  // standard deviations; all three are measured (docs/STORE.md)
  const bool by_priority = touch(by_priority_, key, facts, now_ms, parent);
  const bool by_recency = touch(by_recency_, key, facts, now_ms, parent);
  const double cost_ms = std::isfinite(facts.cost_ms) ? std::clamp(facts.cost_ms, 0.0, 1e12) : 0.0;
  lead_ms_ *= kFade;
  squares_ *= kFade * kFade;
  if (by_priority != by_recency) {
    lead_ms_ += by_priority ? cost_ms : -cost_ms;
    squares_ += cost_ms * cost_ms;
  }
  const double deviation_ms = std::sqrt(squares_);
  if (by_age_ ? lead_ms_ > kToPriority * deviation_ms : lead_ms_ < -kToAge * deviation_ms) by_age_ = !by_age_;
}

// True: a hit.
bool EvictionDuel::touch(EvictionIndex& index, const Hash& key, const EvictionFacts& facts, int64_t now_ms,
                         const std::optional<Hash>& parent) {
  if (index.use(key, now_ms)) return true;
  if (facts.n_bytes > capacity_bytes_) return false;
  const uint64_t room = capacity_bytes_ - facts.n_bytes;
  if (index.bytes() > room) index.evict(index.bytes() - room, now_ms);
  index.insert(key, facts, now_ms, parent);
  return false;
}

}  // namespace cento
