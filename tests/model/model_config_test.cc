#include "model/model_config.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>

#include "base/error.h"
#include "model/weights.h"
#include "support/gguf_writer.h"
#include "support/shared_data.h"

namespace cento {
namespace {

using test::GgufWriter;
using test::le;
using test::TinyModelSpec;

TinyModelSpec spec_of(const std::string& architecture) {
  TinyModelSpec spec;
  spec.architecture = architecture;
  return spec;
}

// Writes, opens and reads; the file lives as long as the call.
template <class F>
auto with_file(const GgufWriter& w, F f) {
  test::TempDir dir;
  w.write(dir / "m.gguf");
  return f(GgufFile(dir / "m.gguf"));
}
ModelConfig config_of(const GgufWriter& w) {
  return with_file(w, [](const GgufFile& file) { return read_model_config(file); });
}
std::string reason_of(const GgufWriter& w) {
  return with_file(w, [](const GgufFile& file) { return unsupported_reason(file); });
}

TEST_CASE("model config: llama has interleaved pairs and nothing beside the plain block", "[model]") {
  TinyModelSpec spec = spec_of("llama");
  spec.tied = true;
  spec.name = "small one";
  const ModelConfig c = config_of(test::tiny_model(spec));
  CHECK(c.architecture == "llama");
  CHECK(c.name == "small one");
  CHECK(c.n_layers == 2);
  CHECK(c.n_heads == 4);
  CHECK(c.n_kv_heads == 2);
  CHECK(c.head_dim == 16);
  CHECK(c.width == 64);
  CHECK(c.ffn_width == 96);
  CHECK(c.vocab == test::default_spm_vocab().tokens.size());
  CHECK(c.context_max == 1024);
  CHECK(c.norm_eps == 1e-5f);
  CHECK(c.rope_pairs == RopePairs::kInterleaved);
  CHECK(c.rope_dims == 16);
  CHECK(c.rope_base == 10000);
  CHECK(c.rope_base_local == 10000);
  CHECK(c.rope_scaling == RopeScaling::kNone);
  CHECK_FALSE(c.qkv_bias);
  CHECK_FALSE(c.qk_norm);
  CHECK_FALSE(c.post_norms);
  CHECK(c.tied_output);
  CHECK(c.embedding_scale == 1);
  CHECK(c.attention_scale == 0.25f);
  CHECK(c.activation == Activation::kSilu);
  CHECK(c.window == 0);
  CHECK_FALSE(c.local(0));
  CHECK(c.kv_bytes_per_token() == 2 * 2 * 2 * 16 * 2);
  spec.tied = false;
  CHECK_FALSE(config_of(test::tiny_model(spec)).tied_output);
}

TEST_CASE("model config: qwen2 has halves and QKV biases", "[model]") {
  const ModelConfig c = config_of(test::tiny_model(spec_of("qwen2")));
  CHECK(c.rope_pairs == RopePairs::kHalves);
  CHECK(c.qkv_bias);
  CHECK_FALSE(c.qk_norm);
  CHECK_FALSE(c.post_norms);
  CHECK(c.activation == Activation::kSilu);
  CHECK(c.vocab == test::default_bpe_vocab().tokens.size());
}

TEST_CASE("model config: gemma3 has norms, windows, two bases and a scaled embedding", "[model]") {
  TinyModelSpec spec = spec_of("gemma3");
  spec.layers = 13;
  spec.window = 20;
  const ModelConfig c = config_of(test::tiny_model(spec));
  CHECK(c.rope_pairs == RopePairs::kHalves);
  CHECK(c.qk_norm);
  CHECK(c.post_norms);
  CHECK_FALSE(c.qkv_bias);
  CHECK(c.tied_output);
  CHECK(c.activation == Activation::kGeluTanh);
  CHECK(c.embedding_scale == 8);
  CHECK(c.attention_scale == 0.25f);
  CHECK(c.rope_base == 1e6);
  CHECK(c.rope_base_local == 1e4);
  CHECK(c.window == 20);
  REQUIRE(c.layer_is_local.size() == 13);
  for (uint32_t l = 0; l < 13; ++l) CHECK(c.local(l) == (l != 5 && l != 11));

  SECTION("the local base and the pattern may be in the file") {
    GgufWriter w = test::tiny_model(spec);
    w.put_f32("gemma3.rope.freq_base_swa", 5000).put_u32("gemma3.attention.sliding_window_pattern", 2);
    const ModelConfig other = config_of(w);
    CHECK(other.rope_base_local == 5000);
    CHECK(other.local(0));
    CHECK_FALSE(other.local(1));
    std::string flags(13, '\1');
    flags[3] = '\0';
    w.remove("gemma3.attention.sliding_window_pattern");
    w.put_raw("gemma3.attention.sliding_window_pattern", 9, le(7, 4) + le(13, 8) + flags);
    const ModelConfig third = config_of(w);
    for (uint32_t l = 0; l < 13; ++l) CHECK(third.local(l) == (l != 3));
  }
  SECTION("linear scaling is of the global layers; the base of the local ones stays") {
    spec.rope_linear = 8;
    const ModelConfig scaled = config_of(test::tiny_model(spec));
    CHECK(scaled.rope_scaling == RopeScaling::kLinear);
    CHECK(scaled.rope_scale == 8);
    CHECK(scaled.rope_base_local == 1e4);
  }
  SECTION("the 27B, 62 layers, scales attention by its width") {
    GgufWriter w = test::tiny_model(spec);
    w.find_key("gemma3.block_count")->payload = le(62, 4);
    w.find_key("gemma3.embedding_length")->payload = le(5376, 4);
    w.find_key("gemma3.attention.head_count")->payload = le(32, 4);
    CHECK(config_of(w).attention_scale == Approx(1 / std::sqrt(168.0)));
    w.find_key("gemma3.block_count")->payload = le(48, 4);
    CHECK(config_of(w).attention_scale == 0.25f);
  }
}

TEST_CASE("model config: head size comes from the key, else from the width", "[model]") {
  TinyModelSpec spec = spec_of("llama");
  spec.head_dim = 32;
  CHECK(config_of(test::tiny_model(spec)).head_dim == 32);
  CHECK(config_of(test::tiny_model(spec_of("llama"))).head_dim == 16);
}

TEST_CASE("model config: fewer dimensions may be rotated than a head has", "[model]") {
  GgufWriter w = test::tiny_model(spec_of("llama"));
  w.find_key("llama.rope.dimension_count")->payload = le(8, 4);
  CHECK(config_of(w).rope_dims == 8);
  w.remove("llama.rope.dimension_count");
  CHECK(config_of(w).rope_dims == 16);
}

TEST_CASE("model config: RoPE scaling is none, linear or by factors", "[model]") {
  TinyModelSpec spec = spec_of("llama");
  spec.rope_linear = 4;
  const ModelConfig linear = config_of(test::tiny_model(spec));
  CHECK(linear.rope_scaling == RopeScaling::kLinear);
  CHECK(linear.rope_scale == 4);
  spec.rope_llama3 = true;
  CHECK(reason_of(test::tiny_model(spec)) == "linear RoPE scaling together with frequency factors is not supported");
  spec.rope_linear = 1;
  CHECK(config_of(test::tiny_model(spec)).rope_scaling == RopeScaling::kLlama3);

  GgufWriter w = test::tiny_model(spec_of("llama"));
  w.put_f32("llama.rope.scale_linear", 2);
  CHECK(config_of(w).rope_scale == 2);
  w.put_text("llama.rope.scaling.type", "none");
  CHECK(config_of(w).rope_scaling == RopeScaling::kNone);
}

TEST_CASE("model config: biases of a llama file are taken if they are there", "[model]") {
  GgufWriter w = test::tiny_model(spec_of("llama"));
  for (const char* layer : {"blk.0.", "blk.1."}) {
    w.add_tensor(std::string(layer) + "attn_q.bias", {64}, DType::kF32, std::vector<float>(64, 1));
    w.add_tensor(std::string(layer) + "attn_k.bias", {32}, DType::kF32, std::vector<float>(32, 1));
    w.add_tensor(std::string(layer) + "attn_v.bias", {32}, DType::kF32, std::vector<float>(32, 1));
  }
  CHECK(config_of(w).qkv_bias);
  CHECK(reason_of(w) == "");
}

TEST_CASE("model config: one number for each layer is one number if they are equal", "[model]") {
  GgufWriter w = test::tiny_model(spec_of("llama"));
  w.remove("llama.attention.head_count_kv").put_i32s("llama.attention.head_count_kv", {2, 2});
  CHECK(config_of(w).n_kv_heads == 2);
  w.remove("llama.attention.head_count_kv").put_i32s("llama.attention.head_count_kv", {2, 1});
  CHECK(reason_of(w) == "llama.attention.head_count_kv differs between layers, which is not supported");
}

TEST_CASE("model config: V is the number of tokens, also where the embedding is padded", "[model]") {
  TinyModelSpec spec = spec_of("llama");
  spec.padding_rows = 7;
  GgufWriter w = test::tiny_model(spec);
  const size_t n = test::default_spm_vocab().tokens.size();
  CHECK(config_of(w).vocab == n);
  w.remove("tokenizer.ggml.tokens");
  CHECK(config_of(w).vocab == n + 7);
  w.put_texts("tokenizer.ggml.tokens", std::vector<std::string>(n + 8, "x"));
  CHECK(reason_of(w).find("tokens, but the embedding only") != std::string::npos);
}

TEST_CASE("model config: whole tiny models of each architecture are supported", "[model]") {
  for (const std::string& architecture : supported_architectures()) {
    CAPTURE(architecture);
    CHECK(reason_of(test::tiny_model(spec_of(architecture))) == "");
  }
  CHECK(supported_architectures() == std::vector<std::string>{"llama", "qwen2", "gemma3"});
}

TEST_CASE("model config: what cento does not compute is refused in words", "[model]") {
  struct Row {
    const char* architecture;
    std::function<void(GgufWriter&)> change;
    const char* says;
  };
  const auto u32 = [](const char* key, uint32_t v) { return [=](GgufWriter& w) { w.remove(key).put_u32(key, v); }; };
  const auto f32 = [](const char* key, float v) { return [=](GgufWriter& w) { w.remove(key).put_f32(key, v); }; };
  const auto text = [](const char* key, const char* v) {
    return [=](GgufWriter& w) { w.remove(key).put_text(key, v); };
  };
  const auto none = [](const char* key) { return [=](GgufWriter& w) { w.remove(key); }; };
  const Row rows[] = {
      {"llama", text("general.architecture", "mamba\x1b"), "architecture 'mamba\\x1b' is not supported"},
      {"llama", none("general.architecture"), "general.architecture is missing"},
      {"llama", u32("general.architecture", 1), "should be a string"},
      {"llama", text("general.type", "adapter"), "of type 'adapter'"},
      {"llama", u32("split.count", 3), "one of 3 parts"},
      {"llama", u32("llama.expert_count", 8), "mixture of experts"},
      {"llama", u32("llama.attention.kv_lora_rank", 64), "latent attention"},
      {"gemma3", f32("gemma3.attn_logit_softcapping", 50), "soft caps on attention"},
      {"gemma3", f32("gemma3.final_logit_softcapping", 30), "soft caps on logits"},
      {"llama", f32("llama.logit_scale", 0.5f), "scaled logits"},
      {"llama", f32("llama.attention.clamp_kqv", 8), "clamped"},
      {"llama", [](GgufWriter& w) { w.put_bool("llama.attention.causal", false); }, "not causal"},
      {"llama", text("llama.rope.scaling.type", "yarn"), "type 'yarn' is not supported"},
      {"qwen2", text("qwen2.rope.scaling.type", "longrope"), "type 'longrope' is not supported"},
      {"llama", u32("llama.attention.key_length", 32), "differ"},
      {"llama", u32("llama.attention.sliding_window", 64), "sliding window"},
      {"llama", none("llama.block_count"), "llama.block_count is missing"},
      {"llama", u32("llama.block_count", 0), "block_count is 0, not 1 to 1024"},
      {"llama", u32("llama.block_count", 1025), "not 1 to 1024"},
      {"llama", f32("llama.block_count", 2), "should be an integer"},
      {"llama", u32("llama.context_length", 0), "context_length is 0"},
      {"llama", none("llama.context_length"), "context_length is missing"},
      {"llama", u32("llama.embedding_length", 0), "embedding_length is 0"},
      {"llama", u32("llama.embedding_length", 0xffffffffu), "embedding_length is 4294967295"},
      {"llama", u32("llama.embedding_length", 62), "cannot be cut into 4 heads"},
      {"llama", u32("llama.embedding_length", 4), "heads of 1 values"},
      {"llama", u32("llama.feed_forward_length", 0), "feed_forward_length is 0"},
      {"llama", u32("llama.attention.head_count", 0), "head_count is 0"},
      {"llama", u32("llama.attention.head_count", 5), "5 heads cannot share 2 KV heads"},
      {"llama", u32("llama.attention.head_count_kv", 0), "head_count_kv is 0"},
      {"llama", u32("llama.attention.head_count_kv", 3), "4 heads cannot share 3 KV heads"},
      {"llama",
       [](GgufWriter& w) { w.remove("llama.attention.head_count_kv").put_i32s("llama.attention.head_count_kv", {}); },
       "is an empty list"},
      {"llama",
       [](GgufWriter& w) { w.remove("llama.attention.head_count_kv").put_i32s("llama.attention.head_count_kv", {-2}); },
       "head_count_kv is 0"},
      {"llama", u32("llama.rope.dimension_count", 0), "dimension_count is 0"},
      {"llama", u32("llama.rope.dimension_count", 7), "dimension_count is 7"},
      {"llama", u32("llama.rope.dimension_count", 18), "dimension_count is 18"},
      {"llama", f32("llama.rope.freq_base", 0), "rope.freq_base is 0"},
      {"llama", f32("llama.rope.freq_base", std::numeric_limits<float>::quiet_NaN()), "rope.freq_base is nan"},
      {"llama", f32("llama.rope.freq_base", std::numeric_limits<float>::infinity()), "rope.freq_base is inf"},
      {"llama", f32("llama.rope.freq_base", 0.5f), "impossible"},
      {"llama", f32("llama.rope.scaling.factor", -1), "impossible"},
      {"llama", f32("llama.rope.scaling.factor", std::numeric_limits<float>::quiet_NaN()), "impossible"},
      {"llama", none("llama.attention.layer_norm_rms_epsilon"), "layer_norm_rms_epsilon is missing"},
      {"llama", f32("llama.attention.layer_norm_rms_epsilon", 0), "layer_norm_rms_epsilon is 0"},
      {"llama", f32("llama.attention.layer_norm_rms_epsilon", -1e-5f), "no finite number above 0"},
      {"llama", f32("llama.attention.layer_norm_rms_epsilon", std::numeric_limits<float>::infinity()),
       "no finite number"},
      {"llama", f32("llama.attention.layer_norm_rms_epsilon", 2), "epsilon of 2"},
      {"gemma3", none("gemma3.attention.sliding_window"), "sliding_window is 0"},
      {"gemma3", u32("gemma3.attention.sliding_window", 0xffffffffu), "sliding_window is 4294967295"},
      {"gemma3", u32("gemma3.attention.sliding_window_pattern", 0), "sliding_window_pattern is 0"},
      {"gemma3", [](GgufWriter& w) { w.put_i32s("gemma3.attention.sliding_window_pattern", {1}); },
       "1 entries for 2 layers"},
      {"gemma3", f32("gemma3.rope.freq_base_swa", -1), "freq_base_swa is -1"},
      {"llama", u32("tokenizer.ggml.tokens", 5), "tokenizer.ggml.tokens is no list"},
      {"llama", [](GgufWriter& w) { w.remove("tokenizer.ggml.tokens").put_texts("tokenizer.ggml.tokens", {}); },
       "a vocabulary of 0 tokens"},
  };
  for (const Row& row : rows) {
    GgufWriter w = test::tiny_model(spec_of(row.architecture));
    row.change(w);
    CAPTURE(row.says);
    const std::string reason = reason_of(w);
    CAPTURE(reason);
    CHECK(reason.find(row.says) != std::string::npos);
    CHECK_THROWS_AS(config_of(w), Error);
  }
}

TEST_CASE("model config: keys of unused features at their harmless values change nothing", "[model]") {
  GgufWriter w = test::tiny_model(spec_of("llama"));
  w.put_u32("llama.expert_count", 0).put_f32("llama.logit_scale", 1).put_u32("split.count", 1);
  w.put_bool("llama.attention.causal", true)
      .put_text("general.type", "model")
      .put_u32("llama.attention.sliding_window", 4096);
  w.put_f32("llama.rope.scaling.factor", 0);
  CHECK(reason_of(w) == "");
  CHECK(config_of(w).window == 0);
}

TEST_CASE("model config: real files give their published sizes", "[model]") {
  struct Row {
    std::optional<std::string> path;
    const char* architecture;
    uint32_t layers, heads, kv_heads, head_dim, width, ffn, vocab, window;
    double base;
    bool tied;
  };
  const Row rows[] = {
      {test::shared_path("data/models/stories260K.gguf"), "llama", 5, 8, 4, 8, 64, 172, 512, 0, 1e4, false},
      {test::model_path("smollm2-135m-instruct-q4_1.gguf"), "llama", 30, 9, 3, 64, 576, 1536, 49152, 0, 1e5, true},
      {test::model_path("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"), "qwen2", 24, 14, 2, 64, 896, 4864, 151936, 0, 1e6,
       false},
      {test::model_path("gemma3-270m-q4_k_m.gguf"), "gemma3", 18, 4, 1, 256, 640, 2048, 262144, 512, 1e6, true},
  };
  for (const Row& row : rows) {
    if (!row.path) continue;
    CAPTURE(*row.path);
    const GgufFile file(*row.path);
    CHECK(unsupported_reason(file) == "");
    const ModelConfig c = read_model_config(file);
    CHECK(c.architecture == row.architecture);
    CHECK(c.n_layers == row.layers);
    CHECK(c.n_heads == row.heads);
    CHECK(c.n_kv_heads == row.kv_heads);
    CHECK(c.head_dim == row.head_dim);
    CHECK(c.rope_dims == row.head_dim);
    CHECK(c.width == row.width);
    CHECK(c.ffn_width == row.ffn);
    CHECK(c.vocab == row.vocab);
    CHECK(c.window == row.window);
    CHECK(c.rope_base == row.base);
    CHECK(c.tied_output == row.tied);
    CHECK(c.attention_scale == Approx(1 / std::sqrt(row.head_dim)));
    CHECK(find_weights(file, c).layers.size() == row.layers);
  }
}

}  // namespace
}  // namespace cento
