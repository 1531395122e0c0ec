#include "blend/blend_pipeline.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <thread>

#include "support/fake_runner.h"

using namespace cento;
using cento::test::FailingKv;
using cento::test::FakeRunner;

namespace {

using Ids = std::vector<int32_t>;

const Ids kPrefix = {1, 2, 3};
const Ids kA = {10, 11, 12, 13, 14}, kB = {20, 21, 22}, kC = {30, 31, 32, 33};
const Ids kQuestion = {7, 8, 9};

Segment fresh(const Ids& ids) {
  Segment s;
  s.ids = ids;
  s.label = "fresh";
  return s;
}

Segment stored(SegmentFrom from, const Ids& ids, std::unique_ptr<KvReader> kv) {
  Segment s;
  s.from = from;
  s.ids = ids;
  s.kv = std::move(kv);
  s.label = "stored";
  return s;
}

PipelineReport run_ok(PromptPlan plan, FakeRunner& runner, const PipelineOptions& options = {}) {
  auto outcome = run_plan(plan, runner, options);
  REQUIRE(std::holds_alternative<PipelineReport>(outcome));
  return std::get<PipelineReport>(std::move(outcome));
}

template <class... Parts>
PromptPlan fresh_plan(const Parts&... parts) {
  PromptPlan plan;
  (plan.segments.push_back(fresh(parts)), ...);
  return plan;
}

// KV of `ids` behind `context`.
std::unique_ptr<KvReader> kv_behind(const Ids& context, const Ids& ids) {
  FakeRunner runner(64);
  KvBlock block(runner.shape(), ids.size());
  PipelineOptions options;
  options.capture = &block;
  options.capture_from = context.size();
  options.logits_rows = 0;
  Ids all = context;
  all.insert(all.end(), ids.begin(), ids.end());
  run_ok(fresh_plan(all), runner, options);
  return std::make_unique<MemoryKv>(std::move(block), Hash{});
}

PromptPlan blend_plan(const std::vector<Ids>& chunks, const Ids& context = kPrefix) {
  PromptPlan plan;
  plan.segments.push_back(fresh(kPrefix));
  for (const Ids& c : chunks) plan.segments.push_back(stored(SegmentFrom::kChunk, c, kv_behind(context, c)));
  plan.segments.push_back(fresh(kQuestion));
  return plan;
}

PipelineOptions with(PolicyKind policy, std::optional<double> ratio = {}) {
  PipelineOptions options;
  options.blend.policy = policy;
  options.blend.ratio = ratio;
  return options;
}

std::vector<float> full_logits(const std::vector<Ids>& chunks) {
  FakeRunner runner(64);
  PromptPlan plan;
  plan.segments.push_back(fresh(kPrefix));
  for (const Ids& c : chunks) plan.segments.push_back(fresh(c));
  plan.segments.push_back(fresh(kQuestion));
  return run_ok(std::move(plan), runner).logits;
}

}  // namespace

TEST_CASE("pipeline: full prefill is the same in one slice, in slices of one row, and however the text is cut",
          "[blend]") {
  FakeRunner runner(64);
  const auto whole = run_ok(fresh_plan(kPrefix, kA, kQuestion), runner);
  PipelineOptions small;
  small.slice_rows = GENERATE(1, 2, 5);
  FakeRunner other(64);
  const auto sliced = run_ok(fresh_plan(kPrefix, kA, kQuestion), other, small);
  CHECK(whole.logits == sliced.logits);
  CHECK(whole.charged == 1.0);
  CHECK(sliced.charged == 1.0);
  CHECK(whole.n_fresh == 11);
}

TEST_CASE("pipeline: recomputing every row equals full prefill bit for bit, whatever the policy and the order",
          "[blend]") {
  const PolicyKind policy = GENERATE(PolicyKind::kAll, PolicyKind::kRandom, PolicyKind::kHeadK, PolicyKind::kQuery,
                                     PolicyKind::kDevK, PolicyKind::kDevV, PolicyKind::kDevKv, PolicyKind::kHybrid);
  const Repair repair = GENERATE(Repair::kNone, Repair::kShift);  // nothing is left to repair
  const size_t slice = GENERATE(2, 512);
  CAPTURE(policy_name(policy), slice);
  for (const std::vector<Ids>& order : {std::vector<Ids>{kA, kB, kC}, {kC, kA, kB}, {kB}}) {
    FakeRunner runner(64);
    PipelineOptions options = with(policy, 1.0);
    options.blend.repair = repair;
    options.slice_rows = slice;
    const auto report = run_ok(blend_plan(order), runner, options);
    CHECK(report.logits == full_logits(order));
    CHECK(report.n_reused == 0);
    CHECK(report.n_recomputed + report.n_fresh == report.n_total);
  }
}

TEST_CASE("pipeline: an exact first chunk gives full prefill without being computed", "[blend]") {
  PromptPlan plan;
  plan.segments.push_back(fresh(kPrefix));
  plan.segments.push_back(stored(SegmentFrom::kExact, kA, kv_behind(kPrefix, kA)));
  plan.segments.push_back(fresh(kQuestion));
  FakeRunner runner(64);
  const auto report = run_ok(std::move(plan), runner, with(PolicyKind::kQuery));
  CHECK(report.logits == full_logits({kA}));
  CHECK(report.n_exact == kA.size());
  CHECK(report.n_recomputed == 0);
  CHECK(report.charged == Approx(6.0 / 11.0));
  CHECK(runner.n_begun == 6);
}

TEST_CASE("pipeline: plain reuse differs from full prefill, and recomputing half comes closer", "[blend]") {
  const std::vector<Ids> order = {kA, kB, kC};
  const std::vector<float> full = full_logits(order);
  const auto distance = [&](PolicyKind policy, std::optional<double> ratio) {
    FakeRunner runner(64);
    const auto report = run_ok(blend_plan(order), runner, with(policy, ratio));
    double sum = 0;
    for (size_t i = 0; i < full.size(); ++i)
      sum += std::abs(static_cast<double>(full[i]) - static_cast<double>(report.logits[i]));
    return sum;
  };
  const double none = distance(PolicyKind::kNone, {});
  // Rounding alone: 11 logits of size 5 at 6e-8 each, through two layers, is 1e-5 at most.
  CHECK(none > 5e-5);
  CHECK(distance(PolicyKind::kQuery, 0.5) < none);
  CHECK(distance(PolicyKind::kDevKv, 0.5) < none);
}

TEST_CASE("pipeline: counts and charged budget are what was done", "[blend]") {
  const std::vector<Ids> order = {kA, kB, kC};  // 12 chunk rows, 6 fresh, 18 in all
  FakeRunner runner(64);
  const auto none = run_ok(blend_plan(order), runner, with(PolicyKind::kNone));
  CHECK(none.charged == Approx(6.0 / 18.0));
  CHECK(none.n_reused == 12);
  FakeRunner second(64);
  const auto query = run_ok(blend_plan(order), second, with(PolicyKind::kQuery, 0.25));
  CHECK(query.n_recomputed == 3);
  CHECK(query.n_reused == 9);
  CHECK(query.recomputed.size() == 3);
  CHECK(query.charged == Approx((6.0 + 6.0 + 3.0) / 18.0));  // probe and run of the fresh rows, and the selected ones
  FakeRunner third(64);
  const auto dev = run_ok(blend_plan(order), third, with(PolicyKind::kDevKv, 0.25));
  CHECK(dev.charged == Approx(1.0));  // two layers, and the check layer is the second: all rows go through both
  CHECK(dev.n_recomputed == 3);
  for (const int32_t p : dev.recomputed) CHECK((p >= 3 && p < 15));
}

TEST_CASE("pipeline: dev policies pick the rows whose neighbours changed most", "[blend]") {
  // Chunk A alone behind the prefix is unchanged; B behind A is not: every pick lies in B.
  FakeRunner runner(64);
  const auto report = run_ok(blend_plan({kA, kB}), runner, with(PolicyKind::kDevKv, 3.0 / 8.0));
  REQUIRE(report.recomputed.size() == 3);
  for (const int32_t p : report.recomputed) CHECK(p >= static_cast<int32_t>(kPrefix.size() + kA.size()));
}

TEST_CASE("pipeline: fresh rows in front of reused ones are captured, whatever the policy", "[blend]") {
  const PolicyKind policy = GENERATE(PolicyKind::kNone, PolicyKind::kQuery, PolicyKind::kDevKv, PolicyKind::kHybrid);
  const auto captured = [](PromptPlan plan, PipelineOptions options) {
    FakeRunner runner(64);
    KvBlock block(runner.shape(), kPrefix.size() + kA.size());
    options.capture = &block;
    run_ok(std::move(plan), runner, options);
    return block;
  };
  PromptPlan plan;
  plan.segments.push_back(fresh(kPrefix));
  plan.segments.push_back(fresh(kA));
  plan.segments.push_back(stored(SegmentFrom::kChunk, kB, kv_behind(kPrefix, kB)));
  plan.segments.push_back(fresh(kQuestion));
  const KvBlock blended = captured(std::move(plan), with(policy, 0.5));
  const KvBlock full = captured(fresh_plan(kPrefix, kA, kQuestion), {});
  for (uint32_t layer = 0; layer < FakeRunner::kLayers; ++layer) {
    CHECK(std::equal(full.k(layer).begin(), full.k(layer).end(), blended.k(layer).begin()));
    CHECK(std::equal(full.v(layer).begin(), full.v(layer).end(), blended.v(layer).begin()));
  }
}

TEST_CASE("pipeline: given weights choose the rows, or scale the scores of a policy", "[blend]") {
  const std::vector<Ids> order = {kA, kB, kC};  // chunk rows at positions 3 to 14
  std::vector<float> weights(12, 1.0f);
  weights[2] = 9;
  weights[7] = 8;
  weights[11] = 7;
  PipelineOptions options = with(PolicyKind::kOracle, 0.25);
  options.row_weights = weights;
  FakeRunner runner(64);
  const auto given = run_ok(blend_plan(order), runner, options);
  CHECK(given.recomputed == Ids{5, 10, 14});
  CHECK(given.charged == Approx((6.0 + 3.0) / 18.0));  // no probe
  // A row of no weight is not chosen, however much it is attended to or deviates.
  for (const PolicyKind policy : {PolicyKind::kQuery, PolicyKind::kDevKv, PolicyKind::kHybrid}) {
    CAPTURE(policy_name(policy));
    const auto plain = run_ok(blend_plan(order), runner, with(policy, 0.25));
    std::vector<float> without(12, 1.0f);
    without[static_cast<size_t>(plain.recomputed[0] - 3)] = 0;
    options = with(policy, 0.25);
    options.row_weights = without;
    const auto others = run_ok(blend_plan(order), runner, options);
    REQUIRE(others.recomputed.size() == 3);
    CHECK(std::count(others.recomputed.begin(), others.recomputed.end(), plain.recomputed[0]) == 0);
    CHECK(std::count(others.recomputed.begin(), others.recomputed.end(), plain.recomputed[1]) == 1);
  }
}

TEST_CASE("pipeline: the hybrid policy multiplies the question's attention and the deviation", "[blend]") {
  const std::vector<Ids> order = {kA, kB, kC};
  FakeRunner runner(64);
  const auto scores_of = [&](PolicyKind policy) {
    PipelineOptions options = with(policy, 0.25);
    options.blend.smooth = 0;
    return run_ok(blend_plan(order), runner, options).scores;
  };
  const std::vector<float> query = scores_of(PolicyKind::kQuery), deviation = scores_of(PolicyKind::kDevKv),
                           hybrid = scores_of(PolicyKind::kHybrid);
  REQUIRE(hybrid.size() == 12);
  // The same products, rounded once.
  for (size_t i = 0; i < hybrid.size(); ++i) CHECK(hybrid[i] == query[i] * deviation[i]);
  CHECK(*std::max_element(hybrid.begin(), hybrid.end()) > 0);
}

TEST_CASE("pipeline: the first rows of each chunk can be put in front", "[blend]") {
  const PolicyKind policy = GENERATE(PolicyKind::kQuery, PolicyKind::kDevKv, PolicyKind::kHybrid);
  FakeRunner runner(64);
  PipelineOptions options = with(policy, 8.0 / 12.0);
  options.blend.head_rows = 2;
  const auto report = run_ok(blend_plan({kA, kB, kC}), runner, options);
  CHECK(report.recomputed.size() == 8);
  for (const int32_t p : {3, 4, 8, 9, 11, 12})
    CHECK(std::count(report.recomputed.begin(), report.recomputed.end(), p) == 1);
}

TEST_CASE("pipeline: a row that a falling ratio leaves out keeps its stored KV from that layer on", "[blend]") {
  const PolicyKind policy = GENERATE(PolicyKind::kOracle, PolicyKind::kQuery, PolicyKind::kDevKv);
  const std::vector<Ids> order = {kB, kA, kC};
  const Ids elsewhere = {1, 2, 3, 40, 41};  // so that no stored row is right where it stands
  std::vector<float> weights(12);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(1 + i * 5 % 12);
  const auto run = [&](FakeRunner& runner, std::vector<double> ratios) {
    PipelineOptions options = with(policy);
    options.blend.layer_ratios = std::move(ratios);
    if (policy == PolicyKind::kOracle) options.row_weights = weights;
    return run_ok(blend_plan(order, elsewhere), runner, options);
  };
  FakeRunner reused(64), falling(64), half(64);
  run_ok(blend_plan(order, elsewhere), reused, with(PolicyKind::kNone));
  const auto report = run(falling, {0.5, 0.25});
  const auto constant = run(half, {0.5});
  // The check layer of deviation is the last of the two: what counts there is its own ratio.
  const bool deviation = policy == PolicyKind::kDevKv;
  CHECK(constant.recomputed.size() == 6);
  CHECK(report.recomputed.size() == (deviation ? 3 : 6));
  size_t changed = 0;
  for (int32_t p = 3; p < 15; ++p) {
    bool same = true;
    for (size_t d = 0; d < FakeRunner::kDim; ++d) same = same && falling.live_v(1, p, d) == reused.live_v(1, p, d);
    changed += same ? 0 : 1;
  }
  CHECK(changed == 3);
}

TEST_CASE("pipeline: the shift moves the rows that stay by what the recomputed ones moved", "[blend]") {
  // Stored V of chunk A is full prefill's less 3 and K less 2, in every row and layer; so is B's, of which one row only
  // is recomputed: too few to tell. Of A, 3 of 5 rows are: the others move by 3/7 of it.
  FakeRunner exact(64);
  run_ok(fresh_plan(kPrefix, kA, kB, kQuestion), exact);
  const auto off = [&](const Ids& ids, int32_t first) {
    KvBlock block(exact.shape(), ids.size());
    for (uint32_t layer = 0; layer < FakeRunner::kLayers; ++layer) {
      for (size_t i = 0; i < ids.size() * FakeRunner::kDim; ++i) {
        const int32_t pos = first + static_cast<int32_t>(i / FakeRunner::kDim);
        const size_t d = i % FakeRunner::kDim;
        const float k = exact.live_k(layer, pos, d) / FakeRunner::rotation(pos) - 2,
                    v = exact.live_v(layer, pos, d) - 3;
        std::memcpy(block.k(layer).data() + i * sizeof k, &k, sizeof k);
        std::memcpy(block.v(layer).data() + i * sizeof v, &v, sizeof v);
      }
    }
    return std::make_unique<MemoryKv>(std::move(block), Hash{});
  };
  PromptPlan plan;
  plan.segments.push_back(fresh(kPrefix));
  plan.segments.push_back(stored(SegmentFrom::kChunk, kA, off(kA, 3)));
  plan.segments.push_back(stored(SegmentFrom::kChunk, kB, off(kB, 8)));
  plan.segments.push_back(fresh(kQuestion));
  const std::vector<float> weights = {5, 0, 6, 0, 7, 0, 8, 0};
  PipelineOptions options = with(PolicyKind::kOracle, 0.5);
  options.row_weights = weights;
  options.blend.repair = Repair::kShift;
  FakeRunner runner(64);
  const auto report = run_ok(std::move(plan), runner, options);
  REQUIRE(report.recomputed == Ids{3, 5, 7, 9});
  // Layer 0 is exact wherever a row is recomputed and is not repaired; in layer 1 the recomputed rows saw a mixture, so
  // the expected shift is taken from what they became.
  for (size_t d = 0; d < FakeRunner::kDim; ++d) {
    CHECK(runner.live_v(0, 4, d) == Approx(exact.live_v(0, 4, d) - 3));
    double v_shift = 0, k_shift = 0;
    for (const int32_t p : {3, 5, 7}) {
      v_shift += static_cast<double>(runner.live_v(1, p, d) - (exact.live_v(1, p, d) - 3)) / 7;
      k_shift +=
          static_cast<double>((runner.live_k(1, p, d) - exact.live_k(1, p, d)) / FakeRunner::rotation(p) + 2) / 7;
    }
    CHECK(std::abs(v_shift) > 0.1);
    for (const int32_t p : {4, 6}) {
      // Values below 16 and some ten roundings of 2^-24 of them.
      CHECK(static_cast<double>(runner.live_v(1, p, d)) ==
            Approx(static_cast<double>(exact.live_v(1, p, d)) - 3 + v_shift).margin(1e-5));
      CHECK(static_cast<double>(runner.live_k(1, p, d) / FakeRunner::rotation(p)) ==
            Approx(static_cast<double>(exact.live_k(1, p, d) / FakeRunner::rotation(p)) - 2 + k_shift).margin(1e-5));
    }
    for (const int32_t p : {8, 10}) CHECK(runner.live_v(1, p, d) == exact.live_v(1, p, d) - 3);
  }
}

TEST_CASE("pipeline: a missing chunk in the middle is computed, not ranked", "[blend]") {
  PromptPlan plan;
  plan.segments.push_back(fresh(kPrefix));
  plan.segments.push_back(stored(SegmentFrom::kChunk, kA, kv_behind(kPrefix, kA)));
  plan.segments.push_back(fresh(kB));
  plan.segments.push_back(stored(SegmentFrom::kChunk, kC, kv_behind(kPrefix, kC)));
  plan.segments.push_back(fresh(kQuestion));
  FakeRunner runner(64);
  const auto report = run_ok(std::move(plan), runner, with(PolicyKind::kQuery, 1.0));
  CHECK(report.logits == full_logits({kA, kB, kC}));
  CHECK(report.n_fresh == 9);
  CHECK(report.n_recomputed == 9);
}

TEST_CASE("pipeline: resident rows are neither loaded nor computed", "[blend]") {
  FakeRunner runner(64);
  run_ok(fresh_plan(kPrefix, kA), runner);
  const size_t before = runner.n_begun;
  PromptPlan plan;
  Segment known = fresh(kPrefix);
  known.from = SegmentFrom::kResident;
  plan.segments.push_back(std::move(known));
  plan.segments.push_back(fresh(kA));
  plan.segments.push_back(fresh(kQuestion));
  const auto report = run_ok(std::move(plan), runner);
  CHECK(report.logits == full_logits({kA}));
  CHECK(runner.n_begun - before == kA.size() + kQuestion.size());
}

TEST_CASE("pipeline: a frame that fails at any layer names its segment, and the plan without it is right", "[blend]") {
  const uint32_t layer = GENERATE(0u, 1u);
  const PolicyKind policy = GENERATE(PolicyKind::kNone, PolicyKind::kQuery, PolicyKind::kDevKv);
  FakeRunner runner(64);
  PromptPlan plan = blend_plan({kA, kB});
  plan.segments[2].kv = std::make_unique<FailingKv>(runner.shape(), kB.size(), layer);
  auto outcome = run_plan(plan, runner, with(policy));
  REQUIRE(std::holds_alternative<SegmentFailure>(outcome));
  CHECK(std::get<SegmentFailure>(outcome).segment == 2);
  CHECK(std::get<SegmentFailure>(outcome).error.message() == "frame checksum mismatch");
  plan.segments[2].kv = nullptr;
  plan.segments[2].from = SegmentFrom::kFresh;
  outcome = run_plan(plan, runner, with(PolicyKind::kAll));
  REQUIRE(std::holds_alternative<PipelineReport>(outcome));
  CHECK(std::get<PipelineReport>(outcome).logits == full_logits({kA, kB}));
}

TEST_CASE("pipeline: a stop between layers ends the run and says so", "[blend]") {
  for (int allowed = 0; allowed < 4; ++allowed) {
    FakeRunner runner(64);
    PipelineOptions options = with(PolicyKind::kQuery);
    int polls = 0;
    options.stop = [&] { return polls++ >= allowed; };
    CHECK(run_ok(blend_plan({kA, kB}), runner, options).stopped);
  }
}

TEST_CASE("pipeline: a plan that cannot be right is refused before anything runs", "[blend]") {
  FakeRunner runner(64);
  const auto refused = [&](PromptPlan plan) {
    CHECK_THROWS_AS(run_plan(plan, runner, {}), Error);
    CHECK(runner.n_begun == 0);
  };
  refused({});
  PromptPlan ends_stored;
  ends_stored.segments.push_back(stored(SegmentFrom::kChunk, kA, kv_behind(kPrefix, kA)));
  refused(std::move(ends_stored));
  PromptPlan wrong_length = blend_plan({kA});
  wrong_length.segments[1].ids.pop_back();
  refused(std::move(wrong_length));
  PromptPlan late_resident = fresh_plan(kPrefix, kA, kQuestion);
  late_resident.segments[1].from = SegmentFrom::kResident;
  refused(std::move(late_resident));
  PromptPlan too_long = fresh_plan(Ids(65, 1));
  refused(std::move(too_long));
}

TEST_CASE("pipeline: logits of several last rows come in order", "[blend]") {
  FakeRunner runner(64);
  PipelineOptions options;
  options.logits_rows = 3;
  options.slice_rows = GENERATE(2, 512);
  const auto report = run_ok(fresh_plan(kPrefix, kA, kQuestion), runner, options);
  REQUIRE(report.logits.size() == 3 * FakeRunner::kVocab);
  const std::vector<float> last(report.logits.end() - FakeRunner::kVocab, report.logits.end());
  CHECK(last == full_logits({kA}));
}

namespace {

// Stored KV that takes its time over each layer, as a slow disk does.
class SlowKv final : public KvReader {
 public:
  explicit SlowKv(std::unique_ptr<KvReader> kv) : kv_(std::move(kv)) {}
  uint64_t n_tokens() const override { return kv_->n_tokens(); }
  const KvShape& shape() const override { return kv_->shape(); }
  const Hash& key() const override { return kv_->key(); }
  Status read_layer(uint32_t layer, std::span<std::byte> k, std::span<std::byte> v) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(kMs));
    return kv_->read_layer(layer, k, v);
  }
  uint64_t bytes_read() const override { return 0; }
  Cost cost() const override { return {7, 5}; }
  static constexpr int kMs = 50;

 private:
  std::unique_ptr<KvReader> kv_;
};

}  // namespace

TEST_CASE("pipeline: waiting for the loader is told apart from computing", "[blend]") {
  for (const PolicyKind policy : {PolicyKind::kNone, PolicyKind::kQuery, PolicyKind::kDevKv}) {
    CAPTURE(policy_name(policy));
    // Two layers of 50 ms each, less what the computing thread was late for: it computes a few rows of four numbers.
    // Half of it is left for a machine that has much else to do; one that takes the processor away for longer may do so
    // four times.
    PipelineReport report;
    bool apart = false;
    for (int attempt = 0; attempt < 5 && !apart; ++attempt) {
      PromptPlan plan = blend_plan({kA});
      plan.segments[1].kv = std::make_unique<SlowKv>(std::move(plan.segments[1].kv));
      FakeRunner runner(64);
      report = run_ok(std::move(plan), runner, with(policy, 0.4));
      apart = report.load_wait_ms > SlowKv::kMs &&
              report.probe_ms + report.select_ms + report.compute_ms + report.logits_ms < SlowKv::kMs;
    }
    CHECK(apart);
    CHECK(report.load_ms >= report.load_wait_ms * 0.9);
    CHECK(report.compute_ms >= 0);
    CHECK(report.place_ms >= 0);
    CHECK(report.read_ms == 7);
    CHECK(report.unpack_ms == 5);
    if (policy != PolicyKind::kQuery) CHECK(report.probe_ms == 0);
    if (policy == PolicyKind::kNone) CHECK(report.select_ms == 0);
  }
}

TEST_CASE("pipeline: stages that do not run take no time", "[blend]") {
  FakeRunner runner(64);
  const PipelineReport report = run_ok(fresh_plan(kPrefix, kA, kQuestion), runner, with(PolicyKind::kQuery));
  CHECK(report.load_ms == 0);
  CHECK(report.load_wait_ms == 0);
  CHECK(report.read_ms + report.unpack_ms + report.place_ms == 0);
  CHECK(report.probe_ms + report.select_ms == 0);
}

TEST_CASE("pipeline: logits of the last rows are the same whatever number of them is wanted", "[blend]") {
  PipelineOptions options = with(PolicyKind::kQuery, 0.4);
  options.slice_rows = 4;  // the rows wanted are spread over slices
  options.logits_rows = kQuestion.size();
  FakeRunner runner(64);
  const std::vector<float> all = run_ok(blend_plan({kA, kB}), runner, options).logits;
  REQUIRE(all.size() == kQuestion.size() * FakeRunner::kVocab);
  for (size_t n = 0; n <= kQuestion.size(); ++n) {
    options.logits_rows = n;
    FakeRunner again(64);
    const std::vector<float> some = run_ok(blend_plan({kA, kB}), again, options).logits;
    CHECK(some == std::vector<float>(all.end() - static_cast<ptrdiff_t>(n * FakeRunner::kVocab), all.end()));
  }
}
