#include "compute/buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>

#include "base/error.h"
#include "base/size_math.h"
#include "base/text.h"

namespace cento {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;
// From here on whole mappings, aligned to huge pages: weights and KV are walked front to back, and with 4 KiB pages the
// page walks of a decode step cost bandwidth. Also, what is released goes back to the system at once.
constexpr size_t kMapFrom = 2 * kHugePage;

[[noreturn]] void out_of_memory(size_t n_bytes) {
  throw Error(Code::kResource, "not enough memory: " + size_text(n_bytes) + " could not be allocated", {},
              "use a smaller model or context, or close other programs");
}

void* map_huge(size_t n_bytes) {
  const size_t size = round_up(n_bytes, kHugePage);
  const size_t reserve = size + kHugePage;
  void* const base = ::mmap(nullptr, reserve, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) out_of_memory(n_bytes);
  auto* const from = static_cast<std::byte*>(base);
  const size_t lead = round_up(reinterpret_cast<uintptr_t>(base), uintptr_t{kHugePage}) - reinterpret_cast<uintptr_t>(base);
  if (lead > 0) (void)::munmap(from, lead);
  if (lead < kHugePage) (void)::munmap(from + lead + size, kHugePage - lead);
  (void)::madvise(from + lead, size, MADV_HUGEPAGE);  // advice: a kernel without huge pages is only slower
  return from + lead;
}

class HostDevice final : public Device {
 public:
  const char* name() const override { return "host"; }
  void* allocate(size_t n_bytes) override {
    if (n_bytes > std::numeric_limits<size_t>::max() / 2) out_of_memory(n_bytes);
    if (n_bytes >= kMapFrom) return map_huge(n_bytes);
    void* const address = std::aligned_alloc(kAlignment, round_up(n_bytes == 0 ? 1 : n_bytes, kAlignment));
    if (address == nullptr) out_of_memory(n_bytes);
    return address;
  }
  void release(void* address, size_t n_bytes) noexcept override {
    if (address == nullptr) return;
    if (n_bytes >= kMapFrom) (void)::munmap(address, round_up(n_bytes, kHugePage));
    else std::free(address);
  }
  void upload(void* to, const void* host_from, size_t n_bytes) override { copy(to, host_from, n_bytes); }
  void download(void* host_to, const void* from, size_t n_bytes) override { copy(host_to, from, n_bytes); }
  void copy(void* to, const void* from, size_t n_bytes) override {
    if (n_bytes > 0) std::memcpy(to, from, n_bytes);
  }
  void clear(void* to, size_t n_bytes) override {
    if (n_bytes > 0) std::memset(to, 0, n_bytes);
  }
  bool is_host() const override { return true; }
};

}  // namespace

Device& Device::host() {
  static HostDevice device;
  return device;
}

Buffer::Buffer(Device& device, size_t n_bytes) : device_(&device), n_bytes_(n_bytes) {
  if (n_bytes > 0) address_ = device.allocate(n_bytes);
}

Buffer::~Buffer() {
  if (address_ != nullptr) device_->release(address_, n_bytes_);
}

}  // namespace cento
