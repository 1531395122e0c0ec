#include "blend/prompt_plan.h"

namespace cento {

size_t PromptPlan::n_tokens() const {
  size_t n = 0;
  for (const Segment& s : segments) n += s.ids.size();
  return n;
}

std::vector<int32_t> PromptPlan::ids() const {
  std::vector<int32_t> all;
  all.reserve(n_tokens());
  for (const Segment& s : segments) all.insert(all.end(), s.ids.begin(), s.ids.end());
  return all;
}

size_t PromptPlan::start_of(size_t segment) const {
  size_t n = 0;
  for (size_t i = 0; i < segment; ++i) n += segments[i].ids.size();
  return n;
}

void PromptPlan::validate() const {
  const auto wrong = [](const std::string& what) { throw Error{Code::kInternal, "prompt plan: " + what}; };
  if (segments.empty() || segments.back().from != SegmentFrom::kFresh || segments.back().ids.empty()) {
    wrong("the last segment is not fresh text");
  }
  bool resident_may_follow = true;
  for (const Segment& s : segments) {
    if (s.from == SegmentFrom::kResident && !resident_may_follow) wrong("a resident segment stands behind another one");
    if (s.from != SegmentFrom::kResident) resident_may_follow = false;
    const bool stored = s.from == SegmentFrom::kExact || s.from == SegmentFrom::kChunk;
    if (stored != (s.kv != nullptr)) wrong("segment '" + s.label + "' and its stored KV do not fit");
    if (stored && s.kv->n_tokens() != s.ids.size())
      wrong("segment '" + s.label + "' has another length than its stored KV");
  }
}

}  // namespace cento
