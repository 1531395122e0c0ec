#include "compute/buffer.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "base/error.h"

namespace cento {
namespace {

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 64 == 0; }

TEST_CASE("buffer: memory is aligned, usable to its last byte and comes back as it was put in", "[compute]") {
  for (const size_t n : {size_t{1}, size_t{63}, size_t{64}, size_t{4097}, (size_t{4} << 20) - 1, size_t{4} << 20, (size_t{4} << 20) + 1,
                         (size_t{9} << 20) + 13}) {
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
