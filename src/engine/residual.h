// What a blended prefill leaves open: signs of how far its answer may be from full prefill's, all without it.
#pragma once

#include <array>
#include <optional>

#include "blend/blend_pipeline.h"
#include "blend/prompt_plan.h"

namespace cento {

// Free of scale, so that prompts of different lengths can be compared.
struct Residual {
  double unselected = 0;  // share of the question's attention to chunk rows that stays on rows not recomputed
  double entropy = 0;     // of that attention, 0 (on one row) to 1 (spread evenly)
  double chunk_mass = 0;  // the largest share of it that the rows not recomputed of one chunk hold
  double moved = 0;       // how far the recomputed rows were off (MoveMeter)
  double shift = 0;       // KL(answer || probe) of the prompt's last row: what recomputing them has changed already
  double open = 0;        // share of the chance that the answer's last row gives to other tokens than the likeliest

  static constexpr size_t kFeatures = 6;
  // For a linear model: the shares as they are, of the rest the logarithm.
  std::array<double, kFeatures> features() const;
};

// nullopt where the run had no question attention to rank by, or PipelineOptions::want_residual was not set.
std::optional<Residual> residual_of(const PromptPlan& plan, const PipelineReport& report);

}  // namespace cento
