// How far stored KV is from full prefill's, and how that is spread over rows and over layers.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kv/kv_block.h"

namespace cento {

// Squared distance of each row's K (not rotated) over the mean of all rows, plus that of V: about 2 a row. Layer 0 is
// all 0, since it sees the token alone. `stored` one behind another are the rows of `full`, which has no others; `poll`
// is called now and then and may throw. [layers][rows]
std::vector<std::vector<float>> deviation_by_layer(std::span<const std::shared_ptr<const KvBlock>> stored,
                                                   const KvBlock& full, const std::function<void()>& poll);

// Mean over the layers from 1 on: what a row's deviation is where one number has to do. [rows]
std::vector<float> mean_over_layers(std::span<const std::vector<float>> by_layer);

// Shares of the rows at which DeviationProfile::top_share is taken.
inline constexpr std::array<double, 23> kTopRows = {0.01, 0.02, 0.03, 0.05, 0.075, 0.1,  0.125, 0.15,
                                                    0.2,  0.25, 0.3,  0.35, 0.4,   0.45, 0.5,   0.55,
                                                    0.6,  0.65, 0.7,  0.75, 0.8,   0.9,  1};

struct DeviationProfile {
  // What the most deviating of the rows hold of the sum of all rows' mean_over_layers(); between two rows in
  // proportion. [kTopRows]; kTopRows itself where all rows deviate alike. Empty: there are no rows, or none deviates.
  std::vector<double> top_share;
  // Spearman's correlation of the rows' deviation at a layer and at the next, and at the last; NaN where all rows of
  // one of the two deviate alike. [layers - 1]
  std::vector<double> next_layer, last_layer;
};

// Of the rows from `first_row` on: those in front of it may be exact.
DeviationProfile deviation_profile(std::span<const std::vector<float>> by_layer, size_t first_row);

}  // namespace cento
