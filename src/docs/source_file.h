// Reads a document's file so that what is read is what its stamp says.
#pragma once

#include <optional>
#include <string>

#include "base/mapped_file.h"

namespace cento {

struct FileContent {
  std::string bytes;
  FileStamp stamp;  // of the moment of reading
};

enum class ReadTrouble { kGone, kUnreadable, kContent };
struct ReadFailure {
  ReadTrouble trouble;
  std::string reason;
};

// The whole of a regular file, the same before and after: nothing that blocks is opened for reading, no link is
// followed unless wanted, and a file that changes under the reading is read again a few times.
std::optional<FileContent> read_whole(const std::string& path, bool follow, uint64_t max_bytes, ReadFailure& failure);

}  // namespace cento
