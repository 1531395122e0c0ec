// L4 without a server: blobs as files in a folder that machines share (NFS and the like). No database in it.
//
// PATH/cento/b/ab/NAME.kv            a blob, NAME 64 hexadecimal digits that begin with "ab"
// PATH/cento/g/ab/GROUP/KIND-NAME    an empty file: what find gives back
// PATH/cento itself is made by a person and never by us: where it is not, nothing is mounted. What we make in it is
// open to its group if the folder is, else to nobody. What was not used for the time to live is taken away by whoever
// comes across it; the times of the files say when that was, to an hour.
#pragma once

#include <atomic>
#include <string>

#include "base/clock.h"
#include "kv/tier.h"

namespace cento {

// A folder whose server is gone may make any call wait, and nothing can be done about that from here.
class FolderTier final : public RemoteTier {
 public:
  FolderTier(FileSystem& fs, std::string path, int64_t ttl_ms, const Clock& clock = Clock::system());

  Result<std::unique_ptr<File>> open(const Hash& name) override;
  bool contains(const Hash& name) override;
  Status put(const Hash& name, const BlobView& blob) override;
  Status evict(const Hash& name) override;
  uint64_t bytes() override { return 0; }
  std::optional<uint64_t> bytes_max() const override { return std::nullopt; }
  std::string where() const override { return path_; }
  std::vector<Listed> find(const Hash& group) override;
  Status list(const Hash& group, const Listed& item) override;
  Status check() override;

  std::string path_of(const Hash& name) const;

 private:
  Status there();  // it is mounted, so far as one can see
  bool expired(const std::string& path);
  Status make_folder(const std::string& path);
  Status write(const std::string& path, std::span<const std::byte> bytes);
  void sweep(const std::string& folder);

  FileSystem* fs_;
  const Clock* clock_;
  std::string path_, top_;
  int64_t ttl_ms_;  // 0: for ever
  std::atomic<bool> warned_{false};
};

}  // namespace cento
