// What computing and loading have cost with a model on this machine, learned from every prefill.
#pragma once

#include <optional>
#include <string>

#include "blend/blend_pipeline.h"
#include "blend/controller.h"
#include "engine/engine.h"
#include "kv/catalogue.h"

namespace cento {

// Least squares over what was observed, relative errors, older observations counting less: a machine that has become
// slower is noticed within some ten prompts.
class SpeedRecord {
 public:
  void observe_compute(double n_rows, double n_row_keys, double ms);  // n_row_keys: keys seen, summed over the rows
  void observe_load(double n_bytes, double ms);                       // bytes of unpacked KV
  void observe(const PipelineReport& report, const KvShape& shape);

  // nullopt until something has been computed. Loading counts as free until something has been loaded.
  std::optional<CostModel> cost() const;

  std::string text() const;  // for the catalogue
  static std::optional<SpeedRecord> from_text(const std::string& text);

 private:
  // Weighted sums of the normal equations for ms = rows * a + row_keys * b, each equation over its ms.
  double rr_ = 0, rk_ = 0, kk_ = 0, r1_ = 0, k1_ = 0;
  double bytes_ = 0, load_ms_ = 0;  // decayed sums
};

std::string speed_key(Engine& engine);  // of the catalogue's settings: model, layout, target, threads
SpeedRecord read_speed(Engine& engine, Catalogue* catalogue);
void write_speed(Engine& engine, Catalogue* catalogue, const SpeedRecord& record);  // nothing if it may not be written

}  // namespace cento
