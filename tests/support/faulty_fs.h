// A file system in memory whose n-th operation fails, and which forgets at a crash what was not synced.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "support/faults.h"

namespace cento::test {

class FaultyFs final : public FileSystem {
 public:
  // `root`: a folder that is there, whatever happens. `faults`: a counter shared with others, else one of its own.
  FaultyFs(const Clock& clock, std::string root, Faults* faults = nullptr);

  void fail_at(int n, Fault fault) { faults_->fail_at(n, fault); }
  bool failed() const { return faults_->failed(); }
  void crash(AfterCrash after);  // a power cut; and works again. kSomeWrites: as kAllNames
  std::vector<std::string> files() const;

  // Everything as it is now, synced or not; and back to it.
  class Saved;
  Saved saved() const;
  void restore(const Saved& saved);
  // Content of a file, past all counting; nullptr if there is none. Changed bytes count as synced.
  const std::vector<std::byte>* bytes(const std::string& path) const;
  void set_bytes(const std::string& path, std::vector<std::byte> bytes);

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

  Status step(Op op);
  static bool is_child(const std::string& path, const std::string& folder);

  const Clock* clock_;
  std::string root_;
  static void copy(const Names& from_names, const Names& from_synced, Names& names, Names& synced);
  Names names_, synced_names_;
  Faults own_;
  Faults* faults_;
};

class FaultyFs::Saved {
  friend class FaultyFs;
  Names names_, synced_names_;
};

}  // namespace cento::test
