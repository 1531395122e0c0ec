#include "eval/page_cache.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/file.h"

namespace cento {
namespace {

// False also if the system does not say.
bool none_resident(int fd, size_t n_bytes) {
  void* at = ::mmap(nullptr, n_bytes, PROT_READ, MAP_SHARED, fd, 0);  // mapping alone reads nothing
  if (at == MAP_FAILED) return false;
  const size_t page = static_cast<size_t>(std::max(1l, ::sysconf(_SC_PAGESIZE)));
  std::vector<unsigned char> pages((n_bytes + page - 1) / page, 1);
  const bool known = ::mincore(at, n_bytes, pages.data()) == 0;
  (void)::munmap(at, n_bytes);
  return known && std::none_of(pages.begin(), pages.end(), [](unsigned char p) { return (p & 1) != 0; });
}

}  // namespace

bool evict_from_page_cache(const std::string& path) {
  const FileHandle file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status = {};
  if (!file.open() || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
  if (status.st_size == 0) return true;
  if (::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED) != 0) return false;
  return none_resident(file.get(), static_cast<size_t>(status.st_size));
}

}  // namespace cento
