// Typed hyper-parameters of a model: one struct of features for all architectures, filled from GGUF metadata by a table
// with one row an architecture. Validated once, then const.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/gguf_reader.h"

namespace cento {

enum class RopePairs {
  kInterleaved,  // (x0,x1), (x2,x3), ...: llama arch, whose GGUF Q and K rows are permuted for it
  kHalves,       // (x0,xD/2), ...: qwen2, gemma
};
enum class Activation { kSilu, kGeluTanh };
enum class RopeScaling {
  kNone,
  kLinear,
  kLlama3
};  // llama3: divisors of the frequencies in the tensor rope_freqs.weight

struct ModelConfig {
  std::string architecture;  // "llama", "qwen2", "gemma3"
  std::string name;          // general.name, may be empty
  uint32_t n_layers = 0;     // L
  uint32_t n_heads = 0;      // H
  uint32_t n_kv_heads = 0;   // Hkv
  uint32_t head_dim = 0;     // D
  uint32_t width = 0;        // C
  uint32_t ffn_width = 0;    // F
  uint32_t vocab = 0;        // V
  uint32_t context_max = 0;  // positions the model was trained for
  float norm_eps = 0;

  RopePairs rope_pairs = RopePairs::kHalves;
  uint32_t rope_dims = 0;  // leading dims of a head that are rotated; the rest pass through
  double rope_base = 10000;
  double rope_base_local = 0;  // of sliding-window layers; equal to rope_base where there is one base only
  RopeScaling rope_scaling = RopeScaling::kNone;
  double rope_scale = 1;  // kLinear: positions are divided by it (global layers only in gemma3)

  bool qkv_bias = false;
  bool qk_norm = false;       // RMSNorm over each head of Q and K before RoPE
  bool post_norms = false;    // RMSNorm after attention and after the MLP, before the residual add
  bool tied_output = false;   // no output.weight: the embedding is the output matrix
  float embedding_scale = 1;  // gemma: sqrt(C)
  float attention_scale = 0;  // of q.k; 1/sqrt(D) unless the architecture says otherwise
  Activation activation = Activation::kSilu;
  uint32_t window = 0;               // sliding window in positions, 0: none. A query at p sees keys in (p - window, p]
  std::vector<bool> layer_is_local;  // [L] true: this layer has the window and rope_base_local

  uint64_t kv_bytes_per_token(uint32_t bytes_per_value = 2) const {
    return 2ull * n_layers * n_kv_heads * head_dim * bytes_per_value;
  }
  bool local(uint32_t layer) const { return !layer_is_local.empty() && layer_is_local[layer]; }
};

// Throws Error(kInput): an architecture that is not supported is refused by name, as is any feature of a supported one
// that cento does not compute (experts, other RoPE scaling, soft caps, ...). Reads metadata only, never weights.
ModelConfig read_model_config(const GgufFile& file);

// "" if supported, else why not, in one line; never throws. For `cento model list|show`.
std::string unsupported_reason(const GgufFile& file);

std::vector<std::string> supported_architectures();

}  // namespace cento
