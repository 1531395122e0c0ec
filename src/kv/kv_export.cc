#include "kv/kv_export.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/hash.h"
#include "kv/little_endian.h"

namespace cento {
namespace {

constexpr size_t kHeadBytes = sizeof(uint64_t) + 32;
constexpr size_t kEndBytes = 2 * sizeof(uint64_t);

std::vector<std::byte> head_of(uint64_t n_bytes, const std::optional<Hash>& chunk) {
  std::vector<std::byte> head;
  put_le(head, n_bytes);
  const Hash none = {};
  const Hash& hash = chunk ? *chunk : none;
  for (const uint8_t b : hash.bytes) head.push_back(static_cast<std::byte>(b));
  return head;
}

// A record's bytes come in turn; each call goes on from the sum before.
uint32_t crc_of(std::span<const std::byte> head, std::span<const std::byte> blob) { return crc32c(blob, crc32c(head)); }

std::string record_name(uint64_t n) { return "record " + std::to_string(n); }

class Import {
 public:
  Import(KvStore& store, const std::string& path, const ExportHooks& hooks, FileSystem& fs)
      : store_(store), path_(path), hooks_(hooks) {
    file_ = std::move(fs.open_read(path)).or_throw();
    size_ = std::move(file_->size()).or_throw();
  }

  ImportReport run() {
    std::vector<std::byte> magic(kExportMagic.size());
    if (size_ < magic.size()) throw no_export("it is too short");
    file_->read_at(0, magic).or_throw();
    if (std::memcmp(magic.data(), kExportMagic.data(), magic.size()) != 0) throw no_export("it begins otherwise");
    at_ = magic.size();
    while (one()) {
      if (hooks_.progress) hooks_.progress(at_, size_);
      if (hooks_.stop && hooks_.stop()) {
        report_.stopped = true;
        break;
      }
    }
    return std::move(report_);
  }

 private:
  Error no_export(const std::string& why) const {
    return {Code::kInput, "not an export of stored KV: " + why, path_, "`cento cache export FILE` writes one"};
  }

  void refuse(const std::string& reason) { report_.refused.emplace_back(record_name(n_records_), reason); }

  // False: nothing can be read behind it.
  bool one() {
    ++n_records_;
    std::vector<std::byte> head(kHeadBytes);
    if (size_ - at_ < sizeof(uint64_t)) return cut();
    file_->read_at(at_, std::span(head).first(sizeof(uint64_t))).or_throw();
    const auto n_bytes = get_le<uint64_t>(head, 0);
    if (n_bytes == 0) return end();
    if (n_bytes > kExportBlobBytesMax || size_ - at_ < kHeadBytes + sizeof(uint32_t) ||
        n_bytes > size_ - at_ - kHeadBytes - sizeof(uint32_t))
      return cut();
    file_->read_at(at_, head).or_throw();
    std::vector<std::byte> blob(n_bytes), sum(sizeof(uint32_t));
    file_->read_at(at_ + kHeadBytes, blob).or_throw();
    file_->read_at(at_ + kHeadBytes + n_bytes, sum).or_throw();
    at_ += kHeadBytes + n_bytes + sizeof(uint32_t);
    if (get_le<uint32_t>(sum, 0) != crc_of(head, blob)) {
      refuse("checksum mismatch");
      return true;
    }
    take(head, blob);
    return true;
  }

  void take(std::span<const std::byte> head, std::span<const std::byte> blob) {
    Hash chunk = {};
    std::memcpy(chunk.bytes.data(), head.data() + sizeof(uint64_t), chunk.bytes.size());
    const bool none = chunk == Hash{};
    auto added = store_.add_blob(blob, none ? std::nullopt : std::optional<Hash>(chunk));
    if (!added.ok()) {
      if (added.error().code() != Code::kInput) throw added.error();
      refuse(added.error().message());
    } else if (!added.value()) {
      ++report_.present;
    } else {
      ++report_.imported;
      report_.bytes += blob.size();
    }
  }

  bool cut() {
    refuse("the file is cut short, or damaged here: nothing behind it is read");
    return false;
  }

  bool end() {
    std::vector<std::byte> tail(kEndBytes + sizeof(uint32_t));
    if (size_ - at_ < tail.size()) return cut();
    file_->read_at(at_, tail).or_throw();
    at_ += tail.size();
    const auto body = std::span<const std::byte>(tail).first(kEndBytes);
    if (get_le<uint32_t>(tail, kEndBytes) != crc32c(body) ||
        get_le<uint64_t>(tail, sizeof(uint64_t)) != n_records_ - 1 || at_ != size_)
      return cut();
    return false;
  }

  KvStore& store_;
  const std::string& path_;
  const ExportHooks& hooks_;
  std::unique_ptr<File> file_;
  uint64_t size_ = 0, at_ = 0, n_records_ = 0;
  ImportReport report_;
};

}  // namespace

ExportReport export_kv(KvStore& store, const std::vector<KvRow>& rows, const std::string& path,
                       const ExportHooks& hooks, FileSystem& fs) {
  ExportReport report;
  const std::string temporary = path + ".tmp-" + std::to_string(::getpid());
  (void)fs.remove(temporary).ok();  // of an earlier process with our number that was killed
  auto file = std::move(fs.create(temporary)).or_throw();
  const auto write = [&](std::span<const std::byte> bytes) {
    file->write(bytes).or_throw();
    report.bytes += bytes.size();
  };
  try {
    write(std::as_bytes(std::span(kExportMagic)));
    uint64_t done = 0;
    for (const KvRow& row : rows) {
      if (hooks.stop && hooks.stop()) {
        report.stopped = true;
        break;
      }
      auto blob = store.read_blob(row.key);
      if (blob.ok()) {
        std::vector<std::byte> sum;
        const std::vector<std::byte> head = head_of(blob.value().size(), row.chunk_hash);
        put_le(sum, crc_of(head, blob.value()));
        write(head);
        write(blob.value());
        write(sum);
        ++report.blobs;
      } else {
        report.skipped.emplace_back(row.key, blob.error().message());
      }
      if (hooks.progress) hooks.progress(++done, rows.size());
    }
    std::vector<std::byte> end;
    put_le(end, uint64_t{0});
    put_le(end, report.blobs);
    put_le(end, crc32c(end));
    write(end);
    if (!report.stopped) {
      file->sync().or_throw();
      fs.rename(temporary, path).or_throw();
      const size_t slash = path.find_last_of('/');
      fs.sync_folder(slash == std::string::npos ? "." : path.substr(0, std::max<size_t>(1, slash))).or_throw();
      return report;
    }
  } catch (...) {
    (void)fs.remove(temporary).ok();
    throw;
  }
  (void)fs.remove(temporary).ok();
  return report;
}

ImportReport import_kv(KvStore& store, const std::string& path, const ExportHooks& hooks, FileSystem& fs) {
  return Import(store, path, hooks, fs).run();
}

}  // namespace cento
