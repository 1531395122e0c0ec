// The only source of randomness: seeded, the same on every machine.
#pragma once

#include <cstdint>
#include <utility>

namespace cento {

// SplitMix64 (Steele, Lea, Flood 2014): one 64-bit word of state, passes BigCrush, any seed is a good seed.
class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }  // [0, 1)
  uint64_t below(uint64_t n) {                                              // [0, n), n > 0, unbiased
    const uint64_t limit = -n % n;
    uint64_t r = next();
    while (r < limit) r = next();
    return r % n;
  }

 private:
  uint64_t state_;
};

// Fisher and Yates's shuffle of all of `items`, which is indexed from 0 on.
template <class Items>
void shuffle(Items& items, Rng& rng) {
  for (auto n = items.size(); n > 1; --n) std::swap(items[n - 1], items[rng.below(n)]);
}

}  // namespace cento
