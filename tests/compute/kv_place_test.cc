#include <algorithm>

#include "compute/op_test.h"
#include "compute/rope_table.h"

namespace cento::test {
namespace {

struct Shape {
  size_t t, hkv, d;
  uint32_t dims;
  bool interleaved;
  size_t capacity;
};

struct Live {
  std::vector<float> k, v;  // [Hkv, capacity, D], the value of what is stored
};

constexpr float kOld = 3;  // what the slots hold before

// Places rows k, v [T, Hkv, D] (float32 values, rounded to `type` first) at `pos`.
template <class T>
Live run(const Ops& ops, const Shape& s, const std::vector<float>& k, const std::vector<float>& v,
         const std::vector<int32_t>& pos, const std::vector<float>& table, size_t n_threads) {
  const auto to_type = [](const std::vector<float>& x) {
    if constexpr (std::is_same_v<T, fp16>)
      return halves(x);
    else
      return x;
  };
  const std::vector<float> old(s.hkv * s.capacity * s.d, kOld);
  DeviceArray<T> k_dev(ops, to_type(k), 1), v_dev(ops, to_type(v), 3);
  DeviceArray<T> k_live(ops, to_type(old), 1), v_live(ops, to_type(old), 1);
  DeviceArray<int32_t> pos_dev(ops, pos, 1);
  DeviceArray<float> table_dev(ops, table, 1);
  KvPlaceArgs a{};
  a.k = k_dev.ptr();
  a.v = v_dev.ptr();
  a.pos = pos_dev.ptr();
  a.t = pos.size();
  a.rope = {table_dev.ptr(), s.dims, s.interleaved};
  a.dst = {k_live.ptr(),
           v_live.ptr(),
           std::is_same_v<T, fp16> ? KvType::kF16 : KvType::kF32,
           static_cast<uint32_t>(s.hkv),
           static_cast<uint32_t>(s.d),
           s.capacity};
  ops.kv_place(context(n_threads), a);
  const auto to_floats = [](const std::vector<T>& x) {
    std::vector<float> f(x.size());
    if constexpr (std::is_same_v<T, fp16>) {
      for (size_t i = 0; i < x.size(); ++i) f[i] = to_float(x[i]);
    } else {
      f = x;
    }
    return f;
  };
  return {to_floats(k_live.get()), to_floats(v_live.get())};
}

// Half a unit in the last place of a half near x: 11 bits of mantissa, not below that of subnormals.
double half_ulp_of_half(double x) { return std::max(std::fabs(x) * 0x1p-11, 0x1p-25); }

template <class T>
void check(const Shape& s) {
  CAPTURE(s.t, s.hkv, s.d, s.dims, s.interleaved);
  constexpr bool kHalf = std::is_same_v<T, fp16>;
  Rng rng(kSeed);
  const std::vector<float> table = make_rope_table(s.dims, 10000, 1, {}, 0, s.capacity);
  std::vector<float> k = random_floats(rng, s.t * s.hkv * s.d, 4), v = random_floats(rng, k.size(), 4);
  if (kHalf)
    for (std::vector<float>* x : {&k, &v})
      for (float& value : *x) value = to_float(to_fp16(value));
  // Distinct slots in no order, the last one among them.
  std::vector<int32_t> pos;
  for (size_t t = 0; t < s.t; ++t) pos.push_back(static_cast<int32_t>((t * 37 + s.capacity - 1) % s.capacity));

  // As rope_rows: 3u (|a| + |b|); then rounded once more to half.
  std::vector<double> k_exp(s.hkv * s.capacity * s.d, kOld), v_exp = k_exp, bound(k_exp.size(), 0);
  for (size_t t = 0; t < s.t; ++t) {
    for (size_t h = 0; h < s.hkv; ++h) {
      const size_t from = (t * s.hkv + h) * s.d, to = (h * s.capacity + static_cast<size_t>(pos[t])) * s.d;
      for (size_t i = 0; i < s.d; ++i) {
        k_exp[to + i] = static_cast<double>(k[from + i]);
        v_exp[to + i] = static_cast<double>(v[from + i]);
      }
      for (size_t i = 0; i < s.dims / 2; ++i) {
        const size_t ia = s.interleaved ? 2 * i : i, ib = s.interleaved ? 2 * i + 1 : i + s.dims / 2;
        const double w = pos[t] * std::pow(10000.0, -2.0 * static_cast<double>(i) / s.dims);
        const double a = static_cast<double>(k[from + ia]), b = static_cast<double>(k[from + ib]);
        k_exp[to + ia] = a * std::cos(w) - b * std::sin(w);
        k_exp[to + ib] = b * std::cos(w) + a * std::sin(w);
        for (const size_t j : {to + ia, to + ib})
          bound[j] = (3 * kU * (std::fabs(a) + std::fabs(b)) + 1e-9) * 1.001 + (kHalf ? half_ulp_of_half(k_exp[j]) : 0);
      }
    }
  }
  const Live reference = run<T>(ref_ops(), s, k, v, pos, table, 1);
  for (const Ops* ops : tested_ops()) {
    CAPTURE(ops->name);
    const Live live = run<T>(*ops, s, k, v, pos, table, 2);
    CHECK_THAT(live.k, CloseTo(k_exp, bound));
    CHECK_THAT(live.v, CloseTo(v_exp, 0.0));
    CHECK(same_bits(live.k, reference.k));
    CHECK(same_bits(live.v, reference.v));
    if (s.t == 0) continue;
    // One row alone: its slots have the same bits.
    const size_t t = s.t / 2, width = s.hkv * s.d;
    const auto row = [&](const std::vector<float>& x) {
      return std::vector<float>(x.begin() + static_cast<long>(t * width),
                                x.begin() + static_cast<long>((t + 1) * width));
    };
    const Live one = run<T>(*ops, s, row(k), row(v), {pos[t]}, table, 1);
    for (size_t h = 0; h < s.hkv; ++h) {
      const size_t at = (h * s.capacity + static_cast<size_t>(pos[t])) * s.d;
      CHECK(std::memcmp(one.k.data() + at, live.k.data() + at, s.d * sizeof(float)) == 0);
      CHECK(std::memcmp(one.v.data() + at, live.v.data() + at, s.d * sizeof(float)) == 0);
    }
  }
}

TEST_CASE("kv_place: agrees with float64, has the same bits on every backend, and touches no other slot", "[compute]") {
  const auto s =
      GENERATE(Shape{0, 1, 2, 2, false, 4}, Shape{1, 1, 2, 2, false, 1}, Shape{5, 3, 16, 16, false, 9},
               Shape{4, 2, 34, 34, true, 7}, Shape{3, 1, 62, 30, false, 5}, Shape{200, 3, 64, 64, false, 1000},
               Shape{6, 2, 80, 80, true, 40}, Shape{5, 1, 256, 256, false, 30}, Shape{5, 1, 16, 16, false, 33000});
  SECTION("half") { check<fp16>(s); }
  SECTION("float32") { check<float>(s); }
}

TEST_CASE("kv_place: what rotates beyond the largest finite half is clamped to it", "[compute]") {
  const Shape s{1, 1, 2, 2, false, 2};
  const float h = std::sqrt(0.5F);
  const std::vector<float> table = {1, 0, h, h};  // position 1: 45 degrees
  for (const Ops* ops : tested_ops()) {
    CAPTURE(ops->name);
    for (const float sign : {1.0F, -1.0F}) {
      const Live live = run<fp16>(*ops, s, {sign * 65504, sign * 65504}, {sign * 65504, 0}, {1}, table, 1);
      CHECK(live.k[2] == 0);
      CHECK(live.k[3] == sign * 65504);
      CHECK(live.v[2] == sign * 65504);
    }
  }
}

}  // namespace
}  // namespace cento::test
