// What the benchmarks share: timing by medians, the machine they ran on, and what it can do at best.
#pragma once

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "base/machine.h"
#include "base/thread_pool.h"
#include "compute/buffer.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace cento::bench {

// If set, seconds_now is the processor time of the calling thread: for one thread on a machine that has other work to
// do.
inline bool use_processor_time = false;

inline double seconds_now() {
  timespec t{};
  ::clock_gettime(use_processor_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Of one call, in seconds. Spread: (third quartile - first quartile) / median.
struct Timing {
  double median = 0, spread = 0;
  size_t runs = 0;
};

// Warms up, then takes `runs` samples; each repeats the work until it lasts `sample_s`, so that the clock's grain and
// one interruption do not count.
inline Timing measure(const std::function<void()>& work, size_t runs = 11, double sample_s = 0.02) {
  work();
  const double t0 = seconds_now();
  work();
  const auto repeats = static_cast<size_t>(std::clamp(sample_s / std::max(seconds_now() - t0, 1e-7), 1.0, 1e6));
  std::vector<double> samples;
  for (size_t i = 0; i < runs; ++i) {
    const double start = seconds_now();
    for (size_t r = 0; r < repeats; ++r) work();
    samples.push_back((seconds_now() - start) / static_cast<double>(repeats));
  }
  std::sort(samples.begin(), samples.end());
  const double median = samples[runs / 2];
  return {median, (samples[runs * 3 / 4] - samples[runs / 4]) / median, runs};
}

inline void print_machine(size_t n_threads) {
  std::printf("machine: %s, %zu threads; compiler: %s %s\n", processor_name().c_str(), n_threads,
#if defined(__clang__)
              "clang",
#else
              "gcc",
#endif
              __VERSION__);
}

// Bytes per second of all threads reading a buffer much larger than any cache.
inline double read_bandwidth(ThreadPool& pool) {
  constexpr size_t kBytes = size_t{512} << 20, kPart = size_t{1} << 20;
  Buffer buffer(Device::host(), kBytes);
  buffer.clear();
  std::vector<uint64_t> sums(pool.size() * 8);
  const Timing t = measure([&] {
    pool.parallel_for(kBytes / kPart, [&](size_t i, size_t thread) {
      const uint64_t* p = buffer.as<uint64_t>(i * kPart / 8);
      uint64_t a = 0, b = 0, c = 0, d = 0;
      for (size_t k = 0; k < kPart / 8; k += 4) {
        a ^= p[k];
        b ^= p[k + 1];
        c ^= p[k + 2];
        d ^= p[k + 3];
      }
      sums[thread * 8] += a ^ b ^ c ^ d;
    });
  });
  return static_cast<double>(kBytes) / t.median;
}

#if defined(__x86_64__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma")

// Sixteen independent chains of one instruction, in assembler so that nothing is merged or spilled.
#define CENTO_CHAINS(instruction, a, b)                                                                                \
#instruction " " a ", " b ", %%zmm0\n" #instruction " " a ", " b ", %%zmm1\n" #instruction " " a ", " b              \
               ", %%zmm2\n" #instruction " " a ", " b ", %%zmm3\n" #instruction " " a ", " b ", %%zmm4\n" #instruction \
               " " a ", " b ", %%zmm5\n" #instruction " " a ", " b ", %%zmm6\n" #instruction " " a ", " b              \
               ", %%zmm7\n" #instruction " " a ", " b ", %%zmm8\n" #instruction " " a ", " b ", %%zmm9\n" #instruction \
               " " a ", " b ", %%zmm10\n" #instruction " " a ", " b ", %%zmm11\n"
#define CENTO_CLOBBERS "zmm0", "zmm1", "zmm2", "zmm3", "zmm4", "zmm5", "zmm6", "zmm7", "zmm8", "zmm9", "zmm10", "zmm11"

inline void dot_chains(size_t n) {
  const __m512i one = _mm512_set1_epi8(1);
  for (size_t i = 0; i < n; ++i) asm volatile(CENTO_CHAINS(vpdpbusd, "%0", "%0")::"v"(one) : CENTO_CLOBBERS);
}
inline void fma_chains(size_t n) {
  const __m512 half = _mm512_set1_ps(0.5f);
  for (size_t i = 0; i < n; ++i) asm volatile(CENTO_CHAINS(vfmadd213ps, "%0", "%0")::"v"(half) : CENTO_CLOBBERS);
}
#undef CENTO_CHAINS
#undef CENTO_CLOBBERS
#pragma GCC pop_options

// Operations (a multiply and an add are two) per second of all threads at once; 0 where there is no AVX-512 VNNI.
inline double peak(ThreadPool& pool, void (*chains)(size_t), double operations_per_instruction) {
  if (!__builtin_cpu_supports("avx512vnni")) return 0;
  constexpr size_t kRounds = 100000;
  const Timing t = measure([&] { pool.parallel_for(pool.size(), [&](size_t, size_t) { chains(kRounds); }); });
  return static_cast<double>(pool.size() * kRounds * 12) * operations_per_instruction / t.median;
}
inline double int8_peak(ThreadPool& pool) { return peak(pool, dot_chains, 128); }
inline double float_peak(ThreadPool& pool) { return peak(pool, fma_chains, 32); }
#else
inline double int8_peak(ThreadPool&) { return 0; }
inline double float_peak(ThreadPool&) { return 0; }
#endif

}  // namespace cento::bench
