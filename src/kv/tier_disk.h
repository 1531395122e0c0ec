// L3: blobs as files, in the store's own folder and in further ones.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "kv/tier.h"

namespace cento {

// A further folder for blobs, on another disk. The mark is in a file in it, so that an empty mount point is not taken
// for a folder whose blobs are gone.
struct DiskFolder {
  int64_t id = 0;          // > 0; 0 is the store's own
  std::string path;        // absolute
  std::string mark;        // content of PATH/.cento-kv
  uint64_t bytes_max = 0;  // 0: as far as the disk goes
};

class DiskTier final : public Tier {
 public:
  // Room that is left free on a disk, for whoever else writes to it and for the catalogue.
  static constexpr uint64_t kFreeBytesMin = uint64_t{64} << 20;
  static constexpr const char* kMarkFile = ".cento-kv";

  // `own`: the store's folder of blobs; it need not be there yet.
  DiskTier(FileSystem& fs, std::string own, const Clock& clock);
  void set_folders(std::vector<DiskFolder> further);
  const std::vector<DiskFolder>& folders() const { return folders_; }  // the store's own first
  bool available(const DiskFolder& folder);                            // it is there and it is ours
  bool all_available();
  // 0: the disk itself is asked, by writing.
  void set_free_bytes_min(uint64_t bytes) { free_bytes_min_ = bytes; }

  const char* name() const override { return "disk"; }
  Result<std::unique_ptr<File>> open(const Hash& name) override;
  bool contains(const Hash& name) override { return !find(name).empty(); }
  Status put(const Hash& name, const BlobView& blob) override;
  Status evict(const Hash& name) override;  // from every folder
  uint64_t bytes() override { return 0; }   // the catalogue knows
  std::optional<uint64_t> bytes_max() const override { return std::nullopt; }

  // put in two steps, for a caller that has a row to write with the second. The folder is one of folders().
  struct Prepared {
    std::string temporary, path;
  };
  Result<Prepared> prepare(const DiskFolder& folder, const Hash& name, std::span<const std::byte> bytes);
  // `renamed`: the file is in its place, whatever the answer.
  Status place(const Prepared& prepared, bool& renamed);
  // Error(kResource) naming the disk if `n_bytes` more would leave less than the minimum free.
  Status check_room(const DiskFolder& folder, uint64_t n_bytes);
  Result<uint64_t> free_bytes(const DiskFolder& folder);

  std::string path_in(const DiskFolder& folder, const Hash& name) const;  // PATH/ab/abcdef....kv
  std::string path_of(const Hash& name) const { return path_in(folders_.front(), name); }
  std::string find(const Hash& name);  // its path where it is; "" if it is nowhere

  // Every file two folders down, of available folders; `name`: of the blob, nullopt for a file that is none.
  void for_each_file(const std::function<void(const DiskFolder& folder, const std::string& path,
                                              const std::string& file_name, const std::optional<Hash>& name)>& visit);
  bool is_old_temporary(const std::string& path, std::string_view file_name);

 private:
  FileSystem* fs_;
  const Clock* clock_;
  std::vector<DiskFolder> folders_;
  uint64_t free_bytes_min_ = kFreeBytesMin;
};

}  // namespace cento
