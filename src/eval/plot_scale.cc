#include "eval/plot_scale.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace cento {
namespace {

constexpr size_t kTicksMax = 20;
// Beyond these an axis is cut: differences of values within them are finite, and so are the ends with their margins.
constexpr double kLargest = 1e250, kSmallest = 1e-250;

void widen(double& low, double& high, double share) {
  const double margin = share * (high - low);
  low -= margin;
  high += margin;
}

PlotScale linear_scale(double low, double high) {
  const double size = std::max(std::abs(low), std::abs(high));
  if (high - low <= 1e-9 * size || high == low) {  // one value, or as good as
    const double half = size > 0 ? 0.1 * size : 1;
    low -= half;
    high += half;
  }
  const bool from_zero = low >= 0 && low <= 0.4 * high, to_zero = high <= 0 && high >= 0.4 * low;
  widen(low, high, 0.04);
  if (from_zero) low = 0;
  if (to_zero) high = 0;
  return {low, high, false};
}

PlotScale log_scale(double low, double high) {
  double from = std::log10(low), to = std::log10(high);
  if (to - from < 0.02) {
    from -= 0.15;
    to += 0.15;
  }
  widen(from, to, 0.04);
  return {std::pow(10, from), std::pow(10, to), true};
}

// The least of 1, 2, 5 times a power of ten that is not below x > 0.
double nice_step(double x) {
  const double power = std::pow(10, std::floor(std::log10(x)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= x * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

std::vector<double> linear_ticks(double low, double high, size_t n_wanted) {
  const double step = nice_step((high - low) / static_cast<double>(n_wanted));
  const double first = std::ceil(low / step - 1e-9);
  std::vector<double> out;
  for (size_t k = 0; k < kTicksMax; ++k) {
    const double tick = (first + static_cast<double>(k)) * step;
    if (tick > high + 1e-9 * step) break;
    out.push_back(tick);
  }
  if (out.empty()) out.push_back(low);
  return out;
}

std::vector<double> log_ticks(double low, double high, size_t n_wanted) {
  const double decades = std::log10(high) - std::log10(low);
  if (decades < 0.5) return linear_ticks(low, high, n_wanted);
  const auto from = static_cast<int>(std::floor(std::log10(low))), to = static_cast<int>(std::ceil(std::log10(high)));
  const int stride = std::max(1, static_cast<int>(std::ceil(decades / static_cast<double>(n_wanted))));
  std::vector<double> out;
  for (int d = from; d <= to; ++d) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (factor > 1 && decades >= 2) continue;
      if (d % stride != 0) continue;
      const double tick = factor * std::pow(10, d);
      if (tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9) && out.size() < kTicksMax) out.push_back(tick);
    }
  }
  if (out.empty()) out.push_back(low);
  return out;
}

}  // namespace

bool PlotScale::shows(double value) const { return std::isfinite(value) && (!log || value > 0); }

double PlotScale::position(double value) const {
  // Logarithms first: the quotient of two values may be no number any more.
  const auto at = [&](double v) { return log ? std::log10(v) : v; };
  return std::clamp((at(value) - at(low)) / (at(high) - at(low)), -0.5, 1.5);
}

PlotScale scale_of(std::span<const double> values, bool log) {
  double low = kLargest, high = -kLargest;
  for (const double value : values) {
    if (!PlotScale{0, 1, log}.shows(value)) continue;
    const double v = std::clamp(value, log ? kSmallest : -kLargest, kLargest);
    low = std::min(low, v);
    high = std::max(high, v);
  }
  if (low > high) return log ? PlotScale{1, 10, true} : PlotScale{0, 1, false};
  return log ? log_scale(low, high) : linear_scale(low, high);
}

std::vector<double> ticks_of(const PlotScale& scale, size_t n_wanted) {
  n_wanted = std::clamp(n_wanted, size_t{1}, kTicksMax / 2);
  return scale.log ? log_ticks(scale.low, scale.high, n_wanted) : linear_ticks(scale.low, scale.high, n_wanted);
}

std::string number_text(double value) {
  if (std::isnan(value)) return "-";
  if (std::isinf(value)) return value > 0 ? "infinite" : "-infinite";
  if (value == 0) return "0";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::general, 4).ptr;
  std::string text(buffer, end);
  const size_t e = text.find('e');  // 1.5e-07 -> 1.5e-7, 1e+06 -> 1e6
  if (e == std::string::npos) return text;
  size_t digits = e + 1;
  const bool minus = text[digits] == '-';
  digits = std::min(text.find_first_not_of("+-0", digits), text.size() - 1);
  return text.substr(0, e) + (minus ? "e-" : "e") + text.substr(digits);
}

}  // namespace cento
