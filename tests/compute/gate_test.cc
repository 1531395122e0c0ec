#include <algorithm>

#include "compute/op_test.h"

namespace cento::test {
namespace {

std::vector<float> run(const Ops& ops, GateKind kind, const std::vector<float>& gate, const std::vector<float>& up,
                       size_t t, size_t n_threads, bool in_place = false) {
  DeviceArray<float> g(ops, gate, 1), u(ops, up, 1), y(ops, std::vector<float>(gate.size(), NAN), 3);
  ops.gate(context(n_threads), {g.ptr(), u.ptr(), in_place ? g.ptr() : y.ptr(), t, t == 0 ? 5 : gate.size() / t, kind});
  return in_place ? g.get() : y.get();
}

struct Exact {
  double value, bound;
};

// x / (1 + exp(w)) times up, w = -x or -2 sqrt(2/pi) (x + 0.044715 x^3). The sum, the quotient and the product with
// `up` are rounded: 3u; the exponential is off by 1 ulp, 2u at most, which reaches the result by the share s = exp(w) /
// (1 + exp(w)); gelu's w has four roundings and two rounded constants, at most 5u |w|, which reach it by s |w| too.
// Beyond w = 88 the result is 0; there the exact one is below 88 exp(-88) < 6e-37, however large
// x.
Exact act64(GateKind kind, double x, double up) {
  const double w = kind == GateKind::kSilu ? -x : -2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
  const double e = std::exp(std::min(w, 700.0)), s = e / (1 + e);
  const double value = w > 700 ? 0 : x / (1 + e) * up;
  const double share = (3 + 2 * s + (kind == GateKind::kSilu ? 0 : 5 * std::min(std::fabs(w), 700.0) * s)) * kU;
  return {value, 1.01 * share * std::fabs(value) + 6e-37 * std::fabs(up) + 1e-44};
}

TEST_CASE("gate: agrees with float64 on every backend over the whole range", "[compute]") {
  const GateKind kind = GENERATE(GateKind::kSilu, GateKind::kGeluTanh);
  std::vector<float> gate = {0.0F, -0.0F, 1e-40F, -1e-40F, 1e-20F, -1e-20F, 88,    -88,    87.5F, -87.5F,
                             89,   -89,   104,    -104,    1e10F,  -1e10F,  1e30F, -1e30F, 3e38F, -3e38F};
  for (int i = -4000; i <= 4000; ++i) gate.push_back(static_cast<float>(i) * 0.003F);   // [-12, 12]
  for (int i = -2000; i <= 2000; ++i) gate.push_back(static_cast<float>(i) * 0.0501F);  // [-100, 100]
  Rng rng(kSeed);
  std::vector<float> up = random_floats(rng, gate.size(), 0.9);
  std::vector<double> expected, bound;
  for (size_t i = 0; i < gate.size(); ++i) {
    const Exact e = act64(kind, static_cast<double>(gate[i]), static_cast<double>(up[i]));
    expected.push_back(e.value);
    bound.push_back(e.bound);
  }
  for (const Ops* ops : tested_ops()) {
    CAPTURE(ops->name, static_cast<int>(kind));
    CHECK_THAT(run(*ops, kind, gate, up, 1, 2), CloseTo(expected, bound));
  }
}

TEST_CASE("gate: rows of any length, in place too, have the same bits however they are cut", "[compute]") {
  const GateKind kind = GENERATE(GateKind::kSilu, GateKind::kGeluTanh);
  const size_t t = GENERATE(0, 1, 3, 40), f = GENERATE(1, 7, 8, 15, 16, 17, 31, 1536);
  CAPTURE(t, f);
  Rng rng(kSeed);
  const std::vector<float> gate = random_floats(rng, t * f, 6), up = random_floats(rng, t * f, 3);
  std::vector<double> expected, bound;
  for (size_t i = 0; i < gate.size(); ++i) {
    const Exact e = act64(kind, static_cast<double>(gate[i]), static_cast<double>(up[i]));
    expected.push_back(e.value);
    bound.push_back(e.bound);
  }
  for (const Ops* ops : tested_ops()) {
    CAPTURE(ops->name);
    const std::vector<float> y = run(*ops, kind, gate, up, t, 1);
    CHECK_THAT(y, CloseTo(expected, bound));
    CHECK(same_bits(y, run(*ops, kind, gate, up, t, 2)));
    CHECK(same_bits(y, run(*ops, kind, gate, up, t, 2, true)));
    if (t == 0) continue;
    const auto row = [&](const std::vector<float>& v) {
      return std::vector<float>(v.end() - static_cast<long>(f), v.end());
    };
    CHECK(same_bits(row(y), run(*ops, kind, row(gate), row(up), 1, 1)));
  }
}

}  // namespace
}  // namespace cento::test
