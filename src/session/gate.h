// The gate before any reuse: on this machine, with this model, 100 % blend equals full prefill (DESIGN 3).
#pragma once

#include <string>
#include <vector>

#include "engine/engine.h"
#include "kv/catalogue.h"

namespace cento {

// One thing that has to hold.
struct GateCheck {
  std::string name;                                // "100 % blend"
  double figure = 0;                               // what was measured: a KL in nats unless said otherwise
  double limit = 0;                                // passed if figure <= limit
  std::string why;                                 // in words, for reports, where it did not pass
  bool passed() const { return figure <= limit; }  // false for NaN
};

struct GateResult {
  bool passed = false;
  double kl_max = 0;              // over the rows compared; NaN where one is
  std::string why;                // of the first check that did not pass
  std::vector<GateCheck> checks;  // empty where the result was remembered
};

// Re-positioning: stored K and V, placed at other positions, are those computed there. 100 % blend: two short chunks
// are computed on their own, placed behind each other and recomputed in full; the logits must be those of full prefill.
// The same across the window, for a model with sliding windows. One chunk at its own place without recomputation. About
// 0.3 s on a small model, more with a window. Uses the live KV.
GateResult run_gate(Engine& engine);

// The remembered result for this model, layout and backend, or run_gate's. A pass is then remembered (`catalogue` may
// be null, or read-only: then it is not). A failure is remembered by `model check` alone, which looks at more.
GateResult gate(Engine& engine, Catalogue* catalogue);
void remember_gate(Engine& engine, Catalogue& catalogue, const GateResult& result);

// Only where a person asks (`model check`): KV saved to a file in `folder`, which must be there, and loaded is the same
// bit for bit; a conversation that goes on from saved KV gives the logits of one that was never left.
std::vector<GateCheck> check_saving(Engine& engine, const std::string& folder);

// KL(float32 || fast) of the last rows of a prompt, mean; both engines of one model.
GateCheck check_precision(Engine& fast, Engine& exact);

}  // namespace cento
