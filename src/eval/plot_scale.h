// From values to places along an axis, and which values are written there.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace cento {

// An axis from low to high, low < high, both finite; above 0 if it is logarithmic.
struct PlotScale {
  double low = 0, high = 1;
  bool log = false;

  bool shows(double value) const;       // finite, and above 0 on a logarithmic axis
  double position(double value) const;  // 0 at low, 1 at high; only of what it shows; clamped to -0.5..1.5
};

// A scale that holds all of `values` that an axis of its kind shows, with a margin; of none: 0 to 1, or 1 to 10. A
// linear one begins (or ends) at 0 if the values come near it.
PlotScale scale_of(std::span<const double> values, bool log);

// Values to be written at an axis, ascending and within the scale: about `n_wanted`, at most 20, at least one. Linear:
// multiples of 1, 2 or 5 times a power of ten. Logarithmic: powers of ten, with 2 and 5 times them over less than two
// decades; over less than half of one, as linear.
std::vector<double> ticks_of(const PlotScale& scale, size_t n_wanted);

// Four significant digits, shortest form: "0.0125", "1.5e-7"; "-" for NaN. The same in every locale.
std::string number_text(double value);

}  // namespace cento
