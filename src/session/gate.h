// The gate before any reuse: on this machine, with this model, 100 % blend equals full prefill (DESIGN 3).
#pragma once

#include <string>

#include "engine/engine.h"
#include "kv/catalogue.h"

namespace cento {

struct GateResult {
  bool passed = false;
  double kl_max = 0;  // nats, over the rows compared
  std::string why;    // in words, for the report, when it did not pass
};

// Two short chunks are computed on their own, placed behind each other and recomputed in full; the logits must be those
// of full prefill. Also one chunk at its own place without recomputation. About 0.3 s on a small model. Uses the live
// KV.
GateResult run_gate(Engine& engine);

// The remembered result for this model, layout and backend, or run_gate's, which is then remembered (`catalogue` may be
// null, or read-only: then it is not).
GateResult gate(Engine& engine, Catalogue* catalogue);

}  // namespace cento
