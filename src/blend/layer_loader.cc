#include "blend/layer_loader.h"

#include <numeric>

#include "base/clock.h"

namespace cento {

LayerLoader::LayerLoader(PromptPlan& plan, LayerRunner& runner) : plan_(&plan), runner_(&runner) {
  size_t start = 0;
  for (size_t i = 0; i < plan.segments.size(); ++i) {
    const Segment& s = plan.segments[i];
    if (s.kv != nullptr && !s.ids.empty()) {
      Job job{i, std::vector<int32_t>(s.ids.size())};
      std::iota(job.pos.begin(), job.pos.end(), static_cast<int32_t>(start));
      jobs_.push_back(std::move(job));
    }
    start += s.ids.size();
  }
  if (!jobs_.empty()) thread_ = std::thread([this] { run(); });
}

LayerLoader::~LayerLoader() {
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void LayerLoader::wait(uint32_t layer) {
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

void LayerLoader::account(PipelineReport& report) {
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

void LayerLoader::run() {
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

bool LayerLoader::load(uint32_t layer, const Job& job, const KvShape& shape, std::vector<std::byte>& k,
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

}  // namespace cento
