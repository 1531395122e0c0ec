// Values of one K or V frame <-> codes of 8 bits with scales: the lossy half of the lossy codecs. How codes become
// bytes is frame_codec.h's affair.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/tensor_view.h"

namespace cento {

// The values of these are stored.
enum class QuantMethod : uint8_t {
  kPerChannel = 2,  // value = centre[c] + scale[t / group, c] * code
  kPerToken = 3,    // value = scale[t, c / group] * code
};

// Stands in place of a code for a value that is kept as it is.
inline constexpr int8_t kExactCode = -128;

struct QuantFrame {
  QuantMethod method = QuantMethod::kPerChannel;
  uint32_t group = 1;         // rows (kPerChannel) or values of a row (kPerToken) that share a scale
  std::vector<fp16> params;   // kPerChannel: centres [C], then scales [ceil(T / group), C]; else [T, ceil(C / group)]
  std::vector<int8_t> codes;  // [T, C]
  std::vector<fp16> exact;    // the values behind kExactCode, in their order
};
// Length of `params` for T rows of C values. The group is not 0.
size_t n_quant_params(QuantMethod method, uint32_t group, size_t t, size_t c);

// How a frame is to be quantised.
struct QuantRecipe {
  QuantMethod method = QuantMethod::kPerChannel;
  uint32_t group = 1;
  // 0: the scale is the largest distance from the centre over 112, and no value is exact. Else (kPerChannel): the scale
  // is this share of the spread, and values beyond 127 scales from the centre are exact.
  double step = 0;
  // What the scale of a channel follows its own spread with, over the geometric mean of all channels' spreads: 1: it is
  // a share of the channel's own; 0: all channels have one scale, and those of large spread get more of the bits that
  // an entropy coder spends; below 0: they get even finer scales. Spread: mean distance from the centre, in standard
  // deviations of a normal distribution.
  double follow = 0;
  bool centred = true;  // kPerChannel; else all centres are 0
};

// Quantises halves [T, C]; keeps its buffers between calls. One thread at a time.
//
// What comes back differs from the value by at most scale / 2, half a unit in the last place of the result (it is
// rounded to half) and 2^-22 of the value (float32 arithmetic); exact values not at all. A scale is a half rounded up
// to five significant bits, so it is up to 1/16 larger than what was asked for.
class Quantiser {
 public:
  // False: a value is not finite; `out` is unspecified then.
  bool quantise(const QuantRecipe& recipe, std::span<const fp16> values, size_t c, QuantFrame& out);

 private:
  void per_channel(const QuantRecipe& recipe, size_t t, size_t c, QuantFrame& out);
  void set_steps(const QuantRecipe& recipe, const float* x, size_t n, size_t c);
  void per_token(size_t t, size_t c, QuantFrame& out);

  std::vector<float> values_, centre_, scale_, low_, high_, sum_;
};

// Fills the halves `raw` [T, C], which may lie at any address, from `codes` [T, C] and what else the frame says (its
// own codes are not read). `params` has the length that belongs to it. Error(kInput): a parameter that is not finite, a
// scale below 0, or not as many exact values as codes call for.
Status dequantise(const QuantFrame& frame, const int8_t* codes, size_t c, std::span<std::byte> raw);

}  // namespace cento
