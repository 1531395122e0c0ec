#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

#include <numeric>

#include "base/error.h"
#include "compute/op_test.h"

namespace cento::test {
namespace {

// How a child process ends that runs `f`: true if it was killed or, under a sanitizer, stopped with a report.
template <class F>
bool dies(const F& f) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGSEGV, SIG_DFL);  // not the test framework's handlers
    std::signal(SIGBUS, SIG_DFL);
    f();
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(child > 0);
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) || WEXITSTATUS(status) != 0;
}

const Ops& fenced() { return fenced_ops(ref_ops()); }

TEST_CASE("fenced ops: a host access to device memory dies by a signal", "[compute]") {
  Buffer buffer(*fenced().device, 64);
  buffer.clear();
  volatile float* const address = buffer.as<float>();
  int ordinary = 1;
  volatile int* const host = &ordinary;
  CHECK_FALSE(dies([&] { (void)*host; }));
  CHECK(dies([&] { (void)*address; }));
  CHECK(dies([&] { *address = 1; }));
  CHECK(dies([&] { (void)address[15]; }));
  CHECK_FALSE(fenced().device->is_host());
}

TEST_CASE("fenced ops: the device copies in, out, within, and clears", "[compute]") {
  Device& device = *fenced().device;
  std::vector<int> numbers(100), back(100);
  std::iota(numbers.begin(), numbers.end(), 1);
  Buffer a(device, 400), b(device, 400);
  CHECK(a.as<std::byte>() != b.as<std::byte>());
  CHECK(reinterpret_cast<uintptr_t>(a.as<std::byte>()) % 64 == 0);
  a.upload<int>(numbers);
  device.copy(b.as<int>(10), a.as<int>(), 90 * sizeof(int));
  device.clear(b.as<int>(), 10 * sizeof(int));
  b.download<int>(back);
  for (size_t i = 0; i < 100; ++i) CHECK(back[i] == (i < 10 ? 0 : numbers[i - 10]));
  Buffer moved = std::move(a);
  moved.download<int>(back);
  CHECK(back == numbers);
  CHECK_NOTHROW(Buffer(device, 0));
}

TEST_CASE("fenced ops: memory that nothing was written to is NaN", "[compute]") {
  const Buffer buffer(*fenced().device, 16);
  std::vector<float> host(4);
  buffer.download<float>(host);
  for (const float x : host) CHECK(std::isnan(x));
}

TEST_CASE("fenced ops: an address that is not the device's, or reaches beyond its allocation, is an Error",
          "[compute]") {
  Device& device = *fenced().device;
  std::vector<float> host(16, 1.0F);
  Buffer x(device, 64), y(device, 64);
  x.upload<float>(host);
  y.upload<float>(host);
  const auto add = [&](const float* from, float* to, size_t n) { fenced().add(context(1), {from, to, n}); };
  CHECK_NOTHROW(add(x.as<float>(), y.as<float>(), 16));
  CHECK_THROWS_AS(add(host.data(), y.as<float>(), 16), Error);  // host memory
  CHECK_THROWS_AS(add(x.as<float>(), host.data(), 16), Error);
  CHECK_THROWS_AS(add(nullptr, y.as<float>(), 16), Error);
  CHECK_THROWS_AS(add(x.as<float>(), y.as<float>(), 17), Error);  // one element too many
  CHECK_THROWS_AS(add(x.as<float>(1), y.as<float>(), 16), Error);
  CHECK_THROWS_AS(add(x.as<float>(16), y.as<float>(), 1), Error);  // one past the end
  CHECK_THROWS_AS(add(x.as<float>(17), y.as<float>(), 1), Error);  // between two
  const float* far_behind = std::max(x.as<float>(), y.as<float>()) + (1 << 20);
  CHECK_THROWS_AS(add(far_behind, y.as<float>(), 1), Error);
  CHECK_THROWS_AS(device.upload(host.data(), host.data(), 64), Error);
  CHECK_THROWS_AS(device.download(host.data(), x.as<float>(), 65), Error);
  CHECK_THROWS_AS(device.copy(x.as<float>(), host.data(), 64), Error);
  CHECK_THROWS_AS(device.clear(host.data(), 64), Error);
  const float* freed = nullptr;
  {
    const Buffer gone(device, 64);
    freed = gone.as<float>();
  }
  CHECK_THROWS_AS(add(freed, y.as<float>(), 16), Error);
  try {
    add(x.as<float>(), y.as<float>(), 17);
  } catch (const Error& e) {
    CHECK(e.message() == "68 bytes from byte 0 of an allocation of 64");
    CHECK(e.where() == "add: x");
  }
}

TEST_CASE("fenced ops: positions outside the live KV and addresses of another fence are refused", "[compute]") {
  const Ops& ops = fenced();
  Buffer kv(*ops.device, 2 * 4 * 2 * sizeof(float)), q(*ops.device, 64), out(*ops.device, 64), pos(*ops.device, 8);
  q.clear();
  kv.clear();
  const auto attend = [&](std::vector<int32_t> positions) {
    pos.upload<int32_t>(positions);
    AttentionArgs a{};
    a.q = q.as<float>();
    a.q_pos = pos.as<int32_t>();
    a.out = out.as<float>();
    a.t = positions.size();
    a.h = 1;
    a.d = a.ldq = a.ldo = 2;
    a.kv = {kv.as<float>(), kv.as<float>(8), KvType::kF32, 1, 2, 4};
    a.scale = 1;
    ops.attention(context(1), a);
  };
  CHECK_NOTHROW(attend({0, 3}));
  CHECK_THROWS_AS(attend({0, 4}), Error);
  CHECK_THROWS_AS(attend({-1, 3}), Error);
  CHECK_THROWS_AS(attend({3, 2}), Error);
  const Ops& other = fenced_ops(best_ops());
  if (&other != &ops) CHECK_THROWS_AS(other.add(context(1), {q.as<float>(), out.as<float>(), 1}), Error);
}

TEST_CASE("fenced ops: a packed weight lives on the device, and matmul gives the inner backend's bits", "[compute]") {
  constexpr size_t kN = 48, kK = 64, kT = 3;
  Rng rng(kSeed);
  const std::vector<float> weight = random_floats(rng, kN * kK), x = random_floats(rng, kT * kK),
                           bias = random_floats(rng, kN);
  TensorView view;
  view.data = reinterpret_cast<const std::byte*>(weight.data());
  view.shape = {kN, kK, 1, 1};
  view.n_dims = 2;
  view.n_bytes = weight.size() * sizeof(float);
  const auto run = [&](const Ops& ops, Precision precision) {
    const PackedMatrix w = ops.pack(context(2), {view, precision});
    CHECK((w.n == kN && w.k == kK));
    if (!ops.device->is_host()) {
      CHECK(w.data != static_cast<const void*>(weight.data()));
      CHECK(w.storage.device() == ops.device);
      const volatile std::byte* const address = static_cast<const std::byte*>(w.data);
      CHECK(dies([&] { (void)*address; }));
    }
    DeviceArray<float> x_dev(ops, x), bias_dev(ops, bias), y_dev(ops, std::vector<float>(kT * kN, NAN));
    MatmulArgs a{};
    a.x = x_dev.ptr();
    a.t = kT;
    a.k = a.ldx = kK;
    a.outs[0].w = &w;
    a.outs[0].bias = bias_dev.ptr();
    a.outs[0].y = y_dev.ptr();
    a.outs[0].ldy = kN;
    a.n_outs = 1;
    ops.matmul(context(2), a);
    return y_dev.get();
  };
  for (const Ops* inner : all_ops()) {
    for (const Precision precision : {Precision::kF32, Precision::kFast}) {
      CAPTURE(inner->name, static_cast<int>(precision));
      CHECK(same_bits(run(*inner, precision), run(fenced_ops(*inner), precision)));
    }
  }
}

TEST_CASE("fenced ops: one fence per backend, named after it", "[compute]") {
  for (const Ops* inner : all_ops()) {
    const Ops& ops = fenced_ops(*inner);
    CHECK(&ops == &fenced_ops(*inner));
    CHECK(ops.name == std::string("fenced ") + inner->name);
    CHECK(ops.device != inner->device);
  }
}

}  // namespace
}  // namespace cento::test
