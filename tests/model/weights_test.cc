#include "model/weights.h"

#include <catch2/catch.hpp>
#include <functional>

#include "base/error.h"
#include "support/gguf_writer.h"
#include "support/shared_data.h"

namespace cento {
namespace {

using test::GgufWriter;
using test::TinyModelSpec;

TinyModelSpec spec_of(const std::string& architecture) {
  TinyModelSpec spec;
  spec.architecture = architecture;
  return spec;
}

// An opened model with its folder: views stay valid as long as it lives.
struct Opened {
  explicit Opened(const GgufWriter& w) : file(write(w)), config(read_model_config(file)) {}
  std::string write(const GgufWriter& w) {
    w.write(dir / "m.gguf");
    return dir / "m.gguf";
  }
  test::TempDir dir;
  GgufFile file;
  ModelConfig config;
};

std::string problem(const GgufWriter& w) {
  const Opened m(w);
  try {
    (void)find_weights(m.file, m.config);
    return "";
  } catch (const Error& e) {
    CHECK(e.code() == Code::kInput);
    CHECK(e.where() == m.file.file().path());
    CHECK_FALSE(e.hint().empty());
    return e.message();
  }
}

TEST_CASE("weights: every tensor of a layer is found in its place", "[model]") {
  TinyModelSpec spec = spec_of("llama");
  spec.type = DType::kQ8_0;
  const Opened m(test::tiny_model(spec));
  const Weights w = find_weights(m.file, m.config);
  REQUIRE(w.layers.size() == 2);
  for (uint32_t l = 0; l < 2; ++l) {
    const std::string p = "blk." + std::to_string(l) + ".";
    const LayerWeights& layer = w.layers[l];
    const std::pair<const TensorView*, const char*> wanted[] = {{&layer.attn_norm, "attn_norm"},
                                                                {&layer.q, "attn_q"},
                                                                {&layer.k, "attn_k"},
                                                                {&layer.v, "attn_v"},
                                                                {&layer.o, "attn_output"},
                                                                {&layer.ffn_norm, "ffn_norm"},
                                                                {&layer.gate, "ffn_gate"},
                                                                {&layer.up, "ffn_up"},
                                                                {&layer.down, "ffn_down"}};
    for (const auto& [view, name] : wanted) {
      CAPTURE(name);
      CHECK(view->data == m.file.find_tensor(p + name + ".weight")->view.data);
    }
    CHECK(shape_text(layer.k) == "[32, 64]");
    CHECK(shape_text(layer.down) == "[64, 96]");
    CHECK_FALSE(layer.q_bias);
    CHECK_FALSE(layer.q_norm);
    CHECK_FALSE(layer.attn_post_norm);
    CHECK_FALSE(layer.ffn_post_norm);
  }
  CHECK(w.embedding.data == m.file.find_tensor("token_embd.weight")->view.data);
  CHECK(w.output.data == m.file.find_tensor("output.weight")->view.data);
  CHECK(w.output_norm.data == m.file.find_tensor("output_norm.weight")->view.data);
  CHECK_FALSE(w.rope_factors);
  uint64_t all = 0;
  for (const GgufTensor& t : m.file.tensors()) all += t.view.n_bytes;
  CHECK(w.n_bytes == all);
}

TEST_CASE("weights: biases, norms and factors are there where the configuration has them", "[model]") {
  const Opened qwen(test::tiny_model(spec_of("qwen2")));
  const Weights q = find_weights(qwen.file, qwen.config);
  REQUIRE(q.layers[1].k_bias);
  CHECK(q.layers[1].k_bias->data == qwen.file.find_tensor("blk.1.attn_k.bias")->view.data);
  CHECK(q.layers[1].q_bias->data == qwen.file.find_tensor("blk.1.attn_q.bias")->view.data);
  CHECK(q.layers[1].v_bias->data == qwen.file.find_tensor("blk.1.attn_v.bias")->view.data);

  const Opened gemma(test::tiny_model(spec_of("gemma3")));
  const Weights g = find_weights(gemma.file, gemma.config);
  CHECK(g.layers[1].q_norm->data == gemma.file.find_tensor("blk.1.attn_q_norm.weight")->view.data);
  CHECK(g.layers[1].k_norm->data == gemma.file.find_tensor("blk.1.attn_k_norm.weight")->view.data);
  CHECK(g.layers[1].attn_post_norm->data == gemma.file.find_tensor("blk.1.post_attention_norm.weight")->view.data);
  CHECK(g.layers[1].ffn_post_norm->data == gemma.file.find_tensor("blk.1.post_ffw_norm.weight")->view.data);
  CHECK(g.output.data == g.embedding.data);
  uint64_t all = 0;
  for (const GgufTensor& t : gemma.file.tensors()) all += t.view.n_bytes;
  CHECK(g.n_bytes == all);  // the shared matrix counts once

  TinyModelSpec spec = spec_of("llama");
  spec.rope_llama3 = true;
  const Opened llama(test::tiny_model(spec));
  const Weights l = find_weights(llama.file, llama.config);
  REQUIRE(l.rope_factors);
  CHECK(shape_text(*l.rope_factors) == "[8]");
}

TEST_CASE("weights: padding rows of the embedding are cut off", "[model]") {
  TinyModelSpec spec = spec_of("llama");
  spec.padding_rows = 5;
  spec.type = DType::kF16;
  const Opened m(test::tiny_model(spec));
  const Weights w = find_weights(m.file, m.config);
  CHECK(w.embedding.rows() == m.config.vocab);
  CHECK(w.output.rows() == m.config.vocab);
  CHECK(w.embedding.n_bytes == m.config.vocab * 64ull * 2);
  CHECK(m.file.find_tensor("token_embd.weight")->view.rows() == m.config.vocab + 5);
}

TEST_CASE("weights: every type of block can hold the matrices", "[model]") {
  for (const DType type :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0,
        DType::kQ2_K, DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K}) {
    TinyModelSpec spec = spec_of("llama");
    spec.layers = 1;
    spec.width = 256;
    spec.head_dim = 64;
    spec.ffn = 256;
    spec.type = type;
    CAPTURE(dtype_info(type).name);
    const Opened m(test::tiny_model(spec));
    const Weights w = find_weights(m.file, m.config);
    CHECK(w.layers[0].gate.dtype == type);
    CHECK(w.layers[0].gate.n_bytes == 256ull * 256 / dtype_info(type).elements * dtype_info(type).bytes);
  }
}

TEST_CASE("weights: what does not fit is named with the expected and the found shape or type", "[model]") {
  struct Row {
    const char* architecture;
    std::function<void(GgufWriter&)> change;
    const char* says;
  };
  const Row rows[] = {
      {"llama", [](GgufWriter& w) { w.remove("blk.1.attn_k.weight"); },
       "tensor 'blk.1.attn_k.weight' of shape [32, 64] is missing"},
      {"llama", [](GgufWriter& w) { w.remove("token_embd.weight"); }, "tensor 'token_embd.weight' of shape"},
      {"llama",
       [](GgufWriter& w) {
         w.find_tensor("blk.0.attn_q.weight")->shape = {32, 128};
       },
       "tensor 'blk.0.attn_q.weight' should have the shape [64, 64], but has [32, 128]"},
      {"llama",
       [](GgufWriter& w) {
         w.find_tensor("blk.0.attn_q.weight")->shape = {64, 64, 1};
       },
       "should have the shape [64, 64], but has [64, 64, 1]"},
      {"llama",
       [](GgufWriter& w) {
         w.find_tensor("output_norm.weight")->shape = {1, 64};
       },
       "should have the shape [64], but has [1, 64]"},
      {"llama",
       [](GgufWriter& w) {
         w.find_tensor("output.weight")->shape = {64, 64};
       },
       "tensor 'output.weight' should have"},
      {"llama",
       [](GgufWriter& w) {
         w.find_tensor("output_norm.weight")->type = 1;
         w.find_tensor("output_norm.weight")->data.resize(128);
       },
       "tensor 'output_norm.weight' should be F32, but is F16"},
      {"llama", [](GgufWriter& w) { w.find_tensor("blk.0.ffn_up.weight")->type = 23; },
       "tensor 'blk.0.ffn_up.weight' is of type IQ4_XS, which cento cannot read"},
      {"llama", [](GgufWriter& w) { w.find_tensor("blk.0.ffn_up.weight")->type = 77; }, "is of type number 77"},
      {"llama", [](GgufWriter& w) { w.find_tensor("output_norm.weight")->type = 28; }, "should be F32, but is F64"},
      {"llama",
       [](GgufWriter& w) { w.add_tensor("blk.0.attn_output.bias", {64}, DType::kF32, std::vector<float>(64)); },
       "tensor 'blk.0.attn_output.bias' has no place in a model of architecture llama with 2 layers"},
      {"qwen2", [](GgufWriter& w) { w.remove("blk.1.attn_v.bias"); },
       "tensor 'blk.1.attn_v.bias' of shape [32] is missing"},
      {"gemma3", [](GgufWriter& w) { w.remove("blk.0.post_ffw_norm.weight"); },
       "post_ffw_norm.weight' of shape [64] is missing"},
      {"qwen2", [](GgufWriter& w) { w.add_tensor("rope_freqs.weight", {8}, DType::kF32, std::vector<float>(8, 1)); },
       "tensor 'rope_freqs.weight' has no place"},
      {"llama", [](GgufWriter& w) { w.tensors.clear(); }, "vocabulary only"},
  };
  for (const Row& row : rows) {
    GgufWriter w = test::tiny_model(spec_of(row.architecture));
    row.change(w);
    const std::string found = problem(w);
    CAPTURE(found, row.says);
    CHECK(found.find(row.says) != std::string::npos);
  }
}

TEST_CASE("weights: stored RoPE frequencies of early files are passed over", "[model]") {
  GgufWriter w = test::tiny_model(spec_of("llama"));
  w.add_tensor("blk.0.attn_rot_embd.weight", {8}, DType::kF32, std::vector<float>(8));
  CHECK(problem(w) == "");
}

TEST_CASE("weights: the same seed gives the same tiny model, another seed another", "[model]") {
  TinyModelSpec spec = spec_of("llama");
  const std::string first = test::tiny_model(spec).bytes();
  CHECK(test::tiny_model(spec).bytes() == first);
  spec.seed = 2;
  CHECK(test::tiny_model(spec).bytes() != first);
}

}  // namespace
}  // namespace cento
