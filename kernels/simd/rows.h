// Splits a loop over rows between the threads of the pool.
#pragma once

#include <algorithm>
#include <cstddef>

#include "compute/ops.h"

namespace cento {

// Below this many elements of streaming work (some 10 us) handing over to another thread costs more than it saves.
constexpr size_t kParallelElements = size_t{1} << 15;

// f(begin, end) for consecutive pieces of [0, n_rows); `row_elements` is the work of one row. What f computes for a row
// must not depend on the piece.
template <class F>
void for_rows(const ExecContext& ctx, size_t n_rows, size_t row_elements, const F& f) {
  const size_t n_threads = ctx.pool ? ctx.pool->size() : 1;
  if (n_threads == 1 || n_rows < 2 || n_rows * row_elements < kParallelElements) {
    if (n_rows > 0) f(size_t{0}, n_rows);
    return;
  }
  // A few pieces a thread even out what other processes take away.
  const size_t piece_rows = std::max<size_t>(1, n_rows / (4 * n_threads));
  const size_t n_pieces = (n_rows + piece_rows - 1) / piece_rows;
  ctx.pool->parallel_for(n_pieces,
                         [&](size_t i, size_t) { f(i * piece_rows, std::min(n_rows, (i + 1) * piece_rows)); });
}

}  // namespace cento
