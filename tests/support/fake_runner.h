// A transformer of two layers and four numbers a row, in plain loops: enough to see whether blending keeps its
// promises.
#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "blend/layer_runner.h"
#include "kv/memory_kv.h"

namespace cento::test {

// Layer l of a row at position p with state x: k = (1 + l) * x, v = x + l; live K is k * (1 + p / 1000) (so that a
// wrong position shows); attention weights exp(-|live_k_j - live_k_p|) over the slots j <= p; x += weighted mean of v.
class FakeRunner final : public LayerRunner {
 public:
  static constexpr uint32_t kLayers = 2;
  static constexpr size_t kDim = 4;
  static constexpr size_t kVocab = 11;

  explicit FakeRunner(size_t capacity) : capacity_(capacity), live_k_(kLayers), live_v_(kLayers) {
    // Slots that nobody wrote must not be read: NaN would spread into every result.
    for (auto* side : {&live_k_, &live_v_}) {
      for (auto& layer : *side) layer.assign(capacity * kDim, NAN);
    }
  }

  KvShape shape() const override { return {kLayers, 1, kDim, KvType::kF32}; }
  uint64_t capacity() const override { return capacity_; }

  void begin(std::span<const int32_t> ids, std::span<const int32_t> pos) override {
    CENTO_CHECK(ids.size() == pos.size());
    pos_.assign(pos.begin(), pos.end());
    x_.clear();
    for (const int32_t id : ids) {
      for (size_t d = 0; d < kDim; ++d) x_.push_back(std::sin(static_cast<float>(id) * (1.0f + static_cast<float>(d))));
    }
    n_begun += ids.size();
  }
  void project(uint32_t layer) override {
    k_.resize(x_.size());
    v_.resize(x_.size());
    for (size_t i = 0; i < x_.size(); ++i) {
      k_[i] = static_cast<float>(1 + layer) * x_[i];
      v_[i] = x_[i] + static_cast<float>(layer);
    }
  }
  void deviation(uint32_t layer, std::span<float> k_dev, std::span<float> v_dev) override {
    for (size_t r = 0; r < pos_.size(); ++r) {
      k_dev[r] = v_dev[r] = 0;
      for (size_t d = 0; d < kDim; ++d) {
        const size_t slot = at(pos_[r], d);
        k_dev[r] += square(rotated(k_[r * kDim + d], pos_[r]) - live_k_[layer][slot]);
        v_dev[r] += square(v_[r * kDim + d] - live_v_[layer][slot]);
      }
    }
  }
  void keep(std::span<const int32_t> rows) override {
    std::vector<float> x, k, v;
    std::vector<int32_t> pos;
    for (const int32_t r : rows) {
      const auto row = static_cast<size_t>(r);
      pos.push_back(pos_[row]);
      for (size_t d = 0; d < kDim; ++d) {
        x.push_back(x_[row * kDim + d]);
        k.push_back(k_[row * kDim + d]);
        v.push_back(v_[row * kDim + d]);
      }
    }
    x_.swap(x);
    k_.swap(k);
    v_.swap(v);
    pos_.swap(pos);
  }
  void finish(uint32_t layer, std::span<float> key_mass, size_t mass_from) override {
    for (size_t r = 0; r < pos_.size(); ++r) put(layer, pos_[r], &k_[r * kDim], &v_[r * kDim]);
    std::fill(key_mass.begin(), key_mass.end(), 0.0f);
    for (size_t r = 0; r < pos_.size(); ++r) attend(layer, r, r >= mass_from ? key_mass : std::span<float>());
  }
  void finish_last(uint32_t layer, size_t first) override {
    for (size_t r = 0; r < pos_.size(); ++r) put(layer, pos_[r], &k_[r * kDim], &v_[r * kDim]);
    std::vector<int32_t> rest;
    for (size_t r = first; r < pos_.size(); ++r) rest.push_back(static_cast<int32_t>(r));
    keep(rest);
    for (size_t r = 0; r < pos_.size(); ++r) attend(layer, r, {});
  }
  void fetch(uint32_t, size_t first, size_t n, std::span<std::byte> k, std::span<std::byte> v) override {
    std::memcpy(k.data(), &k_[first * kDim], n * kDim * sizeof(float));
    std::memcpy(v.data(), &v_[first * kDim], n * kDim * sizeof(float));
  }
  std::vector<float> logits(size_t first, size_t n) override {
    std::vector<float> out;
    for (size_t r = first; r < first + n; ++r) {
      for (size_t w = 0; w < kVocab; ++w) {
        float sum = 0;
        for (size_t d = 0; d < kDim; ++d) sum += x_[r * kDim + d] * std::cos(static_cast<float>(w * (d + 2)));
        out.push_back(sum);
      }
    }
    return out;
  }
  void place(uint32_t layer, std::span<const std::byte> k, std::span<const std::byte> v,
             std::span<const int32_t> pos) override {
    std::vector<float> kf(k.size() / sizeof(float)), vf(v.size() / sizeof(float));
    std::memcpy(kf.data(), k.data(), k.size());
    std::memcpy(vf.data(), v.data(), v.size());
    for (size_t r = 0; r < pos.size(); ++r) put(layer, pos[r], &kf[r * kDim], &vf[r * kDim]);
  }

  // What the live KV holds, K rotated.
  float live_k(uint32_t layer, int32_t pos, size_t d) const { return live_k_[layer][at(pos, d)]; }
  float live_v(uint32_t layer, int32_t pos, size_t d) const { return live_v_[layer][at(pos, d)]; }
  static float rotation(int32_t pos) { return rotated(1.0f, pos); }

  size_t n_begun = 0;  // rows that passes were begun with

 private:
  static float square(float f) { return f * f; }
  static float rotated(float k, int32_t pos) { return k * (1.0f + static_cast<float>(pos) / 1000.0f); }
  static size_t at(int32_t pos, size_t d) { return static_cast<size_t>(pos) * kDim + d; }

  void put(uint32_t layer, int32_t pos, const float* k, const float* v) {
    for (size_t d = 0; d < kDim; ++d) {
      live_k_[layer][at(pos, d)] = rotated(k[d], pos);
      live_v_[layer][at(pos, d)] = v[d];
    }
  }
  void attend(uint32_t layer, size_t r, std::span<float> key_mass) {
    const int32_t p = pos_[r];
    std::vector<double> weights;
    double total = 0;
    for (int32_t j = 0; j <= p; ++j) {
      double distance = 0;
      for (size_t d = 0; d < kDim; ++d) {
        distance +=
            std::abs(static_cast<double>(live_k_[layer][at(j, d)]) - static_cast<double>(live_k_[layer][at(p, d)]));
      }
      weights.push_back(std::exp(-distance));
      total += weights.back();
    }
    for (size_t d = 0; d < kDim; ++d) {
      double sum = 0;
      for (int32_t j = 0; j <= p; ++j)
        sum += weights[static_cast<size_t>(j)] * static_cast<double>(live_v_[layer][at(j, d)]);
      x_[r * kDim + d] += static_cast<float>(sum / total);
    }
    for (size_t j = 0; j < key_mass.size() && j < weights.size(); ++j) {
      key_mass[j] = std::max(key_mass[j], static_cast<float>(weights[j] / total));
    }
  }

  size_t capacity_;
  std::vector<std::vector<float>> live_k_, live_v_;  // [layers][capacity * kDim]
  std::vector<int32_t> pos_;
  std::vector<float> x_, k_, v_;
};

// Stored KV that fails at a layer, for tests of damage.
class FailingKv final : public KvReader {
 public:
  FailingKv(const KvShape& shape, uint64_t n_tokens, uint32_t fails_at)
      : shape_(shape), n_tokens_(n_tokens), fails_at_(fails_at) {}
  uint64_t n_tokens() const override { return n_tokens_; }
  const KvShape& shape() const override { return shape_; }
  const Hash& key() const override { return key_; }
  Status read_layer(uint32_t layer, std::span<std::byte> k, std::span<std::byte> v) override {
    if (layer == fails_at_) return Error{Code::kInput, "frame checksum mismatch"};
    std::fill(k.begin(), k.end(), std::byte{0});
    std::fill(v.begin(), v.end(), std::byte{0});
    return Status::done();
  }
  uint64_t bytes_read() const override { return 0; }

 private:
  KvShape shape_;
  uint64_t n_tokens_;
  uint32_t fails_at_;
  Hash key_;
};

}  // namespace cento::test
