// The next token from logits. Order: repetition penalty, temperature, top-k, top-p, min-p, draw.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"

namespace cento {

struct SamplerOptions {
  double temperature = 0;         // 0: greedy (the highest logit, ties to the lower id)
  uint32_t top_k = 0;             // 0: off
  double top_p = 1.0;             // 1: off
  double min_p = 0.0;             // 0: off
  double repetition_penalty = 1;  // > 1 makes tokens of the last 256 less likely (Keskar et al. 2019, CTRL)
  uint64_t seed = 0;
};
// Throws Error(kUsage) naming the value that is out of range or not a number.
void validate(const SamplerOptions& options);

class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options);
  // logits [V]; `recent`: ids so far, newest last. Throws Error(kInternal) if no logit is finite.
  int32_t next(std::span<const float> logits, std::span<const int32_t> recent);

 private:
  SamplerOptions options_;
  Rng rng_;
};

// Finds stop texts in a stream without ever letting a part of one out.
class StopFilter {
 public:
  explicit StopFilter(std::vector<std::string> stops) : stops_(std::move(stops)) {}
  std::string push(std::string_view text);  // what may be shown now; "" while a stop text may be under way
  std::string finish();                     // what was held back, when the stream ended otherwise
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace cento
