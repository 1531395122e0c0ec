// What blending promises (DESIGN 3), bit for bit: rows do not depend on what is computed beside them (compute/ops.h),
// so where two plans give every row the same inputs, their logits are the same floats. On every backend, in both
// precisions and all architectures.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <thread>

#include "engine/engine_test.h"
#include "support/close_to.h"
#include "support/fake_runner.h"

using namespace cento;
using namespace cento::test;

namespace {

constexpr size_t kSteps = 16;  // of greedy continuation

constexpr PolicyKind kRankingPolicies[] = {PolicyKind::kAll,  PolicyKind::kRandom, PolicyKind::kHeadK,
                                           PolicyKind::kDevK, PolicyKind::kDevV,   PolicyKind::kDevKv,
                                           PolicyKind::kQuery};

// A prompt in parts. Lengths are no multiples of each other or of any tile; together beyond an attention tile of 64
// keys.
struct Prompt {
  Ids prefix, a, b, c, question;
  explicit Prompt(size_t vocab, size_t scale = 1)
      : prefix(random_ids(9, vocab, 11)),
        a(random_ids(23 * scale, vocab, 12)),
        b(random_ids(37 * scale, vocab, 13)),
        c(random_ids(14 * scale, vocab, 14)),
        question(random_ids(10, vocab, 15)) {}
  Ids whole() const { return joined(prefix, a, b, c, question); }
};

PipelineOptions rows_wanted(size_t n, PipelineOptions options = {}) {
  options.logits_rows = n;
  return options;
}

// Logits of the last `n_rows` rows of full prefill, and then of a greedy continuation.
struct Answer {
  std::vector<float> rows, steps;
};
Answer answer(Engine& engine, PromptPlan plan, const PipelineOptions& options) {
  Answer a;
  a.rows = prefill_anew(engine, std::move(plan), options).logits;
  const size_t vocab = engine.model().config().vocab;
  REQUIRE(a.rows.size() == options.logits_rows * vocab);
  a.steps = greedy_steps(engine, std::span(a.rows).last(vocab), kSteps);
  return a;
}
bool same(const Answer& a, const Answer& b) { return same_bits(a.rows, b.rows) && same_bits(a.steps, b.steps); }

Answer full(Engine& engine, const Ids& ids, size_t n_rows) {
  return answer(engine, plan_of(fresh(ids)), rows_wanted(n_rows));
}

const std::string& tiny_path(const std::string& architecture) {
  // Fast precision multiplies these types in different kernels.
  static const ModelFile llama(tiny_spec("llama", DType::kQ8_0)), gemma3(tiny_spec("gemma3", DType::kQ5_1));
  static const ModelFile qwen2([] {
    TinyModelSpec spec = tiny_spec("qwen2", DType::kQ4_0);
    spec.down_type = DType::kF16;
    return spec;
  }());
  static const std::string paths[] = {llama.path(), qwen2.path(), gemma3.path()};
  return paths[architecture == "llama" ? 0 : architecture == "qwen2" ? 1 : 2];
}

// Calls check(engine) for every architecture, precision and backend.
template <class Check>
void on_every_engine(const Check& check) {
  for (const std::string& architecture : architectures()) {
    for (const Precision precision : {Precision::kF32, Precision::kFast}) {
      for (const Ops* ops : engine_ops()) {
        CAPTURE(architecture, precision_name(precision), ops->name);
        LoadedEngine loaded(tiny_path(architecture), *ops, precision);
        check(loaded.engine);
      }
    }
  }
}

size_t vocab_of(Engine& engine) { return engine.model().config().vocab; }

std::unique_ptr<KvReader> chunk_kv(Engine& engine, const Ids& context, const Ids& ids) {
  return as_reader(computed_kv(engine, context, ids));
}

// Chunks computed behind the prefix alone, to be put together in many ways.
struct Chunks {
  const Prompt& p;
  std::vector<Ids> ids;
  std::vector<KvBlock> kv;
  Chunks(Engine& engine, const Prompt& prompt) : p(prompt), ids{prompt.a, prompt.b, prompt.c} {
    for (const Ids& i : ids) kv.push_back(computed_kv(engine, prompt.prefix, i));
  }
  // [prefix] [chunks in `order`] [question]
  PromptPlan plan(const std::vector<size_t>& order) const {
    PromptPlan plan = plan_of(fresh(p.prefix));
    for (const size_t i : order) plan.segments.push_back(stored(SegmentFrom::kChunk, ids[i], as_reader(kv[i])));
    plan.segments.push_back(fresh(p.question));
    return plan;
  }
};

// K and V of slots [from, from + n) as they lie in the live KV.
std::vector<std::byte> live_rows(const Ops& ops, const Forward& forward, uint32_t layer, size_t from, size_t n) {
  const KvLayerView view = forward.live().layer(layer);
  const size_t row_bytes = view.head_dim * kv_type_bytes(view.type);
  std::vector<std::byte> bytes(2 * view.n_kv_heads * n * row_bytes);
  size_t to = 0;
  for (const void* side : {view.k, view.v}) {
    for (size_t h = 0; h < view.n_kv_heads; ++h) {
      const auto* first = static_cast<const std::byte*>(side) + (h * view.capacity + from) * row_bytes;
      ops.device->download(&bytes[to], first, n * row_bytes);
      to += n * row_bytes;
    }
  }
  return bytes;
}

// Fills slots [0, n) with rows of other tokens: what is not placed there again shows.
void scramble(Engine& engine, size_t n) { prefill_anew(engine, plan_of(fresh(random_ids(n, vocab_of(engine), 99)))); }

// A reader that takes its time over every layer.
class SlowKv final : public KvReader {
 public:
  explicit SlowKv(std::unique_ptr<KvReader> inner) : inner_(std::move(inner)) {}
  uint64_t n_tokens() const override { return inner_->n_tokens(); }
  const KvShape& shape() const override { return inner_->shape(); }
  const Hash& key() const override { return inner_->key(); }
  Status read_layer(uint32_t layer, std::span<std::byte> k, std::span<std::byte> v) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return inner_->read_layer(layer, k, v);
  }
  uint64_t bytes_read() const override { return inner_->bytes_read(); }

 private:
  std::unique_ptr<KvReader> inner_;
};

std::vector<int32_t> positions_from(size_t from, size_t n) {
  std::vector<int32_t> pos(n);
  for (size_t i = 0; i < n; ++i) pos[i] = static_cast<int32_t>(from + i);
  return pos;
}

float value_at(const std::vector<std::byte>& bytes, KvType type, size_t i) {
  if (type == KvType::kF32) {
    float value;
    std::memcpy(&value, &bytes[i * sizeof value], sizeof value);
    return value;
  }
  fp16 half;
  std::memcpy(&half, &bytes[i * sizeof half], sizeof half);
  return to_float(half);
}

}  // namespace

TEST_CASE("identity: prefill in slices of any size is prefill in one", "[engine]") {
  on_every_engine([](Engine& engine) {
    const Ids ids = Prompt(vocab_of(engine)).whole();
    const std::vector<float> whole = prefill_anew(engine, plan_of(fresh(ids)), rows_wanted(ids.size())).logits;
    for (const size_t slice : {1, 3, 50}) {
      PipelineOptions options = rows_wanted(ids.size());
      options.slice_rows = slice;
      CAPTURE(slice);
      CHECK(same_bits(prefill_anew(engine, plan_of(fresh(ids)), options).logits, whole));
    }
  });
}

TEST_CASE("identity: tokens appended one by one, or all at once, are prefill", "[engine]") {
  on_every_engine([](Engine& engine) {
    const Ids ids = Prompt(vocab_of(engine)).whole();
    const std::vector<float> whole = prefill_anew(engine, plan_of(fresh(ids)), rows_wanted(ids.size())).logits;
    engine.truncate(0);
    CHECK(same_bits(engine.extend(ids, true), whole));
    engine.truncate(0);
    std::vector<float> steps;
    for (const int32_t id : ids) {
      const std::vector<float> row = engine.extend(std::array{id});
      steps.insert(steps.end(), row.begin(), row.end());
    }
    CHECK(same_bits(steps, whole));
    engine.truncate(40);
    CHECK(same_bits(engine.extend(std::span(ids).subspan(40)), std::span(whole).last(vocab_of(engine))));
  });
}

TEST_CASE("identity: a plan of fresh segments is full prefill", "[engine]") {
  on_every_engine([](Engine& engine) {
    const Prompt p(vocab_of(engine));
    const size_t n = p.question.size();
    PromptPlan plan = plan_of(fresh(p.prefix), fresh(p.a), fresh({}), fresh(p.b), fresh(p.c), fresh(p.question));
    CHECK(same(answer(engine, std::move(plan), rows_wanted(n)), full(engine, p.whole(), n)));
  });
}

TEST_CASE("identity: recomputing every reused row is full prefill, whatever the policy", "[engine]") {
  on_every_engine([](Engine& engine) {
    const Prompt p(vocab_of(engine));
    const size_t n = p.question.size();
    const Chunks chunks(engine, p);
    const Answer expected = full(engine, p.whole(), n);
    for (const PolicyKind policy : kRankingPolicies) {
      CAPTURE(policy_name(policy));
      CHECK(same(answer(engine, chunks.plan({0, 1, 2}), rows_wanted(n, with(policy, 1.0))), expected));
    }
    // In slices too, and with a check layer at either end.
    PipelineOptions sliced = rows_wanted(n, with(PolicyKind::kQuery, 1.0));
    sliced.slice_rows = 7;
    CHECK(same(answer(engine, chunks.plan({0, 1, 2}), sliced), expected));
    for (const uint32_t layer : {0u, 99u}) {
      PipelineOptions options = rows_wanted(n, with(PolicyKind::kDevKv, 1.0));
      options.blend.check_layer = layer;
      CHECK(same(answer(engine, chunks.plan({0, 1, 2}), options), expected));
    }
    // None of this would show anything if stale rows made no difference.
    CHECK_FALSE(same(answer(engine, chunks.plan({0, 1, 2}), rows_wanted(n, with(PolicyKind::kNone))), expected));
    CHECK_FALSE(same(answer(engine, chunks.plan({0, 1, 2}), rows_wanted(n, with(PolicyKind::kQuery, 0.5))), expected));
  });
}

TEST_CASE("identity: recomputing every reused row is full prefill in every order of the chunks", "[engine]") {
  on_every_engine([](Engine& engine) {
    const Prompt p(vocab_of(engine));
    const size_t n = p.question.size();
    const Chunks chunks(engine, p);
    std::vector<size_t> order = {0, 1, 2};
    do {
      CAPTURE(order);
      Ids whole = p.prefix;
      for (const size_t i : order) whole = joined(whole, chunks.ids[i]);
      const Answer expected = full(engine, joined(whole, p.question), n);
      CHECK(same(answer(engine, chunks.plan(order), rows_wanted(n, with(PolicyKind::kQuery, 1.0))), expected));
    } while (std::next_permutation(order.begin(), order.end()));
  });
}

TEST_CASE("identity: recomputing some rows is a plan in which these rows are fresh", "[engine]") {
  // Also for the deviation policies: up to check layer 1 they compute all rows, but what they replace in layer 0 is
  // equal.
  on_every_engine([](Engine& engine) {
    const Prompt p(vocab_of(engine));
    const size_t n = p.question.size();
    const Chunks chunks(engine, p);
    const std::vector<size_t> order = {1, 2, 0};
    for (const PolicyKind policy : kRankingPolicies) {
      if (policy == PolicyKind::kAll) continue;
      CAPTURE(policy_name(policy));
      PipelineOptions options = rows_wanted(n, with(policy, 0.4));
      options.slice_rows = policy == PolicyKind::kQuery ? 7 : 512;
      const PipelineReport report = prefill_anew(engine, chunks.plan(order), options);
      const size_t n_chunk_rows = p.a.size() + p.b.size() + p.c.size();
      REQUIRE(report.recomputed.size() == static_cast<size_t>(std::llround(0.4 * static_cast<double>(n_chunk_rows))));
      PromptPlan plan = plan_of(fresh(p.prefix));
      size_t start = p.prefix.size();
      for (const size_t i : order) {
        const auto is_fresh = [&](size_t row) {
          return std::binary_search(report.recomputed.begin(), report.recomputed.end(),
                                    static_cast<int32_t>(start + row));
        };
        const Ids& ids = chunks.ids[i];
        for (size_t from = 0, to = 0; from < ids.size(); from = to) {
          while (to < ids.size() && is_fresh(to) == is_fresh(from)) ++to;
          const Ids part(ids.begin() + static_cast<ptrdiff_t>(from), ids.begin() + static_cast<ptrdiff_t>(to));
          plan.segments.push_back(
              is_fresh(from) ? fresh(part)
                             : stored(SegmentFrom::kChunk, part, as_reader(rows_of(chunks.kv[i], from, part.size()))));
        }
        start += ids.size();
      }
      plan.segments.push_back(fresh(p.question));
      CHECK(same_bits(prefill_anew(engine, std::move(plan), rows_wanted(n, with(PolicyKind::kNone))).logits,
                      report.logits));
    }
  });
}

TEST_CASE("identity: the first chunk reused as exact is full prefill, and so is decoding behind it", "[engine]") {
  on_every_engine([](Engine& engine) {
    const Prompt p(vocab_of(engine));
    const size_t n = p.question.size();
    const Ids ids = joined(p.prefix, p.a, p.question);
    const Answer expected = full(engine, ids, n);
    const auto plan = [&](SegmentFrom from) {
      return plan_of(fresh(p.prefix), stored(from, p.a, chunk_kv(engine, p.prefix, p.a)), fresh(p.question));
    };
    PromptPlan exact = plan(SegmentFrom::kExact);
    scramble(engine, ids.size());
    CHECK(same(answer(engine, std::move(exact), rows_wanted(n, with(PolicyKind::kQuery))), expected));
    // Ranked but not recomputed it is the same: it stands where it was computed.
    PromptPlan ranked = plan(SegmentFrom::kChunk);
    scramble(engine, ids.size());
    CHECK(same(answer(engine, std::move(ranked), rows_wanted(n, with(PolicyKind::kNone))), expected));
    // Prefix and chunk from two computations, of other slices.
    PromptPlan both =
        plan_of(stored(SegmentFrom::kExact, p.prefix, chunk_kv(engine, {}, p.prefix)),
                stored(SegmentFrom::kExact, p.a, as_reader(computed_kv(engine, p.prefix, p.a, 5))), fresh(p.question));
    scramble(engine, ids.size());
    const auto report = prefill_anew(engine, std::move(both), rows_wanted(n));
    CHECK(same_bits(report.logits, expected.rows));
    CHECK(report.n_exact == p.prefix.size() + p.a.size());
    CHECK(engine.resident_prefix(ids) == ids.size());
  });
}

TEST_CASE("identity: a layer waits for the rows that are loaded for it", "[engine]") {
  for (const std::string& architecture : architectures()) {
    LoadedEngine loaded(tiny_path(architecture), best_ops(), Precision::kFast);
    Engine& engine = loaded.engine;
    const Prompt p(vocab_of(engine));
    const Ids ids = joined(p.prefix, p.a, p.question);
    const Answer expected = full(engine, ids, 1);
    auto slow = std::make_unique<SlowKv>(chunk_kv(engine, p.prefix, p.a));
    scramble(engine, ids.size());
    const auto report = prefill_anew(
        engine, plan_of(fresh(p.prefix), stored(SegmentFrom::kExact, p.a, std::move(slow)), fresh(p.question)));
    CHECK(same_bits(report.logits, expected.rows));
    CHECK(report.load_wait_ms > 1);
  }
}

TEST_CASE("identity: with a chunk missing its neighbours recomputed are full prefill", "[engine]") {
  on_every_engine([](Engine& engine) {
    const Prompt p(vocab_of(engine));
    const size_t n = p.question.size();
    const Chunks chunks(engine, p);
    const Answer expected = full(engine, p.whole(), n);
    for (size_t missing = 0; missing < 3; ++missing) {
      for (const PolicyKind policy : {PolicyKind::kQuery, PolicyKind::kDevKv, PolicyKind::kHeadK}) {
        CAPTURE(missing, policy_name(policy));
        PromptPlan plan = chunks.plan({0, 1, 2});
        plan.segments[missing + 1].from = SegmentFrom::kFresh;
        plan.segments[missing + 1].kv = nullptr;
        CHECK(same(answer(engine, std::move(plan), rows_wanted(n, with(policy, 1.0))), expected));
      }
    }
  });
}

TEST_CASE("identity: rows that are resident need not be computed again", "[engine]") {
  on_every_engine([](Engine& engine) {
    const Prompt p(vocab_of(engine));
    const size_t n = p.question.size();
    const Answer expected = full(engine, p.whole(), n);
    const Chunks chunks(engine, p);
    prefill_anew(engine, plan_of(fresh(joined(p.prefix, p.question))));
    REQUIRE(engine.resident_prefix(p.whole()) == p.prefix.size());
    PromptPlan plan = chunks.plan({0, 1, 2});
    plan.segments[0].from = SegmentFrom::kResident;
    const auto report = prefill(engine, std::move(plan), rows_wanted(n, with(PolicyKind::kQuery, 1.0)));
    CHECK(same_bits(report.logits, expected.rows));
    CHECK(report.n_exact == p.prefix.size());
    // The next turn of a chat: all that is there is resident, decoded tokens too.
    Ids turn = joined(p.prefix, p.a);
    prefill_anew(engine, plan_of(fresh(turn)));
    engine.extend(p.b);
    turn = joined(turn, p.b);
    CHECK(engine.resident_prefix(turn) == turn.size());
    const auto next = prefill(engine, plan_of(resident(turn), fresh(p.c), fresh(p.question)), rows_wanted(n));
    CHECK(same_bits(next.logits, expected.rows));
  });
}

TEST_CASE("identity: KV fetched and placed where it was computed is the live KV, bit for bit", "[engine]") {
  on_every_engine([](Engine& engine) {
    LoadedModel& model = engine.model();
    const Prompt p(vocab_of(engine));
    const Ids ids = joined(p.prefix, p.a);
    const auto pos = positions_from(0, ids.size());
    const auto chunk_pos = positions_from(p.prefix.size(), p.a.size());
    const KvBlock block = computed_kv(engine, p.prefix, p.a, 4);
    Forward computed(model), placed(model);
    computed.reserve(ids.size(), 0);
    placed.reserve(ids.size() + 300, 0);  // another capacity, so other strides
    computed.begin(ids, pos);
    for (uint32_t layer = 0; layer < engine.shape().n_layers; ++layer) {
      computed.project(layer);
      computed.finish(layer, {}, 0);
      placed.place(layer, block.k(layer), block.v(layer), chunk_pos);
      CHECK(live_rows(model.ops(), computed, layer, p.prefix.size(), p.a.size()) ==
            live_rows(model.ops(), placed, layer, p.prefix.size(), p.a.size()));
    }
  });
}

TEST_CASE("identity: the first layer's KV of a moved chunk is what is computed there, bit for bit", "[engine]") {
  // K and V of layer 0 depend on nothing but the token: stored un-rotated, they can be put anywhere without a trace.
  on_every_engine([](Engine& engine) {
    LoadedModel& model = engine.model();
    const Prompt p(vocab_of(engine));
    const KvBlock block = computed_kv(engine, p.prefix, p.a);
    const Ids ids = joined(p.c, p.prefix, p.b, p.a);
    const auto pos = positions_from(0, ids.size());
    const size_t at = ids.size() - p.a.size();
    Forward computed(model), placed(model);
    computed.reserve(ids.size(), 0);
    placed.reserve(ids.size(), 0);
    computed.begin(ids, pos);
    computed.project(0);
    computed.finish(0, {}, 0);
    placed.place(0, block.k(0), block.v(0), std::span(pos).subspan(at));
    CHECK(live_rows(model.ops(), computed, 0, at, p.a.size()) == live_rows(model.ops(), placed, 0, at, p.a.size()));
    // The same in the words of the deviation policies, and that they see a row which is another one.
    placed.begin(p.a, std::span(pos).subspan(at));
    placed.project(0);
    std::vector<float> k_dev(p.a.size(), -1.0f), v_dev = k_dev;
    placed.deviation(0, k_dev, v_dev);
    CHECK(k_dev == std::vector<float>(p.a.size(), 0.0f));
    CHECK(v_dev == std::vector<float>(p.a.size(), 0.0f));
    Ids other = p.a;
    other[3] = (other[3] + 1) % static_cast<int32_t>(vocab_of(engine));
    placed.begin(other, std::span(pos).subspan(at));
    placed.project(0);
    placed.deviation(0, k_dev, v_dev);
    for (size_t i = 0; i < other.size(); ++i) {
      CHECK((k_dev[i] > 0) == (i == 3));
      CHECK((v_dev[i] > 0) == (i == 3));
    }
  });
}

TEST_CASE("identity: a chunk placed anywhere keeps its scores against itself", "[engine]") {
  // Scores of K rows against K rows: rotations are relative. Each rotated value is rounded once, so a score of one
  // placement is off by (2 e + e^2) sum |a_i b_i|, at most that of |a| |b|; e is the unit roundoff of the KV type plus
  // 4 u for the table entry (1 u) and the two products and the sum of a rotation (3 u), which act on |(x, y)| of a
  // pair: a factor of sqrt(2) at most. Halves below 2^-14 are rounded by up to 2^-25 instead: D more terms of that
  // times |a|_inf.
  constexpr double kU = 0x1p-24;
  constexpr size_t kOffsets[] = {0, 1, 63, 1000, 4000};
  for (const std::string architecture : {"llama", "llama linear", "qwen2", "gemma3"}) {
    TinyModelSpec spec = tiny_spec(architecture.substr(0, architecture.find(' ')), DType::kF32);
    spec.context = 8192;
    if (architecture == "llama linear") spec.rope_linear = 4;
    const ModelFile file(spec);
    for (const Precision precision : {Precision::kF32, Precision::kFast}) {
      for (const Ops* ops : engine_ops()) {
        CAPTURE(architecture, precision_name(precision), ops->name);
        LoadedEngine loaded(file.path(), *ops, precision);
        const KvShape shape = loaded.engine.shape();
        const size_t n = 12, d = shape.head_dim;
        const KvBlock block = computed_kv(loaded.engine, {1}, random_ids(n, vocab_of(loaded.engine), 5));
        const double e = (precision == Precision::kF32 ? kU : 0x1p-11) + std::sqrt(2.0) * 4 * kU;
        Forward forward(loaded.model);
        forward.reserve(kOffsets[4] + n, 0);
        for (uint32_t layer = 0; layer < shape.n_layers; ++layer) {
          std::vector<double> first, bounds;
          for (const size_t offset : kOffsets) {
            forward.place(layer, block.k(layer), block.v(layer), positions_from(offset, n));
            const auto bytes = live_rows(*ops, forward, layer, offset, n);
            const auto value = [&](size_t h, size_t row, size_t i) {
              return static_cast<double>(value_at(bytes, shape.type, (h * n + row) * d + i));
            };
            std::vector<double> scores;
            for (size_t h = 0; h < shape.n_kv_heads; ++h) {
              for (size_t r = 0; r < n; ++r) {
                for (size_t j = 0; j < n; ++j) {
                  double dot = 0, rr = 0, jj = 0;
                  for (size_t i = 0; i < d; ++i) {
                    dot += value(h, r, i) * value(h, j, i);
                    rr += value(h, r, i) * value(h, r, i);
                    jj += value(h, j, i) * value(h, j, i);
                  }
                  scores.push_back(dot);
                  if (offset == 0) {  // two placements are compared; 1 %: norms and e are taken from rounded values
                    const double tiny = precision == Precision::kF32
                                            ? 0
                                            : static_cast<double>(d) * 0x1p-25 * std::sqrt(std::max(rr, jj));
                    bounds.push_back(2 * 1.01 * (2 * e * std::sqrt(rr * jj) + 2 * tiny));
                  }
                }
              }
            }
            if (offset == 0) first = scores;
            CAPTURE(layer, offset);
            CHECK_THAT(scores, CloseTo64(first, bounds));
          }
        }
      }
    }
  }
}

TEST_CASE("identity: one thread and two give the same", "[engine]") {
  for (const std::string& architecture : architectures()) {
    for (const Precision precision : {Precision::kF32, Precision::kFast}) {
      for (const Ops* ops : engine_ops()) {
        CAPTURE(architecture, precision_name(precision), ops->name);
        LoadedEngine one(tiny_path(architecture), *ops, precision, 1), two(tiny_path(architecture), *ops, precision, 2);
        const Prompt p(vocab_of(one.engine));
        const size_t n = p.question.size();
        CHECK(same(full(one.engine, p.whole(), n), full(two.engine, p.whole(), n)));
        const Chunks a(one.engine, p), b(two.engine, p);
        const PipelineOptions options = rows_wanted(n, with(PolicyKind::kQuery, 0.3));
        CHECK(same(answer(one.engine, a.plan({2, 0, 1}), options), answer(two.engine, b.plan({2, 0, 1}), options)));
      }
    }
  }
}

TEST_CASE("identity: prompts beyond several ranges of keys, slices and a growing live KV", "[engine]") {
  // SIMD kernels cut keys into ranges of 256 and merge them; slices are 512 rows. The plain reference does neither.
  for (const std::string& architecture : architectures()) {
    for (const Precision precision : {Precision::kF32, Precision::kFast}) {
      for (const Ops* ops : all_simd_ops()) {
        CAPTURE(architecture, precision_name(precision), ops->name);
        LoadedEngine loaded(tiny_path(architecture), *ops, precision);
        Engine& engine = loaded.engine;
        const Prompt p(vocab_of(engine), 9);  // 685 tokens
        const size_t n = 300;                 // of the last chunk too
        const Answer expected = full(engine, p.whole(), n);
        PipelineOptions sliced = rows_wanted(n);
        sliced.slice_rows = 7;
        CHECK(same(answer(engine, plan_of(fresh(p.whole())), sliced), expected));
        engine.truncate(0);
        const std::vector<float> all = engine.extend(p.whole(), true);
        CHECK(same_bits(std::span(all).last(n * vocab_of(engine)), expected.rows));
        const Chunks chunks(engine, p);
        for (const PolicyKind policy : {PolicyKind::kQuery, PolicyKind::kDevKv}) {
          CHECK(same(answer(engine, chunks.plan({0, 1, 2}), rows_wanted(n, with(policy, 1.0))), expected));
        }
        // Room for 256 slots at first: rows move as it grows.
        LoadedEngine growing(tiny_path(architecture), *ops, precision);
        std::vector<float> row;
        size_t from = 0;
        for (const size_t to : {size_t{200}, size_t{300}, size_t{301}, p.whole().size()}) {
          const Ids whole = p.whole();
          row = growing.engine.extend(std::span(whole).subspan(from, to - from));
          from = to;
        }
        CHECK(same_bits(row, std::span(expected.rows).last(vocab_of(engine))));
      }
    }
  }
}

TEST_CASE("identity: holds for super-blocks and a model of one layer", "[engine]") {
  TinyModelSpec spec = tiny_spec("llama", DType::kQ4_K);
  spec.down_type = DType::kQ6_K;
  spec.layers = GENERATE(1u, 2u);
  const ModelFile file(spec);
  for (const Ops* ops : engine_ops()) {
    CAPTURE(ops->name, spec.layers);
    LoadedEngine loaded(file.path(), *ops, Precision::kFast);
    const Prompt p(vocab_of(loaded.engine));
    const Chunks chunks(loaded.engine, p);
    const Answer expected = full(loaded.engine, p.whole(), p.question.size());
    for (const PolicyKind policy : {PolicyKind::kQuery, PolicyKind::kDevV}) {
      const PipelineOptions options = rows_wanted(p.question.size(), with(policy, 1.0));
      CHECK(same(answer(loaded.engine, chunks.plan({0, 1, 2}), options), expected));
    }
  }
}

TEST_CASE("identity: stale slots are never read, whatever they hold", "[engine]") {
  on_every_engine([](Engine& engine) {
    const Prompt p(vocab_of(engine));
    const size_t n = p.question.size();
    const Answer expected = full(engine, p.whole(), n);
    // The live KV now holds what a prompt of other tokens left, behind and between the rows of the next one.
    prefill_anew(engine, plan_of(fresh(random_ids(p.whole().size() + 50, vocab_of(engine), 77))));
    CHECK(same(full(engine, p.whole(), n), expected));
    KvBlock poison(engine.shape(), 60);
    for (uint32_t l = 0; l < engine.shape().n_layers; ++l) {  // all bits set: NaN in either type
      std::fill(poison.k(l).begin(), poison.k(l).end(), std::byte{0xff});
      std::fill(poison.v(l).begin(), poison.v(l).end(), std::byte{0xff});
    }
    const Ids head = random_ids(60, vocab_of(engine), 78);
    prefill_anew(engine,
                 plan_of(fresh(p.prefix), stored(SegmentFrom::kChunk, head, as_reader(poison)), fresh(p.question)),
                 with(PolicyKind::kNone));
    CHECK(same(full(engine, p.whole(), n), expected));
  });
}

TEST_CASE("identity: holds on stories260K", "[engine]") {
  const auto path = shared_path("data/models/stories260K.gguf");
  const auto golden = shared_path("data/models/stories260K.golden.json");
  if (!path || !golden) return;
  // Its own stories as chunks.
  const auto runs = nlohmann::json::parse(read_all(*golden))["runs"];
  for (const Precision precision : {Precision::kF32, Precision::kFast}) {
    for (const Ops* ops : all_ops()) {
      CAPTURE(precision_name(precision), ops->name);
      LoadedEngine loaded(*path, *ops, precision);
      Engine& engine = loaded.engine;
      Prompt p(vocab_of(engine));
      p.prefix = {1};
      const auto story = [&](size_t run, size_t n) {
        const Ids ids = runs[run]["greedy_ids"].get<Ids>();
        return Ids(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(std::min(n, ids.size())));
      };
      p.a = story(1, 60);
      p.b = story(2, 80);
      p.c = story(3, 45);
      p.question = runs[1]["prompt_ids"].get<Ids>();
      const size_t n = p.question.size();
      const Chunks chunks(engine, p);
      // Every order on the fast backends; the plain reference takes seconds for one.
      std::vector<size_t> order = {2, 1, 0};
      if (ops != &ref_ops()) std::sort(order.begin(), order.end());
      do {
        CAPTURE(order);
        Ids whole = p.prefix;
        for (const size_t i : order) whole = joined(whole, chunks.ids[i]);
        const Answer expected = full(engine, joined(whole, p.question), n);
        CHECK(same(answer(engine, chunks.plan(order), rows_wanted(n, with(PolicyKind::kQuery, 1.0))), expected));
      } while (std::next_permutation(order.begin(), order.end()));
      const Answer expected = full(engine, p.whole(), n);
      for (const PolicyKind policy : kRankingPolicies) {
        if (ops == &ref_ops() && policy != PolicyKind::kDevKv) continue;
        CAPTURE(policy_name(policy));
        CHECK(same(answer(engine, chunks.plan({0, 1, 2}), rows_wanted(n, with(policy, 1.0))), expected));
      }
    }
  }
}

TEST_CASE("engine: knows which rows are full prefill's", "[engine]") {
  LoadedEngine loaded(tiny_path("llama"), best_ops(), Precision::kFast);
  Engine& engine = loaded.engine;
  const Prompt p(vocab_of(engine));
  const Ids whole = p.whole();
  const Chunks chunks(engine, p);
  CHECK(engine.resident_prefix({}) == 0);
  engine.truncate(0);
  CHECK(engine.ids().empty());
  CHECK(engine.resident_prefix(whole) == 0);

  // A blended plan: what stands before the first chunk is exact; nothing behind it is, decoded tokens included.
  prefill_anew(engine, chunks.plan({0, 1, 2}), with(PolicyKind::kQuery));
  CHECK(engine.ids() == whole);
  CHECK(engine.resident_prefix(whole) == p.prefix.size());
  engine.extend(p.a);
  CHECK(engine.ids() == joined(whole, p.a));
  CHECK(engine.resident_prefix(joined(whole, p.a)) == p.prefix.size());

  // Cut back to the exact part, what is appended is exact again.
  engine.truncate(p.prefix.size());
  CHECK(engine.ids() == p.prefix);
  engine.extend(p.b);
  CHECK(engine.resident_prefix(joined(p.prefix, p.b, p.c)) == p.prefix.size() + p.b.size());
  CHECK(engine.resident_prefix(joined(p.prefix, p.c)) == p.prefix.size());
  CHECK(engine.resident_prefix(Ids(p.prefix.begin(), p.prefix.begin() + 3)) == 3);
  engine.truncate(1000);  // no more than there is
  CHECK(engine.ids() == joined(p.prefix, p.b));
  engine.truncate(4);
  CHECK(engine.resident_prefix(joined(p.prefix, p.b)) == 4);

  // A run that fails or stops leaves the resident rows and nothing else.
  for (const uint32_t layer : {0u, 2u}) {
    prefill_anew(engine, plan_of(fresh(joined(p.prefix, p.b))));
    PromptPlan plan = chunks.plan({0, 1});
    plan.segments[0].from = SegmentFrom::kResident;
    plan.segments[2].kv = std::make_unique<FailingKv>(engine.shape(), p.b.size(), layer);
    auto outcome = engine.prefill(plan, with(PolicyKind::kQuery), 0);
    REQUIRE(std::holds_alternative<SegmentFailure>(outcome));
    CHECK(std::get<SegmentFailure>(outcome).segment == 2);
    CHECK(engine.ids() == p.prefix);
    CHECK(engine.resident_prefix(p.prefix) == p.prefix.size());
    // The plan with that segment computed instead is right.
    plan.segments[2] = fresh(p.b);
    const auto report = prefill(engine, std::move(plan), with(PolicyKind::kAll));
    CHECK(same_bits(report.logits, full(engine, joined(p.prefix, p.a, p.b, p.question), 1).rows));
  }
  prefill_anew(engine, plan_of(fresh(joined(p.prefix, p.b))));
  PromptPlan plan = plan_of(resident(p.prefix), fresh(p.c));
  PipelineOptions options;
  options.stop = [] { return true; };
  auto outcome = engine.prefill(plan, options, 0);
  REQUIRE(std::holds_alternative<PipelineReport>(outcome));
  CHECK(std::get<PipelineReport>(outcome).stopped);
  CHECK(engine.ids() == p.prefix);
}

TEST_CASE("engine: a prompt that does not fit the context is refused with both counts", "[engine]") {
  TinyModelSpec spec = tiny_spec("llama", DType::kF32);
  spec.context = 64;
  const ModelFile file(spec);
  LoadedEngine loaded(file.path(), best_ops(), Precision::kFast);
  Engine& engine = loaded.engine;
  const Ids ids = random_ids(50, vocab_of(engine), 1);
  const auto message = [&](size_t n, size_t reserve) -> std::string {
    PromptPlan plan = plan_of(fresh(Ids(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(n))));
    try {
      engine.prefill(plan, {}, reserve);
    } catch (const Error& e) {
      CHECK(e.code() == Code::kUsage);
      CHECK_FALSE(e.hint().empty());
      return e.message();
    }
    return "";
  };
  CHECK(message(50, 14) == "");
  const std::string refused = message(50, 15);
  CHECK(refused.find("50 tokens") != std::string::npos);
  CHECK(refused.find("15 more") != std::string::npos);
  CHECK(refused.find("holds 64") != std::string::npos);
  CHECK(engine.ids() == ids);  // nothing was touched
  engine.extend(std::span(ids).first(14));
  CHECK(engine.ids().size() == 64);
  try {
    engine.extend(std::span(ids).first(1));
    FAIL("the context was full");
  } catch (const Error& e) {
    CHECK(e.code() == Code::kUsage);
    CHECK(e.message().find("64") != std::string::npos);
  }
  CHECK(engine.ids().size() == 64);
}

TEST_CASE("engine: runs on the backend that is named", "[engine]") {
  for (const Ops* ops : all_ops()) {
    LoadedModel named({tiny_path("llama"), Precision::kFast, ops->name, nullptr, 1, ""});
    CHECK(&named.ops() == ops);
    Engine engine(named);
    LoadedEngine given(tiny_path("llama"), *ops, Precision::kFast);
    const Ids ids = Prompt(vocab_of(engine)).whole();
    CHECK(same(full(engine, ids, 3), full(given.engine, ids, 3)));
  }
  LoadedModel best({tiny_path("llama"), Precision::kFast, "auto", nullptr, 1, ""});
  CHECK(&best.ops() == &best_ops());
  try {
    LoadedModel unknown({tiny_path("llama"), Precision::kFast, "AVX9", nullptr, 1, ""});
    FAIL("there is no AVX9");
  } catch (const Error& e) {
    CHECK(e.code() == Code::kUsage);
    CHECK(e.message().find("AVX9") != std::string::npos);
    CHECK(e.hint().find("ref") != std::string::npos);
  }
}
