#include "blend/blend_pipeline.h"

#include <catch2/catch.hpp>
#include <chrono>
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

PromptPlan blend_plan(const std::vector<Ids>& chunks) {
  PromptPlan plan;
  plan.segments.push_back(fresh(kPrefix));
  for (const Ids& c : chunks) plan.segments.push_back(stored(SegmentFrom::kChunk, c, kv_behind(kPrefix, c)));
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
                                     PolicyKind::kDevK, PolicyKind::kDevV, PolicyKind::kDevKv);
  const size_t slice = GENERATE(2, 512);
  CAPTURE(policy_name(policy), slice);
  for (const std::vector<Ids>& order : {std::vector<Ids>{kA, kB, kC}, {kC, kA, kB}, {kB}}) {
    FakeRunner runner(64);
    PipelineOptions options = with(policy, 1.0);
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
    PromptPlan plan = blend_plan({kA});
    plan.segments[1].kv = std::make_unique<SlowKv>(std::move(plan.segments[1].kv));
    FakeRunner runner(64);
    const PipelineReport report = run_ok(std::move(plan), runner, with(policy, 0.4));
    // Two layers of 50 ms each, less what the computing thread was late for: it computes a few rows of four numbers.
    // Half of it is left for a machine that has much else to do.
    CHECK(report.load_wait_ms > SlowKv::kMs);
    CHECK(report.load_ms >= report.load_wait_ms * 0.9);
    CHECK(report.probe_ms + report.select_ms + report.compute_ms + report.logits_ms < SlowKv::kMs);
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
