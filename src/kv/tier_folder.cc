#include "kv/tier_folder.h"

#include <algorithm>

#include "base/log.h"

namespace cento {
namespace {

constexpr int64_t kRenewAfterMs = 3'600'000;         // the time of a file is set at most this often
constexpr int64_t kTemporaryAgeMs = 24 * 3'600'000;  // clocks of machines differ, and their disks are slow
constexpr size_t kSweptMax = 64;                     // files taken away in one go
constexpr const char* kSuffix = ".kv";

std::string parent_of(const std::string& path) { return path.substr(0, path.find_last_of('/')); }

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

}  // namespace

FolderTier::FolderTier(FileSystem& fs, std::string path, int64_t ttl_ms, const Clock& clock)
    : fs_(&fs), clock_(&clock), path_(without_slash(std::move(path))), top_(path_ + "/cento"), ttl_ms_(ttl_ms) {}

std::string FolderTier::path_of(const Hash& name) const {
  const std::string hex = name.hex();
  return top_ + "/b/" + hex.substr(0, 2) + "/" + hex + kSuffix;
}

Status FolderTier::there() {
  if (fs_->exists(top_)) return Status::done();
  ++counters_.failures;
  Error error{Code::kResource, "no folder `cento` in it: not mounted?", path_,
              "if it is the right one, make that folder: mkdir " + top_};
  if (!warned_.exchange(true)) log_warning("remote tier " + path_ + ": " + error.message() + "; going on without it");
  return error;
}

bool FolderTier::expired(const std::string& path) {
  if (ttl_ms_ == 0) return false;
  const auto modified = fs_->modified_ms(path);
  return modified.ok() && clock_->unix_ms() - *modified > ttl_ms_;
}

// ---- reading

Result<std::unique_ptr<File>> FolderTier::open(const Hash& name) {
  if (auto s = there(); !s) return s.error();
  const std::string path = path_of(name);
  const auto modified = fs_->modified_ms(path);
  const int64_t age = modified.ok() ? clock_->unix_ms() - *modified : 0;
  const bool gone = !modified.ok() && !fs_->exists(path);
  if (gone || (ttl_ms_ > 0 && age > ttl_ms_)) {
    if (!gone) (void)fs_->remove(path).ok();
    ++counters_.misses;
    return Error{Code::kInput, "not in the remote tier", path};
  }
  auto file = fs_->open_read(path);
  if (!file) {
    ++counters_.failures;
    return Error{Code::kResource, file.error().message(), path};
  }
  if (ttl_ms_ > 0 && age > std::min(ttl_ms_ / 2, kRenewAfterMs)) (void)fs_->touch(path).ok();
  ++counters_.hits;
  return file;
}

bool FolderTier::contains(const Hash& name) {
  const std::string path = path_of(name);
  return fs_->exists(path) && !expired(path);
}

std::vector<RemoteTier::Listed> FolderTier::find(const Hash& group) {
  const std::string hex = group.hex(), folder = top_ + "/g/" + hex.substr(0, 2) + "/" + hex;
  if (!there().ok()) return {};
  const auto names = fs_->list(folder);
  if (!names) return {};
  std::vector<Listed> out;
  size_t removed = 0;
  for (const std::string& item : *names) {
    if (out.size() == kListedMax) break;
    if (item.size() < 2 || item[1] != '-' || item[0] < '0' || item[0] > '0' + static_cast<int>(KvKind::kChunkStandIn))
      continue;
    const auto name = hash_from_hex(std::string_view(item).substr(2));
    if (!name) continue;
    if (contains(*name)) {
      out.push_back({*name, static_cast<KvKind>(item[0] - '0')});
    } else if (removed < kSweptMax) {
      ++removed;
      (void)fs_->remove(folder + "/" + item).ok();
    }
  }
  return out;
}

// ---- writing

Status FolderTier::make_folder(const std::string& path) {
  if (fs_->exists(path)) return Status::done();
  if (auto s = fs_->make_folders(path); !s) return s;
  const auto mode = fs_->mode(top_);
  if (!mode.ok() || (*mode & 0020) == 0) return Status::done();
  for (std::string p = path; p.size() > top_.size(); p = parent_of(p))
    (void)fs_->set_mode(p, 02770).ok();  // of those that others made it fails, and they have it
  return Status::done();
}

Status FolderTier::write(const std::string& path, std::span<const std::byte> bytes) {
  if (auto s = there(); !s) return s;
  if (auto s = make_folder(parent_of(path)); !s) return s;
  const auto temporary = write_beside(*fs_, path, bytes);
  if (!temporary) return temporary.error();
  const auto mode = fs_->mode(top_);
  Status s;
  if (mode.ok() && (*mode & 0020) != 0) s = fs_->set_mode(*temporary, 0660);
  if (s.ok()) s = fs_->rename(*temporary, path);
  if (!s.ok()) {
    (void)fs_->remove(*temporary).ok();  // the first error is the one to tell
    return s;
  }
  return fs_->sync_folder(parent_of(path));
}

Status FolderTier::put(const Hash& name, const BlobView& blob) {
  const std::string path = path_of(name);
  if (auto s = write(path, blob.bytes); !s) return Error{Code::kResource, s.error().message(), path, s.error().hint()};
  sweep(parent_of(path));
  ++counters_.puts;
  counters_.bytes_written += blob.bytes.size();
  return Status::done();
}

Status FolderTier::list(const Hash& group, const Listed& item) {
  const std::string hex = group.hex();
  const std::string path = top_ + "/g/" + hex.substr(0, 2) + "/" + hex + "/" +
                           std::to_string(static_cast<int>(item.kind)) + "-" + item.name.hex();
  if (fs_->exists(path)) return Status::done();
  const auto names = fs_->list(parent_of(path));
  if (names.ok() && names->size() >= 2 * kListedMax)  // find takes away what has no blob
    return Error{Code::kResource, "too many are listed for one chunk", parent_of(path)};
  return write(path, {});
}

Status FolderTier::evict(const Hash& name) {
  if (auto s = fs_->remove(path_of(name)); !s) return s;
  ++counters_.evictions;
  return Status::done();
}

Status FolderTier::check() {
  const std::string path = top_ + "/.check";
  if (auto s = there(); !s) return s;
  const auto temporary = write_beside(*fs_, path, {});
  if (!temporary) return temporary.error();
  return fs_->remove(*temporary);
}

// What has expired, and what a put that was cut off has left, in one of the 256 folders of blobs.
void FolderTier::sweep(const std::string& folder) {
  const auto names = fs_->list(folder);
  if (!names) return;
  size_t removed = 0;
  for (const std::string& name : *names) {
    if (removed == kSweptMax) return;
    const std::string path = folder + "/" + name;
    const bool blob = name.ends_with(kSuffix), temporary = name.find(".kv.tmp-") != std::string::npos;
    bool old = blob && expired(path);
    if (temporary) {
      const auto modified = fs_->modified_ms(path);
      old = modified.ok() && clock_->unix_ms() - *modified > kTemporaryAgeMs;
    }
    if (!old) continue;
    ++removed;
    if (fs_->remove(path).ok()) ++counters_.evictions;
  }
}

}  // namespace cento
