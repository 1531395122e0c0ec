#include "kv/tier_disk.h"

#include "base/text.h"

namespace cento {
namespace {

constexpr int64_t kTemporaryAgeMs = 3'600'000;  // older ones belong to nobody: a put takes seconds
constexpr const char* kSuffix = ".kv";
constexpr uint64_t kMarkBytesMax = 256;

std::string folder_of(const std::string& path) { return path.substr(0, path.find_last_of('/')); }

std::optional<Hash> name_in(const std::string& file_name) {
  if (!file_name.ends_with(kSuffix)) return std::nullopt;
  return hash_from_hex(std::string_view(file_name).substr(0, file_name.size() - std::string_view(kSuffix).size()));
}

}  // namespace

DiskTier::DiskTier(FileSystem& fs, std::string own, const Clock& clock) : fs_(&fs), clock_(&clock) {
  DiskFolder folder;
  folder.path = std::move(own);
  folders_.push_back(std::move(folder));
}

void DiskTier::set_folders(std::vector<DiskFolder> further) {
  folders_.resize(1);
  for (DiskFolder& folder : further) folders_.push_back(std::move(folder));
}

bool DiskTier::available(const DiskFolder& folder) {
  if (folder.id == 0) return true;
  const std::string path = folder.path + "/" + kMarkFile;
  const auto file = fs_->open_read(path);
  if (!file) return false;
  const auto size = (*file)->size();
  if (!size || *size != folder.mark.size() || *size > kMarkBytesMax) return false;
  std::string mark(*size, '\0');
  return (*file)->read_at(0, std::as_writable_bytes(std::span(mark))).ok() && mark == folder.mark;
}

bool DiskTier::all_available() {
  for (const DiskFolder& folder : folders_) {
    if (!available(folder)) return false;
  }
  return true;
}

std::string DiskTier::path_in(const DiskFolder& folder, const Hash& name) const {
  const std::string hex = name.hex();
  return folder.path + "/" + hex.substr(0, 2) + "/" + hex + kSuffix;
}

std::string DiskTier::find(const Hash& name) {
  for (const DiskFolder& folder : folders_) {
    std::string path = path_in(folder, name);
    if (fs_->exists(path)) return path;
  }
  return {};
}

Result<std::unique_ptr<File>> DiskTier::open(const Hash& name) {
  const std::string path = find(name);
  if (path.empty()) {
    ++counters_.misses;
    if (!all_available()) return Error{Code::kResource, "a folder of the store is not there", path_of(name)};
    return Error{Code::kInput, "file missing", path_of(name)};
  }
  auto file = fs_->open_read(path);
  if (!file && !fs_->exists(path)) {  // evicted by somebody else since
    ++counters_.misses;
    return Error{Code::kInput, "file missing", path};
  }
  ++(file.ok() ? counters_.hits : counters_.failures);
  return file;
}

Status DiskTier::evict(const Hash& name) {
  for (const DiskFolder& folder : folders_) {
    if (auto s = fs_->remove(path_in(folder, name)); !s) return s;
  }
  ++counters_.evictions;
  return Status::done();
}

Status DiskTier::put(const Hash& name, const BlobView& blob) {
  const DiskFolder& folder = folders_.front();
  if (auto s = check_room(folder, blob.bytes.size()); !s) return s;
  const auto prepared = prepare(folder, name, blob.bytes);
  if (!prepared) return prepared.error();
  bool renamed = false;
  if (auto s = place(*prepared, renamed); !s) {
    if (!renamed) (void)fs_->remove(prepared->temporary).ok();  // the first error is the one to tell
    return s;
  }
  return Status::done();
}

Result<DiskTier::Prepared> DiskTier::prepare(const DiskFolder& folder, const Hash& name,
                                             std::span<const std::byte> bytes) {
  Prepared out;
  out.path = path_in(folder, name);
  const std::string parent = folder_of(out.path);
  if (!fs_->exists(parent)) {
    if (auto s = fs_->make_folders(parent); !s) return s.error();
    // A file is there after a power cut only if the folders above it are.
    if (auto s = fs_->sync_folder(folder.path); !s) return s.error();
    if (auto s = fs_->sync_folder(folder_of(folder.path)); !s) return s.error();
  }
  auto temporary = write_beside(*fs_, out.path, bytes);
  if (!temporary) return temporary.error();
  out.temporary = std::move(*temporary);
  ++counters_.puts;
  counters_.bytes_written += bytes.size();
  return out;
}

Status DiskTier::place(const Prepared& prepared, bool& renamed) {
  if (auto s = fs_->rename(prepared.temporary, prepared.path); !s) return s;
  renamed = true;
  return fs_->sync_folder(folder_of(prepared.path));
}

Result<uint64_t> DiskTier::free_bytes(const DiskFolder& folder) {
  // The folder is made with the first blob; until then its disk is that of what stands above it.
  std::string path = folder.path;
  while (path.size() > 1 && path.find('/') != std::string::npos && !fs_->exists(path)) path = folder_of(path);
  return fs_->free_bytes(path.empty() ? "/" : path);
}

Status DiskTier::check_room(const DiskFolder& folder, uint64_t n_bytes) {
  if (free_bytes_min_ == 0) return Status::done();
  const auto free = free_bytes(folder);
  if (!free) return Status::done();  // a file system that does not tell: writing finds out
  if (*free >= n_bytes && *free - n_bytes >= free_bytes_min_) return Status::done();
  return Error{Code::kResource,
               "the disk is nearly full: " + size_text(*free) + " free, " + size_text(n_bytes) + " to be written, " +
                   size_text(free_bytes_min_) + " are left alone",
               folder.path, "free some space, or `cento cache trim --max-bytes SIZE`"};
}

void DiskTier::for_each_file(
    const std::function<void(const DiskFolder& folder, const std::string& path, const std::string& file_name,
                             const std::optional<Hash>& name)>& visit) {
  for (const DiskFolder& folder : folders_) {
    if (!fs_->exists(folder.path) || !available(folder)) continue;
    for (const std::string& part : fs_->list(folder.path).or_throw()) {
      const std::string below = folder.path + "/" + part;
      auto names = fs_->list(below);
      if (!names) continue;  // not a folder: nothing of ours
      for (const std::string& name : *names) visit(folder, below + "/" + name, name, name_in(name));
    }
  }
}

bool DiskTier::is_old_temporary(const std::string& path, std::string_view file_name) {
  if (file_name.find(".kv.tmp-") == std::string_view::npos) return false;
  const auto modified = fs_->modified_ms(path);
  return modified.ok() && clock_->unix_ms() - *modified > kTemporaryAgeMs;
}

}  // namespace cento
