// Where repeated measurements lie: the middle, and how far they scatter.
#pragma once

#include <cstddef>
#include <vector>

namespace cento {

// In the unit of the samples. Of one sample all three are the same.
struct Spread {
  double median = 0, q1 = 0, q3 = 0;  // q1, q3: lower and upper quartile
  size_t n = 0;                       // samples
};

// Quantiles by linear interpolation between the order statistics (type 7 of Hyndman and Fan 1996). All 0 for none.
Spread spread_of(std::vector<double> samples);

}  // namespace cento
