// A file system in memory whose n-th operation fails, and which forgets at a crash what was not synced.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file.h"

namespace cento::test {

enum class Fault {
  kOnce,        // the n-th operation fails; nothing of it happens
  kShortWrite,  // the same, but half of a write gets through
  kForGood,     // the n-th operation and all later ones fail
};

// What a power cut leaves. Folder entries: those as of the latest sync of their folder, or all of them. Content of
// files: as of the latest sync of the file.
enum class AfterCrash { kSyncedNames, kAllNames };

class FaultyFs final : public FileSystem {
 public:
  FaultyFs(const Clock& clock, std::string root);  // `root`: a folder that is there, whatever happens

  void fail_at(int n, Fault fault) {
    n_ops_ = 0;
    fail_at_ = n;
    fault_ = fault;
    failed_ = false;
  }
  bool failed() const { return failed_; }
  void crash(AfterCrash after);  // and works again
  std::vector<std::string> files() const;

  Result<std::unique_ptr<File>> create(const std::string& path) override;
  Result<std::unique_ptr<File>> open_read(const std::string& path) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status remove(const std::string& path) override;
  Status sync_folder(const std::string& path) override;
  Status make_folders(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& folder) override;
  bool exists(const std::string& path) override;  // cannot fail, so it is no operation
  Result<int64_t> modified_ms(const std::string& path) override;

 private:
  class MemoryFile;
  struct Node {
    bool is_folder = false;
    std::vector<std::byte> bytes, synced;
    int64_t modified_ms = 0;
  };
  using Names = std::map<std::string, std::shared_ptr<Node>>;

  Status step();
  static bool is_child(const std::string& path, const std::string& folder);

  const Clock* clock_;
  std::string root_;
  Names names_, synced_names_;
  int n_ops_ = 0, fail_at_ = 0;  // 0: never
  Fault fault_ = Fault::kOnce;
  bool failed_ = false;
};

}  // namespace cento::test
