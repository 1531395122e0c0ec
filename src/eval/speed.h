// Prefill and decode in tokens a second, as llama-bench measures them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/loaded_model.h"

namespace cento {

struct SpeedOptions {
  size_t prompt_tokens = 512, decode_tokens = 64;
  size_t repeat = 10;  // measured runs of each kind, after one that is not counted
  uint64_t seed = 1;   // of token ids and words
};

// Measurements that take long enough to be watched and stopped.
struct BenchHooks {
  std::function<void(size_t done, size_t total)> progress;  // runs; between measurements only; may be empty
  std::function<bool()> stop;                               // true: end now; may be empty
};

// Counts runs and tells the hooks.
class BenchSteps {
 public:
  BenchSteps(const BenchHooks& hooks, size_t total) : hooks_(&hooks), total_(total) {}
  bool stopped() const { return hooks_->stop && hooks_->stop(); }
  const std::function<bool()>& stop() const { return hooks_->stop; }
  void done(size_t n = 1) {
    done_ += n;
    if (hooks_->progress) hooks_->progress(done_, total_);
  }

 private:
  const BenchHooks* hooks_;
  size_t total_, done_ = 0;
};

// Tokens per second of each repetition.
struct RateSamples {
  std::vector<double> prefill, decode;
};

// Appends `repeat` repetitions to `out`, prefill and decode in turn, after one of each that is not counted. Prefill is
// the forward pass of options.prompt_tokens random ids from an empty context to the logits of the last one; decode is
// options.decode_tokens passes of one random id each, from an empty context, each to its logits; ids come from nowhere
// and nothing is sampled: llama-bench's pp and tg tests. 2 (repeat + 1) steps. False: stopped.
bool measure_rates(LoadedModel& model, const SpeedOptions& options, size_t repeat, BenchSteps& steps, RateSamples& out);

}  // namespace cento
