#include "model/weights.h"

#include <algorithm>
#include <set>
#include <string>

#include "base/error.h"
#include "base/text.h"

namespace cento {
namespace {

using Shape = std::vector<uint64_t>;  // slowest axis first

// GGUF's names of the types that cento does not read (GGUF specification, ggml_type), for the message.
std::string type_text(const GgufTensor& t) {
  if (const auto info = dtype_info(t.raw_type)) return info->name;
  static constexpr std::pair<uint32_t, const char*> kOthers[] = {
      {9, "Q8_1"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"}, {20, "IQ4_NL"},
      {21, "IQ3_S"}, {22, "IQ2_S"}, {23, "IQ4_XS"},  {24, "I8"},     {25, "I16"},     {26, "I32"},   {27, "I64"},
      {28, "F64"},   {29, "IQ1_M"}, {34, "TQ1_0"},   {35, "TQ2_0"},  {39, "MXFP4"}};
  for (const auto& [type, name] : kOthers) {
    if (type == t.raw_type) return name;
  }
  return "number " + std::to_string(t.raw_type);
}

std::string text_of(const Shape& shape) {
  std::string s = "[";
  for (size_t i = 0; i < shape.size(); ++i) s += (i ? ", " : "") + std::to_string(shape[i]);
  return s + "]";
}

// Hands out tensors by name and remembers which were asked for.
class Finder {
 public:
  explicit Finder(const GgufFile& file) : file_(file) {}

  TensorView matrix(const std::string& name, uint64_t n, uint64_t k) { return checked(name, {n, k}, false); }
  TensorView vector(const std::string& name, uint64_t n) { return checked(name, {n}, true); }
  // At least n rows; the rows beyond n, padding of some files, are cut off.
  TensorView rows(const std::string& name, uint64_t n, uint64_t k) {
    const GgufTensor& t = found(name, {n, k});
    if (t.view.n_dims != 2 || t.view.shape[1] != k || t.view.shape[0] < n) throw wrong_shape(t, {n, k});
    TensorView view = readable(t);
    view.shape[0] = n;
    view.n_bytes = n * view.row_bytes();
    return view;
  }

  uint64_t n_bytes() const { return n_bytes_; }

  // A tensor nobody asked for is a part of the model that would be left out of the computation.
  void refuse_others(const ModelConfig& config) const {
    for (const GgufTensor& t : file_.tensors()) {
      if (used_.contains(t.name)) continue;
      // Inverse RoPE frequencies as early converters stored them: computed from the base anyway.
      if (t.name.ends_with(".attn_rot_embd.weight") || t.name.ends_with(".rotary_emb.inv_freq")) continue;
      throw error("tensor '" + printable(t.name) + "' has no place in a model of architecture " + config.architecture +
                      " with " + std::to_string(config.n_layers) + " layers",
                  "use a model of another kind: without it the answers would be wrong");
    }
  }

  Error error(const std::string& message, const std::string& hint) const {
    return {Code::kInput, message, file_.file().path(), hint};
  }

 private:
  TensorView checked(const std::string& name, const Shape& shape, bool must_be_f32) {
    const GgufTensor& t = found(name, shape);
    const TensorView& v = t.view;
    if (v.n_dims != shape.size() || !std::equal(shape.begin(), shape.end(), v.shape.begin()))
      throw wrong_shape(t, shape);
    if (must_be_f32 && t.raw_type != static_cast<uint32_t>(DType::kF32)) {
      throw error("tensor '" + name + "' should be F32, but is " + type_text(t),
                  "fetch the model in another conversion");
    }
    return readable(t);
  }
  const GgufTensor& found(const std::string& name, const Shape& shape) {
    const GgufTensor* t = file_.find_tensor(name);
    if (t == nullptr) {
      throw error("tensor '" + name + "' of shape " + text_of(shape) + " is missing",
                  "the file is incomplete or of another kind; fetch it again");
    }
    return *t;
  }
  TensorView readable(const GgufTensor& t) {
    if (!t.readable) {
      throw error("tensor '" + t.name + "' is of type " + type_text(t) + ", which cento cannot read",
                  "fetch the model in another quantisation, e.g. Q4_K_M or Q8_0");
    }
    used_.insert(t.name);
    n_bytes_ += t.view.n_bytes;  // once: no name is asked for twice
    return t.view;
  }
  Error wrong_shape(const GgufTensor& t, const Shape& shape) const {
    return error("tensor '" + t.name + "' should have the shape " + text_of(shape) + ", but has " + shape_text(t.view),
                 "the file's tensors and its metadata do not fit; fetch it again");
  }

  const GgufFile& file_;
  std::set<std::string, std::less<>> used_;
  uint64_t n_bytes_ = 0;
};

LayerWeights find_layer(Finder& f, const ModelConfig& c, uint32_t layer) {
  const std::string p = "blk." + std::to_string(layer) + ".";
  const uint64_t q_rows = uint64_t{c.n_heads} * c.head_dim, kv_rows = uint64_t{c.n_kv_heads} * c.head_dim;
  LayerWeights w;
  w.attn_norm = f.vector(p + "attn_norm.weight", c.width);
  w.q = f.matrix(p + "attn_q.weight", q_rows, c.width);
  w.k = f.matrix(p + "attn_k.weight", kv_rows, c.width);
  w.v = f.matrix(p + "attn_v.weight", kv_rows, c.width);
  w.o = f.matrix(p + "attn_output.weight", c.width, q_rows);
  if (c.qkv_bias) {
    w.q_bias = f.vector(p + "attn_q.bias", q_rows);
    w.k_bias = f.vector(p + "attn_k.bias", kv_rows);
    w.v_bias = f.vector(p + "attn_v.bias", kv_rows);
  }
  if (c.qk_norm) {
    w.q_norm = f.vector(p + "attn_q_norm.weight", c.head_dim);
    w.k_norm = f.vector(p + "attn_k_norm.weight", c.head_dim);
  }
  if (c.post_norms) {
    w.attn_post_norm = f.vector(p + "post_attention_norm.weight", c.width);
    w.ffn_post_norm = f.vector(p + "post_ffw_norm.weight", c.width);
  }
  w.ffn_norm = f.vector(p + "ffn_norm.weight", c.width);
  w.gate = f.matrix(p + "ffn_gate.weight", c.ffn_width, c.width);
  w.up = f.matrix(p + "ffn_up.weight", c.ffn_width, c.width);
  w.down = f.matrix(p + "ffn_down.weight", c.width, c.ffn_width);
  return w;
}

}  // namespace

Weights find_weights(const GgufFile& file, const ModelConfig& config) {
  Finder f(file);
  if (file.tensors().empty()) {
    throw f.error("the file holds a vocabulary only, no weights", "name a complete model");
  }
  Weights w;
  w.embedding = f.rows("token_embd.weight", config.vocab, config.width);
  w.output_norm = f.vector("output_norm.weight", config.width);
  w.output = config.tied_output ? w.embedding : f.rows("output.weight", config.vocab, config.width);
  if (config.rope_scaling == RopeScaling::kLlama3) w.rope_factors = f.vector("rope_freqs.weight", config.rope_dims / 2);
  w.layers.reserve(config.n_layers);
  for (uint32_t layer = 0; layer < config.n_layers; ++layer) w.layers.push_back(find_layer(f, config, layer));
  f.refuse_others(config);
  w.n_bytes = f.n_bytes();
  return w;
}

}  // namespace cento
