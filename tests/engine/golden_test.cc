// Against results of other programs on real models: shared/data/models/stories260K.golden.json (double precision) and
// shared/data/golden (float32 on dequantised weights; its README says how to compare).
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/engine_test.h"
#include "support/close_to.h"
#include "support/reference_model.h"

using namespace cento;
using namespace cento::test;
using nlohmann::json;

namespace {

constexpr double kMargin = 0.05;     // f32: a greedy token whose margin is above this must be the reference's
constexpr double kLogits = 1e-2;     // f32: how far logits may be off (both from the golden files' README)
constexpr double kFastMargin = 0.5;  // fast: up to the first token whose margin is below this

// fast: mean KL over a prompt's positions against the own f32, nats. A bar that the second term of blocks with outliers
// (kernels/ref/quant_codes.h) keeps with room to spare: 1.0e-3 on SmolLM2, 1.1e-3 on Gemma 3, 0.3e-3 on Qwen2.5; with
// one term alone the first two miss it (3.5e-3, 2.9e-3). A mean over a few positions scatters: prompts of less than
// kShort tokens are given kShortSlack times as much.
constexpr double kFastKl = 2e-3;
constexpr size_t kShort = 64;
constexpr double kShortSlack = 2;

std::optional<json> read_json(const std::string& relative) {
  const auto path = shared_path(relative);
  if (!path) return std::nullopt;
  return json::parse(read_all(*path));
}

double log_sum_exp(std::span<const float> logits) {
  const double top = static_cast<double>(logits[argmax(logits)]);
  double sum = 0;
  for (const float l : logits) sum += std::exp(static_cast<double>(l) - top);
  return top + std::log(sum);
}

double margin(std::span<const float> logits) {
  const size_t best = argmax(logits);
  float second = -HUGE_VALF;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (i != best) second = std::max(second, logits[i]);
  }
  return static_cast<double>(logits[best] - second);
}

// What a run over a prompt gives, a piece at a time: all rows of a large vocabulary would be a gigabyte.
constexpr size_t kPiece = 64;
template <class Use>  // use(row index, logits of f32, logits of fast)
void over_prompt(Engine& f32, Engine& fast, const Ids& ids, const Use& use) {
  f32.truncate(0);
  fast.truncate(0);
  const size_t vocab = f32.model().config().vocab;
  for (size_t from = 0; from < ids.size(); from += kPiece) {
    const auto piece = std::span(ids).subspan(from, std::min(kPiece, ids.size() - from));
    const std::vector<float> a = f32.extend(piece, true), b = fast.extend(piece, true);
    for (size_t i = 0; i < piece.size(); ++i)
      use(from + i, std::span(a).subspan(i * vocab, vocab), std::span(b).subspan(i * vocab, vocab));
  }
}

void check_run(Engine& f32, Engine& fast, const json& run, size_t n_greedy) {
  const Ids ids = run["ids"].get<Ids>(), greedy = run["greedy"].get<Ids>();
  const std::vector<double> margins = run["greedy_margin"].get<std::vector<double>>();
  double nll = 0, kl = 0, largest_kl = 0;
  size_t same_top = 0;
  std::vector<float> last, fast_last;
  over_prompt(f32, fast, ids, [&](size_t i, std::span<const float> a, std::span<const float> b) {
    if (i + 1 < ids.size()) nll += log_sum_exp(a) - static_cast<double>(a[static_cast<size_t>(ids[i + 1])]);
    const double here = kl_divergence(a, b);
    kl += here;
    largest_kl = std::max(largest_kl, here);
    same_top += argmax(a) == argmax(b) ? 1 : 0;
    if (i + 1 == ids.size()) {
      last.assign(a.begin(), a.end());
      fast_last.assign(b.begin(), b.end());
    }
  });
  kl /= static_cast<double>(ids.size());

  const Ids top_ids = run["top_ids"].get<Ids>();
  std::vector<float> top;
  for (const int32_t id : top_ids) top.push_back(last[static_cast<size_t>(id)]);
  CHECK_THAT(top, CloseTo(run["top_logits"].get<std::vector<double>>(), std::vector<double>(top.size(), kLogits)));
  CHECK(static_cast<int32_t>(argmax(last)) == top_ids[0]);
  // A log-sum-exp moves no further than its logits; a token's NLL by twice that at most.
  CHECK(std::abs(log_sum_exp(last) - run["logsumexp"].get<double>()) < kLogits);
  const double nll_golden = run["nll_sum"].get<double>();
  CHECK(std::abs(nll - nll_golden) < 2 * kLogits * static_cast<double>(ids.size()));
  CHECK(kl < (ids.size() < kShort ? kShortSlack : 1) * kFastKl);

  // Teacher-forced, so that a close call does not end the comparison.
  size_t n_same = 0;
  bool fast_counts = true;
  for (size_t i = 0; i < n_greedy; ++i) {
    CAPTURE(i, margins[i]);
    if (margins[i] > kMargin) CHECK(static_cast<int32_t>(argmax(last)) == greedy[i]);
    n_same += static_cast<int32_t>(argmax(last)) == greedy[i] ? 1 : 0;
    CHECK(std::abs(margin(last) - margins[i]) < 2 * kLogits);
    fast_counts = fast_counts && margins[i] >= kFastMargin;
    if (fast_counts) CHECK(static_cast<int32_t>(argmax(fast_last)) == greedy[i]);
    last = f32.extend(std::array{greedy[i]});
    fast_last = fast.extend(std::array{greedy[i]});
  }
  std::ostringstream figures;
  figures << f32.model().name() << ", " << ids.size() << " tokens: f32 NLL " << nll << " (reference " << nll_golden
          << "), " << n_same << " of " << n_greedy << " greedy tokens; fast against f32: mean KL " << kl << ", largest "
          << largest_kl << ", top-1 " << static_cast<double>(same_top) / static_cast<double>(ids.size());
  WARN(figures.str());
}

void check_model(const std::string& name, size_t n_runs, size_t n_greedy) {
  const auto path = model_path(name + ".gguf");
  const auto golden = read_json("data/golden/" + name + ".json");
  if (!path || !golden) return;
  LoadedEngine f32(*path, best_ops(), Precision::kF32, 0), fast(*path, best_ops(), Precision::kFast, 0);
  for (size_t i = 0; i < std::min(n_runs, (*golden)["runs"].size()); ++i) {
    const json& run = (*golden)["runs"][i];
    CAPTURE(name, run["prompt"].get<std::string>().substr(0, 60));
    check_run(f32.engine, fast.engine, run, n_greedy);
  }
}

struct Stories {
  std::string path;
  json runs;
};
std::optional<Stories> stories() {
  const auto path = shared_path("data/models/stories260K.gguf");
  auto golden = read_json("data/models/stories260K.golden.json");
  if (!path || !golden) return std::nullopt;
  return Stories{*path, (*golden)["runs"]};
}

}  // namespace

TEST_CASE("golden: the float64 reference of these tests agrees with another program's, on stories260K", "[engine]") {
  const auto data = stories();
  if (!data) return;
  const GgufFile gguf(data->path);
  const ReferenceModel reference(gguf);
  for (const json& run : data->runs) {
    const Ids ids = run["prompt_ids"].get<Ids>();
    const std::vector<double> logits = reference.logits(ids);
    const std::vector<double> last(logits.end() - static_cast<ptrdiff_t>(reference.vocab()), logits.end());
    CHECK_THAT(last,
               CloseTo64(run["logits_after_prompt"].get<std::vector<double>>(), 2e-6));  // six decimals in the file
  }
}

TEST_CASE("golden: stories260K gives the reference's logits and stories, on every backend", "[engine]") {
  const auto data = stories();
  if (!data) return;
  const GgufFile gguf(data->path);
  const ReferenceModel reference(gguf);
  for (const json& run : data->runs) {
    const Ids ids = run["prompt_ids"].get<Ids>(), greedy = run["greedy_ids"].get<Ids>();
    const auto golden = run["logits_after_prompt"].get<std::vector<double>>();
    // Bounds as in forward_test.cc: float32 arithmetic moves this model's logits by this much, half KV by that. Its
    // weights are F32, so that half KV is all that the fast mode adds.
    const double shift = largest_shift(reference, ids, Rounding::kFloat32) + 1e-6;
    const double fast_shift = 2 * largest_shift(reference, ids, Rounding::kFast) + shift;
    REQUIRE(shift < 1e-3);
    REQUIRE(fast_shift < 0.2);
    for (const Ops* ops : all_ops()) {
      CAPTURE(ops->name, run["prompt"].get<std::string>());
      LoadedEngine f32(data->path, *ops, Precision::kF32), fast(data->path, *ops, Precision::kFast);
      std::vector<float> logits = f32.engine.extend(ids);
      CHECK_THAT(logits, CloseTo(golden, std::vector<double>(golden.size(), shift)));
      std::vector<float> fast_logits = fast.engine.extend(ids);
      CHECK_THAT(fast_logits, CloseTo(golden, std::vector<double>(golden.size(), fast_shift)));
      // f32 on its own; fast beside it, wherever the margin leaves no doubt. The plain reference, slow, tells the first
      // part only.
      const size_t n = ops == &ref_ops() ? std::min<size_t>(greedy.size(), 48) : greedy.size();
      Ids told;
      size_t n_fast = 0, n_fast_same = 0;
      for (size_t i = 0; i < n; ++i) {
        told.push_back(static_cast<int32_t>(argmax(logits)));
        if (margin(logits) > kFastMargin) {
          ++n_fast;
          n_fast_same += argmax(fast_logits) == argmax(logits) ? 1 : 0;
        }
        logits = f32.engine.extend(std::span(told).last(1));
        fast_logits = fast.engine.extend(std::span(told).last(1));
      }
      CHECK(told == Ids(greedy.begin(), greedy.begin() + static_cast<ptrdiff_t>(n)));
      CHECK(n_fast_same == n_fast);
      CHECK(n_fast > n / 2);
    }
  }
}

TEST_CASE("golden: SmolLM2 continues as the reference does", "[engine]") {
  check_model("smollm2-135m-instruct-q4_1", 1, 8);
}

TEST_CASE("golden: SmolLM2, all prompts", "[engine][.slow]") { check_model("smollm2-135m-instruct-q4_1", 4, 32); }
TEST_CASE("golden: Qwen2.5, all prompts", "[engine][.slow]") {
  check_model("qwen2.5-coder-0.5b-instruct-q4_k_m", 4, 32);
}
TEST_CASE("golden: Gemma 3, all prompts", "[engine][.slow]") { check_model("gemma3-270m-q4_k_m", 4, 32); }

TEST_CASE("identity: three passages recomputed in full are full prefill, on SmolLM2", "[engine][.slow]") {
  const auto path = model_path("smollm2-135m-instruct-q4_1.gguf");
  const auto golden = read_json("data/golden/smollm2-135m-instruct-q4_1.json");
  if (!path || !golden) return;
  const Ids text = (*golden)["runs"][3]["ids"].get<Ids>(), question = (*golden)["runs"][0]["ids"].get<Ids>();
  REQUIRE(text.size() > 620);
  const auto part = [&](size_t from, size_t n) {
    return Ids(text.begin() + static_cast<ptrdiff_t>(from), text.begin() + static_cast<ptrdiff_t>(from + n));
  };
  const Ids prefix = part(0, 10);
  std::vector<Ids> passages = {part(400, 203), part(10, 190), part(200, 200)};
  const Precision precision = GENERATE(Precision::kFast, Precision::kF32);
  LoadedEngine loaded(*path, best_ops(), precision, 0);
  Engine& engine = loaded.engine;
  const auto result = [&](PromptPlan plan, const PipelineOptions& options) {
    std::vector<float> all = prefill_anew(engine, std::move(plan), options).logits;
    const std::vector<float> steps = greedy_steps(engine, all, 16);
    all.insert(all.end(), steps.begin(), steps.end());
    return all;
  };
  const std::vector<float> full =
      result(plan_of(fresh(joined(prefix, passages[0], passages[1], passages[2], question))), {});
  std::vector<KvBlock> kv;
  for (const Ids& passage : passages) kv.push_back(computed_kv(engine, prefix, passage));
  const auto blend = [&](PolicyKind policy, double ratio) {
    PromptPlan plan = plan_of(fresh(prefix));
    for (size_t i = 0; i < 3; ++i) plan.segments.push_back(stored(SegmentFrom::kChunk, passages[i], as_reader(kv[i])));
    plan.segments.push_back(fresh(question));
    return result(std::move(plan), with(policy, ratio));
  };
  for (const PolicyKind policy : {PolicyKind::kQuery, PolicyKind::kDevKv, PolicyKind::kHeadK, PolicyKind::kAll}) {
    CAPTURE(policy_name(policy), precision_name(precision));
    CHECK(same_bits(blend(policy, 1.0), full));
  }
  const std::vector<float> reused = blend(PolicyKind::kNone, 0), some = blend(PolicyKind::kQuery, 0.15);
  CHECK_FALSE(same_bits(reused, full));
  const size_t vocab = engine.model().config().vocab;
  const auto kl = [&](const std::vector<float>& other) {
    return kl_divergence(std::span(full).first(vocab), std::span(other).first(vocab));
  };
  WARN("SmolLM2 " << precision_name(precision) << ", 593 tokens reused: KL " << kl(reused)
                  << ", 15 % recomputed by question: " << kl(some));
}

TEST_CASE("identity: prefill in pieces and decoding on a real model are prefill", "[engine][.slow]") {
  const std::string name =
      GENERATE("smollm2-135m-instruct-q4_1", "gemma3-270m-q4_k_m", "qwen2.5-coder-0.5b-instruct-q4_k_m");
  const auto path = model_path(name + ".gguf");
  const auto golden = read_json("data/golden/" + name + ".json");
  if (!path || !golden) return;
  Ids ids = (*golden)["runs"][3]["ids"].get<Ids>();
  ids.resize(600);  // beyond a slice, and beyond Gemma's window of 512
  for (const Ops* ops : all_simd_ops()) {
    CAPTURE(name, ops->name);
    LoadedEngine loaded(*path, *ops, Precision::kFast, 0);
    Engine& engine = loaded.engine;
    const std::vector<float> whole = engine.extend(ids);
    engine.truncate(0);
    PipelineOptions sliced;
    sliced.slice_rows = 37;
    CHECK(same_bits(prefill_anew(engine, plan_of(fresh(ids)), sliced).logits, whole));
    engine.truncate(590);
    std::vector<float> step;
    for (size_t i = 590; i < ids.size(); ++i) step = engine.extend(std::array{ids[i]});
    CHECK(same_bits(step, whole));
  }
}
