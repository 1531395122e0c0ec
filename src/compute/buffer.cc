#include "compute/buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>

#include "base/error.h"
#include "base/size_math.h"
#include "base/text.h"

#if defined(__SANITIZE_ADDRESS__)
#define CENTO_PLAIN_ALLOCATION 1  // so that overruns of one buffer into the next are seen
#else
#define CENTO_PLAIN_ALLOCATION 0
#endif

// Weights and KV are read front to back, faster than page walks go with pages of 4 KiB: decoding from huge pages read
// up to 1.5 times as fast on a virtual machine. So all but small memory comes from areas aligned to huge pages: a
// mapping of its own for a large buffer, else a part of a slab, because most matrices of a small model are not as large
// as a few huge pages.
namespace cento {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kSlabFrom = size_t{16} << 10;  // smaller: the C library's allocator
constexpr size_t kMapFrom = size_t{16} << 20;   // from here on a mapping of its own
constexpr size_t kSlabBytes = size_t{64} << 20;

[[noreturn]] void out_of_memory(size_t n_bytes) {
  throw Error(Code::kResource, "not enough memory: " + size_text(n_bytes) + " could not be allocated", {},
              "use a smaller model or context, or close other programs");
}

// Bytes of `at` up to the next multiple of a huge page.
size_t to_huge_page(const std::byte* at) {
  const auto address = reinterpret_cast<uintptr_t>(at);
  return round_up(address, uintptr_t{kHugePage}) - address;
}

// At a multiple of a huge page. Advice is given for whole huge pages only, so that the rest of the last costs no more
// than it holds.
std::byte* map_huge(size_t n_bytes) {
  constexpr size_t kPage = 4096;
  const size_t size = round_up(n_bytes, kPage), reserve = size + kHugePage;
  void* const base = ::mmap(nullptr, reserve, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) out_of_memory(n_bytes);
  auto* const from = static_cast<std::byte*>(base);
  const size_t lead = to_huge_page(from);
  if (lead > 0) (void)::munmap(from, lead);
  if (lead < kHugePage) (void)::munmap(from + lead + size, kHugePage - lead);
  if (size >= kHugePage) (void)::madvise(from + lead, size / kHugePage * kHugePage, MADV_HUGEPAGE);
  return from + lead;
}

void unmap(std::byte* at, size_t n_bytes) { (void)::munmap(at, round_up(n_bytes, size_t{4096})); }

// Cuts slabs into parts: first fit by address, neighbours that are free become one, an empty slab goes back to the
// system, and so do the huge pages inside a part that is released.
class Slabs {
 public:
  std::byte* allocate(size_t n_bytes) {
    const size_t size = round_up(n_bytes, kAlignment);
    const std::lock_guard lock(mutex_);
    auto part = free_.begin();
    while (part != free_.end() && part->second < size) ++part;
    if (part == free_.end()) part = add_slab();
    std::byte* const at = part->first;
    const size_t left = part->second - size;
    free_.erase(part);
    if (left > 0) free_.emplace(at + size, left);
    return at;
  }

  void release(std::byte* at, size_t n_bytes) noexcept {
    const size_t size = round_up(n_bytes, kAlignment), lead = to_huge_page(at);
    const std::lock_guard lock(mutex_);
    if (lead < size && size - lead >= kHugePage)
      (void)::madvise(at + lead, (size - lead) / kHugePage * kHugePage, MADV_DONTNEED);
    std::byte* const slab = std::prev(slabs_.upper_bound(at))->first;
    auto part = free_.emplace(at, size).first;
    const auto next = std::next(part);
    if (next != free_.end() && next->first == at + size && next->first != slab + kSlabBytes) {
      part->second += next->second;
      free_.erase(next);
    }
    if (part != free_.begin() && at != slab) {
      const auto previous = std::prev(part);
      if (previous->first + previous->second == at) {
        previous->second += part->second;
        free_.erase(part);
        part = previous;
      }
    }
    if (part->second < kSlabBytes) return;
    free_.erase(part);
    slabs_.erase(slab);
    unmap(slab, kSlabBytes);
  }

 private:
  using Parts = std::map<std::byte*, size_t>;

  Parts::iterator add_slab() {
    std::byte* const slab = map_huge(kSlabBytes);
    slabs_.emplace(slab, kSlabBytes);
    return free_.emplace(slab, kSlabBytes).first;
  }

  std::mutex mutex_;
  Parts slabs_, free_;  // guarded by mutex_
};

class HostDevice final : public Device {
 public:
  const char* name() const override { return "host"; }
  void* allocate(size_t n_bytes) override {
    if (n_bytes > std::numeric_limits<size_t>::max() / 2) out_of_memory(n_bytes);
    if (!CENTO_PLAIN_ALLOCATION && n_bytes >= kMapFrom) return map_huge(n_bytes);
    if (!CENTO_PLAIN_ALLOCATION && n_bytes >= kSlabFrom) return slabs_.allocate(n_bytes);
    void* const address = std::aligned_alloc(kAlignment, round_up(std::max<size_t>(n_bytes, 1), kAlignment));
    if (address == nullptr) out_of_memory(n_bytes);
    return address;
  }
  void release(void* address, size_t n_bytes) noexcept override {
    if (address == nullptr) return;
    if (!CENTO_PLAIN_ALLOCATION && n_bytes >= kMapFrom)
      unmap(static_cast<std::byte*>(address), n_bytes);
    else if (!CENTO_PLAIN_ALLOCATION && n_bytes >= kSlabFrom)
      slabs_.release(static_cast<std::byte*>(address), n_bytes);
    else
      std::free(address);
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

 private:
  Slabs slabs_;
};

}  // namespace

Device& Device::host() {
  // Never destroyed: buffers of other objects with static or thread storage are released after it would be.
  static HostDevice& device = *new HostDevice;
  return device;
}

Buffer::Buffer(Device& device, size_t n_bytes) : device_(&device), n_bytes_(n_bytes) {
  if (n_bytes > 0) address_ = device.allocate(n_bytes);
}

Buffer::~Buffer() {
  if (address_ != nullptr) device_->release(address_, n_bytes_);
}

}  // namespace cento
