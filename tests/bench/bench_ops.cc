// Times of all ops but matmul: attention as prefill, as one decode step and with key_mass, placing rows, and the ops of
// one layer that stream through memory. usage: bench_ops [target [threads]]; one thread is timed by its processor time.
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/rng.h"
#include "base/tensor_view.h"
#include "bench/bench.h"
#include "compute/ops_registry.h"
#include "compute/rope_table.h"

namespace cento::bench {
namespace {

struct Heads {
  const char* model;
  size_t h, hkv, d;
};
constexpr Heads kModels[] = {{"SmolLM2 135M", 9, 3, 64}, {"Qwen2.5 0.5B", 14, 2, 64}, {"Gemma 3 1B", 4, 1, 256}};

std::vector<float> random_floats(size_t n, double amplitude) {
  Rng rng(1);
  std::vector<float> v(n);
  for (float& x : v) x = static_cast<float>((rng.uniform() * 2 - 1) * amplitude);
  return v;
}

// Query rows at the last positions of a live KV that is full up to them.
class Case {
 public:
  Case(const Heads& m, size_t n_rows, size_t n_keys) : n_keys_(n_keys), q_(random_floats(n_rows * m.h * m.d, 1)) {
    const size_t capacity = n_keys + 64;
    for (const float x : random_floats(m.hkv * capacity * m.d, 2)) kv_.push_back(to_fp16(x));
    for (size_t t = 0; t < n_rows; ++t) pos_.push_back(static_cast<int32_t>(n_keys - n_rows + t));
    out_.resize(q_.size());
    args_.q = q_.data();
    args_.q_pos = pos_.data();
    args_.out = out_.data();
    args_.t = n_rows;
    args_.h = m.h;
    args_.d = m.d;
    args_.ldq = args_.ldo = m.h * m.d;
    args_.kv = {kv_.data(), kv_.data(), KvType::kF16, static_cast<uint32_t>(m.hkv), static_cast<uint32_t>(m.d),
                capacity};
    args_.round_values = true;
    args_.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(m.d)));
  }
  AttentionArgs& args() { return args_; }
  double flops() const {  // a query and key pair: 2 D for the score, 2 D for the sum
    double pairs = 0;
    for (const int32_t p : pos_) pairs += p + 1;
    return pairs * static_cast<double>(args_.h) * 4 * static_cast<double>(args_.d);
  }
  double kv_bytes() const {
    return 2.0 * static_cast<double>(n_keys_ * args_.kv.n_kv_heads * args_.d * kv_type_bytes(args_.kv.type));
  }
  // Largest difference to the reference over the last row.
  double error(const Ops& ops, const ExecContext& ctx) {
    AttentionArgs one = args_;
    one.key_mass = nullptr;
    one.q += (args_.t - 1) * args_.ldq;
    one.q_pos += args_.t - 1;
    one.t = 1;
    std::vector<float> expected(args_.ldo);
    one.out = expected.data();
    ref_ops().attention(ctx, one);
    ops.attention(ctx, args_);
    double max = 0;
    for (size_t i = 0; i < args_.ldo; ++i)
      max = std::max(max, static_cast<double>(std::fabs(expected[i] - out_[(args_.t - 1) * args_.ldo + i])));
    return max;
  }

 private:
  size_t n_keys_;
  std::vector<float> q_, out_;
  std::vector<fp16> kv_;
  std::vector<int32_t> pos_;
  AttentionArgs args_{};
};

void bench_attention(const Ops& ops, const ExecContext& ctx, double peak) {
  for (const Heads& m : kModels) {
    for (const size_t n : {512, 1500}) {
      Case c(m, n, n);
      const double error = c.error(ops, ctx);
      const Timing t = measure([&] { ops.attention(ctx, c.args()); });
      std::printf("  prefill %4zu rows   %-13s %8.2f ms +-%2.0f %%  %6.1f GFLOPS", n, m.model, t.median * 1e3,
                  t.spread * 100, c.flops() / t.median * 1e-9);
      if (peak > 0) std::printf(" (%.0f %% of peak)", 100 * c.flops() / t.median / peak);
      std::printf("  error %.1e\n", error);
    }
    Case gathered(m, 225, 1500);
    for (size_t i = 0; i < 225; ++i)
      const_cast<int32_t*>(gathered.args().q_pos)[i] = static_cast<int32_t>(i * 1499 / 224);
    const double gathered_error = gathered.error(ops, ctx);
    const Timing g = measure([&] { ops.attention(ctx, gathered.args()); });
    std::printf("  gathered 225/1500   %-13s %8.2f ms +-%2.0f %%  %6.1f GFLOPS  error %.1e\n", m.model, g.median * 1e3,
                g.spread * 100, gathered.flops() / g.median * 1e-9, gathered_error);
    for (const size_t n : {1500, 16000}) {
      Case c(m, 1, n);
      const double error = c.error(ops, ctx);
      const Timing t = measure([&] { ops.attention(ctx, c.args()); });
      std::printf("  decode %5zu keys   %-13s %8.1f us +-%2.0f %%  %6.1f GB/s  error %.1e\n", n, m.model,
                  t.median * 1e6, t.spread * 100, c.kv_bytes() / t.median * 1e-9, error);
    }
    Case c(m, 30, 6000);
    const Timing plain = measure([&] { ops.attention(ctx, c.args()); });
    std::vector<float> mass(6000);
    c.args().key_mass = mass.data();
    c.args().n_mass = mass.size();
    const Timing t = measure([&] { ops.attention(ctx, c.args()); });
    std::printf("  key_mass 30 x 6000  %-13s %8.2f ms +-%2.0f %%  (%.2f ms without)\n", m.model, t.median * 1e3,
                t.spread * 100, plain.median * 1e3);
  }
}

void bench_rows(const Ops& ops, const ExecContext& ctx) {
  const auto print = [](const char* what, const Timing& t, double n_bytes) {
    std::printf("  %-33s %8.3f ms +-%2.0f %%  %6.1f GB/s\n", what, t.median * 1e3, t.spread * 100,
                n_bytes / t.median * 1e-9);
  };
  constexpr size_t kRows = 1500, kHkv = 3, kD = 64, kWidth = 576, kFfn = 1536;
  const std::vector<float> table = make_rope_table(kD, 1e5, 1, {}, 0, kRows);
  const RopeTable rope{table.data(), kD, false};
  std::vector<int32_t> pos;
  for (size_t t = 0; t < kRows; ++t) pos.push_back(static_cast<int32_t>(t));
  const std::vector<float> x = random_floats(kRows * kFfn, 3);
  std::vector<float> y(x.size());
  std::vector<fp16> k(kRows * kHkv * kD), live(k.size()), live_v(k.size());
  ops.cast_rows(ctx, {x.data(), k.data(), kRows, kHkv * kD, kHkv * kD, KvType::kF16});
  const double half_rows = kRows * kHkv * kD * 2.0;
  KvPlaceArgs place{k.data(), k.data(), pos.data(),
                    kRows,    rope,     {live.data(), live_v.data(), KvType::kF16, kHkv, kD, kRows}};
  print("kv_place 1500 rows (3 x 64)", measure([&] { ops.kv_place(ctx, place); }), 4 * half_rows);
  std::vector<float> k_dev(kRows), v_dev(kRows);
  print("kv_deviation 1500 rows (3 x 64)", measure([&] {
          ops.kv_deviation(ctx, {k.data(), k.data(), pos.data(), kRows, rope, place.dst, k_dev.data(), v_dev.data()});
        }),
        4 * half_rows);
  print("cast_rows 1500 x 192", measure([&] {
          ops.cast_rows(ctx, {x.data(), k.data(), kRows, kHkv * kD, kHkv * kD, KvType::kF16});
        }),
        3 * half_rows);
  std::vector<float> q = random_floats(kRows * kWidth, 3);
  print("rope_rows 1500 x 9 x 64", measure([&] {
          ops.rope_rows(ctx, {q.data(), pos.data(), kRows, kWidth / kD, kD, kWidth, rope});
        }),
        kRows * kWidth * 8.0);
  print("rms_norm 1500 x 576", measure([&] {
          ops.rms_norm(ctx, {x.data(), x.data(), y.data(), kRows, kWidth, kWidth, kWidth, 1e-5F});
        }),
        kRows * kWidth * 8.0);
  print("gate silu 1500 x 1536", measure([&] {
          ops.gate(ctx, {x.data(), x.data(), y.data(), kRows, kFfn, GateKind::kSilu});
        }),
        kRows * kFfn * 12.0);
  print("gate gelu 1500 x 1536", measure([&] {
          ops.gate(ctx, {x.data(), x.data(), y.data(), kRows, kFfn, GateKind::kGeluTanh});
        }),
        kRows * kFfn * 12.0);
  print("gather 1500 x 576", measure([&] {
          ops.gather(ctx, {x.data(), pos.data(), y.data(), kRows, kWidth});
        }),
        kRows * kWidth * 8.0);
  print("add 1500 x 576", measure([&] { ops.add(ctx, {x.data(), y.data(), kRows * kWidth}); }), kRows * kWidth * 12.0);
  print("rms_norm 1 x 576", measure([&] {
          ops.rms_norm(ctx, {x.data(), x.data(), y.data(), 1, kWidth, kWidth, kWidth, 1e-5F});
        }),
        kWidth * 8.0);
}

// From the call of parallel_for to the first instruction of a task on another thread, and of an empty loop as a whole.
void bench_hand_over(ThreadPool& pool) {
  if (pool.size() < 2) return;
  std::vector<double> starts;
  for (int i = 0; i < 2000; ++i) {
    std::atomic<bool> started{false};
    double at = 0;
    const double call = seconds_now();
    pool.parallel_for(2, [&](size_t, size_t thread) {
      if (thread != 0) {
        at = seconds_now();
        started = true;
        return;
      }
      while (!started && seconds_now() - call < 1e-3) {
      }
    });
    if (started) starts.push_back(at - call);
  }
  std::sort(starts.begin(), starts.end());
  const Timing empty = measure([&] { pool.parallel_for(pool.size(), [](size_t, size_t) {}); });
  std::printf("thread pool: hand-over %.2f us (median of %zu, 90 %% below %.2f us), empty loop %.2f us +-%.0f %%\n",
              starts.empty() ? 0.0 : starts[starts.size() / 2] * 1e6, starts.size(),
              starts.empty() ? 0.0 : starts[starts.size() * 9 / 10] * 1e6, empty.median * 1e6, empty.spread * 100);
}

int run(const std::string& target, size_t n_threads) {
  use_processor_time = n_threads == 1;
  ThreadPool pool(n_threads);
  const ExecContext ctx{&pool};
  print_machine(n_threads);
  const double peak = float_peak(pool);
  if (peak > 0) std::printf("float32 multiply-add peak: %.1f GFLOPS\n", peak * 1e-9);
  std::printf("memory read: %.1f GB/s\n", read_bandwidth(pool) * 1e-9);
  bench_hand_over(pool);
  for (const Ops* ops : target.empty() ? all_simd_ops() : std::vector<const Ops*>{&find_ops(target)}) {
    std::printf("%s\n", ops->name);
    bench_attention(*ops, ctx, peak);
    bench_rows(*ops, ctx);
  }
  return 0;
}

}  // namespace
}  // namespace cento::bench

int main(int argc, char** argv) {
  const size_t n_threads = argc > 2 ? static_cast<size_t>(std::atoi(argv[2])) : cento::ThreadPool::usable_processors();
  return cento::bench::run(argc > 1 ? argv[1] : "", n_threads);
}
