#include "docs/source_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "docs/walk.h"

namespace cento {

std::optional<FileContent> read_whole(const std::string& path, bool follow, uint64_t max_bytes, ReadFailure& failure) {
  constexpr int kTries = 3;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const FileHandle file(
        ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (follow ? 0 : O_NOFOLLOW)));
    if (!file.open()) {
      const bool gone = errno == ENOENT || errno == ENOTDIR || errno == ELOOP;
      failure = {gone ? ReadTrouble::kGone : ReadTrouble::kUnreadable,
                 gone ? "gone while it was about to be read" : errno_text(errno)};
      return std::nullopt;
    }
    struct ::stat before {
    }, after{};
    if (::fstat(file.get(), &before) != 0 || !S_ISREG(before.st_mode)) {
      failure = {ReadTrouble::kContent, "not a regular file any more"};
      return std::nullopt;
    }
    FileContent content;
    content.stamp = stamp_of(before);
    if (content.stamp.size > max_bytes) {
      failure = {ReadTrouble::kContent,
                 size_text(content.stamp.size) + ", more than " + size_text(max_bytes) + " (--max-file-size)"};
      return std::nullopt;
    }
    content.bytes.resize(content.stamp.size);
    size_t done = 0;
    while (done < content.bytes.size()) {
      const ssize_t n =
          ::pread(file.get(), content.bytes.data() + done, content.bytes.size() - done, static_cast<off_t>(done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        failure = {ReadTrouble::kUnreadable, errno_text(errno)};
        return std::nullopt;
      }
      if (n == 0) break;
      done += static_cast<size_t>(n);
    }
    if (done == content.bytes.size() && ::fstat(file.get(), &after) == 0 && stamp_of(after) == content.stamp)
      return content;
  }
  failure = {ReadTrouble::kUnreadable, "changed again and again while it was being read"};
  return std::nullopt;
}

}  // namespace cento
