// Time to first token of one synthetic prompt in all modes, and of a resumed conversation: through the code that query
// runs, with KV stored as blobs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "eval/speed.h"
#include "eval/spread.h"

namespace cento {

struct FirstTokenReport {
  size_t tokens = 0, chunks = 0;  // of the prompt
  std::string context;            // what the chunks' KV was computed behind: "stand-in" or "prefix"
  // ms from the parsed question to the first token. Of full and prefix nothing or little is loaded; the others with the
  // blobs in the page cache, and cold: driven out of it in front of each run. Cold ones are missing where the system
  // does not let go of the pages.
  Spread full, prefix, reuse, blend;
  std::optional<Spread> reuse_cold, blend_cold;
  // Of the blended runs: policy, rows recomputed, rows x layers computed over all, bytes read.
  std::string policy;
  size_t recomputed = 0;
  double charged = 0;
  uint64_t bytes_loaded = 0;
  // A new question behind the whole prompt, which is loaded as it is (exact), or computed again.
  size_t resumed_tokens = 0;
  uint64_t resumed_bytes = 0;
  Spread resume, recompute;
  std::optional<Spread> resume_cold;
};

size_t first_token_steps(const SpeedOptions& options);

// `folder` (which is there and empty) takes a store. The prompt has options.prompt_tokens tokens, or a few less as its
// words fall, but as many as fixed prefix, question and ten chunks need, and at most what the context holds. nullopt:
// stopped. Throws Error(kInput) for a model whose context is too small for a prompt with chunks, or that does not pass
// the gate; Error(kResource) for a full disk.
std::optional<FirstTokenReport> measure_first_token(LoadedModel& model, const SpeedOptions& options,
                                                    const std::string& folder, BenchSteps& steps);

}  // namespace cento
