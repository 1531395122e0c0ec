// Fixed workers for data-parallel loops.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace cento {

// parallel_for hands out indices one by one to `size()` threads, the caller among them, and returns when all are done.
// Calls come from one thread at a time and never from inside a task. An exception of a task is rethrown to the caller
// after the loop; the remaining indices are skipped. Workers spin a bounded while after a loop (a forward pass is
// thousands of short loops), then sleep: an idle program uses no processor. A worker that comes late, because it slept
// or another program had its processor, is not waited for: the caller does the work alone.
class ThreadPool {
 public:
  explicit ThreadPool(size_t n_threads);  // 0 counts as 1
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  size_t size() const { return workers_.size() + 1; }

  // task(index, thread): thread in [0, size()) names the caller's scratch space; 0 is the calling thread.
  using Task = std::function<void(size_t index, size_t thread)>;
  void parallel_for(size_t n, const Task& task);

  // Processors this process may run on (affinity and cgroup quota respected), at least 1.
  static size_t usable_processors();

 private:
  void work(size_t thread);
  void run_share(size_t thread);
  bool join(uint64_t& seen);
  void sleep(uint64_t seen);

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_;
  // The loop's number << 32 | kClosed when no one may join it any more | workers that are in it.
  std::atomic<uint64_t> loop_{0};
  std::atomic<size_t> asleep_{0};
  std::atomic<size_t> next_{0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> failed_{false};
  size_t n_ = 0;
  const Task* task_ = nullptr;
  std::exception_ptr error_;  // guarded by mutex_
};

}  // namespace cento
