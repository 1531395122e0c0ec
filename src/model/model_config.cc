#include "model/model_config.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "model/weights.h"

namespace cento {
namespace {

// A new architecture is a row here. What a row cannot say, cento does not compute.
// Sources: GGUF specification (keys and their defaults); LLaMA (arXiv:2302.13971), Qwen2 (arXiv:2407.10671),
// Gemma 3 (arXiv:2503.19786): five local layers to one global, bases 10 000 and 1 000 000.
struct Architecture {
  const char* name;
  RopePairs rope_pairs;
  double rope_base;        // where the file has none
  double rope_base_local;  // 0: one base only
  uint32_t global_every;   // of so many layers the last has no window; 0: no windows at all
  bool rope_factors;       // rope_freqs.weight is understood
  bool bias_always;        // QKV biases must be there; else they are taken if they are
  bool bias_possible;
  bool qk_norm, post_norms, scaled_embedding;
  Activation activation;
};
constexpr Architecture kArchitectures[] = {
    {"llama", RopePairs::kInterleaved, 1e4, 0, 0, true, false, true, false, false, false, Activation::kSilu},
    {"qwen2", RopePairs::kHalves, 1e4, 0, 0, false, true, true, false, false, false, Activation::kSilu},
    {"gemma3", RopePairs::kHalves, 1e6, 1e4, 6, false, false, false, true, true, true, Activation::kGeluTanh},
};

// Keys, after "ARCH.", of features that are not computed, and the value at which each is without effect.
struct Refused {
  const char* key;
  double harmless;
  const char* reason;
};
constexpr Refused kRefused[] = {
    {"expert_count", 0, "a mixture of experts"},
    {"attention.kv_lora_rank", 0, "multi-head latent attention"},
    {"attention.q_lora_rank", 0, "multi-head latent attention"},
    {"attn_logit_softcapping", 0, "soft caps on attention scores"},
    {"final_logit_softcapping", 0, "soft caps on logits"},
    {"attention.clamp_kqv", 0, "clamped Q, K and V"},
    {"attention.max_alibi_bias", 0, "ALiBi position biases"},
    {"attention.temperature_scale", 0, "attention scaled by position"},
    {"attention.scale", 0, "an attention scale of its own"},
    {"logit_scale", 1, "scaled logits"},
    {"embedding_scale", 1, "a scaled embedding"},
    {"residual_scale", 1, "scaled residuals"},
    {"rope.scaling.attn_factor", 1, "an attention factor of RoPE scaling"},
    {"attention.shared_kv_layers", 0, "layers that share KV"},
    {"nextn_predict_layers", 0, "layers that predict several tokens"},
};

// Limits far above known models (405B: 126 layers, width 16384, FFN 53248) that keep every product in 64 bits and a
// damaged number from asking for absurd memory.
constexpr uint64_t kLayersMax = 1024, kHeadsMax = 4096, kHeadDimMax = 4096, kWidthMax = 1 << 17, kFfnMax = 1 << 20,
                   kVocabMax = 1 << 23, kContextMax = 1 << 28;

Error unsupported(const GgufFile& file, const std::string& reason) {
  return {Code::kInput, reason, file.file().path(),
          "use a model of another kind; `cento model list` shows what is supported"};
}

Error damaged(const GgufFile& file, const std::string& message) {
  return {Code::kInput, message, file.file().path(), "fetch the file again, or one converted by a newer program"};
}

// The file's keys under "ARCH.".
class Keys {
 public:
  Keys(const GgufFile& file, const std::string& architecture) : file_(file), prefix_(architecture + ".") {}

  std::string full(const char* key) const { return prefix_ + key; }
  bool has(const char* key) const { return file_.has(full(key)); }

  // An integer in [1, most]. Some converters write one number a layer; if they are equal it is one number.
  std::optional<uint32_t> integer(const char* key, uint64_t most) const {
    const auto it = file_.values().find(full(key));
    if (it == file_.values().end()) return std::nullopt;
    uint64_t value = 0;
    if (it->second.type == GgufValue::Type::kArray) {
      const auto values = *file_.integers(full(key));
      if (values.empty()) throw damaged(file_, full(key) + " is an empty list");
      for (const int64_t v : values) {
        if (v != values.front())
          throw unsupported(file_, full(key) + " differs between layers, which is not supported");
      }
      value = values.front() < 0 ? 0 : static_cast<uint64_t>(values.front());
    } else {
      value = *file_.integer(full(key));
    }
    if (value < 1 || value > most) {
      throw damaged(file_, full(key) + " is " + std::to_string(value) + ", not 1 to " + std::to_string(most));
    }
    return static_cast<uint32_t>(value);
  }
  uint32_t required(const char* key, uint64_t most) const {
    const auto value = integer(key, most);
    if (!value) throw damaged(file_, "the key " + full(key) + " is missing");
    return *value;
  }
  // A finite number above 0.
  std::optional<double> positive(const char* key) const {
    const auto value = file_.number(full(key));
    if (value && !(std::isfinite(*value) && *value > 0)) {
      throw damaged(file_, full(key) + " is " + std::to_string(*value) + ", no finite number above 0");
    }
    return value;
  }

 private:
  const GgufFile& file_;
  std::string prefix_;
};

const Architecture& find_architecture(const GgufFile& file) {
  const auto kind = file.text("general.type").value_or("model");
  if (kind != "model") throw unsupported(file, "the file is no language model but of type '" + printable(kind) + "'");
  const auto name = file.text("general.architecture");
  if (!name) throw damaged(file, "the key general.architecture is missing");
  for (const Architecture& a : kArchitectures) {
    if (*name == a.name) return a;
  }
  std::string known;
  for (const Architecture& a : kArchitectures) known += (known.empty() ? "" : ", ") + std::string(a.name);
  throw Error{Code::kInput, "architecture '" + printable(*name) + "' is not supported", file.file().path(),
              "use a model of one of these: " + known};
}

void refuse_features(const GgufFile& file, const Keys& keys) {
  const auto parts = file.integer("split.count").value_or(1);
  if (parts > 1) {
    throw unsupported(file,
                      "the file is one of " + std::to_string(parts) + " parts of a model; parts are not supported");
  }
  for (const Refused& r : kRefused) {
    const auto value = file.number(keys.full(r.key));
    if (value && *value != r.harmless)
      throw unsupported(
          file, "the model has " + std::string(r.reason) + " (" + keys.full(r.key) + "), which is not supported");
  }
  if (!file.boolean(keys.full("attention.causal")).value_or(true)) {
    throw unsupported(file, "the model's attention is not causal: it is no text generator");
  }
}

void read_sizes(const GgufFile& file, const Keys& keys, ModelConfig& c) {
  c.n_layers = keys.required("block_count", kLayersMax);
  c.context_max = keys.required("context_length", kContextMax);
  c.width = keys.required("embedding_length", kWidthMax);
  c.ffn_width = keys.required("feed_forward_length", kFfnMax);
  c.n_heads = keys.required("attention.head_count", kHeadsMax);
  c.n_kv_heads = keys.integer("attention.head_count_kv", kHeadsMax).value_or(c.n_heads);
  if (c.n_heads % c.n_kv_heads != 0) {
    throw damaged(file,
                  std::to_string(c.n_heads) + " heads cannot share " + std::to_string(c.n_kv_heads) + " KV heads");
  }
  const auto key_length = keys.integer("attention.key_length", kHeadDimMax);
  if (!key_length && c.width % c.n_heads != 0) {
    throw damaged(
        file, "a width of " + std::to_string(c.width) + " cannot be cut into " + std::to_string(c.n_heads) + " heads");
  }
  c.head_dim = key_length.value_or(c.width / c.n_heads);
  if (c.head_dim == 0 || c.head_dim % 2 != 0 || c.head_dim > kHeadDimMax) {
    throw damaged(file, "heads of " + std::to_string(c.head_dim) + " values: an even number up to " +
                            std::to_string(kHeadDimMax) + " is needed");
  }
  const auto value_length = keys.integer("attention.value_length", kHeadDimMax);
  const uint32_t value_dim = value_length.value_or(c.width / c.n_heads);  // each key has this default
  if (value_dim != c.head_dim) {
    throw unsupported(file, "heads of K and V differ in size (" + std::to_string(c.head_dim) + ", " +
                                std::to_string(value_dim) + "), which is not supported");
  }
  const auto eps = keys.positive("attention.layer_norm_rms_epsilon");
  if (!eps) throw damaged(file, "the key " + keys.full("attention.layer_norm_rms_epsilon") + " is missing");
  c.norm_eps = static_cast<float>(*eps);
  if (!(c.norm_eps > 0) || c.norm_eps > 1)
    throw damaged(file, "an RMSNorm epsilon of " + std::to_string(*eps) + " is impossible");
}

// Some files pad the embedding; rows beyond the token list stand for nothing and are left out of V.
void read_vocab(const GgufFile& file, ModelConfig& c) {
  const auto tokens = file.values().find("tokenizer.ggml.tokens");
  const GgufTensor* embedding = file.find_tensor("token_embd.weight");
  uint64_t n_tokens = 0;
  if (tokens != file.values().end()) {
    if (tokens->second.type != GgufValue::Type::kArray) throw damaged(file, "tokenizer.ggml.tokens is no list");
    n_tokens = tokens->second.count;
    if (embedding != nullptr && embedding->view.rows() < n_tokens) {
      throw damaged(file, "the tokenizer has " + std::to_string(n_tokens) + " tokens, but the embedding only " +
                              std::to_string(embedding->view.rows()) + " rows");
    }
  } else if (embedding != nullptr) {
    n_tokens = embedding->view.rows();
  }
  if (n_tokens < 1 || n_tokens > kVocabMax) {
    throw damaged(file,
                  "a vocabulary of " + std::to_string(n_tokens) + " tokens, not 1 to " + std::to_string(kVocabMax));
  }
  c.vocab = static_cast<uint32_t>(n_tokens);
}

void read_rope(const GgufFile& file, const Keys& keys, const Architecture& a, ModelConfig& c) {
  c.rope_pairs = a.rope_pairs;
  c.rope_dims = keys.integer("rope.dimension_count", kHeadDimMax).value_or(c.head_dim);
  if (c.rope_dims % 2 != 0 || c.rope_dims > c.head_dim) {
    throw damaged(file, keys.full("rope.dimension_count") + " is " + std::to_string(c.rope_dims) +
                            ": an even number up to the " + std::to_string(c.head_dim) + " values of a head is needed");
  }
  c.rope_base = keys.positive("rope.freq_base").value_or(a.rope_base);
  c.rope_base_local = c.rope_base;
  if (a.rope_base_local > 0) {
    // Two names are in use.
    const auto local = keys.positive("rope.freq_base_swa");
    c.rope_base_local = local ? *local : keys.positive("rope.local.freq_base").value_or(a.rope_base_local);
  }
  for (const double base : {c.rope_base, c.rope_base_local}) {
    if (base < 1 || base > 1e12) throw damaged(file, "a RoPE base of " + std::to_string(base) + " is impossible");
  }

  // A factor without a type is linear; 0 stands for none in some files.
  const auto type = file.text(keys.full("rope.scaling.type")).value_or("linear");
  if (type != "linear" && type != "none") {
    throw unsupported(file, "RoPE scaling of type '" + printable(type) + "' is not supported");
  }
  const char* const factor_key = keys.has("rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
  const double factor = file.number(keys.full(factor_key)).value_or(0);
  if (type == "linear" && factor != 0 && factor != 1) {
    if (!(std::isfinite(factor) && factor > 0 && factor <= 1e6)) {
      throw damaged(file, keys.full(factor_key) + " is " + std::to_string(factor) + ", which is impossible");
    }
    c.rope_scaling = RopeScaling::kLinear;
    c.rope_scale = factor;
  }
  if (a.rope_factors && file.find_tensor("rope_freqs.weight") != nullptr) {
    if (c.rope_scaling != RopeScaling::kNone) {
      throw unsupported(file, "linear RoPE scaling together with frequency factors is not supported");
    }
    c.rope_scaling = RopeScaling::kLlama3;
  }
}

void read_window(const GgufFile& file, const Keys& keys, const Architecture& a, ModelConfig& c) {
  const uint64_t window = file.integer(keys.full("attention.sliding_window")).value_or(0);
  if (a.global_every == 0) {
    // A window as long as the context is none.
    if (window != 0 && window < c.context_max) {
      throw unsupported(file, "a sliding window (" + keys.full("attention.sliding_window") + ") is not supported for " +
                                  c.architecture);
    }
    return;
  }
  if (window < 1 || window > kContextMax) {
    throw damaged(file,
                  keys.full("attention.sliding_window") + " is " + std::to_string(window) + ", which is impossible");
  }
  c.window = static_cast<uint32_t>(window);
  const std::string pattern_key = keys.full("attention.sliding_window_pattern");
  const auto pattern = file.values().find(pattern_key);
  if (pattern != file.values().end() && pattern->second.type == GgufValue::Type::kArray) {
    const auto flags = *file.integers(pattern_key);
    if (flags.size() != c.n_layers) {
      throw damaged(file, pattern_key + " has " + std::to_string(flags.size()) + " entries for " +
                              std::to_string(c.n_layers) + " layers");
    }
    for (const int64_t flag : flags) c.layer_is_local.push_back(flag != 0);
    return;
  }
  const uint32_t every = keys.integer("attention.sliding_window_pattern", kLayersMax).value_or(a.global_every);
  for (uint32_t layer = 0; layer < c.n_layers; ++layer) c.layer_is_local.push_back((layer + 1) % every != 0);
}

void read_features(const GgufFile& file, const Architecture& a, ModelConfig& c) {
  c.qkv_bias = a.bias_always || (a.bias_possible && file.find_tensor("blk.0.attn_q.bias") != nullptr);
  c.qk_norm = a.qk_norm;
  c.post_norms = a.post_norms;
  c.activation = a.activation;
  c.tied_output = file.find_tensor("output.weight") == nullptr;
  c.embedding_scale = a.scaled_embedding ? std::sqrt(static_cast<float>(c.width)) : 1.0f;
  // Gemma 3 27B, known by its 62 layers, scales by the share of the width that a head would have; the others by the
  // head.
  constexpr uint32_t kGemma27bLayers = 62;
  const bool by_width = a.global_every != 0 && c.n_layers == kGemma27bLayers;
  const double squared = by_width ? static_cast<double>(c.width) / c.n_heads : c.head_dim;
  c.attention_scale = static_cast<float>(1 / std::sqrt(squared));
}

}  // namespace

ModelConfig read_model_config(const GgufFile& file) {
  const Architecture& a = find_architecture(file);
  const Keys keys(file, a.name);
  refuse_features(file, keys);
  ModelConfig c;
  c.architecture = a.name;
  c.name = file.text("general.name").value_or("");
  read_sizes(file, keys, c);
  read_vocab(file, c);
  read_rope(file, keys, a, c);
  read_window(file, keys, a, c);
  read_features(file, a, c);
  return c;
}

std::string unsupported_reason(const GgufFile& file) {
  try {
    (void)find_weights(file, read_model_config(file));
    return "";
  } catch (const Error& e) {
    return e.message();
  } catch (const std::exception& e) {
    return e.what();
  }
}

std::vector<std::string> supported_architectures() {
  std::vector<std::string> names;
  for (const Architecture& a : kArchitectures) names.emplace_back(a.name);
  return names;
}

}  // namespace cento
