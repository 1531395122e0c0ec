#include <cmath>

#include "kernels/ref/ref_ops.h"

namespace cento::ref {

void rms_norm(const ExecContext&, const RmsNormArgs& a) {
  for (size_t r = 0; r < a.r; ++r) {
    const float* x = a.x + r * a.ldx;
    float* y = a.y + r * a.ldy;
    double sum = 0;
    for (size_t c = 0; c < a.c; ++c) sum += static_cast<double>(x[c]) * x[c];
    const double mean = sum / static_cast<double>(a.c);
    const float scale = static_cast<float>(1 / std::sqrt(mean + static_cast<double>(a.eps)));
    for (size_t c = 0; c < a.c; ++c) {
      const float value = x[c] * scale * a.weight[c];
      y[c] = a.add ? y[c] + value : value;
    }
  }
}

}  // namespace cento::ref
