#include <algorithm>
#include <atomic>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "base/rng.h"
#include "compute/ops_registry.h"
#include "compute/quant.h"
#include "kernels/ref/quant_codes.h"
#include "support/close_to.h"
#include "support/gguf_writer.h"

namespace cento {
namespace {

constexpr uint64_t kSeed = 20240611;
constexpr double kEps = 0x1p-24;  // half a unit in the last place of a float32, relative
constexpr DType kAllTypes[] = {DType::kF32,  DType::kF16,  DType::kBF16, DType::kQ4_0, DType::kQ4_1,
                               DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kQ2_K, DType::kQ3_K,
                               DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};
constexpr float kGuard = -7.25e30f;  // between and around outputs
constexpr size_t kGuards = 37;       // odd, so that outputs are misaligned

struct Weight {
  Weight(DType type, size_t n, size_t k, std::string raw) : bytes(std::move(raw)) {
    view.data = reinterpret_cast<const std::byte*>(bytes.data());
    view.dtype = type;
    view.shape = {n, k, 1, 1};
    view.n_dims = 2;
    view.n_bytes = bytes.size();
  }
  Weight(const Weight&) = delete;
  Weight& operator=(const Weight&) = delete;
  std::string bytes;
  TensorView view;
};

std::unique_ptr<Weight> random_weight(DType type, size_t n, size_t k, Rng& rng) {
  return std::make_unique<Weight>(type, n, k, test::random_blocks(type, n * k, 0.7, rng));
}

// Values of mixed size with some large ones, as activations have.
std::vector<float> random_floats(size_t n, Rng& rng) {
  std::vector<float> v(n);
  for (float& f : v) f = static_cast<float>((rng.uniform() - 0.5) * (rng.below(50) == 0 ? 40 : 2));
  return v;
}

struct OutSpec {
  const Weight* weight;
  bool bias = false, add = false;
  size_t gap = 0;  // ldy - N
};

// One call. Biases and what y held before come from the seed.
struct Problem {
  size_t t, k, x_gap = 0;
  std::vector<float> x;  // [T, K + x_gap]
  std::vector<OutSpec> outs;
  std::vector<std::vector<float>> bias, before;  // an out each: [N], [T, N]

  Problem(size_t t_rows, size_t k_values, std::vector<OutSpec> out_specs, Rng& rng, size_t gap = 0)
      : t(t_rows), k(k_values), x_gap(gap), x(random_floats(t * (k + gap), rng)), outs(std::move(out_specs)) {
    for (const OutSpec& out : outs) {
      bias.push_back(random_floats(out.weight->view.rows(), rng));
      before.push_back(random_floats(t * out.weight->view.rows(), rng));
    }
  }
};

template <class T>
Buffer on_device(Device& device, const std::vector<T>& values) {
  Buffer buffer(device, values.size() * sizeof(T));
  buffer.upload<T>(values);
  return buffer;
}

std::vector<std::vector<float>> run(const Ops& ops, const Problem& p, Precision precision, size_t n_threads = 2) {
  ThreadPool pool(n_threads);
  const ExecContext ctx{&pool};
  const Buffer x = on_device(*ops.device, p.x);
  std::vector<PackedMatrix> packed;
  std::vector<Buffer> biases, ys;
  std::vector<std::vector<float>> images;  // of each y with its guards
  MatmulArgs args{x.as<float>(), p.t, p.k, p.k + p.x_gap, {}, p.outs.size()};
  for (size_t i = 0; i < p.outs.size(); ++i) {
    packed.push_back(ops.pack(ctx, {p.outs[i].weight->view, precision}));
    const size_t n = p.outs[i].weight->view.rows(), ldy = n + p.outs[i].gap;
    images.emplace_back(2 * kGuards + p.t * ldy, kGuard);
    for (size_t t = 0; t < p.t; ++t) std::copy_n(p.before[i].data() + t * n, n, images[i].data() + kGuards + t * ldy);
    ys.push_back(on_device(*ops.device, images[i]));
    biases.push_back(on_device(*ops.device, p.bias[i]));
  }
  for (size_t i = 0; i < p.outs.size(); ++i) {
    args.outs[i] = {&packed[i], p.outs[i].bias ? biases[i].as<float>() : nullptr, ys[i].as<float>(kGuards),
                    packed[i].n + p.outs[i].gap, p.outs[i].add};
  }
  ops.matmul(ctx, args);
  std::vector<std::vector<float>> results;
  for (size_t i = 0; i < p.outs.size(); ++i) {
    ys[i].download<float>(images[i]);
    const size_t n = packed[i].n, ldy = n + p.outs[i].gap;
    std::vector<float> y;
    size_t touched = 0;
    for (size_t at = 0; at < images[i].size(); ++at) {
      const bool inside = at >= kGuards && at < kGuards + p.t * ldy && (at - kGuards) % ldy < n;
      if (inside)
        y.push_back(images[i][at]);
      else
        touched += images[i][at] != kGuard;
    }
    CHECK(touched == 0);
    results.push_back(std::move(y));
  }
  return results;
}

// What int8 kernels make of x, as quant_codes.h says: one term a value, or two in blocks with an outlier.
struct Activations {
  std::vector<double> value, size;  // sum of the terms, and of their magnitudes
};

// Adds sx * xq of 32 values. Returns whether one of them outweighs the rest, whose rounding error is then in `rest`.
bool add_term(const float* x, double* value, double* size, float* rest) {
  float amax = 0;
  for (int j = 0; j < 32; ++j) amax = std::max(amax, std::fabs(x[j]));
  if (amax < 0x1p-100f) return false;
  const float sx = amax / 127.0f, inverse = 127.0f / amax;
  double energy = 0;
  for (int j = 0; j < 32; ++j) {
    const float product = x[j] * inverse, q = std::nearbyint(product);
    energy += static_cast<double>(q) * static_cast<double>(q);
    value[j] += static_cast<double>(q) * static_cast<double>(sx);
    size[j] += std::fabs(static_cast<double>(q) * static_cast<double>(sx));
    rest[j] = std::fma(-sx, q, x[j]);
  }
  return 5 * energy <= 6 * 127 * 127;
}

Activations rounded_activations(const float* x, size_t k) {
  Activations out{std::vector<double>(k), std::vector<double>(k)};
  for (size_t b = 0; b < k; b += 32) {
    float rest[32], nothing[32];
    if (add_term(x + b, &out.value[b], &out.size[b], rest)) add_term(rest, &out.value[b], &out.size[b], nothing);
  }
  return out;
}

// |scale * (code - offset)| + |min| of every weight of a row: what int8 kernels add up, before terms cancel.
std::vector<double> magnitudes(const TensorView& w, size_t row) {
  const QuantFormat& f = *quant_format(w.dtype);
  const size_t per_block = static_cast<size_t>(f.block());
  std::vector<double> out(w.cols());
  QuantBlock block;
  for (size_t v = 0; v < w.cols(); ++v) {
    if (v % per_block == 0)
      read_quant_block(w.dtype, w.data + row * w.row_bytes() + v / per_block * dtype_info(w.dtype).bytes, block);
    const size_t i = v % per_block, sub = i / static_cast<size_t>(f.sub);
    const double d = static_cast<double>(to_float(block.d)) * (f.super_block ? block.scale[sub] : 1);
    const double m = static_cast<double>(to_float(block.m)) * (f.super_block && f.has_min ? block.min_code[sub] : 1);
    out[v] = std::fabs(d * (block.code[i] - f.offset)) + std::fabs(m);
  }
  return out;
}

struct Expected {
  std::vector<double> y, bound;  // [T, N]
};

// float64 from the dequantised weights. With S = the sum of the magnitudes of what is added:
//   floats  K products and sums in any order: each partial sum is off by at most kEps of S          K * kEps * S
//   int8    f fused multiply-adds (K / 32 blocks, one or two sub-blocks, twice with mins, all of it twice where every
//           block has an outlier), each rounded once; the scale times sx and sx times the sum are rounded once; the
//           dequantised float32 weight itself is off by two roundings, (d * scale) * code and - min  (f + 3) * kEps * S
// Then a rounding for the float result, one for the bias, one for the addition to y. 2 % on top covers products of
// roundings, K * kEps being below 0.001.
Expected expected(const Problem& p, size_t i, Precision precision) {
  const OutSpec& out = p.outs[i];
  const TensorView& w = out.weight->view;
  const QuantFormat* f = precision == Precision::kFast ? quant_format(w.dtype) : nullptr;
  const size_t n_rows = w.rows();
  const double steps = f == nullptr ? static_cast<double>(p.k)
                                    : static_cast<double>(p.k / static_cast<size_t>(f->sub)) * (f->has_min ? 4 : 2) + 3;
  Expected e{std::vector<double>(p.t * n_rows), std::vector<double>(p.t * n_rows)};
  std::vector<Activations> xs;
  for (size_t t = 0; t < p.t; ++t) {
    const float* x = p.x.data() + t * (p.k + p.x_gap);
    const std::vector<double> same(x, x + p.k);
    xs.push_back(f == nullptr ? Activations{same, same} : rounded_activations(x, p.k));
  }
  std::vector<float> weights(p.k);
  for (size_t n = 0; n < n_rows; ++n) {
    dequantize_row(w, n, weights.data());
    const std::vector<double> size =
        f == nullptr ? std::vector<double>(weights.begin(), weights.end()) : magnitudes(w, n);
    for (size_t t = 0; t < p.t; ++t) {
      double y = 0, s = 0;
      for (size_t k = 0; k < p.k; ++k) {
        y += static_cast<double>(weights[k]) * xs[t].value[k];
        s += std::fabs(size[k] * xs[t].size[k]);
      }
      const double b = out.bias ? static_cast<double>(p.bias[i][n]) : 0;
      const double old = out.add ? static_cast<double>(p.before[i][t * n_rows + n]) : 0;
      e.y[t * n_rows + n] = y + b + old;
      e.bound[t * n_rows + n] = 1.02 * kEps * (steps * s + 3 * std::fabs(y) + 2 * std::fabs(b) + std::fabs(old));
    }
  }
  return e;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

size_t values_in_block(DType type) { return dtype_info(type).elements; }

// Agreement with float64; of the int8 kernels also with ref, bit for bit.
void check_all(const Problem& p, Precision precision) {
  const bool floats = std::any_of(p.outs.begin(), p.outs.end(), [&](const OutSpec& o) {
    return precision == Precision::kF32 || !quant_format(o.weight->view.dtype);
  });
  const auto reference = run(ref_ops(), p, precision);
  for (const Ops* ops : all_ops()) {
    CAPTURE(ops->name, kSeed);
    const auto actual = run(*ops, p, precision);
    for (size_t i = 0; i < p.outs.size(); ++i) {
      CAPTURE(i);
      const Expected e = expected(p, i, precision);
      CHECK_THAT(actual[i], test::CloseTo(e.y, e.bound));
      if (!floats && ops->device->is_host()) CHECK(same_bits(actual[i], reference[i]));
    }
  }
}

Precision each_precision() { return GENERATE(Precision::kFast, Precision::kF32); }

}  // namespace

TEST_CASE("matmul: the codes of a block are the weights that dequantize gives", "[compute]") {
  for (const DType type : kAllTypes) {
    const QuantFormat* f = quant_format(type);
    if (f == nullptr) continue;
    CAPTURE(dtype_info(type).name);
    Rng rng(kSeed);
    const size_t per_block = values_in_block(type);
    REQUIRE(static_cast<size_t>(f->block()) == per_block);
    for (int repeat = 0; repeat < 20; ++repeat) {
      const std::string bytes = test::random_blocks(type, per_block, 1, rng);
      const auto* data = reinterpret_cast<const std::byte*>(bytes.data());
      std::vector<float> floats(per_block), from_codes(per_block);
      dequantize(type, data, floats.data(), per_block);
      QuantBlock block;
      read_quant_block(type, data, block);
      for (size_t v = 0; v < per_block; ++v) {
        const size_t sub = v / static_cast<size_t>(f->sub);
        const float scale = to_float(block.d) * (f->super_block ? static_cast<float>(block.scale[sub]) : 1.0f);
        float min = to_float(block.m);
        if (f->super_block) min = f->has_min ? -min * static_cast<float>(block.min_code[sub]) : 0.0f;
        from_codes[v] = scale * static_cast<float>(block.code[v] - f->offset) + min;
      }
      REQUIRE(from_codes == floats);
    }
  }
}

TEST_CASE("matmul: agrees with float64 for every type and odd sizes", "[compute]") {
  const Precision precision = each_precision();
  for (const DType type : kAllTypes) {
    for (const size_t n : {0, 1, 15, 16, 17, 35}) {
      for (const size_t t : {0, 1, 2, 3, 7, 13, 37}) {
        Rng rng(kSeed + n * 100 + t);
        const size_t unit = values_in_block(type) == 1 ? 19 : values_in_block(type);
        const size_t k = unit * (1 + (n + t) % 3);
        CAPTURE(dtype_info(type).name, n, t, k);
        const auto weight = random_weight(type, n, k, rng);
        check_all(Problem(t, k, {{weight.get()}}, rng), precision);
      }
    }
  }
}

TEST_CASE("matmul: agrees with float64 for any K of float weights", "[compute]") {
  const Precision precision = each_precision();
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const size_t k : {0, 1, 7, 8, 9, 15, 16, 17, 31, 33, 127}) {
      Rng rng(kSeed + k);
      CAPTURE(dtype_info(type).name, k);
      const auto weight = random_weight(type, 6, k, rng);
      check_all(Problem(5, k, {{weight.get(), true}}, rng), precision);
    }
  }
}

TEST_CASE("matmul: bias, addition, strides and three outputs of different types", "[compute]") {
  const Precision precision = each_precision();
  for (const DType other : kAllTypes) {
    Rng rng(kSeed);
    CAPTURE(dtype_info(other).name);
    const size_t k = 512;
    const auto a = random_weight(DType::kQ4_K, 33, k, rng);
    const auto b = random_weight(other, 17, k, rng);
    const auto c = random_weight(DType::kQ6_K, 5, k, rng);
    check_all(Problem(14, k, {{a.get(), true, false, 3}, {b.get(), true, true, 11}, {c.get(), false, true}}, rng, 5),
              precision);
  }
}

TEST_CASE("matmul: real shapes and a large K", "[compute]") {
  struct Shape {
    DType type;
    size_t n, k, t;
  };
  const Shape shape =
      GENERATE(Shape{DType::kQ4_1, 192, 576, 65}, Shape{DType::kQ4_1, 576, 1536, 5}, Shape{DType::kQ5_0, 896, 896, 3},
               Shape{DType::kQ8_0, 128, 4864, 13}, Shape{DType::kQ4_K, 17, 14336, 3}, Shape{DType::kQ6_K, 17, 14336, 3},
               Shape{DType::kF16, 9, 14336, 7}, Shape{DType::kQ2_K, 1000, 256, 1});
  const Precision precision = each_precision();
  CAPTURE(dtype_info(shape.type).name, shape.n, shape.k, shape.t);
  Rng rng(kSeed);
  const auto weight = random_weight(shape.type, shape.n, shape.k, rng);
  check_all(Problem(shape.t, shape.k, {{weight.get()}}, rng), precision);
}

TEST_CASE("matmul: the largest codes and activations do not saturate", "[compute]") {
  struct Halves {
    DType type;
    std::vector<size_t> at;  // offsets of the block's halves
  };
  const std::vector<Halves> types = {{DType::kQ4_0, {0}},    {DType::kQ4_1, {0, 2}}, {DType::kQ5_0, {0}},
                                     {DType::kQ5_1, {0, 2}}, {DType::kQ8_0, {0}},    {DType::kQ2_K, {80, 82}},
                                     {DType::kQ3_K, {108}},  {DType::kQ4_K, {0, 2}}, {DType::kQ5_K, {0, 2}},
                                     {DType::kQ6_K, {208}}};
  for (const Halves& halves : types) {
    for (const int fill : {0x00, 0x7f, 0x80, 0x88, 0xff}) {
      for (const float sign : {1.0f, -1.0f}) {
        const size_t k = 256, n = 16, bytes = dtype_info(halves.type).bytes;
        std::string raw(n * k / values_in_block(halves.type) * bytes, static_cast<char>(fill));
        for (size_t block = 0; block < raw.size(); block += bytes) {
          for (const size_t at : halves.at) raw.replace(block + at, 2, "\x66\x2e", 2);  // 0.1 as a half
        }
        const Weight weight(halves.type, n, k, raw);
        Rng rng(kSeed);
        Problem p(3, k, {{&weight}}, rng);
        std::fill(p.x.begin(), p.x.end(), sign * 3.0f);
        CAPTURE(dtype_info(halves.type).name, fill, sign);
        check_all(p, Precision::kFast);
      }
    }
  }
}

TEST_CASE("matmul: a row's result depends on nothing but the row, bit for bit", "[compute]") {
  constexpr std::pair<size_t, size_t> kSlices[] = {{0, 1}, {18, 1}, {36, 1}, {5, 2}, {17, 6}, {20, 9}, {1, 25}};
  const Precision precision = each_precision();
  for (const DType type : kAllTypes) {
    Rng rng(kSeed);
    const size_t k = values_in_block(type) == 1 ? 77 : 512, n = 53, t = 37;
    const auto weight = random_weight(type, n, k, rng);
    const Problem many(t, k, {{weight.get(), true, true}}, rng, 3);
    for (const Ops* ops : all_ops()) {
      CAPTURE(ops->name, dtype_info(type).name, kSeed);
      const auto all = run(*ops, many, precision, 1)[0];
      CHECK(same_bits(run(*ops, many, precision, 2)[0], all));
      CHECK(same_bits(run(*ops, many, precision, 3)[0], all));
      for (const auto& [first, count] : kSlices) {
        Problem few = many;
        few.t = count;
        few.x.assign(&many.x[first * (k + 3)], &many.x[0] + (first + count) * (k + 3));
        few.before[0].assign(&many.before[0][first * n], &many.before[0][0] + (first + count) * n);
        CAPTURE(first, count);
        const std::vector<float> slice(&all[first * n], &all[0] + (first + count) * n);
        CHECK(same_bits(run(*ops, few, precision)[0], slice));
      }
    }
  }
}

TEST_CASE("matmul: one outlier does not cost its neighbours their precision", "[compute]") {
  // 31 values of size 1 beside one of 100. One term alone has steps of 100 / 127: the neighbours' errors, uniform to
  // half a step, would add up over 31 weights to 0.23 * sqrt(31) = 1.3 of a weight's size, and the second term's steps
  // are 127 times smaller at least. Weights are random, so that nothing cancels.
  Rng rng(kSeed);
  const auto weight = random_weight(DType::kQ8_0, 64, 32, rng);
  Problem p(20, 32, {{weight.get()}}, rng);
  for (float& x : p.x) x = static_cast<float>(rng.uniform() * 2 - 1);
  for (size_t t = 0; t < p.t; ++t) p.x[t * 32 + rng.below(32)] = rng.below(2) == 0 ? 100.0f : -100.0f;
  const Expected e = expected(p, 0, Precision::kF32);
  std::vector<float> w(32);
  for (const Ops* ops : all_ops()) {
    CAPTURE(ops->name, kSeed);
    const auto y = run(*ops, p, Precision::kFast)[0];
    double error = 0, size = 0;
    for (size_t i = 0; i < y.size(); ++i) error += std::pow(static_cast<double>(y[i]) - e.y[i], 2);
    for (size_t n = 0; n < 64; ++n) {
      dequantize_row(weight->view, n, w.data());
      for (const float f : w) size += static_cast<double>(f) * static_cast<double>(f);
    }
    const double weight_rms = std::sqrt(size / (64 * 32)), error_rms = std::sqrt(error / static_cast<double>(y.size()));
    CHECK(error_rms < 1.3 / 100 * weight_rms);  // 1.3 / 127, and a quarter for chance
    CHECK(error_rms > 0);
  }
}

TEST_CASE("matmul: a row that is not finite shows, and shows in no other row", "[compute]") {
  const Precision precision = each_precision();
  for (const DType type : kAllTypes) {
    Rng rng(kSeed);
    const auto weight = random_weight(type, 20, 256, rng);
    const Problem clean(14, 256, {{weight.get()}}, rng);
    Problem bad = clean;
    bad.x[3 * 256 + 40] = std::numeric_limits<float>::quiet_NaN();
    bad.x[9 * 256 + 255] = std::numeric_limits<float>::infinity();
    for (const Ops* ops : all_ops()) {
      CAPTURE(ops->name, dtype_info(type).name);
      const auto good = run(*ops, clean, precision)[0], y = run(*ops, bad, precision)[0];
      size_t n_finite = 0, n_changed = 0;
      for (size_t i = 0; i < y.size(); ++i) {
        if (i / 20 == 3 || i / 20 == 9)
          n_finite += std::isfinite(y[i]);
        else
          n_changed += std::bit_cast<uint32_t>(y[i]) != std::bit_cast<uint32_t>(good[i]);
      }
      CHECK(n_finite == 0);
      CHECK(n_changed == 0);
    }
  }
}

TEST_CASE("matmul: zero, tiny and huge activations", "[compute]") {
  for (const DType type : {DType::kQ4_0, DType::kQ8_0, DType::kQ2_K, DType::kQ4_K, DType::kQ6_K}) {
    for (const float size : {0.0f, 1e-45f, 1e-38f, 0x1p-101f, 1e-29f, 1e30f}) {
      Rng rng(kSeed);
      const auto weight = random_weight(type, 17, 256, rng);
      Problem p(3, 256, {{weight.get()}}, rng);
      for (float& x : p.x) x *= size;
      CAPTURE(dtype_info(type).name, size);
      // Blocks below the threshold are zero, so their results must be exactly that: both sides of the bound are 0.
      check_all(p, Precision::kFast);
    }
  }
}

TEST_CASE("matmul: damaged blocks give numbers or NaN, and the same on every target", "[compute]") {
  for (const DType type : kAllTypes) {
    if (quant_format(type) == nullptr) continue;
    Rng rng(kSeed);
    std::string raw(17 * 256 / values_in_block(type) * dtype_info(type).bytes, '\0');
    for (char& c : raw) c = static_cast<char>(rng.below(256));
    const Weight weight(type, 17, 256, raw);
    const Problem p(5, 256, {{&weight}}, rng);
    const auto reference = run(ref_ops(), p, Precision::kFast)[0];
    for (const Ops* ops : all_ops()) {
      const auto y = run(*ops, p, Precision::kFast)[0];
      CAPTURE(ops->name, dtype_info(type).name);
      size_t n_different = 0;
      for (size_t i = 0; i < y.size(); ++i)
        n_different += !(y[i] == reference[i] || (std::isnan(y[i]) && std::isnan(reference[i])));
      CHECK(n_different == 0);
    }
  }
}

TEST_CASE("matmul: float weights and float32 precision use the file's bytes in place", "[compute]") {
  ThreadPool pool(1);
  for (const Ops* ops : all_ops()) {
    if (!ops->device->is_host()) continue;
    for (const DType type : kAllTypes) {
      Rng rng(kSeed);
      const auto weight = random_weight(type, 17, 256, rng);
      CAPTURE(ops->name, dtype_info(type).name);
      const PackedMatrix exact = ops->pack({&pool}, {weight->view, Precision::kF32});
      CHECK(exact.data == weight->view.data);
      CHECK(exact.storage.n_bytes() == 0);
      const PackedMatrix fast = ops->pack({&pool}, {weight->view, Precision::kFast});
      CHECK(fast.n == 17);
      CHECK(fast.k == 256);
      CHECK(fast.source == type);
      if (quant_format(type) == nullptr) CHECK(fast.storage.n_bytes() == 0);
    }
  }
}

TEST_CASE("matmul: packing tells of each row that it copied, once, and of none that it uses in place", "[compute]") {
  ThreadPool pool(3);
  for (const Ops* ops : all_ops()) {
    if (!ops->device->is_host()) continue;
    for (const size_t n : {1, 17, 3000}) {
      Rng rng(kSeed);
      const auto weight = random_weight(DType::kQ4_K, n, 512, rng);
      for (const Precision precision : {Precision::kFast, Precision::kF32}) {
        std::vector<std::atomic<int>> copied(n);
        const PackedMatrix packed = ops->pack({&pool}, {weight->view, precision, [&](uint64_t first, uint64_t count) {
                                                          for (uint64_t r = first; r < first + count; ++r) ++copied[r];
                                                        }});
        CAPTURE(ops->name, n);
        const int wanted = packed.storage.n_bytes() > 0 ? 1 : 0;
        CHECK(std::count_if(copied.begin(), copied.end(), [&](const auto& c) { return c == wanted; }) ==
              static_cast<ptrdiff_t>(n));
      }
    }
  }
}

TEST_CASE("matmul: packed weights are hardly larger than the file's", "[compute]") {
  ThreadPool pool(1);
  for (const Ops* ops : all_ops()) {
    for (const DType type : kAllTypes) {
      Rng rng(kSeed);
      const auto weight = random_weight(type, 64, 1024, rng);
      CAPTURE(ops->name, dtype_info(type).name);
      const PackedMatrix packed = ops->pack({&pool}, {weight->view, Precision::kFast});
      // Integer scales take 8 bits instead of 6 or 4: 16 more bits in 16 values * 2.6 bits (Q2_K) are the most.
      CHECK(static_cast<double>(packed.storage.n_bytes()) <= 1.2 * static_cast<double>(weight->view.n_bytes));
    }
  }
}

}  // namespace cento
