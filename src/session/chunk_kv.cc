#include "session/chunk_kv.h"

#include <algorithm>

#include "base/log.h"

namespace cento {

KvIdentity identity_of(Engine& engine, KvKind kind, std::span<const int32_t> prefix, std::span<const int32_t> context,
                       std::span<const int32_t> ids) {
  KvIdentity identity;
  identity.fingerprint = engine.model().fingerprint();
  identity.layout = engine.model().layout();
  identity.shape = engine.shape();
  identity.kind = kind;
  identity.prefix_ids = prefix;
  identity.context_ids = context;
  identity.ids = ids;
  return identity;
}

std::optional<ComputedKv> compute_kv(Engine& engine, std::span<const int32_t> context, std::span<const int32_t> ids,
                                     const std::function<bool()>& stop) {
  std::vector<int32_t> all(context.begin(), context.end());
  const size_t resident = engine.resident_prefix(all);  // of the context: the chunk's own rows are to be captured
  all.insert(all.end(), ids.begin(), ids.end());
  PromptPlan plan;
  if (resident > 0) {
    Segment known;
    known.from = SegmentFrom::kResident;
    known.ids.assign(all.begin(), all.begin() + static_cast<ptrdiff_t>(resident));
    plan.segments.push_back(std::move(known));
  }
  Segment fresh;
  fresh.ids.assign(all.begin() + static_cast<ptrdiff_t>(resident), all.end());
  plan.segments.push_back(std::move(fresh));
  ComputedKv computed{KvBlock(engine.shape(), ids.size()), all.size() - resident};
  PipelineOptions options;
  options.capture = &computed.block;
  options.capture_from = context.size();
  options.logits_rows = 0;
  options.stop = stop;
  const auto outcome = engine.prefill(plan, options, 0);
  if (std::get<PipelineReport>(outcome).stopped) return std::nullopt;
  return computed;
}

std::vector<Segment> prefix_segments(Engine& engine, KvStore* store, const std::vector<int32_t>& prefix) {
  std::vector<Segment> segments;
  Segment segment;
  segment.label = "prefix";
  segment.ids = prefix;
  if (engine.resident_prefix(prefix) == prefix.size()) {
    segment.from = SegmentFrom::kResident;
  } else if (store != nullptr) {
    auto reader = store->open(identity_of(engine, KvKind::kPrefix, prefix, {}, prefix));
    if (reader.ok()) {
      segment.from = SegmentFrom::kExact;
      segment.kv = std::move(reader).value();
    } else {
      log_debug("fixed prefix is computed: " + reader.error().message());
    }
  }
  segments.push_back(std::move(segment));
  return segments;
}

}  // namespace cento
