#include "blend/blend_pipeline.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>

#include "base/check.h"
#include "base/clock.h"
#include "blend/select.h"

namespace cento {
namespace {

struct Stopped {};
struct LoadFailed {
  SegmentFailure failure;
};

std::vector<int32_t> positions(size_t from, size_t n) {
  std::vector<int32_t> pos(n);
  std::iota(pos.begin(), pos.end(), static_cast<int32_t>(from));
  return pos;
}

// Reads, checks, unpacks and places the stored segments, layer after layer, on a thread of its own. Live KV has room
// for every layer, so the loader need not wait for the layers to be used.
class Loader {
 public:
  Loader(PromptPlan& plan, LayerRunner& runner) : plan_(&plan), runner_(&runner) {
    size_t start = 0;
    for (size_t i = 0; i < plan.segments.size(); ++i) {
      const Segment& s = plan.segments[i];
      if (s.kv != nullptr && !s.ids.empty()) jobs_.push_back({i, positions(start, s.ids.size())});
      start += s.ids.size();
    }
    if (!jobs_.empty()) thread_ = std::thread([this] { run(); });
  }
  ~Loader() {
    {
      const std::lock_guard lock(mutex_);
      cancelled_ = true;
    }
    if (thread_.joinable()) thread_.join();
  }
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Returns when the stored rows of `layer` are in the live KV. Throws LoadFailed, or what place threw.
  void wait(uint32_t layer) {
    if (jobs_.empty()) return;
    std::unique_lock lock(mutex_);
    if (placed_ <= layer && !failure_ && !error_) {
      const Stopwatch watch;
      changed_.wait(lock, [&] { return placed_ > layer || failure_ || error_; });
      wait_ms_ += watch.ms();  // of the computing thread alone
    }
    if (error_) std::rethrow_exception(error_);
    if (failure_) throw LoadFailed{*failure_};
  }

  // What the computing thread has waited so far; for that thread.
  double wait_ms() const { return wait_ms_; }

  // After the last wait.
  void account(PipelineReport& report) {
    const std::lock_guard lock(mutex_);
    report.load_ms = load_ms_;
    report.load_wait_ms = wait_ms_;
    report.place_ms = place_ms_;
    for (const Job& job : jobs_) {
      const KvReader& kv = *plan_->segments[job.segment].kv;
      report.bytes_loaded += kv.bytes_read();
      report.read_ms += kv.cost().read_ms;
      report.unpack_ms += kv.cost().unpack_ms;
    }
  }

 private:
  struct Job {
    size_t segment;
    std::vector<int32_t> pos;
  };

  void run() {
    const Stopwatch watch;
    const KvShape shape = runner_->shape();
    std::vector<std::byte> k, v;
    for (uint32_t layer = 0; layer < shape.n_layers; ++layer) {
      for (const Job& job : jobs_) {
        {
          const std::lock_guard lock(mutex_);
          if (cancelled_) return;
        }
        if (!load(layer, job, shape, k, v)) return;
      }
      const std::lock_guard lock(mutex_);
      placed_ = layer + 1;
      load_ms_ = watch.ms();
      place_ms_ = place_cpu_ms_;
      changed_.notify_all();
    }
  }

  bool load(uint32_t layer, const Job& job, const KvShape& shape, std::vector<std::byte>& k,
            std::vector<std::byte>& v) {
    try {
      const size_t n_bytes = shape.side_bytes(job.pos.size());
      k.resize(n_bytes);
      v.resize(n_bytes);
      if (Status s = plan_->segments[job.segment].kv->read_layer(layer, k, v); !s) {
        const std::lock_guard lock(mutex_);
        failure_ = SegmentFailure{job.segment, s.error()};
        changed_.notify_all();
        return false;
      }
      const double from = thread_cpu_ms();
      runner_->place(layer, k, v, job.pos);
      place_cpu_ms_ += thread_cpu_ms() - from;
      return true;
    } catch (...) {  // handed over to the computing thread
      const std::lock_guard lock(mutex_);
      error_ = std::current_exception();
      changed_.notify_all();
      return false;
    }
  }

  PromptPlan* plan_;
  LayerRunner* runner_;
  std::vector<Job> jobs_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint32_t placed_ = 0;  // layers whose rows are all placed
  std::optional<SegmentFailure> failure_;
  std::exception_ptr error_;
  bool cancelled_ = false;
  double load_ms_ = 0, place_ms_ = 0, wait_ms_ = 0;
  double place_cpu_ms_ = 0;  // of the loader's thread alone; place_ms_ is its value after the last whole layer
  std::thread thread_;
};

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
          break;
      }
      start += s.ids.size();
    }
    report_.n_total = ids_.size();
    report_.n_fresh = fresh_.size();
    question_start_ = start - plan.segments.back().ids.size();
  }

  PipelineReport execute() {
    Loader loader(plan_, runner_);
    loader_ = &loader;
    const size_t budget = row_budget(options_.blend, chunk_rows_.size());
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
        pass_with(chosen = select_by_question(budget));
        break;
      case PolicyKind::kDevK:
      case PolicyKind::kDevV:
      case PolicyKind::kDevKv:
        chosen = pass_by_deviation(budget);
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
  // row misses anything that it may see.
  void pass(std::span<const int32_t> rows) {
    const Working working(*this, report_.compute_ms);
    for (size_t from = 0; from < rows.size(); from += options_.slice_rows) {
      const auto slice = rows.subspan(from, std::min(options_.slice_rows, rows.size() - from));
      runner_.begin(ids_at(slice), slice);
      for (uint32_t layer = 0; layer < n_layers_; ++layer) {
        poll();
        loader_->wait(layer);
        runner_.project(layer);
        capture(layer, slice);
        finish(layer, slice);
        charge(slice.size());
      }
      collect_logits(slice);
    }
  }

  // The fresh rows over the stored KV; what the question (the last segment) attends to, averaged over the layers, ranks
  // the chunks' rows.
  std::vector<int32_t> select_by_question(size_t budget) {
    const std::vector<std::vector<float>> mass = probe();
    const Stopwatch watch;
    const std::vector<float> scores = question_scores(mass);
    std::vector<int32_t> chosen = select_top(smooth_within(scores, chunk_lengths_, options_.blend.smooth), budget);
    report_.select_ms = watch.ms();
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
        charge(slice.size());
      }
    }
    return mass;
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

  // All chunk rows up to the check layer; there those whose fresh K, V are farthest from the stored ones go on. One
  // slice: the choice needs every row's deviation before any row may go on.
  std::vector<int32_t> pass_by_deviation(size_t budget) {
    const Working working(*this, report_.compute_ms);
    std::vector<int32_t> rows(chunk_rows_.size() + fresh_.size());
    std::merge(chunk_rows_.begin(), chunk_rows_.end(), fresh_.begin(), fresh_.end(), rows.begin());
    const uint32_t check = std::min(options_.blend.check_layer, n_layers_ - 1);
    std::vector<int32_t> chosen;
    runner_.begin(ids_at(rows), rows);
    for (uint32_t layer = 0; layer < n_layers_; ++layer) {
      poll();
      loader_->wait(layer);
      runner_.project(layer);
      charge(rows.size());
      if (layer == check) {
        chosen = select_by_deviation(layer, rows, budget);
        const std::vector<int32_t> kept = rows_with_fresh(chosen);
        std::vector<int32_t> indices;
        indices.reserve(kept.size());
        for (const int32_t p : kept) {
          indices.push_back(static_cast<int32_t>(std::lower_bound(rows.begin(), rows.end(), p) - rows.begin()));
        }
        runner_.keep(indices);
        rows = kept;
      }
      finish(layer, rows);
    }
    collect_logits(rows);
    return chosen;
  }

  std::vector<int32_t> select_by_deviation(uint32_t layer, std::span<const int32_t> rows, size_t budget) {
    const Stopwatch watch;
    std::vector<float> k_dev(rows.size()), v_dev(rows.size());
    runner_.deviation(layer, k_dev, v_dev);
    std::vector<float> k_chunk, v_chunk;
    for (size_t i = 0, c = 0; i < rows.size() && c < chunk_rows_.size(); ++i) {
      if (rows[i] != chunk_rows_[c]) continue;
      k_chunk.push_back(k_dev[i]);
      v_chunk.push_back(v_dev[i]);
      ++c;
    }
    const auto mean = [](const std::vector<float>& x) {
      return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
    };
    // K and V have scales of their own; each counts relative to its mean over the prompt.
    const double k_scale = options_.blend.policy == PolicyKind::kDevV ? 0 : 1 / std::max(mean(k_chunk), 1e-30);
    const double v_scale = options_.blend.policy == PolicyKind::kDevK ? 0 : 1 / std::max(mean(v_chunk), 1e-30);
    std::vector<float> scores(k_chunk.size());
    for (size_t i = 0; i < scores.size(); ++i) {
      scores[i] =
          static_cast<float>(k_scale * static_cast<double>(k_chunk[i]) + v_scale * static_cast<double>(v_chunk[i]));
    }
    std::vector<int32_t> chosen = select_top(scores, budget);
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

  void charge(size_t rows) { row_layers_ += rows; }

  void finish_report(std::span<const int32_t> chosen) {
    loader_->account(report_);
    // Layer 0's K and V depend on the token alone, so a pass over all rows up to check layer 1 replaces no row's KV.
    const bool by_deviation = options_.blend.policy == PolicyKind::kDevK ||
                              options_.blend.policy == PolicyKind::kDevV || options_.blend.policy == PolicyKind::kDevKv;
    if (by_deviation && options_.blend.check_layer > 1) {
      report_.recomputed = chunk_rows_;
    } else {
      for (const int32_t i : chosen) report_.recomputed.push_back(chunk_rows_[static_cast<size_t>(i)]);
    }
    report_.n_recomputed = report_.recomputed.size();
    report_.n_reused = chunk_rows_.size() - report_.n_recomputed;
    report_.charged =
        static_cast<double>(row_layers_) / (static_cast<double>(n_layers_) * static_cast<double>(ids_.size()));
  }

  PromptPlan& plan_;
  LayerRunner& runner_;
  const PipelineOptions& options_;
  const std::vector<int32_t> ids_;
  const uint32_t n_layers_;
  std::vector<int32_t> fresh_, chunk_rows_;  // positions, ascending
  std::vector<size_t> chunk_lengths_;
  size_t question_start_ = 0;
  uint64_t row_layers_ = 0;
  Loader* loader_ = nullptr;
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
