#include "engine/engine.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/clock.h"

namespace cento {
namespace {

constexpr size_t kExtendRows =
    256;  // rows of one pass of a long extension: their activations stay in L2 (512: 3 % slower)

}  // namespace

size_t Engine::resident_prefix(std::span<const int32_t> ids) const {
  const size_t n = std::min(n_exact_, ids.size());
  return static_cast<size_t>(std::mismatch(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(n), ids_.begin()).first -
                             ids.begin());
}

std::variant<PipelineReport, SegmentFailure> Engine::prefill(PromptPlan& plan, const PipelineOptions& options,
                                                             size_t reserve) {
  const size_t n = plan.n_tokens(), limit = model_.config().context_max;
  if (n + reserve > limit) {
    throw Error{Code::kUsage,
                "the prompt needs " + std::to_string(n) + " tokens and " + std::to_string(reserve) +
                    " more for the answer, the model's context holds " + std::to_string(limit),
                "", "ask for fewer sources (--top-k) or a shorter answer (--max-tokens)"};
  }
  const int32_t vocab = static_cast<int32_t>(model_.config().vocab);
  size_t resident = 0;
  for (const Segment& s : plan.segments) {
    for (const int32_t id : s.ids) {
      if (id < 0 || id >= vocab)
        throw Error{Code::kInternal, "token id " + std::to_string(id) + " is outside the vocabulary"};
    }
    if (s.from == SegmentFrom::kResident) resident += s.ids.size();
  }
  const std::vector<int32_t> ids = plan.ids();
  CHECK(resident_prefix(ids) >= resident);
  truncate(resident);
  const Stopwatch watch;
  forward_.reserve(n + reserve, resident);
  const double reserve_ms = watch.ms();
  auto outcome = run_plan(plan, forward_, options);
  auto* report = std::get_if<PipelineReport>(&outcome);
  if (report == nullptr || report->stopped) return outcome;
  report->reserve_ms = reserve_ms;
  ids_ = ids;
  n_exact_ = 0;
  for (const Segment& s : plan.segments) {
    if (s.from == SegmentFrom::kChunk && !s.ids.empty()) break;
    n_exact_ += s.ids.size();
  }
  return outcome;
}

std::vector<float> Engine::extend(std::span<const int32_t> ids, bool all_logits) {
  CHECK(!ids.empty());
  const size_t start = ids_.size();
  if (start + ids.size() > model_.config().context_max) {
    throw Error{Code::kUsage, "the context of " + std::to_string(model_.config().context_max) + " tokens is full"};
  }
  forward_.reserve(start + ids.size(), start);
  std::vector<float> logits;
  for (size_t from = 0; from < ids.size(); from += kExtendRows) {
    const auto slice = ids.subspan(from, std::min(kExtendRows, ids.size() - from));
    std::vector<int32_t> pos(slice.size());
    std::iota(pos.begin(), pos.end(), static_cast<int32_t>(start + from));
    truncate(start + from);
    const bool last = from + slice.size() == ids.size();
    const size_t n_logits = all_logits ? slice.size() : last ? 1 : 0;
    const uint32_t n_layers = forward_.shape().n_layers;
    forward_.begin(slice, pos);
    for (uint32_t layer = 0; layer < n_layers; ++layer) {
      forward_.project(layer);
      if (layer + 1 < n_layers) {
        forward_.finish(layer, {}, 0);
      } else {
        forward_.finish_last(layer, slice.size() - n_logits);
      }
    }
    if (n_logits > 0) {
      const std::vector<float> part = forward_.logits(0, n_logits);
      logits.insert(logits.end(), part.begin(), part.end());
    }
    const bool exact = n_exact_ == ids_.size();
    ids_.insert(ids_.end(), slice.begin(), slice.end());
    if (exact) n_exact_ = ids_.size();
  }
  return logits;
}

double Engine::placing_error(std::span<const int32_t> ids, const KvBlock& block, size_t at) {
  CHECK(block.n_tokens() == ids.size() && block.shape() == shape());
  truncate(0);
  forward_.reserve(at + ids.size(), 0);
  std::vector<int32_t> pos(ids.size());
  std::iota(pos.begin(), pos.end(), static_cast<int32_t>(at));
  forward_.place(0, block.k(0), block.v(0), pos);
  forward_.begin(ids, pos);
  forward_.project(0);
  std::vector<float> k_dev(ids.size()), v_dev(ids.size());
  forward_.deviation(0, k_dev, v_dev);
  const size_t width = shape().row_values();
  double worst = 0;
  for (size_t row = 0; row < ids.size(); ++row) {
    double k_size = 0, v_size = 0;
    for (size_t i = row * width; i < (row + 1) * width; ++i) {
      const auto k = static_cast<double>(kv_value(shape().type, block.k(0), i)),
                 v = static_cast<double>(kv_value(shape().type, block.v(0), i));
      k_size += k * k;
      v_size += v * v;
    }
    const double error = static_cast<double>(k_dev[row]) / std::max(k_size, 1e-30) +
                         static_cast<double>(v_dev[row]) / std::max(v_size, 1e-30);
    if (!(error <= worst)) worst = error;  // NaN stays
  }
  return worst;
}

void Engine::truncate(size_t n_rows) {
  if (n_rows < ids_.size()) ids_.resize(n_rows);
  n_exact_ = std::min(n_exact_, ids_.size());
}

}  // namespace cento
