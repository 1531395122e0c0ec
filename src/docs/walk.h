// A folder tree -> the files in it that are to be read, in an order that does not depend on the file system.
#pragma once

#include <sys/stat.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "docs/ignore.h"

namespace cento {

struct WalkOptions {
  IgnoreList include, exclude;  // over the path below the root; an empty include takes everything
  bool use_ignore_files =
      true;             // .gitignore and .ignore, also of the folders above up to the repository's top; leftovers
  bool hidden = false;  // names that start with a dot
  bool follow_links = false;
  uint64_t max_file_bytes = 64ull << 20;
};

struct FoundFile {
  std::string path;  // root + "/" + path below it; bytes as the system has them
  FileStamp stamp;
};

struct Found {
  std::vector<FoundFile> files;  // regular files, each (device, inode) once when links are followed
  std::vector<std::pair<std::string, std::string>>
      skipped;                      // path, reason: links, special files, too large, unreadable
  std::vector<std::string> unread;  // folders and files whose content is unknown now: what is known of them is kept
  bool stopped = false;
};

// `root`: an absolute path of a folder, or of a file, which is then taken whatever its name is. Nothing but folders is
// opened. Hidden, ignored and excluded names are left out without a word; .git, .hg, .svn and CVS always.
// Throws Error(kInput) if `root` is not there. Links: a loop ends because each folder is entered once, and a link is
// looked at after everything that is there in its own right.
Found walk(const std::string& root, const WalkOptions& options, const std::function<bool()>& stop);

FileStamp stamp_of(const struct ::stat& status);

}  // namespace cento
