#include <algorithm>
#include <limits>

#include "compute/op_test.h"

namespace cento::test {
namespace {

struct Case {
  size_t h, hkv, d;
  std::vector<int32_t> q_pos;
  uint32_t window = 0;
  KvType type = KvType::kF16;
  double q_amplitude = 2;  // of most rows; every third row is ten times that: a softmax with one or two winners
  size_t spare = 3;        // slots behind the last position, left as NaN
  bool round_values = true;
};

// Host data of a case. K and V are kept as the float32 value of what is stored; slots behind the last position are NaN.
struct Data {
  std::vector<float> q;     // [T, H, D]
  std::vector<float> k, v;  // [Hkv, capacity, D]
  size_t capacity = 0;
};

Data make_data(const Case& c, uint64_t seed) {
  Rng rng(seed);
  Data data;
  const size_t n_keys = c.q_pos.empty() ? 0 : static_cast<size_t>(c.q_pos.back()) + 1;
  data.capacity = n_keys + c.spare;
  data.q = random_floats(rng, c.q_pos.size() * c.h * c.d, c.q_amplitude);
  for (size_t t = 0; t < c.q_pos.size(); t += 3)
    for (size_t i = 0; i < c.h * c.d; ++i) data.q[t * c.h * c.d + i] *= 10;
  data.k = random_floats(rng, c.hkv * data.capacity * c.d, 2);
  data.v = random_floats(rng, c.hkv * data.capacity * c.d, 1);
  // Outliers: some keys are long, and their values far from all others: attending to the wrong one shows.
  for (size_t j = 0; j < c.hkv * data.capacity; j += 7)
    for (size_t i = 0; i < c.d; ++i) {
      data.k[j * c.d + i] *= 4;
      data.v[j * c.d + i] += 30;
    }
  for (std::vector<float>* x : {&data.k, &data.v}) {
    if (c.type == KvType::kF16)
      for (float& value : *x) value = to_float(to_fp16(value));
    for (size_t h = 0; h < c.hkv; ++h)
      std::fill_n(x->begin() + static_cast<long>((h * data.capacity + n_keys) * c.d), c.spare * c.d, NAN);
  }
  return data;
}

struct Result {
  std::vector<float> out;   // [T, H, D]
  std::vector<float> mass;  // [n_mass]
};

// Runs the op on some rows of the case (all of them: rows empty).
Result run(const Ops& ops, const Case& c, const Data& data, size_t n_threads, std::vector<size_t> rows = {},
           std::vector<float> mass = {}) {
  if (rows.empty())
    for (size_t t = 0; t < c.q_pos.size(); ++t) rows.push_back(t);
  const size_t width = c.h * c.d, ldq = width + 5, ldo = width + 3;
  std::vector<float> q;
  std::vector<int32_t> q_pos;
  for (const size_t t : rows) {
    q.insert(q.end(), data.q.begin() + static_cast<long>(t * width),
             data.q.begin() + static_cast<long>((t + 1) * width));
    q_pos.push_back(c.q_pos[t]);
  }
  DeviceArray<float> q_dev(ops, with_stride(q, rows.size(), width, ldq, NAN), 1);
  DeviceArray<int32_t> pos_dev(ops, q_pos);
  DeviceArray<float> out_dev(ops, with_stride(std::vector<float>(q.size(), NAN), rows.size(), width, ldo, -7), 3);
  DeviceArray<float> mass_dev(ops, mass, 1);
  const bool f16 = c.type == KvType::kF16;
  DeviceArray<fp16> k16(ops, f16 ? halves(data.k) : std::vector<fp16>(), 1);
  DeviceArray<fp16> v16(ops, f16 ? halves(data.v) : std::vector<fp16>(), 1);
  DeviceArray<float> k32(ops, f16 ? std::vector<float>() : data.k, 1);
  DeviceArray<float> v32(ops, f16 ? std::vector<float>() : data.v, 1);
  AttentionArgs a{};
  a.q = q_dev.ptr();
  a.q_pos = pos_dev.ptr();
  a.out = out_dev.ptr();
  a.t = rows.size();
  a.h = c.h;
  a.d = c.d;
  a.ldq = ldq;
  a.ldo = ldo;
  a.kv = {f16 ? static_cast<void*>(k16.ptr()) : k32.ptr(),
          f16 ? static_cast<void*>(v16.ptr()) : v32.ptr(),
          c.type,
          static_cast<uint32_t>(c.hkv),
          static_cast<uint32_t>(c.d),
          data.capacity};
  a.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(c.d)));
  a.window = c.window;
  a.round_values = c.round_values;
  if (!mass.empty()) {
    a.key_mass = mass_dev.ptr();
    a.n_mass = mass.size();
  }
  ops.attention(context(n_threads), a);
  return {without_stride(out_dev.get(), rows.size(), width, ldo, -7), mass_dev.get()};
}

struct Expected {
  std::vector<double> out, bound, mass, mass_bound;
  std::vector<double> weight;  // sum_j p_j |v_j|, for rounded_bound
};

// The bound of a backend that rounds p and v before it multiplies them: either is off by the share e at most, so that
// the sum moves by (2 e + e^2) sum_j p_j |v_j|. Weights below the smallest normal number of float32 count as 0, which
// the bound covers already.
std::vector<double> rounded_bound(const Ops& ops, const Case& c, const Expected& expected) {
  std::vector<double> bound = expected.bound;
  const double e = c.type == KvType::kF16 && c.round_values ? static_cast<double>(ops.value_rounding) : 0;
  for (size_t i = 0; i < bound.size(); ++i) bound[i] += (2 * e + e * e) * expected.weight[i] * 1.01;
  return bound;
}

// The formula in float64, and how far float32 may be from it. With u = 2^-24, n keys, S = max over the keys of
// scale * sum_i |q_i k_i|, first order in u:
//   a score is off by at most (D + 5) u S: D fused multiply-adds, the query times a rounded constant, minus the
//   maximum; a weight exp(score - max) therefore by the same share, the exponential adds 2 ulp (4u), each rescaling to
//   a new
//     maximum (one a tile of 64 keys, two a merge of ranges) at most 6u, and the sums n u at most;
//   weights appear above and below the fraction bar, and the products with v are summed once more.
// So |out - exact| <= 2 ((D + 5) S + n + 8 (n / 64 + 2) + 8) u * sum_j p_j |v_j|, plus n * 2^-126 max |v| for the
// weights that underflow.
Expected attention64(const Case& c, const Data& data, size_t n_mass) {
  Expected e;
  e.mass.assign(n_mass, 0);
  e.mass_bound.assign(n_mass, 0);
  const double scale = static_cast<double>(static_cast<float>(1 / std::sqrt(static_cast<double>(c.d))));
  for (size_t t = 0; t < c.q_pos.size(); ++t) {
    const int64_t q_pos = c.q_pos[t];
    const size_t first = static_cast<size_t>(c.window == 0 ? 0 : std::max<int64_t>(0, q_pos - c.window + 1));
    const size_t n = static_cast<size_t>(q_pos) + 1 - first;
    for (size_t h = 0; h < c.h; ++h) {
      const float* q = data.q.data() + (t * c.h + h) * c.d;
      const size_t head = h / (c.h / c.hkv) * data.capacity;
      std::vector<double> p(n);
      double max = -HUGE_VAL, longest = 0, sum = 0;
      for (size_t j = 0; j < n; ++j) {
        double dot = 0, abs = 0;
        for (size_t i = 0; i < c.d; ++i) {
          const double x = static_cast<double>(q[i]) * static_cast<double>(data.k[(head + first + j) * c.d + i]);
          dot += x;
          abs += std::fabs(x);
        }
        p[j] = scale * dot;
        max = std::max(max, p[j]);
        longest = std::max(longest, scale * abs);
      }
      for (double& x : p) sum += x = std::exp(x - max);
      const double nd = static_cast<double>(n);
      const double share = 2 * ((static_cast<double>(c.d) + 5) * longest + nd + 8 * (nd / 64 + 2) + 8) * kU;
      for (size_t j = 0; j < n; ++j) {
        p[j] /= sum;
        if (first + j >= n_mass) continue;
        e.mass[first + j] = std::max(e.mass[first + j], p[j]);
        e.mass_bound[first + j] = std::max(e.mass_bound[first + j], share * p[j] + 0x1p-126);
      }
      for (size_t i = 0; i < c.d; ++i) {
        double out = 0, abs = 0;
        for (size_t j = 0; j < n; ++j) {
          const double v = static_cast<double>(data.v[(head + first + j) * c.d + i]);
          out += p[j] * v;
          abs += p[j] * std::fabs(v);
        }
        e.out.push_back(out);
        e.weight.push_back(abs);
        e.bound.push_back(share * abs + nd * 0x1p-126 * 64);
      }
    }
  }
  return e;
}

std::vector<int32_t> from_to(int32_t from, int32_t to, int32_t step = 1) {
  std::vector<int32_t> v;
  for (int32_t p = from; p < to; p += step) v.push_back(p);
  return v;
}

TEST_CASE("attention: agrees with float64 on every backend", "[compute]") {
  const auto c = GENERATE(Case{1, 1, 2, {0}},                               // smallest
                          Case{2, 1, 6, {0, 1, 2}},                         // D no multiple of 4
                          Case{3, 3, 16, from_to(0, 63)},                   // a tile minus one
                          Case{4, 2, 16, from_to(0, 64)},                   // a tile
                          Case{4, 2, 16, from_to(0, 65)},                   // a tile plus one
                          Case{2, 1, 16, from_to(250, 262)},                // across the border of a range
                          Case{9, 3, 64, from_to(0, 131)},                  // SmolLM2
                          Case{14, 2, 64, from_to(100, 131)},               // Qwen2 0.5B
                          Case{4, 1, 256, from_to(0, 71)},                  // Gemma 3
                          Case{5, 1, 80, {3, 64, 65, 200, 511, 512, 513}},  // gathered rows
                          Case{3, 1, 96, from_to(1, 600, 7)},               // gathered rows, evenly
                          Case{2, 2, 128, {5, 6, 7, 300}},                  //
                          Case{7, 7, 10, from_to(0, 97, 13)},               // odd everything
                          Case{100, 1, 4, {1, 70}},                         // more heads than a block has vectors
                          Case{9, 3, 64, {1499}},                           // decode
                          Case{3, 1, 64, from_to(5970, 6000, 3)},           // question rows over many keys
                          Case{2, 1, 16, {32767}});                         // far away
  CAPTURE(c.h, c.hkv, c.d, c.q_pos.size(), c.q_pos.front(), c.q_pos.back());
  const std::pair<KvType, bool> kinds[] = {{KvType::kF16, true}, {KvType::kF16, false}, {KvType::kF32, true}};
  for (const auto& [type, round_values] : kinds) {
    Case typed = c;
    typed.type = type;
    typed.round_values = round_values;
    const Data data = make_data(typed, kSeed);
    const Expected expected = attention64(typed, data, 0);
    for (const Ops* ops : tested_ops()) {
      CAPTURE(ops->name, static_cast<int>(typed.type), typed.round_values);
      for (const size_t n_threads : {1, 2})
        CHECK_THAT(run(*ops, typed, data, n_threads).out, CloseTo(expected.out, rounded_bound(*ops, typed, expected)));
    }
  }
}

TEST_CASE("attention: a window hides the keys before it", "[compute]") {
  const auto window = GENERATE(1U, 2U, 63U, 64U, 65U, 200U, 512U, 100000U);
  const auto q_pos = GENERATE(from_to(0, 140), from_to(590, 600), std::vector<int32_t>{0, 63, 64, 300, 599});
  const Case c{6, 2, 16, q_pos, window};
  CAPTURE(window, q_pos.front(), q_pos.back());
  const Data data = make_data(c, kSeed);
  const Expected expected = attention64(c, data, 0);
  for (const Ops* ops : tested_ops()) {
    CAPTURE(ops->name);
    for (const size_t n_threads : {1, 2})
      CHECK_THAT(run(*ops, c, data, n_threads).out, CloseTo(expected.out, rounded_bound(*ops, c, expected)));
  }
}

TEST_CASE("attention: a row's result has the same bits alone, among others and on any number of threads", "[compute]") {
  const auto c = GENERATE(Case{9, 3, 64, from_to(500, 700)}, Case{2, 1, 16, from_to(0, 200), 50},
                          Case{4, 1, 256, from_to(0, 300, 11)}, Case{14, 2, 64, from_to(3, 1200, 17)},
                          Case{3, 3, 10, from_to(250, 330)}, Case{2, 2, 80, from_to(0, 270), 0, KvType::kF32});
  CAPTURE(c.h, c.hkv, c.d, c.q_pos.size());
  const Data data = make_data(c, kSeed);
  const size_t width = c.h * c.d;
  for (const Ops* ops : tested_ops()) {
    CAPTURE(ops->name);
    const std::vector<float> all = run(*ops, c, data, 1).out;
    CHECK(same_bits(all, run(*ops, c, data, 2).out));
    CHECK(same_bits(all, run(*ops, c, data, 3).out));
    const auto rows_of = [&](const std::vector<size_t>& rows) {
      std::vector<float> v;
      for (const size_t t : rows)
        v.insert(v.end(), all.begin() + static_cast<long>(t * width), all.begin() + static_cast<long>((t + 1) * width));
      return v;
    };
    for (size_t t = 0; t < c.q_pos.size(); t += 11) {
      CAPTURE(t);
      CHECK(same_bits(run(*ops, c, data, 1 + t % 3, {t}).out, rows_of({t})));
    }
    std::vector<size_t> some;  // gathered, unevenly
    for (size_t t = 0; t < c.q_pos.size(); t += 1 + t % 5) some.push_back(t);
    for (const size_t n_threads : {1, 2, 3}) CHECK(same_bits(run(*ops, c, data, n_threads, some).out, rows_of(some)));
  }
}

// K and V of the slots [from, to) become NaN.
void lose(Data& data, const Case& c, size_t from, size_t to) {
  for (std::vector<float>* x : {&data.k, &data.v})
    for (size_t h = 0; h < c.hkv; ++h)
      std::fill(x->begin() + static_cast<long>((h * data.capacity + from) * c.d),
                x->begin() + static_cast<long>((h * data.capacity + to) * c.d), NAN);
}

TEST_CASE("attention: a row is not touched by what other rows may see and it may not", "[compute]") {
  // Some slots hold NaN. The rows that see them are lost, first or last ones; the others must not notice. With three
  // heads to a KV head a kernel that takes several rows at once has lost ones and others in one register block.
  struct Row {
    Case c;
    size_t lost_from, lost_to;  // slots
    size_t first_row, end_row;  // that see none of them
  };
  std::vector<int32_t> late = from_to(0, 89), early = from_to(300, 389);
  late.push_back(400);
  early.insert(early.begin(), 210);
  const auto row = GENERATE_COPY(Row{{6, 2, 16, late}, 89, 401, 0, 89},         // beyond the position
                                 Row{{6, 2, 16, late, 40}, 89, 401, 0, 89},     //
                                 Row{{6, 2, 16, early, 100}, 111, 201, 1, 90},  // before the window
                                 Row{{6, 2, 16, from_to(500, 560), 100}, 0, 401, 0, 60});
  Case c = row.c;
  c.type = GENERATE(KvType::kF16, KvType::kF32);
  const Data clean = make_data(c, kSeed);
  Data data = clean;
  lose(data, c, row.lost_from, row.lost_to);
  const size_t width = c.h * c.d;
  std::vector<size_t> rows;
  for (size_t t = row.first_row; t < row.end_row; ++t) rows.push_back(t);
  for (const Ops* ops : tested_ops()) {
    CAPTURE(ops->name);
    for (const size_t n_threads : {1, 2}) {
      const std::vector<float> out = run(*ops, c, data, n_threads).out;
      const std::vector<float> spared(out.begin() + static_cast<long>(row.first_row * width),
                                      out.begin() + static_cast<long>(row.end_row * width));
      CHECK(same_bits(spared, run(*ops, c, clean, 1, rows).out));
    }
  }
}

TEST_CASE("attention: the weights of two keys are right to a few units in the last place", "[compute]") {
  // k_0 = 0 and k_1 = -e_0, v_0 = 0 and v_1 = e_0: out_0 = exp(s) / (1 + exp(s)) for s = -x / 4, x the first component
  // of a head's query. Scale and 1 / ln 2 are one constant, rounded, and the product with x is rounded: 2u |s|; the
  // exponential 2 ulp (4u), the sum, its inverse and the product u each. 2^-126 covers the underflow to 0.
  constexpr size_t kHeads = 400, kD = 16;
  Case c{kHeads, 1, kD, {1}};
  c.round_values = false;
  Data data = make_data(c, kSeed);
  std::fill(data.q.begin(), data.q.end(), 0.0F);
  std::fill_n(data.k.begin(), 2 * kD, 0.0F);
  std::fill_n(data.v.begin(), 2 * kD, 0.0F);
  data.k[kD] = -1;
  data.v[kD] = 1;
  std::vector<double> expected(kHeads * kD, 0), bound(kHeads * kD, 0);
  for (size_t h = 0; h < kHeads; ++h) {
    // Densely from 0 to 3, then to 100.
    const double x = h < 200 ? static_cast<double>(h) * 0.06 : static_cast<double>(h - 194) * 2;
    data.q[h * kD] = static_cast<float>(x);
    const double s = -static_cast<double>(data.q[h * kD]) / 4;
    expected[h * kD] = std::exp(s) / (1 + std::exp(s));
    bound[h * kD] = (2 * std::fabs(s) + 7) * kU * 1.01 * expected[h * kD] + 0x1p-126;
  }
  for (const Ops* ops : tested_ops()) {
    CAPTURE(ops->name);
    const std::vector<float> out = run(*ops, c, data, 2).out;
    CHECK_THAT(out, CloseTo(expected, bound));
    CHECK(out[0] == 0.5F);
  }
}

TEST_CASE("attention: finite input gives finite output, however large", "[compute]") {
  const auto amplitude = GENERATE(1e-38, 1e3, 1e10, 1e30, 3e38);
  Case c{2, 1, 16, from_to(60, 70)};
  Data data = make_data(c, kSeed);
  Rng rng(kSeed + 1);
  for (float& x : data.q) x = static_cast<float>((rng.uniform() * 2 - 1) * amplitude);
  // Scores of any sign, or all below, or all above what float32 holds.
  const auto sign = GENERATE(0, -1, 1);
  if (sign != 0) {
    for (float& x : data.q) x = static_cast<float>(sign) * std::fabs(x);
    for (float& x : data.k)
      if (!std::isnan(x)) x = 65504;
  }
  for (const Ops* ops : tested_ops()) {
    CAPTURE(ops->name, amplitude, sign);
    const std::vector<float> out = run(*ops, c, data, 2).out;
    for (const float x : out) REQUIRE(std::isfinite(x));
    // And one that depends on nothing else, such as what a kernel has computed before.
    const Case other{2, 1, 16, from_to(300, 400)};
    (void)run(*ops, other, make_data(other, kSeed + 2), 2);
    CHECK(same_bits(run(*ops, c, data, 1).out, out));
  }
}

TEST_CASE("attention: key_mass is the largest weight of a key over all rows and heads", "[compute]") {
  const auto c = GENERATE(Case{2, 1, 16, {0}}, Case{6, 2, 16, from_to(60, 70)}, Case{9, 3, 64, from_to(770, 780)},
                          Case{4, 1, 80, {5, 300, 513}, 100}, Case{2, 1, 16, from_to(0, 300)},
                          Case{2, 2, 16, {40, 90}, 0, KvType::kF32});
  const size_t n_keys = static_cast<size_t>(c.q_pos.back()) + 1;
  const Data data = make_data(c, kSeed);
  const Expected all = attention64(c, data, n_keys + 70);
  // More than there are keys, all, one fewer, few.
  for (const size_t n_mass : {n_keys + 70, n_keys, std::max<size_t>(n_keys, 2) - 1, size_t{1}}) {
    Expected e = all;
    e.mass.resize(n_mass);
    e.mass_bound.resize(n_mass);
    CAPTURE(c.h, c.d, n_keys, n_mass);
    for (const Ops* ops : tested_ops()) {
      CAPTURE(ops->name);
      for (const size_t n_threads : {1, 2}) {
        const Result r = run(*ops, c, data, n_threads, {}, std::vector<float>(n_mass, 0.0F));
        CHECK_THAT(r.mass, CloseTo(e.mass, e.mass_bound));
        CHECK_THAT(r.out, CloseTo(e.out, rounded_bound(*ops, c, e)));
      }
      // What was there already stays where it is larger.
      std::vector<float> before(n_mass, 0.0F);
      Expected kept = e;
      for (size_t j = 0; j < n_mass; j += 2) {
        before[j] = 2;
        kept.mass[j] = 2;
        kept.mass_bound[j] = 0;
      }
      CHECK_THAT(run(*ops, c, data, 2, {}, before).mass, CloseTo(kept.mass, kept.mass_bound));
    }
  }
}

TEST_CASE("attention: key_mass of a call whose scores are too many to keep is that of its rows one by one",
          "[compute]") {
  // 5 rows, 32 heads and 130,000 keys are 83 MB of scores, 64 MiB are kept at once.
  const Case c{32, 1, 8, from_to(129995, 130000)};
  const size_t n_keys = 130000;
  const Data data = make_data(c, kSeed);
  for (const Ops* ops : all_simd_ops()) {
    CAPTURE(ops->name, kSeed);
    const Result all = run(*ops, c, data, 2, {}, std::vector<float>(n_keys, 0.0F));
    std::vector<float> out, mass(n_keys, 0.0F);
    for (size_t t = 0; t < c.q_pos.size(); ++t) {
      const Result one = run(*ops, c, data, 2, {t}, mass);
      out.insert(out.end(), one.out.begin(), one.out.end());
      mass = one.mass;
    }
    CHECK(same_bits(all.out, out));
    CHECK(same_bits(all.mass, mass));
  }
}

TEST_CASE("attention: no rows, no result", "[compute]") {
  for (const Ops* ops : tested_ops()) {
    CAPTURE(ops->name);
    AttentionArgs a{};
    a.h = 2;
    a.d = 16;
    a.kv.n_kv_heads = 1;
    a.kv.head_dim = 16;
    CHECK_NOTHROW(ops->attention(context(2), a));
  }
}

}  // namespace
}  // namespace cento::test
