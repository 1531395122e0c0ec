#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

namespace cento {
namespace {

TEST_CASE("thread pool: every index is handed out exactly once", "[base]") {
  for (const size_t threads : {size_t{0}, size_t{1}, size_t{2}, size_t{5}}) {
    ThreadPool pool(threads);
    CHECK(pool.size() == std::max<size_t>(threads, 1));
    for (const size_t n : {size_t{0}, size_t{1}, size_t{2}, size_t{3}, size_t{7}, size_t{1000}}) {
      CAPTURE(threads, n);
      std::vector<std::atomic<int>> hits(n);
      std::atomic<bool> bad_thread{false};
      pool.parallel_for(n, [&](size_t i, size_t thread) {
        if (i >= n || thread >= pool.size())
          bad_thread = true;
        else
          ++hits[i];
      });
      CHECK_FALSE(bad_thread);
      size_t once = 0;
      for (const auto& h : hits) once += h == 1 ? 1 : 0;
      CHECK(once == n);
    }
  }
}

TEST_CASE("thread pool: what tasks wrote without locks is seen after the loop, over many small loops", "[base]") {
  ThreadPool pool(3);
  std::vector<uint64_t> values(17);
  for (uint64_t round = 0; round < 3000; ++round) {
    const size_t n = round % values.size() + 1;
    pool.parallel_for(n, [&](size_t i, size_t) { values[i] += round + i; });
    // Plain reads and writes by the caller between loops: a race unless the pool orders them.
    for (size_t i = 0; i < n; ++i) values[i] += 1;
  }
  std::vector<uint64_t> wanted(17);
  for (uint64_t round = 0; round < 3000; ++round) {
    for (size_t i = 0; i < round % wanted.size() + 1; ++i) wanted[i] += round + i + 1;
  }
  CHECK(values == wanted);
}

TEST_CASE("thread pool: the thread number names scratch space that no other task uses at that time", "[base]") {
  ThreadPool pool(4);
  std::vector<uint64_t> scratch(pool.size());
  for (int round = 0; round < 200; ++round) {
    pool.parallel_for(40, [&](size_t i, size_t thread) { scratch[thread] += i; });
  }
  uint64_t sum = 0;
  for (const uint64_t s : scratch) sum += s;
  CHECK(sum == 200u * 780u);
}

TEST_CASE("thread pool: the caller works too, and only it as thread 0", "[base]") {
  ThreadPool pool(3);
  const auto caller = std::this_thread::get_id();
  std::atomic<int> wrong{0};
  for (int round = 0; round < 200; ++round) {
    pool.parallel_for(8,
                      [&](size_t, size_t thread) { wrong += (thread == 0) != (std::this_thread::get_id() == caller); });
  }
  CHECK(wrong == 0);
}

TEST_CASE("thread pool: an exception of a task reaches the caller and the pool goes on", "[base]") {
  for (const size_t threads : {size_t{1}, size_t{4}}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 50; ++round) {
      CAPTURE(threads, round);
      std::atomic<int> done{0};
      CHECK_THROWS_WITH(pool.parallel_for(1000,
                                          [&](size_t i, size_t) {
                                            if (i == 5) throw std::runtime_error("task 5");
                                            ++done;
                                          }),
                        "task 5");
      CHECK(done < 1000);
      std::atomic<int> after{0};
      pool.parallel_for(10, [&](size_t, size_t) { ++after; });
      CHECK(after == 10);
    }
  }
}

TEST_CASE("thread pool: if every task throws, one exception arrives", "[base]") {
  ThreadPool pool(4);
  for (int round = 0; round < 50; ++round) {
    CHECK_THROWS_AS(pool.parallel_for(64, [](size_t, size_t) { throw std::logic_error("x"); }), std::logic_error);
  }
}

TEST_CASE("thread pool: ends at once, used or not", "[base]") {
  for (int round = 0; round < 50; ++round) {
    ThreadPool unused(3);
    auto used = std::make_unique<ThreadPool>(3);
    std::atomic<int> n{0};
    used->parallel_for(5, [&](size_t, size_t) { ++n; });
    CHECK(n == 5);
  }
}

TEST_CASE("thread pool: workers that sleep wake up again", "[base]") {
  ThreadPool pool(3);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::atomic<int> n{0};
    pool.parallel_for(100, [&](size_t, size_t) { ++n; });
    CHECK(n == 100);
  }
}

TEST_CASE("thread pool: there is at least one usable processor", "[base]") {
  CHECK(ThreadPool::usable_processors() >= 1);
  CHECK(ThreadPool::usable_processors() <= 4096);
}

}  // namespace
}  // namespace cento
