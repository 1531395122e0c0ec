#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <string>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/check.h"

namespace cento {
namespace {

// About 20 to 50 us on the processors seen: longer than the gap between two loops of one layer, short enough that an
// idle process shows no load.
constexpr int kSpins = 4000;

constexpr uint64_t kLoop = uint64_t{1} << 32, kClosed = uint64_t{1} << 31, kInside = kClosed - 1;  // ThreadPool::loop_

void pause_once() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

// Quota of the cgroup (v2) in whole processors, or 0 when there is none.
size_t cgroup_quota() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return 0;
  try {
    return static_cast<size_t>(std::max(1.0, std::stod(quota) / period));
  } catch (const std::exception&) {
    return 0;
  }
}

}  // namespace

ThreadPool::ThreadPool(size_t n_threads) {
  for (size_t i = 1; i < std::max<size_t>(n_threads, 1); ++i) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  loop_ += kLoop;
  { const std::lock_guard lock(mutex_); }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::parallel_for(size_t n, const Task& task) {
  if (n == 0) return;
  if (workers_.empty() || n == 1) {
    for (size_t i = 0; i < n; ++i) task(i, 0);
    return;
  }
  CHECK(task_ == nullptr);  // no nested or concurrent calls
  n_ = n;
  task_ = &task;
  next_.store(0, std::memory_order_relaxed);
  failed_.store(false, std::memory_order_relaxed);
  error_ = nullptr;
  // Opens the loop. Sequentially consistent, as is a sleeper's count: either the sleeper sees this loop or this sees
  // it.
  loop_.store((loop_.load(std::memory_order_relaxed) / kLoop + 1) * kLoop);
  if (asleep_.load() != 0) {
    { const std::lock_guard lock(mutex_); }
    wake_.notify_all();
  }
  run_share(0);
  // All indices are handed out; who is in the loop is in its last one, so this wait is as long as one task at most.
  loop_.fetch_or(kClosed, std::memory_order_acquire);
  for (int spins = 0; (loop_.load(std::memory_order_acquire) & kInside) != 0; ++spins) {
    if (spins < kSpins)
      pause_once();
    else
      std::this_thread::yield();
  }
  task_ = nullptr;
  if (error_) std::rethrow_exception(error_);
}

void ThreadPool::run_share(size_t thread) {
  for (size_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < n_;) {
    if (failed_.load(std::memory_order_relaxed)) continue;
    try {
      (*task_)(i, thread);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
      failed_ = true;
    }
  }
}

// Enters the newest loop unless it is closed. `seen` becomes its number.
bool ThreadPool::join(uint64_t& seen) {
  uint64_t loop = loop_.load(std::memory_order_acquire);
  do {
    seen = loop / kLoop;
    if ((loop & kClosed) != 0) return false;
  } while (!loop_.compare_exchange_weak(loop, loop + 1, std::memory_order_acquire));
  return true;
}

void ThreadPool::sleep(uint64_t seen) {
  std::unique_lock lock(mutex_);
  ++asleep_;
  wake_.wait(lock, [&] { return stop_ || loop_.load() / kLoop != seen; });
  --asleep_;
}

void ThreadPool::work(size_t thread) {
  uint64_t seen = 0;
  for (;;) {
    for (int spins = 0; spins < kSpins && loop_.load(std::memory_order_acquire) / kLoop == seen; ++spins) pause_once();
    if (loop_.load(std::memory_order_acquire) / kLoop == seen) sleep(seen);
    if (stop_) return;
    if (!join(seen)) continue;
    run_share(thread);
    loop_.fetch_sub(1, std::memory_order_release);
  }
}

size_t ThreadPool::usable_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  size_t n = 1;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) n = static_cast<size_t>(std::max(1, CPU_COUNT(&set)));
  const size_t quota = cgroup_quota();
  return quota == 0 ? n : std::min(n, quota);
}

}  // namespace cento
