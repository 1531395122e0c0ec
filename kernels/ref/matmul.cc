#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/check.h"
#include "compute/quant.h"
#include "kernels/ref/quant_codes.h"
#include "kernels/ref/ref_ops.h"

namespace cento::ref {
namespace {

enum Layout : int32_t { kFloat, kInt8 };  // both: the file's own blocks; how they are multiplied

TensorView as_view(const PackedMatrix& w) {
  TensorView view;
  view.data = static_cast<const std::byte*>(w.data);
  view.dtype = w.source;
  view.shape = {w.n, w.k, 1, 1};
  view.n_dims = 2;
  return view;
}

void store(const MatmulOut& out, size_t t, size_t n, float acc) {
  if (out.bias != nullptr) acc += out.bias[n];
  float& y = out.y[t * out.ldy + n];
  y = out.add ? y + acc : acc;
}

void matmul_float(const ExecContext& ctx, const MatmulArgs& args, const MatmulOut& out) {
  const TensorView view = as_view(*out.w);
  ctx.pool->parallel_for(out.w->n, [&](size_t n, size_t) {
    std::vector<float> weights(args.k);
    dequantize_row(view, n, weights.data());
    for (size_t t = 0; t < args.t; ++t) {
      const float* x = args.x + t * args.ldx;
      double sum = 0;
      for (size_t k = 0; k < args.k; ++k) sum += static_cast<double>(weights[k]) * static_cast<double>(x[k]);
      store(out, t, n, static_cast<float>(sum));
    }
  });
}

// Quantised activations of all rows: see quant_codes.h.
struct Int8Rows {
  std::vector<int8_t> q;     // [T, K]
  std::vector<float> scale;  // [T, K / 32]
};
struct Activations {
  Int8Rows first, second;  // second: scale 0 where there is no second term
};

void quantize_block(const float* x, int8_t* q, float& scale) {
  float amax = 0;
  bool finite = true;
  for (int j = 0; j < 32; ++j) {
    finite = finite && std::isfinite(x[j]);
    amax = std::max(amax, std::fabs(x[j]));
  }
  std::memset(q, 0, 32);
  scale = finite ? 0 : std::numeric_limits<float>::quiet_NaN();
  if (!finite || amax < kTinyBlock) return;
  scale = amax / 127.0f;
  const float inverse = 127.0f / amax;
  for (int j = 0; j < 32; ++j) q[j] = static_cast<int8_t>(std::nearbyint(x[j] * inverse));
}

bool has_outlier(const int8_t* q) {
  int energy = 0;
  for (int j = 0; j < 32; ++j) energy += q[j] * q[j];
  return energy != 0 && energy <= kOutlierEnergy;
}

Activations quantize(const MatmulArgs& args) {
  const Int8Rows none{std::vector<int8_t>(args.t * args.k), std::vector<float>(args.t * args.k / 32)};
  Activations rows{none, none};
  for (size_t t = 0; t < args.t; ++t) {
    for (size_t b = 0; b < args.k / 32; ++b) {
      const float* x = args.x + t * args.ldx + b * 32;
      const size_t at = t * args.k + b * 32;
      int8_t* q = &rows.first.q[at];
      float& sx = rows.first.scale[at / 32];
      quantize_block(x, q, sx);
      if (!has_outlier(q)) continue;
      float rest[32];
      for (int j = 0; j < 32; ++j) rest[j] = std::fma(-sx, static_cast<float>(q[j]), x[j]);
      quantize_block(rest, &rows.second.q[at], rows.second.scale[at / 32]);
    }
  }
  return rows;
}

// Adds 32 values of k, from value `v` of the block on, to one sum.
float add_32(const QuantFormat& format, const QuantBlock& block, int v, const int8_t* x, float sx, float acc) {
  const int n_sub = 32 / format.sub;
  const float d = to_float(block.d), m = to_float(block.m);
  float sum_term[2] = {};
  for (int s = 0; s < n_sub; ++s) {
    int dot = 0, sum = 0;
    for (int j = s * format.sub; j < (s + 1) * format.sub; ++j) {
      dot += x[j] * (block.code[v + j] - format.offset);
      sum += x[j];
    }
    const float scale = format.super_block ? d * static_cast<float>(block.scale[v / format.sub + s]) : d;
    acc = std::fma(static_cast<float>(dot), scale * sx, acc);
    sum_term[s] = sx * static_cast<float>(sum);
  }
  for (int s = 0; format.has_min && s < n_sub; ++s) {
    const float min = format.super_block ? 0.0f - m * static_cast<float>(block.min_code[v / format.sub + s]) : m;
    acc = std::fma(min, sum_term[s], acc);
  }
  return acc;
}

void matmul_int8(const ExecContext& ctx, const MatmulArgs& args, const Activations& rows, const MatmulOut& out) {
  const QuantFormat& format = *quant_format(out.w->source);
  const size_t per_block = static_cast<size_t>(format.block()), n_blocks = args.k / per_block;
  const size_t block_bytes = dtype_info(out.w->source).bytes;
  ctx.pool->parallel_for(out.w->n, [&](size_t n, size_t) {
    std::vector<QuantBlock> blocks(n_blocks);
    const std::byte* row = static_cast<const std::byte*>(out.w->data) + n * n_blocks * block_bytes;
    for (size_t b = 0; b < n_blocks; ++b) read_quant_block(out.w->source, row + b * block_bytes, blocks[b]);
    for (size_t t = 0; t < args.t; ++t) {
      float acc = 0;
      for (size_t k = 0; k < args.k; k += 32) {
        const size_t at = t * args.k + k;
        for (const Int8Rows* term : {&rows.first, &rows.second}) {
          if (term == &rows.second && term->scale[at / 32] == 0) continue;
          acc = add_32(format, blocks[k / per_block], static_cast<int>(k % per_block), &term->q[at],
                       term->scale[at / 32], acc);
        }
      }
      store(out, t, n, acc);
    }
  });
}

}  // namespace

PackedMatrix pack(const ExecContext&, const PackArgs& args) {
  const TensorView& w = args.w;
  PackedMatrix packed;
  packed.n = w.rows();
  packed.k = w.cols();
  packed.source = w.dtype;
  packed.layout = args.precision == Precision::kFast && quant_format(w.dtype) != nullptr ? kInt8 : kFloat;
  packed.data = w.data;
  return packed;
}

void matmul(const ExecContext& ctx, const MatmulArgs& args) {
  if (args.t == 0) return;
  Activations rows;
  for (size_t i = 0; i < args.n_outs; ++i) {
    const MatmulOut& out = args.outs[i];
    CHECK(out.w->k == args.k);
    if (out.w->layout == kFloat) {
      matmul_float(ctx, args, out);
    } else {
      if (rows.first.q.empty()) rows = quantize(args);
      matmul_int8(ctx, args, rows, out);
    }
  }
}

}  // namespace cento::ref
