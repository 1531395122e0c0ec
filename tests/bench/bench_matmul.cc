// bench_matmul [--target NAME] [--type NAME] [--threads N] [--quick] [--processor-time]
//
// Times matmul on the weight shapes of small models. Prefill: 512 rows, operations per second and their share of the
// measured instruction peak. Decode: 1, 2 and 4 rows, bytes of packed weights per second and their share of the
// measured read bandwidth; the weights are cold, because a decode step reads all others before it comes back to one: as
// many copies as fill 192 MiB are taken in turn.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

#include "base/rng.h"
#include "bench/bench.h"
#include "compute/ops_registry.h"
#include "support/gguf_writer.h"

namespace cento::bench {
namespace {

constexpr uint64_t kSeed = 1;
constexpr size_t kColdBytes = size_t{192} << 20;

struct Shape {
  size_t n, k;
};
constexpr Shape kShapes[] = {{576, 576},  {192, 576},  {1536, 576},  {576, 1536},  {896, 896},
                             {4864, 896}, {896, 4864}, {49152, 576}, {1024, 1024}, {4096, 4096}};

struct Options {
  std::string target, type;
  size_t threads = ThreadPool::usable_processors();
  bool quick = false;
};

struct Peaks {
  double int8, float32, read;
};

struct Case {
  const Ops* ops;
  DType type;
  Shape shape;
  Precision precision;
};

void show(const Case& c, size_t t, const Timing& time, double bytes, const Peaks& peaks) {
  const double operations = 2.0 * static_cast<double>(t * c.shape.n * c.shape.k) / time.median,
               rate = bytes / time.median;
  const double peak = c.precision == Precision::kFast ? peaks.int8 : peaks.float32;
  std::printf(
      "%-8s %-5s %-4s %6zu x %-5zu %4zu rows  %9.1f us +-%4.1f %%  %7.1f GOPS %5.1f %% of peak  %6.2f GB/s %5.1f %% of "
      "read\n",
      c.ops->name, dtype_info(c.type).name, c.precision == Precision::kFast ? "fast" : "f32", c.shape.n, c.shape.k, t,
      time.median * 1e6, time.spread * 100, operations / 1e9, peak > 0 ? operations / peak * 100 : 0.0, rate / 1e9,
      rate / peaks.read * 100);
  std::fflush(stdout);
}

void run_case(const ExecContext& ctx, const Case& c, const Peaks& peaks) {
  Rng rng(kSeed);
  const std::string raw = test::random_blocks(c.type, c.shape.n * c.shape.k, 0.5, rng);
  TensorView view;
  view.dtype = c.type;
  view.shape = {c.shape.n, c.shape.k, 1, 1};
  view.n_dims = 2;
  view.n_bytes = raw.size();
  std::vector<std::string> raws;  // in-place layouts read these: one copy each, so that they are cold too
  std::vector<PackedMatrix> copies;
  const size_t n_copies = std::max<size_t>(1, kColdBytes / raw.size());
  raws.reserve(n_copies);
  double pack_s = 0;
  for (size_t i = 0; i < n_copies; ++i) {
    raws.push_back(raw);
    view.data = reinterpret_cast<const std::byte*>(raws.back().data());
    const double start = seconds_now();
    copies.push_back(c.ops->pack(ctx, {view, c.precision}));
    pack_s += seconds_now() - start;
    if (copies.back().storage.n_bytes() > 0) raws.back() = {};
  }
  const double bytes =
      static_cast<double>(std::max(copies[0].storage.n_bytes(), copies[0].storage.n_bytes() ? 0 : raw.size()));
  std::vector<float> x(512 * c.shape.k), y(512 * c.shape.n);
  for (float& f : x) f = static_cast<float>(rng.uniform() - 0.5);
  size_t turn = 0;
  for (const size_t t : {512, 1, 2, 4}) {
    const bool cold = t <= 4;
    const Timing time = measure([&] {
      MatmulArgs args{x.data(), t, c.shape.k, c.shape.k, {}, 1};
      args.outs[0] = {&copies[cold ? turn++ % n_copies : 0], nullptr, y.data(), c.shape.n, false};
      c.ops->matmul(ctx, args);
    });
    show(c, t, time, bytes, peaks);
  }
  if (copies[0].storage.n_bytes() > 0) {
    std::printf("         pack %.2f ns a weight\n",
                pack_s * 1e9 / static_cast<double>(n_copies * c.shape.n * c.shape.k));
  }
}

std::optional<Options> parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--quick")
      options.quick = true;
    else if (flag == "--processor-time")
      use_processor_time = true;
    else if (i + 1 == argc)
      return std::nullopt;
    else if (flag == "--target")
      options.target = argv[++i];
    else if (flag == "--type")
      options.type = argv[++i];
    else if (flag == "--threads")
      options.threads = static_cast<size_t>(std::max(1, std::atoi(argv[++i])));
    else
      return std::nullopt;
  }
  if (use_processor_time) options.threads = 1;
  return options;
}

int run(const Options& options) {
  ThreadPool pool(options.threads);
  const ExecContext ctx{&pool};
  print_machine(options.threads);
  const Peaks peaks{int8_peak(pool), float_peak(pool), read_bandwidth(pool)};
  std::printf(
      "peak: vpdpbusd %.1f GOPS, fma %.1f GFLOPS, read %.2f GB/s; seed %llu; 11 runs, median and quartile spread\n",
      peaks.int8 / 1e9, peaks.float32 / 1e9, peaks.read / 1e9, static_cast<unsigned long long>(kSeed));
  const Ops& ops = find_ops(options.target);
  for (const Shape shape : kShapes) {
    for (const DType type : {DType::kQ4_0, DType::kQ4_1, DType::kQ4_K, DType::kQ5_0, DType::kQ5_K, DType::kQ6_K,
                             DType::kQ8_0, DType::kQ3_K, DType::kQ2_K, DType::kF16, DType::kF32}) {
      if (!options.type.empty() && options.type != dtype_info(type).name) continue;
      if (shape.k % dtype_info(type).elements != 0) continue;
      if (options.quick && shape.n * shape.k > 5000000) continue;
      for (const Precision precision : {Precision::kFast, Precision::kF32}) {
        if (precision == Precision::kF32 && options.quick) continue;
        run_case(ctx, {&ops, type, shape, precision}, peaks);
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace cento::bench

int main(int argc, char** argv) {
  const auto options = cento::bench::parse(argc, argv);
  if (options) return cento::bench::run(*options);
  std::fprintf(stderr,
               "usage: bench_matmul [--target NAME] [--type NAME] [--threads N] [--quick] [--processor-time]\n");
  return 2;
}
