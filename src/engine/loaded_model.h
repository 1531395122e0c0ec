// A model ready to run: mapped file, configuration, tokenizer, template, and its weights packed for one backend.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/thread_pool.h"
#include "compute/ops.h"
#include "model/chat_template.h"
#include "model/gguf_reader.h"
#include "model/model_config.h"
#include "model/tokenizer.h"
#include "model/weights.h"

namespace cento {

struct ModelOptions {
  std::string path;
  Precision precision = Precision::kFast;
  std::string target = "auto";  // find_ops
  const Ops* ops = nullptr;     // used instead of `target` if set
  size_t threads = 0;           // 0: usable processors
  std::string chat_template;    // name that overrides the file's
};

struct PackedLayer {
  Buffer attn_norm, q_bias, k_bias, v_bias, q_norm, k_norm, attn_post_norm, ffn_norm,
      ffn_post_norm;  // float32; empty where the model has none
  PackedMatrix q, k, v, o, gate, up, down;
};

class LoadedModel {
 public:
  // Refuses by name what is not supported before any weight is touched. Throws Error.
  explicit LoadedModel(const ModelOptions& options);

  const GgufFile& file() const { return file_; }
  const ModelConfig& config() const { return config_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const ChatTemplate& chat() const { return chat_; }
  const Ops& ops() const { return *ops_; }
  ThreadPool& pool() { return pool_; }
  Precision precision() const { return options_.precision; }
  KvType kv_type() const { return options_.precision == Precision::kF32 ? KvType::kF32 : KvType::kF16; }
  const std::string& name() const { return name_; }  // general.name, else the file's name
  const std::vector<PackedLayer>& layers() const { return layers_; }
  const Buffer& output_norm() const { return output_norm_; }
  const PackedMatrix& output() const { return output_; }
  std::span<const float> rope_factors() const { return rope_factors_; }  // [rope_dims/2] or empty
  // Rows of the embedding matrix, expanded and scaled: out [ids, C]. Ids were checked by the caller.
  void embed(std::span<const int32_t> ids, float* host_out) const;

  // Hash of content; remembered by the caller between runs (session/identify.h).
  const Hash& fingerprint();
  void set_fingerprint(const Hash& known) { fingerprint_ = known; }
  Hash layout() const;
  double load_ms() const { return load_ms_; }

 private:
  ModelOptions options_;
  GgufFile file_;
  ModelConfig config_;
  std::unique_ptr<Tokenizer> tokenizer_;
  ChatTemplate chat_;
  const Ops* ops_;
  ThreadPool pool_;
  std::string name_;
  Weights weights_;
  std::vector<PackedLayer> layers_;
  Buffer output_norm_;
  PackedMatrix output_;
  std::vector<float> rope_factors_;
  std::optional<Hash> fingerprint_;
  double load_ms_ = 0;
};

}  // namespace cento
