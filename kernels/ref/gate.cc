#include <cmath>

#include "kernels/ref/ref_ops.h"

namespace cento::ref {
namespace {

double act(GateKind kind, double x) {
  if (kind == GateKind::kSilu) return x / (1 + std::exp(-x));
  // 0.5 x (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3). 0.5 (1 + tanh(u)) = 1 / (1 + exp(-2u)) does not cancel.
  constexpr double kSqrt2OverPi = 0.79788456080286535588;
  return x / (1 + std::exp(-2 * kSqrt2OverPi * (x + 0.044715 * x * x * x)));
}

}  // namespace

void gate(const ExecContext&, const GateArgs& a) {
  for (size_t i = 0; i < a.t * a.f; ++i)
    a.y[i] = static_cast<float>(act(a.kind, static_cast<double>(a.gate[i])) * static_cast<double>(a.up[i]));
}

}  // namespace cento::ref
