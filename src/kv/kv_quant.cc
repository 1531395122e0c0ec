#include "kv/kv_quant.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "base/check.h"
#include "compute/ops_registry.h"

namespace cento {
namespace {

constexpr float kCodeMax = 127;
// The code of the value that sets a scale. 127 would take 0.18 bits more of each value, and int8 has KL to spare.
constexpr float kLargestCode = 112;
// Mean distance from the mean of a normal distribution, in standard deviations: sqrt(2 / pi).
constexpr double kMeanDistance = 0.79788456;
// Values farther out than this many mean distances do not count for the scale: attention sinks and the like.
constexpr float kOutlier = 4;

bool is_finite(fp16 h) { return (h.bits & 0x7c00) != 0x7c00; }

// The least half that is not below x, with five significant bits where it is a normal number: the rest would cost eight
// times as much to store and save a thirtieth of a scale. x >= 0.
fp16 scale_for(float x) {
  fp16 h = to_fp16(x);
  if (to_float(h) < x) ++h.bits;
  if (h.bits >= 0x0400) h.bits = static_cast<uint16_t>((h.bits + 63) & ~63);
  return h;
}

// x / scale as a code, and kExactCode where it is beyond them. scale 0: 0 has a code.
int8_t code_of(float x, float scale) {
  constexpr float kRound = 12582912;  // 1.5 * 2^23: adding it rounds to nearest even
  const float quotient = scale > 0 ? x / scale : x == 0 ? 0.0F : 2 * kCodeMax;
  const float code = (std::min(std::max(quotient, -2 * kCodeMax), 2 * kCodeMax) + kRound) - kRound;
  return std::abs(code) <= kCodeMax ? static_cast<int8_t>(code) : kExactCode;
}

// All targets are on the host, and the bits are the same on each.
const Ops& host_ops() {
  static const Ops& ops = best_ops();
  return ops;
}

void unpack(const DequantRowsArgs& args) { host_ops().dequant_rows(ExecContext{nullptr}, args); }

}  // namespace

size_t n_quant_params(QuantMethod method, uint32_t group, size_t t, size_t c) {
  if (method == QuantMethod::kPerChannel) return c + (t + group - 1) / group * c;  // at most 2^31 + 2^32
  return t * ((c + group - 1) / group);
}

bool Quantiser::quantise(const QuantRecipe& recipe, std::span<const fp16> values, size_t c, QuantFrame& out) {
  CHECK(c > 0 && values.size() % c == 0 && recipe.group > 0);
  if (!std::all_of(values.begin(), values.end(), is_finite)) return false;
  const size_t t = values.size() / c;
  values_.resize(values.size());
  std::transform(values.begin(), values.end(), values_.begin(), [](fp16 h) { return to_float(h); });
  out.method = recipe.method;
  out.group = recipe.group;
  out.params.clear();
  out.params.reserve(n_quant_params(recipe.method, recipe.group, t, c));
  out.codes.resize(values.size());
  out.exact.clear();
  if (recipe.method == QuantMethod::kPerChannel) {
    per_channel(recipe, t, c, out);
  } else {
    per_token(t, c, out);
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (out.codes[i] == kExactCode) out.exact.push_back(values[i]);
  }
  return true;
}

// The centre halves the way to the farthest values where they set the scale (keys of some models lie far from 0 in some
// channels, all on one side), and is the mean where the step is given.
void Quantiser::per_channel(const QuantRecipe& recipe, size_t t, size_t c, QuantFrame& out) {
  const float* x = values_.data();
  low_.assign(x, x + c);
  high_ = low_;
  sum_.assign(c, 0);
  for (size_t i = 0; i < t; ++i, x += c) {
    for (size_t j = 0; j < c; ++j) {
      low_[j] = std::min(low_[j], x[j]);
      high_[j] = std::max(high_[j], x[j]);
      sum_[j] += x[j];
    }
  }
  centre_.resize(c);
  for (size_t j = 0; j < c; ++j) {
    const fp16 centre = to_fp16(!recipe.centred   ? 0
                                : recipe.step > 0 ? sum_[j] / static_cast<float>(t)
                                                  : (low_[j] + high_[j]) / 2);
    out.params.push_back(centre);
    centre_[j] = to_float(centre);
  }
  scale_.resize(c);
  for (size_t first = 0; first < t; first += recipe.group) {
    const size_t n = std::min<size_t>(recipe.group, t - first);
    x = values_.data() + first * c;
    // Largest distance from the centre, and the mean one.
    high_.assign(c, 0);
    sum_.assign(c, 0);
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < c; ++j) {
        const float distance = std::abs(x[i * c + j] - centre_[j]);
        high_[j] = std::max(high_[j], distance);
        sum_[j] += distance;
      }
    }
    if (recipe.step > 0) {
      set_steps(recipe, x, n, c);
    } else {
      for (float& largest : high_) largest /= kLargestCode;
    }
    for (size_t j = 0; j < c; ++j) {
      const fp16 scale = scale_for(high_[j]);
      out.params.push_back(scale);
      scale_[j] = to_float(scale);
    }
    int8_t* codes = out.codes.data() + first * c;
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < c; ++j) codes[i * c + j] = code_of(x[i * c + j] - centre_[j], scale_[j]);
    }
  }
}

// high_ becomes the scales that are asked for; sum_ holds the sums of distances from the centre of n rows of x.
void Quantiser::set_steps(const QuantRecipe& recipe, const float* x, size_t n, size_t c) {
  // The mean distance of those that are no outliers by the first mean.
  std::vector<float> count(c, 0);
  for (size_t j = 0; j < c; ++j) high_[j] = kOutlier * sum_[j] / static_cast<float>(n);
  sum_.assign(c, 0);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < c; ++j) {
      const float distance = std::abs(x[i * c + j] - centre_[j]);
      const bool counts = distance <= high_[j];
      sum_[j] += counts ? distance : 0;
      count[j] += counts ? 1 : 0;
    }
  }
  double log_mean = 0, n_spread = 0;
  for (size_t j = 0; j < c; ++j) {
    sum_[j] /= std::max(count[j], 1.0F);
    if (sum_[j] == 0) continue;
    log_mean += std::log(static_cast<double>(sum_[j]));
    ++n_spread;
  }
  log_mean /= std::max(n_spread, 1.0);
  for (size_t j = 0; j < c; ++j) {
    const double log_spread = sum_[j] == 0 ? log_mean : std::log(static_cast<double>(sum_[j]));
    high_[j] =
        static_cast<float>(recipe.step / kMeanDistance * std::exp(log_mean + recipe.follow * (log_spread - log_mean)));
  }
}

void Quantiser::per_token(size_t t, size_t c, QuantFrame& out) {
  for (size_t i = 0; i < t; ++i) {
    for (size_t first = 0; first < c; first += out.group) {
      const size_t n = std::min<size_t>(out.group, c - first), at = i * c + first;
      float largest = 0;
      for (size_t j = 0; j < n; ++j) largest = std::max(largest, std::abs(values_[at + j]));
      const fp16 scale = scale_for(largest / kLargestCode);
      out.params.push_back(scale);
      const float scale32 = to_float(scale);
      for (size_t j = 0; j < n; ++j) out.codes[at + j] = code_of(values_[at + j], scale32);
    }
  }
}

Status dequantise(const QuantFrame& frame, const int8_t* codes, size_t c, std::span<std::byte> raw) {
  const size_t n = raw.size() / sizeof(fp16), t = n / c;
  const size_t n_centres = frame.method == QuantMethod::kPerChannel ? c : 0;
  CHECK(t * c * sizeof(fp16) == raw.size() && frame.params.size() == n_quant_params(frame.method, frame.group, t, c));
  std::vector<float> params(frame.params.size());
  for (size_t i = 0; i < params.size(); ++i) {
    params[i] = to_float(frame.params[i]);
    if (!is_finite(frame.params[i]) || (i >= n_centres && params[i] < 0))
      return Error{Code::kInput, "frame has a scale that cannot be"};
  }
  auto* out = reinterpret_cast<fp16*>(raw.data());
  if (frame.method == QuantMethod::kPerToken) {
    unpack({codes, params.data(), nullptr, out, t, c, frame.group});
  } else {
    for (size_t first = 0, g = 1; first < t; first += frame.group, ++g) {
      const size_t rows = std::min<size_t>(frame.group, t - first);
      unpack({codes + first * c, params.data() + g * c, params.data(), out + first * c, rows, c, 0});
    }
  }
  size_t n_exact = 0;
  for (size_t i = 0; i < n; ++i) {
    const void* found = std::memchr(codes + i, static_cast<unsigned char>(kExactCode), n - i);
    if (found == nullptr) break;
    if (n_exact == frame.exact.size()) return Error{Code::kInput, "frame has too few exact values"};
    i = static_cast<size_t>(static_cast<const int8_t*>(found) - codes);
    out[i] = frame.exact[n_exact++];
  }
  if (n_exact != frame.exact.size()) return Error{Code::kInput, "frame has too many exact values"};
  return Status::done();
}

}  // namespace cento
