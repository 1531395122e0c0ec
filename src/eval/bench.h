// All that `cento bench` measures, in one run: own rates, the peer's between their halves, times to first token.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "eval/first_token.h"
#include "eval/peer.h"
#include "eval/speed.h"

namespace cento {

struct BenchReport {
  Spread prefill, decode;  // tokens per second
  FirstTokenReport first_token;
  std::optional<PeerReport> peer;
  double prefill_ratio = 0, decode_ratio = 0;  // own median / peer's, of its better setting; 0 without a peer
  uint64_t peak_bytes = 0;                     // peak_memory_bytes() at the end; the peer is a process of its own
};

// Throws Error(kUsage) if the options ask for more tokens than the model's context holds.
void require_context(const ModelConfig& config, const SpeedOptions& options);

// `peer`: program as find_peer gave it, "" for none. `scratch` is an empty folder, whose content the caller removes.
// nullopt: stopped. Throws Error as the measurements do.
std::optional<BenchReport> run_bench(LoadedModel& model, const SpeedOptions& options, const std::string& peer,
                                     const std::string& scratch, const BenchHooks& hooks);

}  // namespace cento
