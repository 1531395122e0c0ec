// bench_engine MODEL.gguf [--target NAME] [--threads N]
//
// Whole forward passes of a real model beside what the machine can do at best. Prefill of 512 and 1500 tokens: tokens
// per second, and the matrix products' operations per second over the whole time (attention, norms and all) as a share
// of the integer peak. Decode of 64 tokens from an empty context: tokens per second, bytes of weights and KV that a
// step reads, and their share of the measured read bandwidth. Prefill is timed first and decode behind it, the peaks
// before and after: on a shared machine the two readings of a peak tell how steady it was.
#include <array>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string_view>

#include "base/clock.h"
#include "base/rng.h"
#include "bench/bench.h"
#include "engine/engine.h"

namespace cento::bench {
namespace {

constexpr uint64_t kSeed = 1;
constexpr size_t kRuns = 11, kDecode = 64;

double weight_bytes(const PackedMatrix& w) {
  if (w.storage.n_bytes() > 0) return static_cast<double>(w.storage.n_bytes());
  const DTypeInfo info = dtype_info(w.source);
  return static_cast<double>(w.n * w.k / info.elements * info.bytes);
}

struct Work {
  double layer_weights = 0, layer_bytes = 0, output_weights = 0, output_bytes = 0;
};

Work work_of(const LoadedModel& model) {
  Work work;
  for (const PackedLayer& layer : model.layers()) {
    for (const PackedMatrix* w : {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down}) {
      work.layer_weights += static_cast<double>(w->n * w->k);
      work.layer_bytes += weight_bytes(*w);
    }
  }
  work.output_weights = static_cast<double>(model.output().n * model.output().k);
  work.output_bytes = weight_bytes(model.output());
  return work;
}

struct Sample {
  double median, low, high;  // seconds; quartiles
};

template <class F>
Sample sample(const F& work) {
  std::vector<double> seconds;
  for (size_t i = 0; i <= kRuns; ++i) {
    const Stopwatch watch;
    work();
    if (i > 0) seconds.push_back(watch.ms() * 1e-3);  // the first warms up
  }
  std::sort(seconds.begin(), seconds.end());
  return {seconds[kRuns / 2], seconds[kRuns / 4], seconds[kRuns * 3 / 4]};
}

void print_peaks(ThreadPool& pool) {
  std::printf("peak: vpdpbusd %.1f GOPS, read %.2f GB/s\n", int8_peak(pool) * 1e-9, read_bandwidth(pool) * 1e-9);
}

int run(const std::string& path, const std::string& target, size_t n_threads) {
  LoadedModel model({path, Precision::kFast, target, nullptr, n_threads, ""});
  Engine engine(model);
  print_machine(model.pool().size());
  std::printf("%s, target %s, loaded in %.0f ms; seed %llu, %zu runs, median [quartiles]\n", model.name().c_str(),
              model.ops().name, model.load_ms(), static_cast<unsigned long long>(kSeed), kRuns);
  const double int8 = int8_peak(model.pool()), read = read_bandwidth(model.pool());
  print_peaks(model.pool());
  const Work work = work_of(model);
  Rng rng(kSeed);
  std::vector<int32_t> ids(1500);
  for (int32_t& id : ids) id = static_cast<int32_t>(rng.below(model.config().vocab));
  for (const size_t n : {size_t{512}, ids.size()}) {
    const Sample s = sample([&] {
      engine.truncate(0);
      (void)engine.extend(std::span(ids).first(n));
    });
    const double rows = static_cast<double>(n);
    const double operations = 2 * (rows * work.layer_weights + work.output_weights);
    std::printf("prefill %4zu: %7.1f [%.1f, %.1f] tokens/s, products %.1f GOPS", n, rows / s.median, rows / s.high,
                rows / s.low, operations / s.median * 1e-9);
    if (int8 > 0) std::printf(" (%.1f %% of peak)", operations / s.median / int8 * 100);
    std::printf("\n");
  }
  const Sample s = sample([&] {
    engine.truncate(0);
    for (size_t i = 0; i < kDecode; ++i) (void)engine.extend(std::array{ids[i]});
  });
  const ModelConfig& c = model.config();
  const double kv_row = static_cast<double>(c.n_layers) * c.n_kv_heads * c.head_dim * 2 * 2;  // K and V, halves
  const double bytes = work.layer_bytes + work.output_bytes + kv_row * kDecode / 2;           // half of it on average
  std::printf("decode %4zu: %7.1f [%.1f, %.1f] tokens/s, %.1f MB a token, %.2f GB/s (%.1f %% of read)\n", kDecode,
              kDecode / s.median, kDecode / s.high, kDecode / s.low, bytes * 1e-6, bytes * kDecode / s.median * 1e-9,
              bytes * kDecode / s.median / read * 100);
  print_peaks(model.pool());
  return 0;
}

}  // namespace
}  // namespace cento::bench

int main(int argc, char** argv) {
  std::string target = "auto";
  size_t threads = 0;
  bool good = argc >= 2;
  for (int i = 2; good && i < argc; i += 2) {
    const std::string_view flag = argv[i];
    if (i + 1 == argc)
      good = false;
    else if (flag == "--target")
      target = argv[i + 1];
    else if (flag == "--threads")
      threads = static_cast<size_t>(std::max(1, std::atoi(argv[i + 1])));
    else
      good = false;
  }
  if (good) return cento::bench::run(argv[1], target, threads);
  std::fprintf(stderr, "usage: bench_engine MODEL.gguf [--target NAME] [--threads N]\n");
  return 2;
}
