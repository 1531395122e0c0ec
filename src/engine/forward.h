// One transformer forward pass over chosen rows, driven by the features in ModelConfig: the LayerRunner of real models.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "blend/layer_runner.h"
#include "compute/ops.h"
#include "engine/loaded_model.h"
#include "kv/live_kv.h"

namespace cento {

// Refers to `model`, which must outlive it. Activations live in the model's device; the host sees ids, positions and
// logits.
class Forward final : public LayerRunner {
 public:
  explicit Forward(LoadedModel& model);

  // Room for `slots` positions; rows of the first `used` slots stay.
  void reserve(uint64_t slots, uint64_t used);
  const LiveKv& live() const { return live_; }

  // Called behind every attention with the rows' positions and what they attended to, [rows, H*D]: for measurements.
  // Empty: nothing is called.
  using AttendedTap = std::function<void(uint32_t layer, std::span<const int32_t> pos, std::span<const float> rows)>;
  void set_tap(AttendedTap tap) { tap_ = std::move(tap); }

  KvShape shape() const override { return live_.shape(); }
  uint64_t capacity() const override { return live_.capacity(); }
  void begin(std::span<const int32_t> ids, std::span<const int32_t> pos) override;
  void project(uint32_t layer) override;
  void deviation(uint32_t layer, std::span<float> k_dev, std::span<float> v_dev) override;
  void keep(std::span<const int32_t> rows) override;
  void finish(uint32_t layer, std::span<float> key_mass, size_t mass_from) override;
  void finish_last(uint32_t layer, size_t first) override;
  void fetch(uint32_t layer, size_t first, size_t n, std::span<std::byte> k, std::span<std::byte> v) override;
  std::vector<float> logits(size_t first, size_t n) override;
  void place(uint32_t layer, std::span<const std::byte> k, std::span<const std::byte> v,
             std::span<const int32_t> pos) override;

 private:
  ExecContext context() const { return {&model_.pool()}; }
  RopeTable rope(uint32_t layer) const;
  void place_current(uint32_t layer);
  void attend(uint32_t layer, std::span<float> key_mass, size_t mass_from);
  void mix_attention(const PackedLayer& w);
  void feed_forward(const PackedLayer& w);
  void norm(const float* x, const Buffer& weight, float* y, size_t rows, bool add = false);

  AttendedTap tap_;
  LoadedModel& model_;
  const ModelConfig& config_;
  const Ops& ops_;
  LiveKv live_;
  Buffer rope_global_, rope_local_;     // [capacity, rope_dims/2, 2]; local: of sliding-window layers, empty if none
  size_t t_ = 0;                        // current rows
  std::vector<int32_t> pos_;            // [T]
  Buffer pos_dev_;                      // [T]
  Buffer x_, x_next_;                   // [T, C] the residual stream; x_next_ takes it over in keep
  Buffer h_;                            // [T, C] normed rows
  Buffer q_, q_next_;                   // [T, H*D]
  Buffer k_, v_;                        // [T, Hkv*D] float32
  Buffer k_cast_, v_cast_, cast_next_;  // [T, Hkv*D] of the KV type, K not rotated
  Buffer attended_;                     // [T, H*D]
  Buffer gate_, up_;                    // [slice, F]
  Buffer tmp_;                          // [T, C] before a post-norm
  Buffer rows_, mass_, dev_, logits_;
  std::vector<float> host_rows_;
  ThreadPool place_pool_{1};  // place runs on a loader's thread; the model's pool is busy with the layers then
  Buffer place_k_, place_v_, place_pos_;
};

}  // namespace cento
