// A model and its live KV: executes plans, appends rows, and knows which rows are there exactly as full prefill would
// have computed them. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "blend/blend_pipeline.h"
#include "engine/forward.h"
#include "engine/loaded_model.h"

namespace cento {

class Engine {
 public:
  explicit Engine(LoadedModel& model) : model_(model), forward_(model) {}

  LoadedModel& model() { return model_; }
  KvShape shape() const { return forward_.shape(); }
  void set_tap(Forward::AttendedTap tap) { forward_.set_tap(std::move(tap)); }

  // Rows at the front of `ids` that are in the live KV and equal to full prefill's: may be kResident in a plan.
  size_t resident_prefix(std::span<const int32_t> ids) const;

  // Runs the plan with room for `reserve` more rows behind it. Throws Error(kUsage) with both counts when plan and
  // reserve exceed the model's context.
  std::variant<PipelineReport, SegmentFailure> prefill(PromptPlan& plan, const PipelineOptions& options,
                                                       size_t reserve);

  // Appends rows behind those that are there; logits [V] of the last of them, or [ids, V] of all. Teacher forcing and,
  // with one id, a step of decode. `ids` must not be empty.
  std::vector<float> extend(std::span<const int32_t> ids, bool all_logits = false);

  // How far K and V of `ids` in the first layer, placed from position `at` on, are from those computed there: greatest
  // squared distance of a row over its squared size. They do not depend on what stands in front, so that it is 0 where
  // re-positioning is right. Forgets the live KV.
  double placing_error(std::span<const int32_t> ids, const KvBlock& block, size_t at);

  const std::vector<int32_t>& ids() const { return ids_; }  // of all rows in the live KV
  void truncate(size_t n_rows);                             // forgets rows from n_rows on

 private:
  LoadedModel& model_;
  Forward forward_;
  std::vector<int32_t> ids_;
  size_t n_exact_ = 0;  // leading rows equal to full prefill's
};

}  // namespace cento
