#include "kernels/ref/ref_ops.h"
#include "kernels/ref/rows.h"

namespace cento::ref {

void rope_rows(const ExecContext&, const RopeRowsArgs& a) {
  for (size_t t = 0; t < a.t; ++t) {
    for (size_t h = 0; h < a.h; ++h) {
      float* x = a.x + t * a.ldx + h * a.d;
      rotate(x, x, a.d, a.rope, a.pos[t]);
    }
  }
}

}  // namespace cento::ref
