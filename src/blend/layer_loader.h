// Reads, checks, unpacks and places the stored segments of a plan, layer after layer, on a thread of its own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "blend/blend_pipeline.h"

namespace cento {

// What wait() throws for a segment that cannot be used.
struct LoadFailed {
  SegmentFailure failure;
};

// Live KV has room for every layer, so the loader need not wait for the layers to be used.
class LayerLoader {
 public:
  LayerLoader(PromptPlan& plan, LayerRunner& runner);  // starts
  ~LayerLoader();
  LayerLoader(const LayerLoader&) = delete;
  LayerLoader& operator=(const LayerLoader&) = delete;

  // Returns when the stored rows of `layer` are in the live KV. Throws LoadFailed, or what place threw.
  void wait(uint32_t layer);

  // What the computing thread has waited so far; for that thread.
  double wait_ms() const { return wait_ms_; }

  // After the last wait.
  void account(PipelineReport& report);

 private:
  struct Job {
    size_t segment;
    std::vector<int32_t> pos;
  };

  void run();
  bool load(uint32_t layer, const Job& job, const KvShape& shape, std::vector<std::byte>& k, std::vector<std::byte>& v);

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

}  // namespace cento
