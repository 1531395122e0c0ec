// Scores and a budget -> sorted rows. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace cento {

// Indices of the `budget` highest scores, ascending. Ties go to the earlier row; NaN ranks lowest. budget > size: all.
std::vector<int32_t> select_top(std::span<const float> scores, size_t budget);

// Box average over +-half rows within each run of `lengths` (which sum to scores.size()); at the borders over what is
// there.
std::vector<float> smooth_within(std::span<const float> scores, std::span<const size_t> lengths, size_t half);

// Distinct rows of [0, n), uniform, seeded, ascending.
std::vector<int32_t> select_random(size_t n, size_t budget, uint64_t seed);

// The first rows of each run, the same number in each run (+-1), runs shorter than it in full, until the budget is
// spent; ascending.
std::vector<int32_t> select_heads(std::span<const size_t> lengths, size_t budget);

}  // namespace cento
