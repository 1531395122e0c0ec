#include "docs/walk.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace cento {
namespace {

constexpr size_t kIgnoreFileBytesMax = 1 << 20;

// What editors, systems and package managers leave behind, as patterns.
constexpr const char* kLeftovers =
    "*~\n.*.sw[a-z]\n*.swp\n*.swo\n\\#*\\#\n.\\#*\n~$*\n*.bak\n*.tmp\n*.orig\n*.rej\n*.part\n*.crdownload\n.DS_"
    "Store\nThumbs.db\ndesktop.ini\n"
    "__pycache__/\nnode_modules/\n*.pyc\n*.o\n";

bool is_repository_data(std::string_view name) {
  return name == ".git" || name == ".hg" || name == ".svn" || name == ".bzr" || name == "_darcs" || name == "CVS";
}

struct CloseFolder {
  void operator()(DIR* folder) const noexcept { (void)::closedir(folder); }
};
using FolderHandle = std::unique_ptr<DIR, CloseFolder>;

// The ignore lists that hold in a folder: its own and, through `parent`, those above. The deepest that says something
// wins.
struct Scope {
  std::shared_ptr<const Scope> parent;
  IgnoreList list;     // .gitignore, then .ignore
  std::string prefix;  // absolute path of the folder with a '/' at the end

  bool ignores(std::string_view path, bool is_folder) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
      if (scope->list.empty() || path.size() <= scope->prefix.size()) continue;
      if (const auto verdict = scope->list.match(path.substr(scope->prefix.size()), is_folder)) return *verdict;
    }
    return false;
  }
};
using ScopePtr = std::shared_ptr<const Scope>;

std::string read_small_file(const std::string& path) {
  struct ::stat status {};
  if (::lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  auto text = read_file(path, kIgnoreFileBytesMax);
  return text ? std::move(*text) : std::string();
}

ScopePtr scope_of(const std::string& folder, ScopePtr parent) {
  std::string text = read_small_file(folder + "/.gitignore");
  const std::string more = read_small_file(folder + "/.ignore");
  if (text.empty() && more.empty()) return parent;
  auto scope = std::make_shared<Scope>();
  scope->parent = std::move(parent);
  scope->list = IgnoreList(text + "\n" + more);
  scope->prefix = folder == "/" ? "/" : folder + "/";
  return scope;
}

// The lists of the folders above `root`, as far as the top of the repository it is in; none if it is in none.
ScopePtr scopes_above(const std::string& root, ScopePtr scope) {
  std::vector<std::string> above;
  std::string folder = root;
  struct ::stat status {};
  if (::lstat((root + "/.git").c_str(), &status) == 0) return scope;
  while (folder.size() > 1) {
    const size_t slash = folder.rfind('/');
    if (slash == std::string::npos) break;
    folder.resize(slash == 0 ? 1 : slash);
    above.push_back(folder);
    if (::lstat((folder + "/.git").c_str(), &status) != 0) continue;
    for (size_t i = above.size(); i-- > 0;) scope = scope_of(above[i], scope);
    return scope;
  }
  return scope;
}

std::string reason_of(int error) {
  if (error == ENAMETOOLONG) return "path longer than the system can open (" + std::to_string(PATH_MAX) + " bytes)";
  if (error == ELOOP) return "too many symbolic links";
  return errno_text(error);
}

class Walker {
 public:
  Walker(const std::string& root, const WalkOptions& options, const std::function<bool()>& stop)
      : root_(root), options_(options), stop_(stop) {
    auto leftovers = std::make_shared<Scope>();
    leftovers->list = IgnoreList(kLeftovers);
    leftovers->prefix = root == "/" ? "/" : root + "/";
    base_ = leftovers;
  }

  Found walk() {
    struct ::stat status {};
    if (::stat(root_.c_str(), &status) != 0) throw system_error("cannot read", root_, errno);
    if (!S_ISDIR(status.st_mode)) {
      const size_t slash = root_.rfind('/');
      file(root_, std::string_view(root_).substr(slash == std::string::npos ? 0 : slash + 1), status);
      return std::move(found_);
    }
    enter(root_, options_.use_ignore_files ? scopes_above(root_, base_) : nullptr, status);
    while (!found_.stopped && (!folders_.empty() || !links_.empty())) {
      if (stop_ && stop_()) {
        found_.stopped = true;
      } else if (!folders_.empty()) {
        const Pending folder = std::move(folders_.back());
        folders_.pop_back();
        list(folder);
      } else {
        const Pending link = std::move(links_.back());
        links_.pop_back();
        follow(link);
      }
    }
    std::sort(found_.files.begin(), found_.files.end(),
              [](const FoundFile& a, const FoundFile& b) { return a.path < b.path; });
    std::sort(found_.skipped.begin(), found_.skipped.end());
    return std::move(found_);
  }

 private:
  struct Pending {
    std::string path;
    ScopePtr scope;
  };
  using Identity = std::pair<uint64_t, uint64_t>;
  static Identity identity(const struct ::stat& status) {
    return {static_cast<uint64_t>(status.st_dev), static_cast<uint64_t>(status.st_ino)};
  }

  void enter(std::string path, ScopePtr scope, const struct ::stat& status) {
    if (!entered_.insert(identity(status)).second) return;
    folders_.push_back({std::move(path), std::move(scope)});
  }

  void list(const Pending& folder) {
    const FolderHandle handle(open_folder(folder.path));
    if (!handle) return unreadable(folder.path, errno);
    std::vector<std::string> names;
    while (true) {
      errno = 0;
      const dirent* entry = ::readdir(handle.get());
      if (entry == nullptr) break;
      if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0)
        names.emplace_back(entry->d_name);
    }
    if (errno != 0) unreadable(folder.path, errno);
    // Folders are taken from the end of a stack: in falling order they come out in rising order.
    std::sort(names.begin(), names.end(), std::greater<>());
    const ScopePtr scope = options_.use_ignore_files ? scope_of(folder.path, folder.scope) : nullptr;
    for (const std::string& name : names)
      entry(folder.path == "/" ? "/" + name : folder.path + "/" + name, name, scope);
  }

  // The folder itself, not one that a link in its place leads to since it was looked at.
  DIR* open_folder(const std::string& path) const {
    const int flags =
        O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK | (options_.follow_links || path == root_ ? 0 : O_NOFOLLOW);
    FileHandle fd(::open(path.c_str(), flags));
    if (!fd.open()) return nullptr;
    DIR* folder = ::fdopendir(fd.get());
    if (folder != nullptr) (void)fd.release();
    return folder;
  }

  void entry(const std::string& path, std::string_view name, const ScopePtr& scope) {
    if (is_repository_data(name) || (!options_.hidden && name[0] == '.')) return;
    struct ::stat status {};
    if (::lstat(path.c_str(), &status) != 0) return errno == ENOENT ? void() : unreadable(path, errno);
    const bool is_folder = S_ISDIR(status.st_mode);
    if (scope && scope->ignores(path, is_folder)) return;
    if (options_.exclude.match(below_root(path), is_folder).value_or(false)) return;
    if (is_folder) {
      enter(path, scope, status);
    } else if (S_ISLNK(status.st_mode)) {
      if (options_.follow_links) {
        links_.push_back({path, scope});
      } else if (wanted(path)) {
        skip(path, "symbolic link (--follow reads what it points at)");
      }
    } else if (wanted(path)) {
      file(path, name, status);
    }
  }

  void follow(const Pending& link) {
    struct ::stat status {};
    if (::stat(link.path.c_str(), &status) != 0) {
      skip(link.path, errno == ENOENT ? "symbolic link to nothing" : "symbolic link: " + reason_of(errno));
    } else if (S_ISDIR(status.st_mode)) {
      enter(link.path, link.scope, status);
    } else if (wanted(link.path)) {
      file(link.path, link.path, status);
    }
  }

  void file(const std::string& path, std::string_view, const struct ::stat& status) {
    if (!S_ISREG(status.st_mode)) {
      const char* kind = S_ISFIFO(status.st_mode) ? "named pipe" : S_ISSOCK(status.st_mode) ? "socket" : "device";
      return skip(path, std::string(kind) + ", not a file");
    }
    if (options_.follow_links && !seen_.insert(identity(status)).second) return;
    const auto size = static_cast<uint64_t>(status.st_size);
    if (size > options_.max_file_bytes) {
      return skip(path, size_text(size) + ", more than " + size_text(options_.max_file_bytes) + " (--max-file-size)");
    }
    found_.files.push_back({path, stamp_of(status)});
  }

  std::string_view below_root(std::string_view path) const {
    if (path.size() <= root_.size()) return path;
    path.remove_prefix(root_.size());
    while (!path.empty() && path[0] == '/') path.remove_prefix(1);
    return path;
  }

  bool wanted(std::string_view path) const {
    return options_.include.empty() || options_.include.covers(below_root(path));
  }

  void skip(const std::string& path, std::string reason) { found_.skipped.emplace_back(path, std::move(reason)); }

  void unreadable(const std::string& path, int error) {
    skip(path, reason_of(error));
    found_.unread.push_back(path);
  }

  const std::string& root_;
  const WalkOptions& options_;
  const std::function<bool()>& stop_;
  ScopePtr base_;
  std::vector<Pending> folders_, links_;
  std::set<Identity> entered_, seen_;
  Found found_;
};

}  // namespace

Found walk(const std::string& root, const WalkOptions& options, const std::function<bool()>& stop) {
  return Walker(root, options, stop).walk();
}

FileStamp stamp_of(const struct ::stat& status) {
  return {static_cast<uint64_t>(status.st_dev), static_cast<uint64_t>(status.st_ino),
          static_cast<uint64_t>(status.st_size),
          static_cast<int64_t>(status.st_mtim.tv_sec) * 1'000'000'000 + status.st_mtim.tv_nsec};
}

}  // namespace cento
