#include <algorithm>

#include "kernels/ref/ref_ops.h"

namespace cento::ref {

void dequant_rows(const ExecContext&, const DequantRowsArgs& a) {
  constexpr float kMaxHalf = 65504.0F;
  const size_t n_groups = a.group == 0 ? 0 : (a.c + a.group - 1) / a.group;
  for (size_t t = 0; t < a.t; ++t) {
    for (size_t c = 0; c < a.c; ++c) {
      const auto code = static_cast<float>(a.codes[t * a.c + c]);
      const float value = a.group == 0 ? a.centre[c] + a.scale[c] * code : a.scale[t * n_groups + c / a.group] * code;
      a.out[t * a.c + c] = to_fp16(std::min(std::max(value, -kMaxHalf), kMaxHalf));
    }
  }
}

}  // namespace cento::ref
