// Finds every tensor that a configuration needs and checks its shape and type. Views point into the mapped file.
#pragma once

#include <optional>
#include <vector>

#include "model/gguf_reader.h"
#include "model/model_config.h"

namespace cento {

struct LayerWeights {
  TensorView attn_norm;                              // [C] F32
  TensorView q, k, v, o;                             // [H*D, C], [Hkv*D, C], [Hkv*D, C], [C, H*D]
  std::optional<TensorView> q_bias, k_bias, v_bias;  // [H*D], [Hkv*D], [Hkv*D] F32
  std::optional<TensorView> q_norm, k_norm;          // [D] F32
  std::optional<TensorView> attn_post_norm;          // [C] F32
  TensorView ffn_norm;                               // [C] F32
  TensorView gate, up, down;                         // [F, C], [F, C], [C, F]
  std::optional<TensorView> ffn_post_norm;           // [C] F32
};

struct Weights {
  TensorView embedding;                    // [V, C]
  TensorView output_norm;                  // [C] F32
  TensorView output;                       // [V, C]; the embedding where tied
  std::optional<TensorView> rope_factors;  // rope_freqs.weight [rope_dims/2] F32, of RopeScaling::kLlama3
  std::vector<LayerWeights> layers;
  uint64_t n_bytes = 0;  // of all tensors named here, each once
};

// Throws Error(kInput) naming the tensor, the expected and the found shape, or the type that cannot be read.
Weights find_weights(const GgufFile& file, const ModelConfig& config);

}  // namespace cento
