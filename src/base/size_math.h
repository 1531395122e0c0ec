// Arithmetic on sizes that come from outside: an overflow is a nullopt, never a small number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace cento {

inline std::optional<uint64_t> checked_add(uint64_t a, uint64_t b) {
  uint64_t r = 0;
  if (__builtin_add_overflow(a, b, &r)) return std::nullopt;
  return r;
}

inline std::optional<uint64_t> checked_mul(uint64_t a, uint64_t b) {
  uint64_t r = 0;
  if (__builtin_mul_overflow(a, b, &r)) return std::nullopt;
  return r;
}

// `a` rounded up to a multiple of `to` (to > 0); nullopt when it does not fit.
inline std::optional<uint64_t> checked_round_up(uint64_t a, uint64_t to) {
  const auto sum = checked_add(a, to - 1);
  if (!sum) return std::nullopt;
  return *sum / to * to;
}

template <class T>
constexpr T div_up(T a, T b) {
  return (a + b - 1) / b;
}

template <class T>
constexpr T round_up(T a, T to) {
  return div_up(a, to) * to;
}

}  // namespace cento
