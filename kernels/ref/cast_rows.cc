#include "kernels/ref/ref_ops.h"
#include "kernels/ref/rows.h"

namespace cento::ref {

void cast_rows(const ExecContext&, const CastRowsArgs& a) {
  for (size_t t = 0; t < a.t; ++t)
    for (size_t i = 0; i < a.w; ++i) store(a.y, a.type, t * a.w + i, a.x[t * a.ldx + i]);
}

}  // namespace cento::ref
