#include "model/fingerprint.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <set>

#include "support/gguf_writer.h"
#include "support/shared_data.h"

namespace cento {
namespace {

using test::GgufWriter;
using test::le;

Hash fingerprint_of(const GgufWriter& w) {
  test::TempDir dir;
  w.write(dir / "m.gguf");
  const GgufFile file(dir / "m.gguf");
  return model_fingerprint(file, read_model_config(file));
}

GgufWriter small(const std::string& architecture) {
  test::TinyModelSpec spec;
  spec.architecture = architecture;
  spec.layers = 1;
  spec.width = 32;
  spec.head_dim = 8;
  spec.ffn = 32;
  return test::tiny_model(spec);
}

TEST_CASE("fingerprint: names, order, alignment and descriptive keys do not enter", "[model]") {
  const GgufWriter w = small("llama");
  const Hash first = fingerprint_of(w);
  CHECK(fingerprint_of(w) == first);

  GgufWriter other = w;
  std::reverse(other.keys.begin(), other.keys.end());
  CHECK(fingerprint_of(other) == first);
  std::reverse(other.tensors.begin(), other.tensors.end());
  CHECK(fingerprint_of(other) == first);
  other.find_key("general.name")->payload = test::gguf_string("another name");
  other.put_text("general.license", "mit").put_u32("general.file_type", 7);
  other.put_text("tokenizer.chat_template", "{{ messages }}");
  CHECK(fingerprint_of(other) == first);
  other.put_u32("general.alignment", 256);
  other.alignment = 256;
  other.version = 2;
  CHECK(fingerprint_of(other) == first);
}

TEST_CASE("fingerprint: any byte of any tensor, its name and its type enter", "[model]") {
  const GgufWriter w = small("llama");
  const Hash first = fingerprint_of(w);
  std::set<Hash> seen = {first};
  for (size_t i = 0; i < w.tensors.size(); ++i) {
    for (const size_t at : {size_t{0}, w.tensors[i].data.size() / 2, w.tensors[i].data.size() - 1}) {
      GgufWriter other = w;
      other.tensors[i].data[at] = static_cast<char>(other.tensors[i].data[at] ^ 1);
      CAPTURE(w.tensors[i].name, at);
      CHECK(seen.insert(fingerprint_of(other)).second);
    }
  }
  GgufWriter swapped = w;
  std::swap(swapped.find_tensor("blk.0.ffn_gate.weight")->data, swapped.find_tensor("blk.0.ffn_up.weight")->data);
  CHECK(seen.insert(fingerprint_of(swapped)).second);
  GgufWriter retyped = w;  // same bytes read as another 16-bit type
  auto& up = *retyped.find_tensor("blk.0.ffn_up.weight");
  up.type = static_cast<uint32_t>(DType::kF16);
  up.data.resize(up.data.size() / 2);
  const Hash half = fingerprint_of(retyped);
  up.type = static_cast<uint32_t>(DType::kBF16);
  CHECK(half != fingerprint_of(retyped));
}

TEST_CASE("fingerprint: every number of the configuration enters", "[model]") {
  // Changed in the struct, since in a file most of them would not fit the tensors any more.
  test::TempDir dir;
  small("gemma3").write(dir / "m.gguf");
  const GgufFile file(dir / "m.gguf");
  const ModelConfig config = read_model_config(file);
  const std::function<void(ModelConfig&)> changes[] = {
      [](ModelConfig& c) { c.architecture = "llama"; },
      [](ModelConfig& c) { ++c.n_layers; },
      [](ModelConfig& c) { ++c.n_heads; },
      [](ModelConfig& c) { ++c.n_kv_heads; },
      [](ModelConfig& c) { ++c.head_dim; },
      [](ModelConfig& c) { ++c.width; },
      [](ModelConfig& c) { ++c.ffn_width; },
      [](ModelConfig& c) { ++c.vocab; },
      [](ModelConfig& c) { ++c.context_max; },
      [](ModelConfig& c) { c.norm_eps *= 2; },
      [](ModelConfig& c) { c.rope_pairs = RopePairs::kInterleaved; },
      [](ModelConfig& c) { c.rope_dims -= 2; },
      [](ModelConfig& c) { c.rope_base += 1; },
      [](ModelConfig& c) { c.rope_base_local += 1; },
      [](ModelConfig& c) { c.rope_scaling = RopeScaling::kLinear; },
      [](ModelConfig& c) { c.rope_scale = 2; },
      [](ModelConfig& c) { c.qkv_bias = true; },
      [](ModelConfig& c) { c.qk_norm = false; },
      [](ModelConfig& c) { c.post_norms = false; },
      [](ModelConfig& c) { c.tied_output = false; },
      [](ModelConfig& c) { c.embedding_scale = 1; },
      [](ModelConfig& c) { c.attention_scale = 1; },
      [](ModelConfig& c) { c.activation = Activation::kSilu; },
      [](ModelConfig& c) { ++c.window; },
      [](ModelConfig& c) { c.layer_is_local[0] = false; },
  };
  std::set<Hash> seen = {model_fingerprint(file, config)};
  for (size_t i = 0; i < std::size(changes); ++i) {
    ModelConfig other = config;
    changes[i](other);
    CAPTURE(i);
    CHECK(seen.insert(model_fingerprint(file, other)).second);
  }
  ModelConfig renamed = config;
  renamed.name = "x";
  CHECK_FALSE(seen.insert(model_fingerprint(file, renamed)).second);
}

TEST_CASE("fingerprint: a number of the configuration enters through the file", "[model]") {
  const GgufWriter w = small("llama");
  GgufWriter other = w;
  other.find_key("llama.rope.freq_base")->payload = le(std::bit_cast<uint32_t>(20000.0f), 4);
  CHECK(fingerprint_of(other) != fingerprint_of(w));
}

TEST_CASE("fingerprint: every list and number of the tokenizer enters", "[model]") {
  for (const char* architecture : {"llama", "qwen2"}) {
    const GgufWriter w = small(architecture);
    std::set<Hash> seen = {fingerprint_of(w)};
    size_t changed = 0;
    for (size_t i = 0; i < w.keys.size(); ++i) {
      if (!w.keys[i].key.starts_with("tokenizer.")) continue;
      GgufWriter other = w;
      std::string& payload = other.keys[i].payload;
      // The last byte: of the last token's text, the last score, the id, the flag.
      payload.back() = static_cast<char>(payload.back() ^ 1);
      CAPTURE(w.keys[i].key);
      CHECK(seen.insert(fingerprint_of(other)).second);
      ++changed;
    }
    CHECK(changed >= 6);
  }
}

TEST_CASE("fingerprint: the KV layout is its layers, heads, dims and numeric mode", "[model]") {
  ModelConfig c;
  c.n_layers = 2;
  c.n_kv_heads = 3;
  c.head_dim = 4;
  std::set<Hash> seen = {kv_layout_id(c, false)};
  CHECK(seen.insert(kv_layout_id(c, true)).second);
  for (uint32_t ModelConfig::*member : {&ModelConfig::n_layers, &ModelConfig::n_kv_heads, &ModelConfig::head_dim}) {
    ModelConfig other = c;
    ++(other.*member);
    CHECK(seen.insert(kv_layout_id(other, false)).second);
  }
  c.n_heads = 9;
  c.width = 100;
  CHECK(kv_layout_id(c, false) == *seen.find(kv_layout_id(c, false)));
}

TEST_CASE("fingerprint: golden value of a fixed file", "[model]") {
  GgufWriter w;
  w.put_text("general.architecture", "gemma3").put_u32("gemma3.block_count", 2).put_u32("gemma3.context_length", 128);
  w.put_u32("gemma3.embedding_length", 4).put_u32("gemma3.feed_forward_length", 8);
  w.put_u32("gemma3.attention.head_count", 2).put_f32("gemma3.attention.layer_norm_rms_epsilon", 1e-6f);
  w.put_u32("gemma3.attention.sliding_window", 16);
  w.put_texts("tokenizer.ggml.tokens", {"a", "b"}).put_floats("tokenizer.ggml.scores", {0, -1});
  w.add_tensor("token_embd.weight", {2, 4}, DType::kF32, {1, 2, 3, 4, 5, 6, 7, 8});
  // A change here makes every stored KV unusable: raise the number in the hash's tag and say so in the commit.
  CHECK(fingerprint_of(w).hex() == "a8506e3ffc2661a8cf0e2808b622c6daa95147032bd29cd90bdb7b0638ba08e4");
  ModelConfig c;
  c.n_layers = 2;
  c.n_kv_heads = 3;
  c.head_dim = 4;
  CHECK(kv_layout_id(c, false).hex() == "ee9e0843d2d86417863da8fcc18a9a9d0b7214d835949e76da6b2e2d30f47970");
}

}  // namespace
}  // namespace cento
