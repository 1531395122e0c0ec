#include <algorithm>

#include "compute/op_test.h"
#include "compute/rope_table.h"

namespace cento::test {
namespace {

struct Shape {
  size_t t, hkv, d;
  uint32_t dims;
  bool interleaved;
};
constexpr size_t kCapacity = 700;

template <class T>
std::vector<T> to_type(const std::vector<float>& x) {
  if constexpr (std::is_same_v<T, fp16>)
    return halves(x);
  else
    return x;
}
template <class T>
float rounded(float x) {
  if constexpr (std::is_same_v<T, fp16>)
    return to_float(to_fp16(x));
  else
    return x;
}

struct Result {
  std::vector<float> k_dev, v_dev;
};

// Live KV is that of `old_k`, `old_v` placed at pos; the fresh rows are k, v. All [T, Hkv, D].
template <class T>
Result run(const Ops& ops, const Shape& s, const std::vector<float>& old_k, const std::vector<float>& old_v,
           const std::vector<float>& k, const std::vector<float>& v, const std::vector<int32_t>& pos,
           const std::vector<float>& table, size_t n_threads) {
  const std::vector<float> unset(s.hkv * kCapacity * s.d, NAN);
  DeviceArray<T> k_live(ops, to_type<T>(unset), 1), v_live(ops, to_type<T>(unset), 1);
  DeviceArray<T> k_old(ops, to_type<T>(old_k)), v_old(ops, to_type<T>(old_v));
  DeviceArray<T> k_dev(ops, to_type<T>(k), 1), v_dev(ops, to_type<T>(v), 3);
  DeviceArray<int32_t> pos_dev(ops, pos, 1);
  DeviceArray<float> table_dev(ops, table);
  DeviceArray<float> k_out(ops, std::vector<float>(pos.size(), NAN), 1),
      v_out(ops, std::vector<float>(pos.size(), NAN), 1);
  const KvLayerView live{k_live.ptr(),
                         v_live.ptr(),
                         std::is_same_v<T, fp16> ? KvType::kF16 : KvType::kF32,
                         static_cast<uint32_t>(s.hkv),
                         static_cast<uint32_t>(s.d),
                         kCapacity};
  const RopeTable rope{table_dev.ptr(), s.dims, s.interleaved};
  ops.kv_place(context(1), {k_old.ptr(), v_old.ptr(), pos_dev.ptr(), pos.size(), rope, live});
  ops.kv_deviation(context(n_threads),
                   {k_dev.ptr(), v_dev.ptr(), pos_dev.ptr(), pos.size(), rope, live, k_out.ptr(), v_out.ptr()});
  return {k_out.get(), v_out.get()};
}

// Rotated as every backend does: products and sums rounded one by one (kv_place_test holds them to that), then to T.
template <class T>
std::vector<float> rotated(const Shape& s, std::vector<float> x, const std::vector<int32_t>& pos,
                           const std::vector<float>& table) {
  for (size_t row = 0; row < pos.size() * s.hkv; ++row) {
    float* at = x.data() + row * s.d;
    const float* angles = table.data() + static_cast<size_t>(pos[row / s.hkv]) * s.dims;
    for (size_t i = 0; i < s.dims / 2; ++i) {
      const size_t ia = s.interleaved ? 2 * i : i, ib = s.interleaved ? 2 * i + 1 : i + s.dims / 2;
      const float a = at[ia], b = at[ib];
      at[ia] = a * angles[2 * i] - b * angles[2 * i + 1];
      at[ib] = b * angles[2 * i] + a * angles[2 * i + 1];
    }
  }
  for (float& value : x) value = rounded<T>(value);
  return x;
}

template <class T>
void check(const Shape& s) {
  CAPTURE(s.t, s.hkv, s.d, s.dims, s.interleaved);
  Rng rng(kSeed);
  const size_t width = s.hkv * s.d, n = s.t * width;
  const std::vector<float> table = make_rope_table(s.dims, 10000, 1, {}, 0, kCapacity);
  const auto values = [&] {
    std::vector<float> x = random_floats(rng, n, 4);
    for (float& value : x) value = rounded<T>(value);
    return x;
  };
  const std::vector<float> old_k = values(), old_v = values();
  std::vector<float> k = values(), v = values();
  std::vector<int32_t> pos;
  for (size_t t = 0; t < s.t; ++t) pos.push_back(static_cast<int32_t>((t * 37 + kCapacity - 1) % kCapacity));
  for (size_t i = 0; s.t > 1 && i < width; ++i) {  // row 1 has not changed
    k[width + i] = old_k[width + i];
    v[width + i] = old_v[width + i];
  }
  // A difference is rounded (u), squared and summed: (2 + 1 + Hkv D) u of the sum of positive terms.
  const double share = static_cast<double>(width + 4) * kU;
  std::vector<double> k_exp, v_exp, k_bound, v_bound;
  const std::vector<float> k_new = rotated<T>(s, k, pos, table), k_live = rotated<T>(s, old_k, pos, table);
  for (size_t t = 0; t < s.t; ++t) {
    double k_sum = 0, v_sum = 0;
    for (size_t i = t * width; i < (t + 1) * width; ++i) {
      k_sum += std::pow(static_cast<double>(k_new[i]) - static_cast<double>(k_live[i]), 2);
      v_sum += std::pow(static_cast<double>(v[i]) - static_cast<double>(old_v[i]), 2);
    }
    k_exp.push_back(k_sum);
    v_exp.push_back(v_sum);
    k_bound.push_back(share * k_sum);
    v_bound.push_back(share * v_sum);
  }
  for (const Ops* ops : tested_ops()) {
    CAPTURE(ops->name);
    const Result r = run<T>(*ops, s, old_k, old_v, k, v, pos, table, 2);
    CHECK_THAT(r.k_dev, CloseTo(k_exp, k_bound));
    CHECK_THAT(r.v_dev, CloseTo(v_exp, v_bound));
    if (s.t > 1) CHECK((r.k_dev[1] == 0 && r.v_dev[1] == 0));
    for (size_t t = 0; t < s.t; t += 53) {  // rows alone
      const auto row = [&](const std::vector<float>& x) {
        return std::vector<float>(x.begin() + static_cast<long>(t * width),
                                  x.begin() + static_cast<long>((t + 1) * width));
      };
      const Result one = run<T>(*ops, s, row(old_k), row(old_v), row(k), row(v), {pos[t]}, table, 1);
      CHECK(same_bits(one.k_dev, {r.k_dev[t]}));
      CHECK(same_bits(one.v_dev, {r.v_dev[t]}));
    }
  }
}

TEST_CASE("kv_deviation: agrees with float64 on every backend, and an unchanged row deviates by exactly 0",
          "[compute]") {
  const auto s = GENERATE(Shape{0, 1, 2, 2, false}, Shape{1, 1, 2, 2, false}, Shape{5, 3, 16, 16, false},
                          Shape{4, 2, 34, 34, true}, Shape{3, 1, 62, 30, false}, Shape{200, 3, 64, 64, false},
                          Shape{6, 2, 80, 80, true}, Shape{5, 1, 256, 256, false});
  SECTION("half") { check<fp16>(s); }
  SECTION("float32") { check<float>(s); }
}

}  // namespace
}  // namespace cento::test
