#include "engine/loaded_model.h"

#include <filesystem>

#include "base/clock.h"
#include "compute/ops_registry.h"
#include "compute/quant.h"
#include "model/fingerprint.h"

namespace cento {
namespace {

std::vector<float> expanded(const TensorView& t) {
  std::vector<float> out(t.rows() * t.cols());
  for (uint64_t r = 0; r < t.rows(); ++r) dequantize_row(t, r, out.data() + r * t.cols());
  return out;
}

Buffer vector_buffer(Device& device, const std::optional<TensorView>& t) {
  if (!t) return {};
  const std::vector<float> host = expanded(*t);
  Buffer buffer(device, host.size() * sizeof(float));
  buffer.upload(std::span<const float>(host));
  return buffer;
}

}  // namespace

LoadedModel::LoadedModel(const ModelOptions& options)
    : options_(options),
      file_(options.path),
      config_(read_model_config(file_)),
      tokenizer_(make_tokenizer(file_)),
      chat_(ChatTemplate::recognise(file_, options.chat_template)),
      ops_(options.ops != nullptr ? options.ops : &find_ops(options.target)),
      pool_(options.threads == 0 ? ThreadPool::usable_processors() : options.threads),
      name_(config_.name.empty() ? std::filesystem::path(options.path).filename().string() : config_.name) {
  const Stopwatch watch;
  weights_ = find_weights(file_, config_);
  const ExecContext context{&pool_};
  Device& device = *ops_->device;
  const auto pack = [&](const TensorView& w) {
    // Without this, weights would be in memory twice.
    const auto release = [&](uint64_t first, uint64_t n) {
      file_.file().release({w.data + first * w.row_bytes(), n * w.row_bytes()});
    };
    return ops_->pack(context, {w, options_.precision, release});
  };
  for (const LayerWeights& w : weights_.layers) {
    PackedLayer p;
    p.attn_norm = vector_buffer(device, w.attn_norm);
    p.q_bias = vector_buffer(device, w.q_bias);
    p.k_bias = vector_buffer(device, w.k_bias);
    p.v_bias = vector_buffer(device, w.v_bias);
    p.q_norm = vector_buffer(device, w.q_norm);
    p.k_norm = vector_buffer(device, w.k_norm);
    p.attn_post_norm = vector_buffer(device, w.attn_post_norm);
    p.ffn_norm = vector_buffer(device, w.ffn_norm);
    p.ffn_post_norm = vector_buffer(device, w.ffn_post_norm);
    p.q = pack(w.q);
    p.k = pack(w.k);
    p.v = pack(w.v);
    p.o = pack(w.o);
    p.gate = pack(w.gate);
    p.up = pack(w.up);
    p.down = pack(w.down);
    layers_.push_back(std::move(p));
  }
  output_norm_ = vector_buffer(device, weights_.output_norm);
  output_ = pack(weights_.output);
  if (weights_.rope_factors) rope_factors_ = expanded(*weights_.rope_factors);
  load_ms_ = watch.ms();
}

void LoadedModel::embed(std::span<const int32_t> ids, float* host_out) const {
  const size_t c = config_.width;
  for (size_t i = 0; i < ids.size(); ++i) {
    float* row = host_out + i * c;
    dequantize_row(weights_.embedding, static_cast<uint64_t>(ids[i]), row);
    if (config_.embedding_scale != 1.0f) {
      for (size_t j = 0; j < c; ++j) row[j] *= config_.embedding_scale;
    }
  }
}

const Hash& LoadedModel::fingerprint() {
  if (!fingerprint_) fingerprint_ = model_fingerprint(file_, config_);
  return *fingerprint_;
}

Hash LoadedModel::layout() const { return kv_layout_id(config_, options_.precision == Precision::kF32); }

}  // namespace cento
