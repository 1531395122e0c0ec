// Runs a PromptPlan: loads stored rows layer by layer while the layers before them are computed, ranks and recomputes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "blend/layer_runner.h"
#include "blend/policy.h"
#include "blend/prompt_plan.h"

namespace cento {

struct PipelineOptions {
  BlendSettings blend;
  // Rows of one pass through the layers: bounds memory and the wait for a stop, and keeps activations in L2 (512: 3 %
  // slower).
  size_t slice_rows = 256;
  size_t logits_rows = 1;  // logits wanted of the last so many rows of the plan
  // If set: K and V of the plan's rows [capture_from, capture_from + capture->n_tokens()) as computed; they must be
  // fresh.
  KvBlock* capture = nullptr;
  size_t capture_from = 0;
  // A factor for the score of each chunk row, in the order of their positions (query and the deviation policies), or
  // the scores themselves (given). Empty: 1.
  std::span<const float> row_weights = {};
  // Fill the report's probe_logits (where the probe goes through all layers) and moved; policy query only.
  bool want_residual = false;
  std::function<bool()> stop;  // polled between layers; true ends the run with stopped = true
};

struct PipelineReport {
  std::vector<float> logits;  // [logits_rows, V]
  size_t n_total = 0, n_exact = 0, n_reused = 0, n_recomputed = 0,
         n_fresh = 0;               // rows; n_exact counts resident ones too
  double charged = 0;               // rows x layers computed, probe included, over all rows x layers
  double rows_computed = 0;         // rows x layers computed, over layers
  double row_keys = 0;              // keys that these saw, summed, over layers
  std::vector<int32_t> recomputed;  // positions of chunk rows that were recomputed in at least one layer
  std::vector<float> scores;        // of the chunk rows, by which they were chosen; empty where the policy has none
  std::vector<float> probe_logits;  // [V] of the prompt's last row over the stored KV alone, if wanted
  double moved = 0;                 // of the recomputed chunk rows, if wanted: see MoveMeter
  uint64_t bytes_loaded = 0;
  // The loader's side, beside the computing: from its start to its end; of that waiting for the files' bytes, and the
  // processor time of checksums and decompression and of rotating and placing.
  double load_ms = 0, read_ms = 0, unpack_ms = 0, place_ms = 0;
  // The computing side, one behind the other. load_wait_ms is what loading cost in spite of running beside it; it is
  // part of none of the others.
  double reserve_ms = 0;  // room in the live KV (set by the engine)
  double load_wait_ms = 0, probe_ms = 0, select_ms = 0;
  double compute_ms = 0;  // selected and fresh rows through the layers
  double logits_ms = 0;
  bool stopped = false;
};

// A stored segment that turned out to be unusable while it was loaded.
struct SegmentFailure {
  size_t segment;
  Error error;
};

// On success all slots of the plan hold KV. On a failure the live KV is to be thought of as empty from the first
// segment that was not resident on: the caller turns the failed segment into a fresh one and runs again. Throws Error
// for what is not the fault of a segment.
std::variant<PipelineReport, SegmentFailure> run_plan(PromptPlan& plan, LayerRunner& runner,
                                                      const PipelineOptions& options);

}  // namespace cento
