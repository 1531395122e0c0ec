// What the tests of single ops share: device arrays with guards, seeded data, contexts of several thread counts, and
// the list of backends. Buffers go through the backend's Device, so the same tests run on a fenced one.
#pragma once

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/tensor_view.h"
#include "compute/ops.h"
#include "compute/ops_registry.h"
#include "support/close_to.h"

namespace cento::test {

constexpr uint64_t kSeed = 20240611;
constexpr double kU = 0x1p-24;  // unit roundoff of float32: fl(x) = x (1 + e), |e| <= kU

// Every backend that runs here, and the reference and the best behind a fence.
inline std::vector<const Ops*> tested_ops() {
  std::vector<const Ops*> all = all_ops();
  all.push_back(&fenced_ops(ref_ops()));
  all.push_back(&fenced_ops(best_ops()));
  return all;
}

inline ExecContext context(size_t n_threads) {
  static ThreadPool one(1), two(2), three(3);
  return {n_threads == 1 ? &one : n_threads == 2 ? &two : &three};
}

// A device array with guard bytes on both sides, off the device's alignment by `skew` elements.
template <class T>
class DeviceArray {
 public:
  DeviceArray(const Ops& ops, const std::vector<T>& host, size_t skew = 0)
      : n_(host.size()),
        offset_(kGuardBytes / sizeof(T) + skew),
        buffer_(*ops.device, (n_ + skew) * sizeof(T) + 2 * kGuardBytes) {
    std::vector<std::byte> all(buffer_.n_bytes(), kGuard);
    if (n_ > 0) std::memcpy(all.data() + offset_ * sizeof(T), host.data(), n_ * sizeof(T));
    buffer_.upload(std::span<const std::byte>(all));
  }
  T* ptr() { return buffer_.template as<T>(offset_); }
  // The content; fails the test when a guard byte has changed.
  std::vector<T> get() const {
    std::vector<std::byte> all(buffer_.n_bytes());
    buffer_.download(std::span<std::byte>(all));
    const size_t begin = offset_ * sizeof(T), end = begin + n_ * sizeof(T);
    size_t n_bad = 0;
    for (size_t i = 0; i < all.size(); ++i)
      if ((i < begin || i >= end) && all[i] != kGuard) ++n_bad;
    if (n_bad > 0) FAIL_CHECK(n_bad << " guard bytes around an array of " << n_ << " elements were overwritten");
    std::vector<T> host(n_);
    if (n_ > 0) std::memcpy(host.data(), all.data() + begin, n_ * sizeof(T));
    return host;
  }

 private:
  static constexpr size_t kGuardBytes = 256;
  static constexpr std::byte kGuard{0xa5};
  size_t n_, offset_;
  Buffer buffer_;
};

// Uniform in [-amplitude, amplitude].
inline std::vector<float> random_floats(Rng& rng, size_t n, double amplitude = 1) {
  std::vector<float> v(n);
  for (float& x : v) x = static_cast<float>((rng.uniform() * 2 - 1) * amplitude);
  return v;
}
inline std::vector<fp16> halves(const std::vector<float>& v) {
  std::vector<fp16> h(v.size());
  for (size_t i = 0; i < v.size(); ++i) h[i] = to_fp16(v[i]);
  return h;
}

// True when both have the same bits.
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// Rows of a dense [rows, cols] array spread to a stride, the gaps filled with `gap`.
inline std::vector<float> with_stride(const std::vector<float>& dense, size_t rows, size_t cols, size_t ld, float gap) {
  std::vector<float> v(rows == 0 ? 0 : (rows - 1) * ld + cols, gap);
  for (size_t r = 0; r < rows; ++r)
    std::copy_n(dense.begin() + static_cast<long>(r * cols), cols, v.begin() + static_cast<long>(r * ld));
  return v;
}
// The dense rows again; fails the test when a gap is no longer `gap`.
inline std::vector<float> without_stride(const std::vector<float>& v, size_t rows, size_t cols, size_t ld, float gap) {
  std::vector<float> dense;
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < ld && r * ld + c < v.size(); ++c) {
      if (c < cols)
        dense.push_back(v[r * ld + c]);
      else if (v[r * ld + c] != gap)
        FAIL_CHECK("the gap behind row " << r << " was overwritten");
    }
  }
  return dense;
}

}  // namespace cento::test
