// A small mutating fuzzer for compilers without libFuzzer.
//
//   fuzz_NAME [FOLDER [SECONDS [SEED]]]   mutates the target's own seeds and the files of FOLDER ("" or "-": none)
//   fuzz_NAME FILE                        runs one input, to look at a finding
//
// A finding's input is written to fuzz-finding.bin in the working folder before the process dies. Same seeds, same SEED
// and same program give the same sequence of inputs. Coverage is not measured: it helps to start from good seeds.
#include "fuzz/fuzz_main.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/rng.h"

// A sanitizer ends the process by itself; this is its hook for last words. Absent without one.
extern "C" void __sanitizer_set_death_callback(void (*callback)()) __attribute__((weak));
// No input may ask for absurd memory.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() { return "max_allocation_size_mb=1024:detect_leaks=1"; }

namespace cento::test {
namespace {

constexpr size_t kInputMax = size_t{1} << 20;
constexpr unsigned kSecondsMax = 10;  // of one input

// The input that is running, for the signal handler.
const uint8_t* g_data = nullptr;
size_t g_n_bytes = 0;

void save_finding() {  // async-signal-safe calls only
  const int fd = ::open("fuzz-finding.bin", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return;
  for (size_t done = 0; done < g_n_bytes;) {
    const ssize_t n = ::write(fd, g_data + done, g_n_bytes - done);
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  (void)::close(fd);
  static constexpr char kText[] = "\nfinding: its input is in fuzz-finding.bin\n";
  (void)!::write(STDERR_FILENO, kText, sizeof kText - 1);
}

void on_signal(int number) {
  save_finding();
  (void)::signal(number, SIG_DFL);
  (void)::raise(number);
}

void run(const std::string& input) {
  // A copy of exactly this size on the heap: a read past its end is seen.
  const std::vector<uint8_t> copy(input.begin(), input.end());
  g_data = copy.data();
  g_n_bytes = copy.size();
  (void)::alarm(kSecondsMax);
  (void)LLVMFuzzerTestOneInput(copy.data(), copy.size());
  (void)::alarm(0);
  g_data = nullptr;
  g_n_bytes = 0;
}

uint64_t interesting(Rng& rng) {
  static constexpr uint64_t kValues[] = {0,
                                         1,
                                         2,
                                         3,
                                         4,
                                         7,
                                         8,
                                         9,
                                         13,
                                         31,
                                         32,
                                         33,
                                         64,
                                         127,
                                         128,
                                         255,
                                         256,
                                         4096,
                                         0x7fff,
                                         0x8000,
                                         0xffff,
                                         0x10000,
                                         0x7fffffff,
                                         0x80000000,
                                         0xffffffff,
                                         0x100000000,
                                         1ull << 60,
                                         0x7fffffffffffffff,
                                         0x8000000000000000,
                                         ~0ull,
                                         ~0ull - 31};
  return kValues[rng.below(std::size(kValues))];
}

void mutate_once(std::string& s, const std::vector<std::string>& seeds, Rng& rng) {
  const size_t at = s.empty() ? 0 : rng.below(s.size());
  const size_t span = s.empty() ? 0 : std::min<size_t>(s.size() - at, 1 + rng.below(1ull << rng.below(9)));
  switch (rng.below(9)) {
    case 0:
      if (!s.empty()) s[at] = static_cast<char>(s[at] ^ (1 << rng.below(8)));
      break;
    case 1:
      if (!s.empty()) s[at] = static_cast<char>(rng.next());
      break;
    case 2: {  // a number of 1, 2, 4 or 8 bytes, little-endian
      uint64_t value = interesting(rng);
      for (size_t i = 0, n = size_t{1} << rng.below(4); i < n && at + i < s.size(); ++i, value >>= 8) {
        s[at + i] = static_cast<char>(value);
      }
      break;
    }
    case 3:  // a small step up or down
      if (!s.empty()) s[at] = static_cast<char>(s[at] + static_cast<int>(rng.below(33)) - 16);
      break;
    case 4:
      s.erase(at, span);
      break;
    case 5:
      s.insert(at, s.substr(at, span));
      break;
    case 6: {  // a piece of another seed
      const std::string& other = seeds[rng.below(seeds.size())];
      const size_t from = other.empty() ? 0 : rng.below(other.size());
      const std::string piece = other.substr(from, 1 + rng.below(64));
      if (rng.below(2) == 0)
        s.insert(at, piece);
      else
        s.replace(at, std::min(piece.size(), s.size() - at), piece);
      break;
    }
    case 7:
      s.resize(rng.below(4) == 0 ? at : s.size());
      break;
    case 8: {
      std::string noise(1 + rng.below(16), '\0');
      for (char& c : noise) c = static_cast<char>(rng.next());
      s.insert(at, noise);
      break;
    }
  }
  if (s.size() > kInputMax) s.resize(kInputMax);
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::vector<std::string> collect_seeds(const std::string& folder) {
  std::vector<std::string> seeds = builtin_seeds();
  std::vector<std::filesystem::path> paths;
  if (!folder.empty() && folder != "-") {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      if (entry.is_regular_file() && entry.file_size() <= kInputMax) paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  for (const auto& path : paths) seeds.push_back(read_file(path));
  if (seeds.empty()) seeds.emplace_back();
  return seeds;
}

int fuzz(const std::string& folder, double seconds, uint64_t seed) {
  const std::vector<std::string> seeds = collect_seeds(folder);
  for (const std::string& s : seeds) run(s);
  Rng rng(seed);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  uint64_t runs = 0;
  for (; std::chrono::steady_clock::now() < end; ++runs) {
    std::string input = seeds[rng.below(seeds.size())];
    for (uint64_t n = 1 + rng.below(1ull << rng.below(5)); n > 0; --n) mutate_once(input, seeds, rng);
    run(input);
  }
  std::printf("%zu seeds, %llu runs in %.0f s, seed %llu: no finding\n", seeds.size(),
              static_cast<unsigned long long>(runs), seconds, static_cast<unsigned long long>(seed));
  return 0;
}

}  // namespace
}  // namespace cento::test

int main(int argc, char** argv) {
  using namespace cento::test;
  for (const int number : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGALRM}) (void)::signal(number, on_signal);
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(save_finding);
  const std::string first = argc > 1 ? argv[1] : "";
  if (argc == 2 && std::filesystem::is_regular_file(first)) {
    run(read_file(first));
    return 0;
  }
  return fuzz(first, argc > 2 ? std::atof(argv[2]) : 10, argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1);
}
