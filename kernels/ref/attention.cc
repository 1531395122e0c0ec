#include <cmath>
#include <limits>
#include <vector>

#include "kernels/ref/ref_ops.h"
#include "kernels/ref/rows.h"

namespace cento::ref {

void attention(const ExecContext&, const AttentionArgs& a) {
  const KvLayerView& kv = a.kv;
  const size_t group = a.h / kv.n_kv_heads;
  if (a.t == 0) return;
  const size_t n_keys = static_cast<size_t>(a.q_pos[a.t - 1]) + 1;
  std::vector<float> keys(n_keys * a.d), values(n_keys * a.d);  // of one KV head
  std::vector<double> p(n_keys), out(a.d);
  for (size_t head = 0; head < kv.n_kv_heads; ++head) {
    for (size_t i = 0; i < n_keys * a.d; ++i) {
      keys[i] = load(kv.k, kv.type, head * kv.capacity * a.d + i);
      values[i] = load(kv.v, kv.type, head * kv.capacity * a.d + i);
    }
    for (size_t t = 0; t < a.t; ++t) {
      const int64_t q_pos = a.q_pos[t];
      const size_t first = a.window == 0 ? 0 : static_cast<size_t>(std::max<int64_t>(0, q_pos - a.window + 1));
      const size_t end = static_cast<size_t>(q_pos) + 1;
      for (size_t h = head * group; h < (head + 1) * group; ++h) {
        const float* q = a.q + t * a.ldq + h * a.d;
        double max = -std::numeric_limits<double>::infinity();
        for (size_t j = first; j < end; ++j) {
          double dot = 0;
          for (size_t i = 0; i < a.d; ++i) dot += static_cast<double>(q[i]) * static_cast<double>(keys[j * a.d + i]);
          p[j] = static_cast<double>(a.scale) * dot;
          max = std::max(max, p[j]);
        }
        double sum = 0;
        for (size_t j = first; j < end; ++j) sum += p[j] = std::exp(p[j] - max);
        std::fill(out.begin(), out.end(), 0.0);
        for (size_t j = first; j < end; ++j) {
          const double weight = p[j] / sum;
          for (size_t i = 0; i < a.d; ++i) out[i] += weight * static_cast<double>(values[j * a.d + i]);
          if (a.key_mass && j < a.n_mass) a.key_mass[j] = std::max(a.key_mass[j], static_cast<float>(weight));
        }
        for (size_t i = 0; i < a.d; ++i) a.out[t * a.ldo + h * a.d + i] = static_cast<float>(out[i]);
      }
    }
  }
}

}  // namespace cento::ref
