#include "blend/move_meter.h"

#include <algorithm>
#include <vector>

namespace cento {
namespace {

// The size of K and V is taken from so many rows: it differs little from row to row, and reading all of them back would
// cost more than it tells.
constexpr size_t kSizeSampleRows = 16;

// Mean squared size of a row.
double row_size(const KvShape& shape, std::span<const std::byte> side, size_t n_rows) {
  double sum = 0;
  for (size_t i = 0; i < n_rows * shape.row_values(); ++i) {
    const auto x = static_cast<double>(kv_value(shape.type, side, i));
    sum += x * x;
  }
  return std::max(sum / static_cast<double>(n_rows), 1e-30);
}

}  // namespace

void MoveMeter::measure(LayerRunner& runner, uint32_t layer, std::span<const int32_t> rows,
                        std::span<const int32_t> chunk_rows) {
  if (layer == 0) return;
  std::vector<size_t> counted;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (std::binary_search(chunk_rows.begin(), chunk_rows.end(), rows[i])) counted.push_back(i);
  }
  if (counted.empty()) return;
  std::vector<float> k_dev(rows.size()), v_dev(rows.size());
  runner.deviation(layer, k_dev, v_dev);
  const KvShape shape = runner.shape();
  const size_t n_sample = std::min(kSizeSampleRows, rows.size() - counted.front());
  std::vector<std::byte> k(shape.side_bytes(n_sample)), v(k.size());
  runner.fetch(layer, counted.front(), n_sample, k, v);
  const double k_size = row_size(shape, k, n_sample), v_size = row_size(shape, v, n_sample);
  for (const size_t i : counted)
    sum_ += (static_cast<double>(k_dev[i]) / k_size + static_cast<double>(v_dev[i]) / v_size) / 2;
  n_ += counted.size();
}

}  // namespace cento
