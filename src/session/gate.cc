#include "session/gate.h"

#include <algorithm>
#include <cmath>

#include "engine/metrics.h"
#include "kv/memory_kv.h"
#include "session/chunk_kv.h"

namespace cento {
namespace {

// CPU backends compute rows independently of each other (ops.h), so that there the two are equal bit for bit. The limit
// leaves room for a device whose sums depend on the number of rows: float sums in another order move a logit by about
// 1e-5 of its size, which is a KL of 1e-9 and less.
constexpr double kKlMax = 1e-6;

// Text of the gate: any text would do; this one has names, numbers and a reference across the two chunks.
constexpr const char* kFirst =
    "The harbour office opens at eight. Its keeper is called the Wren, after the boat that hangs above the door.";
constexpr const char* kSecond =
    "On market days the Wren rings the bell twice, once at nine and once at half past eleven.";
constexpr const char* kQuestion = "How often does the keeper ring the bell on market days?";

std::unique_ptr<KvReader> alone(Engine& engine, const std::vector<int32_t>& prefix, const std::vector<int32_t>& ids) {
  auto computed = compute_kv(engine, prefix, ids, {});
  return std::make_unique<MemoryKv>(std::move(computed->block), kv_ids_hash(ids));
}

Segment fresh(std::vector<int32_t> ids) {
  Segment s;
  s.ids = std::move(ids);
  return s;
}

Segment stored(SegmentFrom from, std::vector<int32_t> ids, std::unique_ptr<KvReader> kv) {
  Segment s;
  s.from = from;
  s.ids = std::move(ids);
  s.kv = std::move(kv);
  return s;
}

std::vector<float> logits_of(Engine& engine, PromptPlan plan, PolicyKind policy) {
  PipelineOptions options;
  options.blend.policy = policy;
  auto outcome = engine.prefill(plan, options, 0);
  if (const auto* failure = std::get_if<SegmentFailure>(&outcome)) throw failure->error;
  return std::get<PipelineReport>(outcome).logits;
}

}  // namespace

GateResult run_gate(Engine& engine) {
  const Tokenizer& tokenizer = engine.model().tokenizer();
  std::vector<int32_t> prefix = tokenizer.encode("Passages:");
  if (tokenizer.bos && tokenizer.add_bos) prefix.insert(prefix.begin(), *tokenizer.bos);
  const std::vector<int32_t> first = tokenizer.encode(kFirst), second = tokenizer.encode(kSecond),
                             question = tokenizer.encode(kQuestion);

  const auto full = [&](const std::vector<std::vector<int32_t>>& parts) {
    engine.truncate(0);
    PromptPlan plan;
    for (const auto& ids : parts) plan.segments.push_back(fresh(ids));
    return logits_of(engine, std::move(plan), PolicyKind::kNone);
  };
  const std::vector<float> whole = full({prefix, first, second, question});
  const std::vector<float> one = full({prefix, first, question});

  engine.truncate(0);
  auto kv_first = alone(engine, prefix, first);
  auto kv_second = alone(engine, prefix, second);
  auto kv_again = alone(engine, prefix, first);

  engine.truncate(0);
  PromptPlan blend;
  blend.segments.push_back(fresh(prefix));
  blend.segments.push_back(stored(SegmentFrom::kChunk, first, std::move(kv_first)));
  blend.segments.push_back(stored(SegmentFrom::kChunk, second, std::move(kv_second)));
  blend.segments.push_back(fresh(question));
  const double kl_blend = kl_divergence(whole, logits_of(engine, std::move(blend), PolicyKind::kAll));

  // Other rows in every slot, so that a row which is not placed shows: what was just computed there would hide it.
  full({question, second, first, prefix});
  engine.truncate(0);
  PromptPlan own_place;
  own_place.segments.push_back(fresh(prefix));
  own_place.segments.push_back(stored(SegmentFrom::kExact, first, std::move(kv_again)));
  own_place.segments.push_back(fresh(question));
  const double kl_place = kl_divergence(one, logits_of(engine, std::move(own_place), PolicyKind::kNone));
  engine.truncate(0);

  GateResult result;
  result.kl_max = std::max(kl_blend, kl_place);
  result.passed = std::isfinite(kl_blend) && std::isfinite(kl_place) && result.kl_max <= kKlMax;
  if (!result.passed) {
    result.why = kl_blend > kKlMax || !std::isfinite(kl_blend)
                     ? "100 % blend differs from full prefill with this model here"
                     : "a chunk at its own place differs from full prefill with this model here";
  }
  return result;
}

GateResult gate(Engine& engine, Catalogue* catalogue) {
  const std::string key = "gate/1/" + engine.model().fingerprint().short_hex() + "/" +
                          engine.model().layout().short_hex() + "/" + engine.model().ops().name;
  if (catalogue != nullptr && catalogue->setting(key) == "passed") return {true, 0, ""};
  const GateResult result = run_gate(engine);
  if (result.passed && catalogue != nullptr && !catalogue->db().read_only()) catalogue->set_setting(key, "passed");
  return result;
}

}  // namespace cento
