#include "eval/bench.h"

#include <algorithm>

#include "base/machine.h"

namespace cento {
namespace {

constexpr uint64_t kPeerOutputBytesMax = 4ull << 20;  // a test is about 2 KiB, and 20 bytes a sample
constexpr double kPeerTimeMinMs = 10.0 * 60 * 1000;
constexpr double kPeerTimeMaxMs = 24.0 * 60 * 60 * 1000;
constexpr double kPeerSlowness = 100;  // slower than we are by this is hanging

// From our own speed, known by half, to what the peer may take for both settings and its warm-up.
ProcessLimits peer_limits(const SpeedOptions& options, const RateSamples& own) {
  const double once_s = static_cast<double>(options.prompt_tokens) / spread_of(own.prefill).median +
                        static_cast<double>(options.decode_tokens) / spread_of(own.decode).median;
  const double expected_ms = once_s * 1000 * 2 * static_cast<double>(options.repeat + 1);
  ProcessLimits limits;
  limits.time_ms = static_cast<int64_t>(std::clamp(kPeerSlowness * expected_ms, kPeerTimeMinMs, kPeerTimeMaxMs));
  limits.output_bytes = kPeerOutputBytesMax;
  return limits;
}

PeerRequest peer_request(LoadedModel& model, const SpeedOptions& options, const std::string& program) {
  PeerRequest request;
  request.program = program;
  request.model_file = model.file().file().path();
  request.prompt_tokens = options.prompt_tokens;
  request.decode_tokens = options.decode_tokens;
  request.threads = model.pool().size();
  request.repeat = options.repeat;
  return request;
}

}  // namespace

void require_context(const ModelConfig& config, const SpeedOptions& options) {
  const auto check = [&](const char* flag, size_t n) {
    if (n <= config.context_max) return;
    throw Error{Code::kUsage,
                std::string(flag) + ": " + std::to_string(n) + " tokens are more than the model's context of " +
                    std::to_string(config.context_max),
                "cento bench", "give a smaller number"};
  };
  check("--prompt", options.prompt_tokens);
  check("--decode", options.decode_tokens);
}

std::optional<BenchReport> run_bench(LoadedModel& model, const SpeedOptions& options, const std::string& peer,
                                     const std::string& scratch, const BenchHooks& hooks) {
  require_context(model.config(), options);
  // Each half has a run of each kind in front that is not counted, so that the second does not pay for the peer's
  // having used the caches.
  const size_t first_half = (options.repeat + 1) / 2, second_half = options.repeat - first_half;
  const size_t rate_steps = 2 * (options.repeat + (second_half > 0 ? 2 : 1));
  BenchSteps steps(hooks, rate_steps + first_token_steps(options) + (peer.empty() ? 0 : 1));
  BenchReport report;
  // What may turn out not to work with this model comes before what takes long.
  auto first_token = measure_first_token(model, options, scratch, steps);
  if (!first_token) return std::nullopt;
  report.first_token = std::move(*first_token);
  RateSamples own;
  if (!measure_rates(model, options, first_half, steps, own)) return std::nullopt;
  if (!peer.empty()) {
    report.peer = run_peer(peer_request(model, options, peer), peer_limits(options, own), hooks.stop);
    if (!report.peer) return std::nullopt;
    steps.done();
  }
  if (second_half > 0 && !measure_rates(model, options, second_half, steps, own)) return std::nullopt;
  report.prefill = spread_of(std::move(own.prefill));
  report.decode = spread_of(std::move(own.decode));
  if (report.peer) {
    report.prefill_ratio = report.prefill.median / report.peer->prefill.tokens_per_second.median;
    report.decode_ratio = report.decode.median / report.peer->decode.tokens_per_second.median;
  }
  report.peak_bytes = peak_memory_bytes();
  return report;
}

}  // namespace cento
