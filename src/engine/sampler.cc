#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_set>
#include <utility>

#include "base/error.h"

namespace cento {
namespace {

constexpr size_t kPenaltyWindow = 256;

struct Candidate {
  int32_t id;
  double logit;  // after penalty and temperature
};

void penalise(std::span<float> logits, std::span<const int32_t> recent, double penalty) {
  if (penalty == 1) return;
  if (recent.size() > kPenaltyWindow) recent = recent.last(kPenaltyWindow);
  const std::unordered_set<int32_t> seen(recent.begin(), recent.end());
  for (const int32_t id : seen) {
    if (id < 0 || static_cast<size_t>(id) >= logits.size()) continue;
    float& l = logits[static_cast<size_t>(id)];
    l = static_cast<float>(l > 0 ? static_cast<double>(l) / penalty : static_cast<double>(l) * penalty);
  }
}

int32_t highest(std::span<const float> logits) {
  int32_t best = -1;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!std::isfinite(logits[i])) continue;
    if (best < 0 || logits[i] > logits[static_cast<size_t>(best)]) best = static_cast<int32_t>(i);
  }
  if (best < 0) throw Error{Code::kInternal, "the model gave no finite logit"};
  return best;
}

}  // namespace

void validate(const SamplerOptions& o) {
  const auto wrong = [](const std::string& what) { throw Error{Code::kUsage, what}; };
  if (!(o.temperature >= 0 && o.temperature <= 100)) wrong("temperature must be between 0 and 100");
  if (!(o.top_p > 0 && o.top_p <= 1)) wrong("top-p must be above 0 and at most 1");
  if (!(o.min_p >= 0 && o.min_p < 1)) wrong("min-p must be at least 0 and below 1");
  if (!(o.repetition_penalty > 0 && o.repetition_penalty <= 100))
    wrong("repetition penalty must be above 0 and at most 100");
}

Sampler::Sampler(const SamplerOptions& options) : options_(options), rng_(options.seed) { validate(options); }

int32_t Sampler::next(std::span<const float> logits, std::span<const int32_t> recent) {
  std::vector<float> adjusted(logits.begin(), logits.end());
  penalise(adjusted, recent, options_.repetition_penalty);
  const int32_t best = highest(adjusted);
  if (options_.temperature == 0) return best;
  std::vector<Candidate> candidates;
  const double top = static_cast<double>(adjusted[static_cast<size_t>(best)]);
  for (size_t i = 0; i < adjusted.size(); ++i) {
    // The difference first: a quotient by a temperature close to 0 may be infinite, and this is 0 for the best whatever
    // it is.
    const double l = (static_cast<double>(adjusted[i]) - top) / options_.temperature;
    // Below e^-40 of the best a token has no chance worth a place in the sort.
    if (std::isfinite(adjusted[i]) && l > -40) candidates.push_back({static_cast<int32_t>(i), l});
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  });
  if (options_.top_k > 0 && candidates.size() > options_.top_k) candidates.resize(options_.top_k);
  std::vector<double> weights;
  for (const Candidate& c : candidates) weights.push_back(std::exp(c.logit));
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  size_t n = 0;
  double kept = 0;
  while (n <
         weights.size()) {  // at least the best; up to the top-p mass; not below min-p of the best's weight, which is 1
    if (n > 0 && (kept >= options_.top_p * total || weights[n] < options_.min_p)) break;
    kept += weights[n++];
  }
  double draw = rng_.uniform() * kept;
  for (size_t i = 0; i < n; ++i) {
    draw -= weights[i];
    if (draw < 0) return candidates[i].id;
  }
  return candidates[n - 1].id;
}

std::string StopFilter::push(std::string_view text) {
  if (stopped_) return {};
  held_ += text;
  // The stop text that is complete first ends the stream, and of two that are complete at once the longer one: what
  // comes out does not depend on how the text was cut into pieces.
  size_t cut = std::string::npos, cut_end = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t at = stop.empty() ? std::string::npos : held_.find(stop);
    if (at == std::string::npos) continue;
    const size_t end = at + stop.size();
    if (end < cut_end || (end == cut_end && at < cut)) {
      cut = at;
      cut_end = end;
    }
  }
  if (cut != std::string::npos) {
    stopped_ = true;
    std::string out = held_.substr(0, cut);
    held_.clear();
    return out;
  }
  // Hold back the longest end that could be the beginning of a stop text.
  size_t hold = 0;
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(stop.size() - (stop.empty() ? 0 : 1), held_.size()); n > hold; --n) {
      if (std::string_view(held_).substr(held_.size() - n) == std::string_view(stop).substr(0, n)) {
        hold = n;
        break;
      }
    }
  }
  std::string out = held_.substr(0, held_.size() - hold);
  held_.erase(0, out.size());
  return out;
}

std::string StopFilter::finish() {
  if (stopped_) return {};
  return std::exchange(held_, {});
}

}  // namespace cento
