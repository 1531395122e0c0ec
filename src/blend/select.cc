#include "blend/select.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/rng.h"

namespace cento {

std::vector<int32_t> select_top(std::span<const float> scores, size_t budget) {
  std::vector<int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  if (budget >= order.size()) return order;
  const auto score = [&](int32_t i) {
    const float s = scores[static_cast<size_t>(i)];
    return std::isnan(s) ? -INFINITY : s;
  };
  const auto higher = [&](int32_t a, int32_t b) { return score(a) != score(b) ? score(a) > score(b) : a < b; };
  std::nth_element(order.begin(), order.begin() + static_cast<ptrdiff_t>(budget), order.end(), higher);
  order.resize(budget);
  std::sort(order.begin(), order.end());
  return order;
}

std::vector<float> smooth_within(std::span<const float> scores, std::span<const size_t> lengths, size_t half) {
  CHECK(std::accumulate(lengths.begin(), lengths.end(), size_t{0}) == scores.size());
  std::vector<float> out(scores.size());
  size_t start = 0;
  for (const size_t length : lengths) {
    for (size_t i = 0; i < length; ++i) {
      const size_t from = i < half ? 0 : i - half, to = std::min(i + half + 1, length);
      double sum = 0;
      for (size_t j = from; j < to; ++j) sum += static_cast<double>(scores[start + j]);
      out[start + i] = static_cast<float>(sum / static_cast<double>(to - from));
    }
    start += length;
  }
  return out;
}

std::vector<int32_t> select_random(size_t n, size_t budget, uint64_t seed) {
  std::vector<int32_t> rows(n);
  std::iota(rows.begin(), rows.end(), 0);
  if (budget >= n) return rows;
  Rng rng(seed);
  for (size_t i = 0; i < budget; ++i)
    std::swap(rows[i], rows[i + rng.below(n - i)]);  // the first part of a Fisher-Yates shuffle
  rows.resize(budget);
  std::sort(rows.begin(), rows.end());
  return rows;
}

std::vector<int32_t> select_heads(std::span<const size_t> lengths, size_t budget) {
  const size_t n = std::accumulate(lengths.begin(), lengths.end(), size_t{0});
  budget = std::min(budget, n);
  std::vector<size_t> taken(lengths.size(), 0);
  // Rounds of one row a run: budget is at most a few thousand rows, so the plain loop is quick enough.
  while (budget > 0) {
    for (size_t r = 0; r < lengths.size() && budget > 0; ++r) {
      if (taken[r] < lengths[r]) {
        ++taken[r];
        --budget;
      }
    }
  }
  std::vector<int32_t> rows;
  size_t start = 0;
  for (size_t r = 0; r < lengths.size(); ++r) {
    for (size_t i = 0; i < taken[r]; ++i) rows.push_back(static_cast<int32_t>(start + i));
    start += lengths[r];
  }
  return rows;
}

}  // namespace cento
