#include "compute/buffer.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <numeric>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/rng.h"

namespace cento {
namespace {

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 64 == 0; }

TEST_CASE("buffer: memory is aligned, usable to its last byte and comes back as it was put in", "[compute]") {
  for (const size_t n : {size_t{1}, size_t{63}, size_t{64}, size_t{4097}, (size_t{4} << 20) - 1, size_t{4} << 20,
                         (size_t{4} << 20) + 1, (size_t{9} << 20) + 13}) {
    CAPTURE(n);
    Buffer buffer(Device::host(), n);
    CHECK(aligned(buffer.as<std::byte>()));
    CHECK(buffer.n_bytes() == n);
    CHECK(buffer.device() == &Device::host());
    std::vector<uint8_t> in(n), out(n);
    std::iota(in.begin(), in.end(), uint8_t{1});
    buffer.upload<uint8_t>(in);
    buffer.download<uint8_t>(out);
    CHECK((in == out));
    buffer.clear();
    buffer.download<uint8_t>(out);
    CHECK((out == std::vector<uint8_t>(n)));
  }
}

TEST_CASE("buffer: an empty one has no memory and can be moved, cleared and filled with nothing", "[compute]") {
  Buffer none, empty(Device::host(), 0);
  CHECK(none.as<std::byte>() == nullptr);
  CHECK(empty.as<std::byte>() == nullptr);
  CHECK(empty.n_bytes() == 0);
  empty.clear();
  none.clear();
  empty.upload<int>({});
  none = std::move(empty);
  CHECK(none.n_bytes() == 0);
}

TEST_CASE("buffer: moving hands the memory over and reserve only grows", "[compute]") {
  Buffer a(Device::host(), 100);
  const auto* address = a.as<std::byte>();
  Buffer b(std::move(a));
  CHECK(b.as<std::byte>() == address);
  CHECK(a.as<std::byte>() == nullptr);
  CHECK(a.n_bytes() == 0);
  Buffer c(Device::host(), 8 << 20);
  c = std::move(b);
  CHECK(c.as<std::byte>() == address);
  c.reserve(Device::host(), 50);
  CHECK(c.as<std::byte>() == address);
  c.reserve(Device::host(), 200);
  CHECK(c.n_bytes() == 200);
}

TEST_CASE("buffer: memory that cannot be had is an error of kind kResource", "[compute]") {
  for (const size_t n : {std::numeric_limits<size_t>::max(), std::numeric_limits<size_t>::max() / 2, size_t{1} << 62}) {
    try {
      Buffer buffer(Device::host(), n);
      FAIL("allocated");
    } catch (const Error& e) {
      CHECK(e.code() == Code::kResource);
      CHECK(!e.hint().empty());
    }
  }
}

// Resident pages of this process.
size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  size_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * 4096;
}

TEST_CASE("buffer: many of mixed sizes, released in any order, keep their content and give their memory back",
          "[compute]") {
  struct Held {
    Buffer buffer;
    uint8_t mark = 0;
  };
  constexpr size_t kSizes[] = {1,      100,     16383,   16384,   65535,          65536,    65537,
                               300000, 1 << 20, 3000001, 5 << 20, (16 << 20) - 1, 16 << 20, 17000000};
  const size_t before = resident_bytes();
  Rng rng(7);
  std::vector<Held> held;
  const auto intact = [](const Held& h) {
    const auto* p = h.buffer.as<uint8_t>();
    for (size_t i = 0; i < h.buffer.n_bytes(); i += 997) {
      if (p[i] != h.mark) return false;
    }
    return p[h.buffer.n_bytes() - 1] == h.mark;
  };
  size_t n_damaged = 0, n_misaligned = 0;
  for (int step = 0; step < 600; ++step) {
    if (held.size() < 25 || rng.below(2) == 0) {
      Held h{Buffer(Device::host(), kSizes[rng.below(std::size(kSizes))]), static_cast<uint8_t>(rng.below(256))};
      std::memset(h.buffer.as<uint8_t>(), h.mark, h.buffer.n_bytes());
      n_misaligned += !aligned(h.buffer.as<uint8_t>());
      held.push_back(std::move(h));
    } else {
      const size_t i = rng.below(held.size());
      n_damaged += !intact(held[i]);
      std::swap(held[i], held.back());
      held.pop_back();
    }
  }
  for (const Held& h : held) n_damaged += !intact(h);
  CHECK(n_damaged == 0);
  CHECK(n_misaligned == 0);
  held.clear();
#if !defined(__SANITIZE_ADDRESS__)
  CHECK(resident_bytes() < before + (size_t{16} << 20));  // what the C library keeps of the small ones is far below
#else
  CHECK(before > 0);
#endif
}

TEST_CASE("buffer: many threads may allocate and release at once", "[compute]") {
  std::vector<std::thread> threads;
  std::atomic<size_t> n_damaged{0};
  for (uint8_t id = 0; id < 4; ++id) {
    threads.emplace_back([id, &n_damaged] {
      for (size_t i = 0; i < 100; ++i) {
        const size_t n = 60000 + i * 1000;
        const Buffer buffer(Device::host(), n);
        std::memset(buffer.as<uint8_t>(), id, n);
        const auto* p = buffer.as<uint8_t>();
        n_damaged += static_cast<size_t>(std::count(p, p + n, id)) != n;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(n_damaged == 0);
}

TEST_CASE("buffer: copies within the host device", "[compute]") {
  Device& host = Device::host();
  CHECK(host.is_host());
  Buffer a(host, 64), b(host, 64);
  std::vector<uint8_t> in(64, 7), out(64);
  a.upload<uint8_t>(in);
  b.clear();
  host.copy(b.as<uint8_t>(8), a.as<uint8_t>(), 16);
  b.download<uint8_t>(out);
  CHECK(std::accumulate(out.begin(), out.end(), 0) == 16 * 7);
  CHECK(out[8] == 7);
  CHECK(out[24] == 0);
  host.copy(nullptr, nullptr, 0);
  host.clear(nullptr, 0);
}

}  // namespace
}  // namespace cento
