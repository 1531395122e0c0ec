#include "compute/rope_table.h"

#include <cmath>

#include "base/check.h"

namespace cento {

std::vector<float> make_rope_table(uint32_t dims, double base, double linear_scale, std::span<const float> factors,
                                   uint64_t from, uint64_t to) {
  CHECK(dims % 2 == 0 && from <= to);
  const size_t half = dims / 2;
  CHECK(factors.empty() || factors.size() == half);
  std::vector<double> freq(half);
  for (size_t i = 0; i < half; ++i) {
    freq[i] = std::pow(base, -2.0 * static_cast<double>(i) / dims) / linear_scale;
    if (!factors.empty()) freq[i] /= static_cast<double>(factors[i]);
  }
  std::vector<float> table;
  table.reserve((to - from) * dims);
  for (uint64_t p = from; p < to; ++p) {
    for (size_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(p) * freq[i];
      table.push_back(static_cast<float>(std::cos(angle)));
      table.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  return table;
}

}  // namespace cento
