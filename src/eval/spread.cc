#include "eval/spread.h"

#include <algorithm>

#include "eval/statistics.h"

namespace cento {

Spread spread_of(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  return {percentile_of_sorted(samples, 0.5), percentile_of_sorted(samples, 0.25), percentile_of_sorted(samples, 0.75),
          samples.size()};
}

}  // namespace cento
