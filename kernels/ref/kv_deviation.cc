#include <vector>

#include "kernels/ref/ref_ops.h"
#include "kernels/ref/rows.h"

namespace cento::ref {

// The fresh K is rounded as kv_place would round it: a row that has not changed deviates by exactly 0.
void kv_deviation(const ExecContext&, const KvDeviationArgs& a) {
  const KvType type = a.live.type;
  const size_t d = a.live.head_dim, n_kv_heads = a.live.n_kv_heads;
  std::vector<float> k(d);
  for (size_t t = 0; t < a.t; ++t) {
    double k_sum = 0, v_sum = 0;
    for (size_t h = 0; h < n_kv_heads; ++h) {
      const size_t from = (t * n_kv_heads + h) * d;
      const size_t at = (h * a.live.capacity + static_cast<size_t>(a.pos[t])) * d;
      for (size_t i = 0; i < d; ++i) k[i] = load(a.k, type, from + i);
      rotate(k.data(), k.data(), d, a.rope, a.pos[t]);
      for (size_t i = 0; i < d; ++i) {
        const double k_diff = static_cast<double>(rounded(type, k[i])) - load(a.live.k, type, at + i);
        const double v_diff = static_cast<double>(load(a.v, type, from + i)) - load(a.live.v, type, at + i);
        k_sum += k_diff * k_diff;
        v_sum += v_diff * v_diff;
      }
    }
    a.k_dev[t] = static_cast<float>(k_sum);
    a.v_dev[t] = static_cast<float>(v_sum);
  }
}

}  // namespace cento::ref
