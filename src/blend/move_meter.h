// How far recomputed rows have moved from the stored ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "blend/layer_runner.h"

namespace cento {

class MoveMeter {
 public:
  // Of the rows of a pass at positions `rows`, between project and finish, those that are among `chunk_rows` count;
  // both ascending. The first layer does not: its K and V depend on the token alone.
  void measure(LayerRunner& runner, uint32_t layer, std::span<const int32_t> rows, std::span<const int32_t> chunk_rows);

  // Squared distance of K over its squared size and of V over its own, halved and added, mean over rows and layers; 0
  // if nothing was measured.
  double mean() const { return n_ == 0 ? 0 : sum_ / static_cast<double>(n_); }

 private:
  double sum_ = 0;
  uint64_t n_ = 0;  // rows x layers
};

}  // namespace cento
