// What `cento model check` has measured of a model on this machine, and what blending does with it.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>

#include "blend/policy.h"
#include "engine/engine.h"
#include "engine/residual.h"
#include "kv/catalogue.h"

namespace cento {

// The chance that an answer's mean KL to full prefill is above kGuardKl, from what the blended prefill left open.
inline constexpr double kGuardKl = 0.1;

struct Guard {
  double bias = 0;
  std::array<double, Residual::kFeatures> weights = {};
  double limit = 1;  // above it the answer is not trusted

  double probability(const Residual& residual) const;  // 0..1
};

struct ModelRecord {
  double ratio = 0.15;  // share of the rows to recompute, up to kRecordRows rows of it
  Repair repair = Repair::kNone;
  double kl = 0, kl_worst = 0, top1 = 0;  // at that ratio, over the calibration's prompts
  size_t n_prompts = 0;
  std::optional<Guard> guard;  // none where the sample could not tell good answers from bad ones
};

// Of n rankable rows: ratio * n, but no more than ratio * 4000 rows: the number of rows counts, not the ratio
// (docs/BLENDING.md).
double ratio_for(const ModelRecord& record, size_t n);

// As it is kept in the catalogue. nullopt for a text that to_text() does not write.
std::string to_text(const ModelRecord& record);
std::optional<ModelRecord> record_from_text(const std::string& text);

// Of this model, layout and backend. `catalogue` may be null.
std::optional<ModelRecord> read_record(Engine& engine, Catalogue* catalogue);
void write_record(Engine& engine, Catalogue& catalogue, const ModelRecord& record);

}  // namespace cento
