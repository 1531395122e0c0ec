#include "blend/controller.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "base/rng.h"

using namespace cento;

namespace {

// Time of a prompt, layer by layer, event by event: the loader brings layer after layer; a pass over some rows computes
// layer after layer, each when it is loaded. `heavy` rows go through layers 0 and 1 only.
struct Machine {
  double row_ms, row_key_ms, load_ms_per_byte;  // of all layers together
};

struct Pass {
  std::vector<double> row_keys;    // keys that each row sees
  std::vector<double> heavy_keys;  // of the rows that go on no further than layer 1
};

double pass_end(const Machine& m, const Pass& pass, double start, const std::vector<double>& loaded) {
  const auto n_layers = static_cast<double>(loaded.size());
  double now = start;
  for (size_t l = 0; l < loaded.size(); ++l) {
    now = std::max(now, loaded[l]);
    for (const double keys : pass.row_keys) now += (m.row_ms + keys * m.row_key_ms) / n_layers;
    if (l >= 2) continue;
    for (const double keys : pass.heavy_keys) now += (m.row_ms + keys * m.row_key_ms) / n_layers;
  }
  return now;
}

double simulate(const Machine& m, const ReuseFacts& f, PolicyKind policy, size_t n_rows) {
  std::vector<double> loaded(f.n_layers);
  for (size_t l = 0; l < loaded.size(); ++l)
    loaded[l] = m.load_ms_per_byte * static_cast<double>(f.n_bytes) * static_cast<double>(l + 1) / f.n_layers;
  Pass fresh, all;
  for (size_t i = 0; i < f.n_fresh; ++i)
    fresh.row_keys.push_back(static_cast<double>(f.n_tokens() - f.n_fresh + i + 1));
  all = fresh;
  for (size_t i = 0; i < n_rows; ++i)  // picked evenly
    all.row_keys.push_back(static_cast<double>(f.n_exact) + (static_cast<double>(i) + 0.5) *
                                                                static_cast<double>(f.n_chunk) /
                                                                static_cast<double>(n_rows));
  if (policy == PolicyKind::kDevKv) {
    for (size_t i = 0; i < f.n_chunk - n_rows; ++i) all.heavy_keys.push_back(static_cast<double>(f.n_tokens()) / 2);
  }
  double start = 0;
  if (policy == PolicyKind::kQuery) start = pass_end(m, fresh, 0, loaded);
  return pass_end(m, all, start, loaded);
}

double simulate_full(const Machine& m, const ReuseFacts& f) {
  Pass all;
  for (size_t i = f.n_exact; i < f.n_tokens(); ++i) all.row_keys.push_back(static_cast<double>(i + 1));
  return pass_end(m, all, 0, std::vector<double>(f.n_layers, 0.0));
}

CostModel cost_of(const Machine& m) { return {m.row_ms, m.row_key_ms, m.load_ms_per_byte}; }

}  // namespace

TEST_CASE("controller: its choice is within a tenth of the best of a sweep, on fast and slow disks and models",
          "[blend]") {
  const PolicyKind policy = GENERATE(PolicyKind::kQuery, PolicyKind::kDevKv);
  const double row_ms = GENERATE(0.02, 0.5, 20.0);  // a small model on a GPU, one on a processor, a large one
  const double disk_mb_per_s = GENERATE(5.0, 100.0, 2000.0, 50000.0);
  const double bytes_per_row = GENERATE(2e4, 5e5);
  Rng rng(7);
  int blended = 0, computed = 0;
  for (int i = 0; i < 12; ++i) {
    ReuseFacts f;
    f.n_exact = 20 + rng.below(60);
    f.n_chunk = 200 + rng.below(2500);
    f.n_fresh = 10 + rng.below(200);
    f.n_layers = 24;
    f.n_bytes = static_cast<uint64_t>(bytes_per_row * static_cast<double>(f.n_chunk));
    const Machine m{row_ms, row_ms / 4000, 1 / (disk_mb_per_s * 1e3)};
    const size_t rows_min = f.n_chunk * 15 / 100;
    const BlendChoice choice = choose_blend(cost_of(m), f, policy, rows_min);
    const double full = simulate_full(m, f);
    // Everything at least as good in quality: computing all, or blending with at least rows_min rows.
    double best = full;
    for (int step = 0; step <= 40; ++step) {
      const size_t n = rows_min + (f.n_chunk - rows_min) * static_cast<size_t>(step) / 40;
      best = std::min(best, simulate(m, f, policy, n));
    }
    const double chosen = choice.blend ? simulate(m, f, policy, choice.n_rows) : full;
    CAPTURE(f.n_exact, f.n_chunk, f.n_fresh, full, best, chosen, choice.blend, choice.n_rows, choice.blend_ms);
    CHECK(chosen <= 1.1 * best);
    CHECK((!choice.blend || choice.n_rows >= rows_min));
    // What is blended is faster than computing all, but for the width of the estimate.
    if (choice.blend) CHECK(chosen <= 1.1 * full);
    (choice.blend ? blended : computed) += 1;
  }
  // Both ends of the range decide alike whatever the prompt.
  if (disk_mb_per_s >= 2000 && row_ms >= 0.5) CHECK(blended == 12);
  if (disk_mb_per_s <= 5 && row_ms <= 0.02) CHECK(computed == 12);
}

TEST_CASE("controller: where loading is the slower part, deviation policies recompute more at no cost", "[blend]") {
  ReuseFacts f;
  f.n_exact = 50;
  f.n_chunk = 2000;
  f.n_fresh = 40;
  f.n_layers = 30;
  f.n_bytes = uint64_t{2000} * 46080;
  const Machine m{0.5, 0.5 / 4000, 500.0 / static_cast<double>(f.n_bytes)};  // half a second to load, 1.3 s to compute
  const BlendChoice more = choose_blend(cost_of(m), f, PolicyKind::kDevKv, 100);
  CHECK(more.blend);
  CHECK(more.n_rows > 300);
  CHECK(simulate(m, f, PolicyKind::kDevKv, more.n_rows) <= 1.05 * simulate(m, f, PolicyKind::kDevKv, 100));
  // The question's policy has to wait for all layers first: more rows would cost.
  CHECK(choose_blend(cost_of(m), f, PolicyKind::kQuery, 100).n_rows == 100);
}

TEST_CASE("controller: nothing stored is never blended", "[blend]") {
  ReuseFacts f;
  f.n_fresh = 500;
  const BlendChoice choice = choose_blend({1, 0.001, 0}, f, PolicyKind::kQuery, 10);
  CHECK_FALSE(choice.blend);
  CHECK(choice.n_rows == 0);
  CHECK(choice.full_ms == Approx(500 * (1 + 250 * 0.001)));
}
