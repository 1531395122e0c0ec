#include "engine/forward.h"

#include <cmath>
#include <sstream>

#include "engine/engine_test.h"
#include "support/close_to.h"
#include "support/reference_model.h"

// Bounds. f32: the largest shift that Rounding::kFloat32 gives the float64 reference on the same ids (three draws).
// Each of its moves reaches some three times as far as the error that it stands for (reference_model.h), which leaves
// room for errors that happen to agree in sign. Live KV is float32 then, so that K and V add no rounding of their own.
// fast: twice the mean KL that Rounding::kFast gives; steps of int8 and half are as large as the moves there, and a
// mean over all rows and three draws scatters by some tens of per cent.

using namespace cento;
using namespace cento::test;

namespace {

constexpr double kFastSlack = 2;

std::vector<float> all_logits(const std::string& path, const Ops& ops, Precision precision, const Ids& ids) {
  LoadedEngine loaded(path, ops, precision);
  PipelineOptions options;
  options.logits_rows = ids.size();
  return prefill(loaded.engine, plan_of(fresh(ids)), options).logits;
}

double mean_kl(std::span<const float> p, std::span<const float> q, size_t vocab) {
  REQUIRE(p.size() == q.size());
  double sum = 0;
  for (size_t from = 0; from < p.size(); from += vocab)
    sum += kl_divergence(p.subspan(from, vocab), q.subspan(from, vocab));
  return sum / static_cast<double>(p.size() / vocab);
}

// Both precisions of one model against the reference on every backend.
void check_model(const GgufWriter& writer, size_t n_ids) {
  const ModelFile file(writer);
  const GgufFile gguf(file.path());
  const ReferenceModel reference(gguf);
  const Ids ids = random_ids(n_ids, reference.vocab(), 7);
  const std::vector<double> exact = reference.logits(ids);
  const double shift = largest_shift(reference, ids, Rounding::kFloat32);
  const double kl = cento::test::mean_kl(reference, ids, Rounding::kFast);
  // A bound so wide that it would let a wrong formula through shows nothing. Logits spread over some units.
  REQUIRE(shift > 0);
  REQUIRE(shift < 1e-2);
  REQUIRE(kl < 0.1);
  CAPTURE(shift, kl);
  for (const Ops* ops : engine_ops()) {
    CAPTURE(ops->name);
    const std::vector<float> f32 = all_logits(file.path(), *ops, Precision::kF32, ids);
    CHECK_THAT(f32, CloseTo(exact, std::vector<double>(exact.size(), shift)));
    const std::vector<float> fast = all_logits(file.path(), *ops, Precision::kFast, ids);
    const double fast_kl = mean_kl(f32, fast, reference.vocab());
    CHECK(fast_kl < kFastSlack * kl);
    CHECK(fast_kl > kl / 100);  // else it is no other arithmetic at all
  }
}

}  // namespace

TEST_CASE("forward: every architecture and weight type agrees with float64, on every backend", "[engine]") {
  const std::string architecture = GENERATE("llama", "qwen2", "gemma3");
  const DType type = GENERATE(DType::kF32, DType::kF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_K);
  TinyModelSpec spec = tiny_spec(architecture, type);
  // Files mix types: V and down in another one.
  if (type == DType::kQ4_0) spec.down_type = DType::kQ4_1;
  if (type == DType::kQ4_K) spec.down_type = DType::kQ6_K;
  CAPTURE(architecture, dtype_info(type).name);
  // Longer than gemma3's window of 8; not a multiple of anything.
  check_model(tiny_writer(spec), 23);
}

TEST_CASE("forward: odd shapes agree with float64", "[engine]") {
  SECTION("one KV head for all, partial last tiles, padded embedding rows") {
    TinyModelSpec spec = tiny_spec("llama", DType::kF32);
    spec.heads = 3;
    spec.kv_heads = 1;
    spec.head_dim = 10;
    spec.width = 30;
    spec.ffn = 43;
    spec.padding_rows = 5;
    check_model(tiny_writer(spec), 11);
  }
  SECTION("as many KV heads as heads, wider than the model") {
    TinyModelSpec spec = tiny_spec("gemma3", DType::kQ8_0);
    spec.heads = spec.kv_heads = 4;
    spec.head_dim = 32;
    check_model(tiny_writer(spec), 19);
  }
  SECTION("tied output") {
    TinyModelSpec spec = tiny_spec("qwen2", DType::kQ8_0);
    spec.tied = true;
    check_model(tiny_writer(spec), 11);
  }
  SECTION("one layer, one token") {
    TinyModelSpec spec = tiny_spec("llama", DType::kQ8_0);
    spec.layers = 1;
    check_model(tiny_writer(spec), 1);
  }
  SECTION("an output matrix of another type than the layers") {
    TinyModelSpec spec = tiny_spec("gemma3", DType::kQ4_0);
    spec.embedding_type = DType::kQ8_0;
    check_model(tiny_writer(spec), 11);
  }
}

TEST_CASE("forward: scaled rotary embeddings agree with float64", "[engine]") {
  SECTION("linear, llama") {
    TinyModelSpec spec = tiny_spec("llama", DType::kF32);
    spec.rope_linear = 4;
    check_model(tiny_writer(spec), 40);
  }
  SECTION("linear, gemma3: global layers only") {
    TinyModelSpec spec = tiny_spec("gemma3", DType::kF32);
    spec.rope_linear = 8;
    spec.rope_base = 1e4f;  // so that nothing but the scaling tells global layers from local ones
    check_model(tiny_writer(spec), 40);
  }
  SECTION("frequency divisors as in Llama 3") {
    TinyModelSpec spec = tiny_spec("llama", DType::kF32);
    spec.rope_llama3 = true;
    spec.rope_base = 500000;
    check_model(tiny_writer(spec), 40);
  }
}

TEST_CASE("forward: peaked attention agrees with float64", "[engine]") {
  // Scores grow with the square of the gain: softmax with one winner.
  TinyModelSpec spec = tiny_spec(GENERATE("llama", "qwen2"), GENERATE(DType::kF32, DType::kQ8_0));
  spec.layers = 2;
  spec.gain = 2.5;
  check_model(tiny_writer(spec), 31);
}

TEST_CASE("forward: a prompt of several attention tiles and window lengths agrees with float64", "[engine]") {
  TinyModelSpec spec = tiny_spec(GENERATE("llama", "gemma3"), DType::kF32);
  spec.layers = 2;
  spec.window = 70;                     // wider than an attention tile of 64 keys, and not a multiple of it
  check_model(tiny_writer(spec), 290);  // beyond a range of 256 keys
}

TEST_CASE("forward: a key's attention mass is the largest probability that float64 attention gives it", "[engine]") {
  const std::string architecture = GENERATE("llama", "qwen2", "gemma3");
  const ModelFile file(tiny_spec(architecture, DType::kF32));
  const GgufFile gguf(file.path());
  const ReferenceModel reference(gguf);
  const Ids ids = random_ids(20, reference.vocab(), 3);
  std::vector<int32_t> pos(ids.size());
  for (size_t i = 0; i < pos.size(); ++i) pos[i] = static_cast<int32_t>(i);
  for (const Ops* ops : engine_ops()) {
    LoadedModel model({file.path(), Precision::kF32, "auto", ops, 1, ""});
    Forward forward(model);
    forward.reserve(ids.size(), 0);
    for (const size_t first_row : {size_t{0}, size_t{15}, ids.size() - 1}) {
      CAPTURE(architecture, ops->name, first_row);
      forward.begin(ids, pos);
      for (uint32_t layer = 0; layer < model.config().n_layers; ++layer) {
        std::vector<float> mass(first_row == 0 ? ids.size() : 15, -1.0f);  // of the keys before the question only
        forward.project(layer);
        forward.finish(layer, mass, first_row);
        std::vector<double> exact = reference.key_mass(ids, layer, first_row);
        double shift = 0;
        for (uint64_t seed = 1; seed <= 3; ++seed) {
          const auto moved = reference.key_mass(ids, layer, first_row, Rounding::kFloat32, seed);
          for (size_t j = 0; j < moved.size(); ++j) shift = std::max(shift, std::abs(moved[j] - exact[j]));
        }
        REQUIRE(shift < 1e-3);
        exact.resize(mass.size());
        // Twice: three draws of one layer's few probabilities need not come near the worst.
        CHECK_THAT(mass, CloseTo(exact, std::vector<double>(exact.size(), 2 * shift)));
      }
    }
  }
}
