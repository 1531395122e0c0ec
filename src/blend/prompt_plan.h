// An ordered list of segments, each with its token ids and where its KV comes from: the one structure of the middle.
// Full prefill, prefix caching, plain reuse and blending are the same code run on different plans.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kv/kv_store.h"

namespace cento {

enum class SegmentFrom {
  kResident,  // identical rows are in the live KV already: nothing to do
  kExact,     // stored, and computed behind exactly the ids in front of it: reused as it is
  kChunk,     // stored, computed elsewhere: placed here, ranked, in part recomputed
  kFresh,     // computed now
};

struct Segment {
  SegmentFrom from = SegmentFrom::kFresh;
  std::vector<int32_t> ids;
  std::unique_ptr<KvReader> kv;  // of kExact and kChunk
  std::string label;             // for messages and reports: a chunk's id, "prefix", "question"
};

struct PromptPlan {
  std::vector<Segment> segments;

  size_t n_tokens() const;
  std::vector<int32_t> ids() const;
  size_t start_of(size_t segment) const;  // position of its first token
  // Our own mistakes, checked before a run: kResident only in front, stored row counts equal to ids, last segment fresh
  // and not empty. Throws Error(kInternal).
  void validate() const;
};

}  // namespace cento
