// What the engine's tests share: tiny models on disk, an engine on a chosen backend, plans, and KV computed apart.
#pragma once

#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "compute/ops_registry.h"
#include "engine/engine.h"
#include "engine/metrics.h"
#include "kv/memory_kv.h"
#include "support/gguf_writer.h"
#include "support/shared_data.h"

namespace cento::test {

using Ids = std::vector<int32_t>;

// Every backend that runs here, and the reference behind a fence.
inline std::vector<const Ops*> engine_ops() {
  std::vector<const Ops*> all = all_ops();
  all.push_back(&fenced_ops(ref_ops()));
  return all;
}

inline const std::vector<std::string>& architectures() {
  static const std::vector<std::string> all = {"llama", "qwen2", "gemma3"};
  return all;
}
inline const char* precision_name(Precision p) { return p == Precision::kF32 ? "f32" : "fast"; }

// A tiny model whose norms have an epsilon large enough to be missed, and in gemma3 every second layer global.
inline TinyModelSpec tiny_spec(const std::string& architecture, DType type) {
  TinyModelSpec spec;
  spec.architecture = architecture;
  spec.type = type;
  spec.norm_eps = 1e-3f;
  spec.layers = 3;
  if (dtype_info(type).elements == 256) {
    spec.layers = 2;
    spec.head_dim = 64;
    spec.width = spec.ffn = 256;
  }
  return spec;
}
inline GgufWriter tiny_writer(const TinyModelSpec& spec) {
  GgufWriter writer = tiny_model(spec);
  if (spec.architecture == "gemma3") writer.put_u32("gemma3.attention.sliding_window_pattern", 2);
  return writer;
}

// A model file that goes away with the object.
class ModelFile {
 public:
  explicit ModelFile(const GgufWriter& writer) { writer.write(path()); }
  explicit ModelFile(const TinyModelSpec& spec) : ModelFile(tiny_writer(spec)) {}
  std::string path() const { return dir_ / "model.gguf"; }

 private:
  TempDir dir_;
};

struct LoadedEngine {
  LoadedEngine(const std::string& path, const Ops& ops, Precision precision, size_t threads = 1)
      : model({path, precision, "auto", &ops, threads, ""}), engine(model) {}
  LoadedModel model;
  Engine engine;
};

inline Ids random_ids(size_t n, size_t vocab, uint64_t seed) {
  Rng rng(seed);
  Ids ids(n);
  for (int32_t& id : ids) id = static_cast<int32_t>(rng.below(vocab));
  return ids;
}

template <class... Parts>
Ids joined(const Parts&... parts) {
  Ids all;
  (all.insert(all.end(), parts.begin(), parts.end()), ...);
  return all;
}

inline Segment fresh(const Ids& ids) {
  Segment s;
  s.ids = ids;
  s.label = "fresh";
  return s;
}
inline Segment resident(const Ids& ids) {
  Segment s = fresh(ids);
  s.from = SegmentFrom::kResident;
  return s;
}
inline Segment stored(SegmentFrom from, const Ids& ids, std::unique_ptr<KvReader> kv) {
  Segment s;
  s.from = from;
  s.ids = ids;
  s.kv = std::move(kv);
  s.label = "stored";
  return s;
}
template <class... Segments>
PromptPlan plan_of(Segments... segments) {
  PromptPlan plan;
  (plan.segments.push_back(std::move(segments)), ...);
  return plan;
}

inline PipelineOptions with(PolicyKind policy, std::optional<double> ratio = {}) {
  PipelineOptions options;
  options.blend.policy = policy;
  options.blend.ratio = ratio;
  return options;
}

inline PipelineReport prefill(Engine& engine, PromptPlan plan, const PipelineOptions& options = {}) {
  auto outcome = engine.prefill(plan, options, 0);
  REQUIRE(std::holds_alternative<PipelineReport>(outcome));
  return std::get<PipelineReport>(std::move(outcome));
}
// From an empty live KV.
inline PipelineReport prefill_anew(Engine& engine, PromptPlan plan, const PipelineOptions& options = {}) {
  engine.truncate(0);
  return prefill(engine, std::move(plan), options);
}

// KV of `ids` behind `context`, computed by `engine`, whose live KV is overwritten.
inline KvBlock computed_kv(Engine& engine, const Ids& context, const Ids& ids, size_t slice_rows = 512) {
  KvBlock block(engine.shape(), ids.size());
  PipelineOptions options;
  options.capture = &block;
  options.capture_from = context.size();
  options.logits_rows = 0;
  options.slice_rows = slice_rows;
  prefill_anew(engine, plan_of(fresh(joined(context, ids))), options);
  return block;
}
inline std::unique_ptr<KvReader> as_reader(const KvBlock& block) { return std::make_unique<MemoryKv>(block, Hash{}); }

// Logits of `n` greedy steps behind what the engine holds, [n, V]; the first step extends by the best of `last`.
inline std::vector<float> greedy_steps(Engine& engine, std::span<const float> last, size_t n) {
  std::vector<float> all, row(last.begin(), last.end());
  for (size_t i = 0; i < n; ++i) {
    const Ids id = {static_cast<int32_t>(argmax(row))};
    row = engine.extend(id);
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

// Equal bit for bit, and all finite: NaN would be a difference from nothing.
inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size() || a.empty()) return false;
  for (const float x : a) {
    if (!std::isfinite(x)) return false;
  }
  return std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

}  // namespace cento::test
