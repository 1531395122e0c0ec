#include <vector>

#include "kernels/ref/ref_ops.h"
#include "kernels/ref/rows.h"

namespace cento::ref {

void kv_place(const ExecContext&, const KvPlaceArgs& a) {
  const size_t d = a.dst.head_dim, n_kv_heads = a.dst.n_kv_heads, elem = kv_type_bytes(a.dst.type);
  std::vector<float> k(d);
  for (size_t t = 0; t < a.t; ++t) {
    for (size_t h = 0; h < n_kv_heads; ++h) {
      const size_t from = (t * n_kv_heads + h) * d;
      const size_t to = (h * a.dst.capacity + static_cast<size_t>(a.pos[t])) * d;
      for (size_t i = 0; i < d; ++i) k[i] = load(a.k, a.dst.type, from + i);
      rotate(k.data(), k.data(), d, a.rope, a.pos[t]);
      for (size_t i = 0; i < d; ++i) store(a.dst.k, a.dst.type, to + i, k[i]);
      std::memcpy(static_cast<std::byte*>(a.dst.v) + to * elem, static_cast<const std::byte*>(a.v) + from * elem,
                  d * elem);
    }
  }
}

}  // namespace cento::ref
