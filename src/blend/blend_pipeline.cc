#include "blend/blend_pipeline.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "blend/layer_loader.h"
#include "blend/move_meter.h"
#include "blend/select.h"

namespace cento {
namespace {

struct Stopped {};

void set_value(KvType type, std::span<std::byte> side, size_t i, float x) {
  if (type == KvType::kF32) {
    std::memcpy(side.data() + i * sizeof x, &x, sizeof x);
    return;
  }
  const fp16 half = to_fp16(std::clamp(x, -65504.0f, 65504.0f));
  std::memcpy(side.data() + i * sizeof half, &half, sizeof half);
}

// Adds n / (n + 4) times the mean of what the n rows `moved` of `old` became in `fresh` [n] to all rows of `old`
// (BLENDING.md, finding 4: a mean of few rows is trusted less).
void shift_rows(const KvShape& shape, std::span<const int32_t> moved, std::span<const std::byte> fresh,
                std::span<std::byte> old) {
  const size_t width = shape.row_values(), n_rows = old.size() / shape.side_bytes(1), n = moved.size();
  std::vector<double> shift(width, 0.0);
  for (size_t i = 0; i < n; ++i) {
    const size_t row = static_cast<size_t>(moved[i]);
    for (size_t c = 0; c < width; ++c) {
      shift[c] += static_cast<double>(kv_value(shape.type, fresh, i * width + c)) -
                  static_cast<double>(kv_value(shape.type, old, row * width + c));
    }
  }
  for (double& x : shift) x /= static_cast<double>(n + 4);
  for (size_t i = 0; i < n_rows * width; ++i)
    set_value(shape.type, old, i, kv_value(shape.type, old, i) + static_cast<float>(shift[i % width]));
}

// The rows at these positions of a chunk that begins at position `first`.
std::vector<std::byte> rows_of(const KvShape& shape, std::span<const std::byte> chunk, std::span<const int32_t> pos,
                               int32_t first) {
  const size_t row_bytes = shape.side_bytes(1);
  std::vector<std::byte> out(pos.size() * row_bytes);
  for (size_t i = 0; i < pos.size(); ++i)
    std::memcpy(out.data() + i * row_bytes, chunk.data() + static_cast<size_t>(pos[i] - first) * row_bytes, row_bytes);
  return out;
}

std::vector<int32_t> positions(size_t from, size_t n) {
  std::vector<int32_t> pos(n);
  std::iota(pos.begin(), pos.end(), static_cast<int32_t>(from));
  return pos;
}

class Run {
 public:
  Run(PromptPlan& plan, LayerRunner& runner, const PipelineOptions& options)
      : plan_(plan), runner_(runner), options_(options), ids_(plan.ids()), n_layers_(runner.shape().n_layers) {
    if (ids_.size() > runner.capacity()) throw Error{Code::kInternal, "prompt plan is longer than the live KV"};
    size_t start = 0;
    for (const Segment& s : plan.segments) {
      const std::vector<int32_t> pos = positions(start, s.ids.size());
      switch (s.from) {
        case SegmentFrom::kResident:
        case SegmentFrom::kExact:
          report_.n_exact += pos.size();
          break;
        case SegmentFrom::kFresh:
          fresh_.insert(fresh_.end(), pos.begin(), pos.end());
          break;
        case SegmentFrom::kChunk:
          if (pos.empty()) break;
          chunk_rows_.insert(chunk_rows_.end(), pos.begin(), pos.end());
          chunk_lengths_.push_back(pos.size());
          chunk_segments_.push_back(static_cast<size_t>(&s - plan.segments.data()));
          break;
      }
      start += s.ids.size();
    }
    report_.n_total = ids_.size();
    report_.n_fresh = fresh_.size();
    question_start_ = start - plan.segments.back().ids.size();
    CHECK(options.row_weights.empty() || options.row_weights.size() == chunk_rows_.size());
    budgets_ = layer_budgets(options.blend, chunk_rows_.size(), n_layers_);
    rank_.assign(ids_.size(), 0);
  }

  PipelineReport execute() {
    LayerLoader loader(plan_, runner_);
    loader_ = &loader;
    const size_t budget = budgets_.front();
    std::vector<int32_t> chosen;  // indices into chunk_rows_
    switch (chunk_rows_.empty() ? PolicyKind::kNone : options_.blend.policy) {
      case PolicyKind::kNone:
        pass(fresh_);
        break;
      case PolicyKind::kAll:
      case PolicyKind::kRandom:
        pass_with(chosen = select_random(chunk_rows_.size(), budget, options_.blend.seed));
        break;
      case PolicyKind::kHeadK:
        pass_with(chosen = select_heads(chunk_lengths_, budget));
        break;
      case PolicyKind::kQuery:
        probe_scores();
        pass_with(chosen = select_by_score());
        break;
      case PolicyKind::kOracle:
        CHECK(!options_.row_weights.empty());
        report_.scores.assign(chunk_rows_.size(), 1.0f);
        pass_with(chosen = select_by_score());
        break;
      case PolicyKind::kHybrid:
        probe_scores();
        chosen = pass_by_deviation();
        break;
      case PolicyKind::kDevK:
      case PolicyKind::kDevV:
      case PolicyKind::kDevKv:
        chosen = pass_by_deviation();
        break;
    }
    finish_report(chosen);
    return std::move(report_);
  }

 private:
  // Adds its lifetime to a stage of the report, less what is waiting for the loader or other stages within it.
  class Working {
   public:
    Working(Run& run, double& stage) : run_(run), stage_(stage), others_ms_(run.others_ms()) {}
    ~Working() { stage_ += watch_.ms() - (run_.others_ms() - others_ms_); }
    Working(const Working&) = delete;
    Working& operator=(const Working&) = delete;

   private:
    Run& run_;
    double& stage_;
    const double others_ms_;
    const Stopwatch watch_;
  };
  double others_ms() const { return loader_->wait_ms() + report_.select_ms + report_.logits_ms; }

  void poll() const {
    if (options_.stop && options_.stop()) throw Stopped{};
  }

  std::vector<int32_t> ids_at(std::span<const int32_t> pos) const {
    std::vector<int32_t> ids;
    ids.reserve(pos.size());
    for (const int32_t p : pos) ids.push_back(ids_[static_cast<size_t>(p)]);
    return ids;
  }

  std::vector<int32_t> rows_with_fresh(std::span<const int32_t> chosen) const {
    std::vector<int32_t> picked, rows;
    for (const int32_t i : chosen) picked.push_back(chunk_rows_[static_cast<size_t>(i)]);
    std::merge(picked.begin(), picked.end(), fresh_.begin(), fresh_.end(), std::back_inserter(rows));
    return rows;
  }

  void pass_with(std::span<const int32_t> chosen) { pass(rows_with_fresh(chosen)); }

  // The rows through all layers, a slice at a time: rows of a later slice stand behind those of an earlier one, so no
  // row misses anything that it may see. A repair needs all recomputed rows of a layer at once.
  void pass(std::span<const int32_t> rows) {
    const Working working(*this, report_.compute_ms);
    const size_t slice_rows = options_.blend.repair == Repair::kNone ? options_.slice_rows : rows.size();
    for (size_t from = 0; from < rows.size(); from += slice_rows) {
      const auto whole = rows.subspan(from, std::min(slice_rows, rows.size() - from));
      std::vector<int32_t> slice(whole.begin(), whole.end());
      runner_.begin(ids_at(slice), slice);
      for (uint32_t layer = 0; layer < n_layers_; ++layer) {
        poll();
        loader_->wait(layer);
        runner_.project(layer);
        capture(layer, slice);
        charge(slice);
        narrow(layer, slice);
        if (want_residual()) meter_.measure(runner_, layer, slice, chunk_rows_);
        repair(layer, slice);
        finish(layer, slice);
      }
      collect_logits(slice);
    }
  }

  // Goes on with the rows whose rank is within the layer's budget.
  void narrow(uint32_t layer, std::vector<int32_t>& rows) {
    if (layer == 0 || budgets_[layer] == budgets_[layer - 1]) return;
    std::vector<int32_t> indices, kept;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rank_[static_cast<size_t>(rows[i])] > budgets_[layer]) continue;
      indices.push_back(static_cast<int32_t>(i));
      kept.push_back(rows[i]);
    }
    go_on_with(indices, kept, rows);
  }

  void go_on_with(std::span<const int32_t> indices, std::vector<int32_t>& kept, std::vector<int32_t>& rows) {
    if (kept.size() == rows.size()) return;
    runner_.keep(indices);
    rows = std::move(kept);
  }

  // Moves the stored rows of each chunk as its recomputed rows moved. K and V of `rows` have been projected.
  void repair(uint32_t layer, std::span<const int32_t> rows) {
    if (options_.blend.repair == Repair::kNone || layer == 0 || chunk_rows_.empty()) return;
    loader_->wait(n_layers_ - 1);  // its readers and its place() are free then
    size_t first = 0;              // of the chunk, in chunk_rows_
    for (size_t c = 0; c < chunk_lengths_.size(); ++c) {
      const std::span<const int32_t> chunk = std::span(chunk_rows_).subspan(first, chunk_lengths_[c]);
      first += chunk_lengths_[c];
      const auto begin = std::lower_bound(rows.begin(), rows.end(), chunk.front());
      const auto end = std::upper_bound(begin, rows.end(), chunk.back());
      const auto n = static_cast<size_t>(end - begin);
      if (n < 2 || n == chunk.size()) continue;
      const KvShape shape = runner_.shape();
      const size_t n_bytes = shape.side_bytes(n), all_bytes = shape.side_bytes(chunk.size());
      std::vector<std::byte> k_new(n_bytes), v_new(n_bytes), k(all_bytes), v(all_bytes);
      runner_.fetch(layer, static_cast<size_t>(begin - rows.begin()), n, k_new, v_new);
      KvReader& stored = *plan_.segments[chunk_segments_[c]].kv;
      if (Status s = stored.read_layer(layer, k, v); !s) throw LoadFailed{{chunk_segments_[c], s.error()}};
      std::vector<int32_t> moved(begin, end), still;
      std::set_difference(chunk.begin(), chunk.end(), moved.begin(), moved.end(), std::back_inserter(still));
      for (int32_t& p : moved) p -= chunk.front();
      const auto place_from = [&](std::vector<std::byte>& old, const std::vector<std::byte>& fresh) {
        shift_rows(shape, moved, fresh, old);
        return rows_of(shape, old, still, chunk.front());
      };
      runner_.place(layer, place_from(k, k_new), place_from(v, v_new), still);
    }
  }

  // Scores of the chunk rows: how much the question (the last segment) attends to them over the stored KV, averaged
  // over the layers.
  void probe_scores() {
    const std::vector<std::vector<float>> mass = probe();
    const Stopwatch watch;
    report_.scores = smooth_within(question_scores(mass), chunk_lengths_, options_.blend.smooth);
    report_.select_ms += watch.ms();
  }

  // What is given from outside, and the heads in front.
  void weigh(std::vector<float>& scores) const {
    for (size_t i = 0; i < options_.row_weights.size(); ++i) scores[i] *= options_.row_weights[i];
    if (options_.blend.head_rows == 0) return;
    const float above = 2 * *std::max_element(scores.begin(), scores.end()) + 1;
    size_t first = 0;
    for (const size_t length : chunk_lengths_) {
      for (size_t i = 0; i < std::min<size_t>(options_.blend.head_rows, length); ++i) scores[first + i] += above;
      first += length;
    }
  }

  // The highest of report_.scores; ranks for narrow().
  std::vector<int32_t> select_by_score() {
    const Stopwatch watch;
    weigh(report_.scores);
    std::vector<int32_t> chosen = select_top(report_.scores, budgets_.front());
    if (budgets_.back() != budgets_.front()) {
      std::vector<int32_t> best = chosen;
      std::stable_sort(best.begin(), best.end(), [&](int32_t a, int32_t b) {
        return report_.scores[static_cast<size_t>(a)] > report_.scores[static_cast<size_t>(b)];
      });
      for (size_t i = 0; i < best.size(); ++i)
        rank_[static_cast<size_t>(chunk_rows_[static_cast<size_t>(best[i])])] = i + 1;
    }
    report_.select_ms += watch.ms();
    return chosen;
  }

  // [layers probed][slots before the question]: the most that any row of the question, in any head, gives a slot.
  std::vector<std::vector<float>> probe() {
    const Working working(*this, report_.probe_ms);
    const auto depth = static_cast<uint32_t>(
        std::clamp(std::ceil(options_.blend.probe_depth * n_layers_), 1.0, static_cast<double>(n_layers_)));
    std::vector<std::vector<float>> mass(depth, std::vector<float>(question_start_, 0.0f));
    std::vector<float> of_slice(question_start_);
    for (size_t from = 0; from < fresh_.size(); from += options_.slice_rows) {
      const auto slice = std::span(fresh_).subspan(from, std::min(options_.slice_rows, fresh_.size() - from));
      const auto question = std::lower_bound(slice.begin(), slice.end(), static_cast<int32_t>(question_start_));
      const auto mass_from = static_cast<size_t>(question - slice.begin());
      runner_.begin(ids_at(slice), slice);
      for (uint32_t layer = 0; layer < depth; ++layer) {
        poll();
        loader_->wait(layer);
        runner_.project(layer);
        if (mass_from < slice.size()) {
          runner_.finish(layer, of_slice, mass_from);
          for (size_t j = 0; j < question_start_; ++j) mass[layer][j] = std::max(mass[layer][j], of_slice[j]);
        } else {
          runner_.finish(layer, {}, 0);
        }
        charge(slice);
      }
      if (want_residual() && depth == n_layers_ && from + slice.size() == fresh_.size())
        report_.probe_logits = runner_.logits(slice.size() - 1, 1);
    }
    return mass;
  }

  bool want_residual() const {
    return options_.want_residual && !chunk_rows_.empty() && options_.blend.policy == PolicyKind::kQuery;
  }

  // [chunk rows]: mean over the layers of a row's share of the question's attention on what is not fresh.
  std::vector<float> question_scores(const std::vector<std::vector<float>>& mass) const {
    std::vector<char> is_fresh(ids_.size(), 0);
    for (const int32_t p : fresh_) is_fresh[static_cast<size_t>(p)] = 1;
    std::vector<double> sums(chunk_rows_.size(), 0.0);
    for (const std::vector<float>& m : mass) {
      double total = 0;
      for (size_t j = 0; j < m.size(); ++j) {
        if (!is_fresh[j]) total += static_cast<double>(m[j]);
      }
      if (!(total > 0)) continue;
      for (size_t i = 0; i < chunk_rows_.size(); ++i) {
        sums[i] += static_cast<double>(m[static_cast<size_t>(chunk_rows_[i])]) / total;
      }
    }
    std::vector<float> scores(sums.size());
    for (size_t i = 0; i < sums.size(); ++i) scores[i] = static_cast<float>(sums[i] / static_cast<double>(mass.size()));
    return scores;
  }

  // All chunk rows up to the check layer; there those whose fresh K, V are farthest from the stored ones go on, and
  // wherever the budget falls behind it. One slice: the choice needs every row's deviation before any row may go on.
  std::vector<int32_t> pass_by_deviation() {
    const Working working(*this, report_.compute_ms);
    const std::vector<float> factors = std::exchange(report_.scores, {});  // of the hybrid policy; else none
    std::vector<int32_t> rows(chunk_rows_.size() + fresh_.size());
    std::merge(chunk_rows_.begin(), chunk_rows_.end(), fresh_.begin(), fresh_.end(), rows.begin());
    const uint32_t check = std::min(options_.blend.check_layer, n_layers_ - 1);
    std::vector<int32_t> chosen(chunk_rows_.size());
    std::iota(chosen.begin(), chosen.end(), 0);
    runner_.begin(ids_at(rows), rows);
    for (uint32_t layer = 0; layer < n_layers_; ++layer) {
      poll();
      loader_->wait(layer);
      runner_.project(layer);
      capture(layer, rows);
      charge(rows);
      if (layer == check || (layer > check && budgets_[layer] < chosen.size())) {
        chosen = select_by_deviation(layer, rows, chosen, factors);
        std::vector<int32_t> kept = rows_with_fresh(chosen), indices;
        indices.reserve(kept.size());
        for (const int32_t p : kept)
          indices.push_back(static_cast<int32_t>(std::lower_bound(rows.begin(), rows.end(), p) - rows.begin()));
        go_on_with(indices, kept, rows);
        if (layer == check) first_chosen_ = chosen;
      }
      if (layer >= check) repair(layer, rows);
      finish(layer, rows);
    }
    collect_logits(rows);
    return first_chosen_;
  }

  // Of `candidates` (indices into chunk_rows_, all among `rows`), as many as the layer's budget allows.
  std::vector<int32_t> select_by_deviation(uint32_t layer, std::span<const int32_t> rows,
                                           const std::vector<int32_t>& candidates, std::span<const float> factors) {
    const Stopwatch watch;
    std::vector<float> k_dev(rows.size()), v_dev(rows.size());
    runner_.deviation(layer, k_dev, v_dev);
    std::vector<float> k_chunk, v_chunk;
    for (size_t i = 0, c = 0; i < rows.size() && c < candidates.size(); ++i) {
      if (rows[i] != chunk_rows_[static_cast<size_t>(candidates[c])]) continue;
      k_chunk.push_back(k_dev[i]);
      v_chunk.push_back(v_dev[i]);
      ++c;
    }
    CHECK(k_chunk.size() == candidates.size());
    const auto mean = [](const std::vector<float>& x) {
      return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(std::max<size_t>(x.size(), 1));
    };
    // K and V have scales of their own; each counts relative to its mean over the prompt.
    const double k_scale = options_.blend.policy == PolicyKind::kDevV ? 0 : 1 / std::max(mean(k_chunk), 1e-30);
    const double v_scale = options_.blend.policy == PolicyKind::kDevK ? 0 : 1 / std::max(mean(v_chunk), 1e-30);
    std::vector<float> scores(chunk_rows_.size(), 0.0f);
    for (size_t i = 0; i < candidates.size(); ++i) {
      const auto row = static_cast<size_t>(candidates[i]);
      scores[row] =
          static_cast<float>(k_scale * static_cast<double>(k_chunk[i]) + v_scale * static_cast<double>(v_chunk[i]));
      if (!factors.empty()) scores[row] *= factors[row];
    }
    weigh(scores);
    std::vector<float> of_candidates;
    for (const int32_t c : candidates) of_candidates.push_back(scores[static_cast<size_t>(c)]);
    std::vector<int32_t> chosen;
    for (const int32_t i : select_top(of_candidates, budgets_[layer]))
      chosen.push_back(candidates[static_cast<size_t>(i)]);
    if (report_.scores.empty()) report_.scores = std::move(scores);
    report_.select_ms += watch.ms();
    return chosen;
  }

  void capture(uint32_t layer, std::span<const int32_t> slice) {
    if (options_.capture == nullptr) return;
    const auto from = static_cast<int32_t>(options_.capture_from);
    const auto to = from + static_cast<int32_t>(options_.capture->n_tokens());
    const auto begin = static_cast<size_t>(std::lower_bound(slice.begin(), slice.end(), from) - slice.begin());
    const auto end = static_cast<size_t>(std::lower_bound(slice.begin(), slice.end(), to) - slice.begin());
    if (begin == end) return;
    const KvShape& shape = options_.capture->shape();
    const uint64_t offset = shape.side_bytes(static_cast<uint64_t>(slice[begin] - from)),
                   n_bytes = shape.side_bytes(end - begin);
    runner_.fetch(layer, begin, end - begin, options_.capture->k(layer).subspan(offset, n_bytes),
                  options_.capture->v(layer).subspan(offset, n_bytes));
    captured_ += end - begin;
  }

  // Index of the first of these rows whose logits are wanted; their number if none are.
  size_t first_wanted(std::span<const int32_t> rows) const {
    const auto position = static_cast<int32_t>(ids_.size() - std::min(options_.logits_rows, ids_.size()));
    return static_cast<size_t>(std::lower_bound(rows.begin(), rows.end(), position) - rows.begin());
  }

  // In the last layer the other rows are there for their K and V only.
  void finish(uint32_t layer, std::span<const int32_t> rows) {
    if (layer + 1 == n_layers_) {
      runner_.finish_last(layer, first_wanted(rows));
    } else {
      runner_.finish(layer, {}, 0);
    }
  }

  // After the last layer, which has left only these rows in the pass.
  void collect_logits(std::span<const int32_t> rows) {
    const size_t n = rows.size() - first_wanted(rows);
    if (n == 0) return;
    const Stopwatch watch;
    const std::vector<float> part = runner_.logits(0, n);
    report_.logits.insert(report_.logits.end(), part.begin(), part.end());
    report_.logits_ms += watch.ms();
  }

  void charge(std::span<const int32_t> rows) {
    row_layers_ += rows.size();
    for (const int32_t p : rows) key_layers_ += static_cast<uint64_t>(p) + 1;
  }

  void finish_report(std::span<const int32_t> chosen) {
    loader_->account(report_);
    report_.moved = meter_.mean();
    // A block with holes would be stored as if it were KV.
    CHECK(options_.capture == nullptr || captured_ == options_.capture->n_tokens() * n_layers_);
    // Layer 0's K and V depend on the token alone, so a pass over all rows up to check layer 1 replaces no row's KV.
    if (has_check_layer(options_.blend.policy) && options_.blend.check_layer > 1) {
      report_.recomputed = chunk_rows_;
    } else {
      for (const int32_t i : chosen) report_.recomputed.push_back(chunk_rows_[static_cast<size_t>(i)]);
    }
    report_.n_recomputed = report_.recomputed.size();
    report_.n_reused = chunk_rows_.size() - report_.n_recomputed;
    report_.rows_computed = static_cast<double>(row_layers_) / n_layers_;
    report_.row_keys = static_cast<double>(key_layers_) / n_layers_;
    report_.charged =
        static_cast<double>(row_layers_) / (static_cast<double>(n_layers_) * static_cast<double>(ids_.size()));
  }

  PromptPlan& plan_;
  LayerRunner& runner_;
  const PipelineOptions& options_;
  const std::vector<int32_t> ids_;
  const uint32_t n_layers_;
  std::vector<int32_t> fresh_, chunk_rows_;  // positions, ascending
  std::vector<size_t> chunk_lengths_;        // of the chunks that are not empty
  std::vector<size_t> chunk_segments_;       // their places in the plan
  std::vector<size_t> budgets_;              // [layers] chunk rows that go through the layer
  std::vector<size_t> rank_;                 // [positions] of a chosen chunk row, from 1 on, where budgets fall; else 0
  std::vector<int32_t> first_chosen_;        // at the check layer
  size_t question_start_ = 0;
  uint64_t row_layers_ = 0, key_layers_ = 0;
  uint64_t captured_ = 0;  // rows x layers
  MoveMeter meter_;
  LayerLoader* loader_ = nullptr;
  PipelineReport report_;
};

}  // namespace

std::variant<PipelineReport, SegmentFailure> run_plan(PromptPlan& plan, LayerRunner& runner,
                                                      const PipelineOptions& options) {
  plan.validate();
  CHECK(options.slice_rows > 0);
  try {
    return Run(plan, runner, options).execute();
  } catch (const Stopped&) {
    PipelineReport report;
    report.stopped = true;
    return report;
  } catch (const LoadFailed& failed) {
    return failed.failure;
  }
}

}  // namespace cento
