#include "eval/deviation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "eval/statistics.h"

namespace cento {
namespace {

// Squared distance of each row. [rows]
std::vector<double> row_distance(const KvShape& shape, std::span<const std::byte> a, std::span<const std::byte> b) {
  const size_t width = shape.row_values(), n = a.size() / shape.side_bytes(1);
  std::vector<double> out(n, 0.0);
  for (size_t i = 0; i < n * width; ++i) {
    const double d = static_cast<double>(kv_value(shape.type, a, i)) - static_cast<double>(kv_value(shape.type, b, i));
    out[i / width] += d * d;
  }
  return out;
}

// What the largest `share` of the values, sorted in descending order, hold of their sum.
double held_by_top(std::span<const double> sorted, double sum, double share) {
  const double rows = share * static_cast<double>(sorted.size());
  const auto whole = std::min(static_cast<size_t>(rows), sorted.size());
  double held = std::accumulate(sorted.begin(), sorted.begin() + static_cast<ptrdiff_t>(whole), 0.0);
  if (whole < sorted.size()) held += (rows - static_cast<double>(whole)) * sorted[whole];
  return held / sum;
}

std::vector<double> rows_from(const std::vector<float>& row, size_t first) {
  return {row.begin() + static_cast<ptrdiff_t>(std::min(first, row.size())), row.end()};
}

}  // namespace

std::vector<std::vector<float>> deviation_by_layer(std::span<const std::shared_ptr<const KvBlock>> stored,
                                                   const KvBlock& full, const std::function<void()>& poll) {
  const KvShape shape = full.shape();
  std::vector<std::vector<float>> out(shape.n_layers);
  for (uint32_t layer = 0; layer < shape.n_layers; ++layer) {
    std::vector<double> k, v;
    size_t first = 0;
    for (const auto& block : stored) {
      const size_t n = block->n_tokens();
      const auto part = [&](std::span<const std::byte> side) {
        return side.subspan(shape.side_bytes(first), shape.side_bytes(n));
      };
      const std::vector<double> dk = row_distance(shape, block->k(layer), part(full.k(layer)));
      const std::vector<double> dv = row_distance(shape, block->v(layer), part(full.v(layer)));
      k.insert(k.end(), dk.begin(), dk.end());
      v.insert(v.end(), dv.begin(), dv.end());
      first += n;
      poll();
    }
    const double k_mean = std::max(mean(k), 1e-30), v_mean = std::max(mean(v), 1e-30);
    for (size_t i = 0; i < k.size(); ++i) out[layer].push_back(static_cast<float>(k[i] / k_mean + v[i] / v_mean));
  }
  return out;
}

std::vector<float> mean_over_layers(std::span<const std::vector<float>> by_layer) {
  std::vector<float> out(by_layer.empty() ? 0 : by_layer[0].size(), 0.0f);
  for (size_t l = 1; l < by_layer.size(); ++l)
    for (size_t i = 0; i < out.size(); ++i) out[i] += by_layer[l][i] / static_cast<float>(by_layer.size() - 1);
  return out;
}

DeviationProfile deviation_profile(std::span<const std::vector<float>> by_layer, size_t first_row) {
  DeviationProfile out;
  std::vector<double> rows = rows_from(mean_over_layers(by_layer), first_row);
  std::sort(rows.begin(), rows.end(), std::greater<>());
  const double sum = std::accumulate(rows.begin(), rows.end(), 0.0);
  if (sum > 0)
    for (const double share : kTopRows) out.top_share.push_back(held_by_top(rows, sum, share));
  const auto correlation = [&](size_t a, size_t b) {
    return spearman(rows_from(by_layer[a], first_row), rows_from(by_layer[b], first_row))
        .value_or(std::numeric_limits<double>::quiet_NaN());
  };
  for (size_t l = 0; l + 1 < by_layer.size(); ++l) {
    out.next_layer.push_back(correlation(l, l + 1));
    out.last_layer.push_back(correlation(l, by_layer.size() - 1));
  }
  return out;
}

}  // namespace cento
