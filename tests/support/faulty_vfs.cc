#include "support/faulty_vfs.h"

#include <sqlite3.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <new>
#include <stdexcept>
#include <vector>

#include "base/rng.h"
#include "support/shared_data.h"

namespace cento::test {
namespace {

// One thing that was done to a file, not synced yet.
struct Change {
  enum class Kind { kCreate, kWrite, kTruncate, kDelete } kind;
  size_t at = 0;  // kTruncate: the new size
  std::string bytes = {};
};

struct Content {
  bool there = false;
  std::string bytes = {};

  void apply(const Change& change) {
    switch (change.kind) {
      case Change::Kind::kCreate:
        there = true;
        break;
      case Change::Kind::kWrite:
        if (bytes.size() < change.at + change.bytes.size()) bytes.resize(change.at + change.bytes.size());
        std::copy(change.bytes.begin(), change.bytes.end(), bytes.begin() + static_cast<ptrdiff_t>(change.at));
        break;
      case Change::Kind::kTruncate:
        bytes.resize(change.at);
        break;
      case Change::Kind::kDelete:
        *this = {};
        break;
    }
  }
};

struct Tracked {
  Content synced;
  std::vector<Change> since;

  bool is_new() const {
    return std::any_of(since.begin(), since.end(), [](const Change& c) { return c.kind == Change::Kind::kCreate; });
  }
  void sync() {
    for (const Change& change : since) synced.apply(change);
    since.clear();
  }
  // The folder was synced: what was created or deleted is so for good, what was written is not.
  void sync_name() {
    for (size_t i = since.size(); i-- > 0;) {
      if (since[i].kind != Change::Kind::kDelete) continue;
      synced = {};
      since.erase(since.begin(), since.begin() + static_cast<ptrdiff_t>(i) + 1);
      break;
    }
    const auto created =
        std::find_if(since.begin(), since.end(), [](const Change& c) { return c.kind == Change::Kind::kCreate; });
    if (created == since.end()) return;
    synced.apply(*created);
    since.erase(created);
  }
};

}  // namespace

struct FaultyVfs::Io {
  sqlite3_vfs vfs = {};
  sqlite3_vfs* real = nullptr;
  Faults* faults = nullptr;
  std::map<std::string, Tracked> tracked = {};

  // SQLite allocates it, with the real file right behind it.
  struct OpenFile {
    sqlite3_file base;
    Io* io;
    Tracked* of;  // null: temporary
    sqlite3_file* real() { return reinterpret_cast<sqlite3_file*>(this + 1); }
  };
  static_assert(sizeof(OpenFile) % alignof(std::max_align_t) == 0 || sizeof(OpenFile) % 8 == 0);

  static Io& of(sqlite3_vfs* v) { return *static_cast<Io*>(v->pAppData); }
  static OpenFile& of(sqlite3_file* f) { return *reinterpret_cast<OpenFile*>(f); }
  static bool fails(sqlite3_file* f, Op op) { return of(f).io->faults->next_fails(op); }

  // ---- files

  static int close(sqlite3_file* f) { return of(f).real()->pMethods->xClose(of(f).real()); }
  static int read(sqlite3_file* f, void* to, int n, sqlite3_int64 at) {
    if (fails(f, Op::kLook)) return SQLITE_IOERR_READ;
    return of(f).real()->pMethods->xRead(of(f).real(), to, n, at);
  }
  static int write(sqlite3_file* f, const void* from, int n, sqlite3_int64 at) {
    OpenFile& file = of(f);
    const bool bad = fails(f, Op::kGrow);
    if (bad && !file.io->faults->half_gets_through())
      return file.io->faults->no_room() ? SQLITE_FULL : SQLITE_IOERR_WRITE;
    if (bad) n /= 2;
    const int rc = file.real()->pMethods->xWrite(file.real(), from, n, at);
    if (rc == SQLITE_OK && file.of != nullptr) {
      file.of->since.push_back({Change::Kind::kWrite, static_cast<size_t>(at),
                                std::string(static_cast<const char*>(from), static_cast<size_t>(n))});
    }
    return bad ? SQLITE_FULL : rc;
  }
  static int truncate(sqlite3_file* f, sqlite3_int64 size) {
    if (fails(f, Op::kChange)) return SQLITE_IOERR_TRUNCATE;
    const int rc = of(f).real()->pMethods->xTruncate(of(f).real(), size);
    if (rc == SQLITE_OK && of(f).of != nullptr)
      of(f).of->since.push_back({Change::Kind::kTruncate, static_cast<size_t>(size)});
    return rc;
  }
  static int sync(sqlite3_file* f, int) {
    if (fails(f, Op::kChange)) return SQLITE_IOERR_FSYNC;
    Tracked* file = of(f).of;
    if (file == nullptr) return SQLITE_OK;
    // SQLite's unix layer syncs the folder with a new log or journal.
    const bool with_folder = file->is_new();
    file->sync();
    if (with_folder) {
      for (auto& [path, other] : of(f).io->tracked) other.sync_name();
    }
    return SQLITE_OK;
  }
  static int file_size(sqlite3_file* f, sqlite3_int64* size) {
    if (fails(f, Op::kLook)) return SQLITE_IOERR_FSTAT;
    return of(f).real()->pMethods->xFileSize(of(f).real(), size);
  }
  static int lock(sqlite3_file* f, int level) {
    if (fails(f, Op::kLook)) return SQLITE_IOERR_LOCK;
    return of(f).real()->pMethods->xLock(of(f).real(), level);
  }
  static int unlock(sqlite3_file* f, int level) { return of(f).real()->pMethods->xUnlock(of(f).real(), level); }
  static int check_reserved(sqlite3_file* f, int* out) {
    return of(f).real()->pMethods->xCheckReservedLock(of(f).real(), out);
  }
  static int control(sqlite3_file* f, int op, void* arg) {
    return of(f).real()->pMethods->xFileControl(of(f).real(), op, arg);
  }
  static int sector_size(sqlite3_file* f) { return of(f).real()->pMethods->xSectorSize(of(f).real()); }
  static int characteristics(sqlite3_file* f) { return of(f).real()->pMethods->xDeviceCharacteristics(of(f).real()); }
  static int shm_map(sqlite3_file* f, int page, int size, int extend, void volatile** out) {
    if (fails(f, Op::kLook)) return SQLITE_IOERR_SHMMAP;
    return of(f).real()->pMethods->xShmMap(of(f).real(), page, size, extend, out);
  }
  static int shm_lock(sqlite3_file* f, int offset, int n, int flags) {
    if ((flags & SQLITE_SHM_LOCK) != 0 && fails(f, Op::kLook)) return SQLITE_IOERR_SHMLOCK;
    return of(f).real()->pMethods->xShmLock(of(f).real(), offset, n, flags);
  }
  static void shm_barrier(sqlite3_file* f) { of(f).real()->pMethods->xShmBarrier(of(f).real()); }
  static int shm_unmap(sqlite3_file* f, int remove) { return of(f).real()->pMethods->xShmUnmap(of(f).real(), remove); }

  // ---- names

  // The file's content is read through SQLite's own descriptor: closing another one would drop the locks of this
  // process.
  static std::string content(sqlite3_file* real) {
    sqlite3_int64 size = 0;
    if (real->pMethods->xFileSize(real, &size) != SQLITE_OK) throw std::runtime_error("no size");
    std::string bytes(static_cast<size_t>(size), '\0');
    if (size > 0 && real->pMethods->xRead(real, bytes.data(), static_cast<int>(size), 0) != SQLITE_OK)
      throw std::runtime_error("cannot read");
    return bytes;
  }

  static int open(sqlite3_vfs* v, const char* name, sqlite3_file* f, int flags, int* out_flags) {
    static const sqlite3_io_methods methods = {
        2,         close,          read,    write,       truncate,        sync,    file_size, lock,
        unlock,    check_reserved, control, sector_size, characteristics, shm_map, shm_lock,  shm_barrier,
        shm_unmap, nullptr,        nullptr};
    Io& io = of(v);
    OpenFile* file = new (f) OpenFile{};
    file->io = &io;
    const bool creates = (flags & SQLITE_OPEN_CREATE) != 0;
    const bool was_there = name != nullptr && ::access(name, F_OK) == 0;
    if (io.faults->next_fails(creates && !was_there ? Op::kGrow : Op::kLook)) return SQLITE_CANTOPEN;
    const int rc = io.real->xOpen(io.real, name, file->real(), flags, out_flags);
    if (rc != SQLITE_OK) return rc;
    if (name != nullptr && (flags & (SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_JOURNAL)) != 0) {
      const auto [it, is_new] = io.tracked.try_emplace(name);
      if (is_new && was_there) it->second.synced = {true, content(file->real())};
      if (!was_there) it->second.since.push_back({Change::Kind::kCreate});
      file->of = &it->second;
    }
    file->base.pMethods = &methods;
    return SQLITE_OK;
  }
  static int remove(sqlite3_vfs* v, const char* name, int sync_folder) {
    Io& io = of(v);
    if (io.faults->next_fails(Op::kChange)) return SQLITE_IOERR_DELETE;
    const int rc = io.real->xDelete(io.real, name, 0);
    const auto it = io.tracked.find(name);
    if (rc == SQLITE_OK && it != io.tracked.end()) {
      it->second.since.push_back({Change::Kind::kDelete});
      if (sync_folder != 0) it->second.sync();
    }
    return rc;
  }
  static int access(sqlite3_vfs* v, const char* name, int flags, int* out) {
    if (of(v).faults->next_fails(Op::kLook)) return SQLITE_IOERR_ACCESS;
    return of(v).real->xAccess(of(v).real, name, flags, out);
  }
  static int full_path(sqlite3_vfs* v, const char* name, int n, char* out) {
    return of(v).real->xFullPathname(of(v).real, name, n, out);
  }
  static int randomness(sqlite3_vfs* v, int n, char* out) { return of(v).real->xRandomness(of(v).real, n, out); }
  static int sleep(sqlite3_vfs* v, int us) { return of(v).real->xSleep(of(v).real, us); }
  static int time(sqlite3_vfs* v, double* out) { return of(v).real->xCurrentTime(of(v).real, out); }
  static int last_error(sqlite3_vfs* v, int n, char* out) {
    if (of(v).faults->failed()) return of(v).faults->no_room() ? ENOSPC : EIO;
    return of(v).real->xGetLastError != nullptr ? of(v).real->xGetLastError(of(v).real, n, out) : 0;
  }
  static int time64(sqlite3_vfs* v, sqlite3_int64* out) { return of(v).real->xCurrentTimeInt64(of(v).real, out); }
};

FaultyVfs::FaultyVfs(Faults& faults) : io_(std::make_unique<Io>()) {
  if (sqlite3_initialize() != SQLITE_OK) throw std::runtime_error("sqlite3_initialize failed");
  io_->real = sqlite3_vfs_find(nullptr);
  io_->faults = &faults;
  sqlite3_vfs& vfs = io_->vfs;
  vfs.iVersion = 2;
  vfs.szOsFile = static_cast<int>(sizeof(Io::OpenFile)) + io_->real->szOsFile;
  vfs.mxPathname = io_->real->mxPathname;
  vfs.zName = "faulty";
  vfs.pAppData = io_.get();
  vfs.xOpen = Io::open;
  vfs.xDelete = Io::remove;
  vfs.xAccess = Io::access;
  vfs.xFullPathname = Io::full_path;
  vfs.xRandomness = Io::randomness;
  vfs.xSleep = Io::sleep;
  vfs.xCurrentTime = Io::time;
  vfs.xGetLastError = Io::last_error;
  vfs.xCurrentTimeInt64 = Io::time64;
  if (sqlite3_vfs_register(&vfs, 1) != SQLITE_OK) throw std::runtime_error("sqlite3_vfs_register failed");
}

FaultyVfs::~FaultyVfs() {
  (void)sqlite3_vfs_unregister(&io_->vfs);
  (void)sqlite3_vfs_register(io_->real, 1);
}

void FaultyVfs::forget() { io_->tracked.clear(); }

void FaultyVfs::crash(AfterCrash after, uint64_t seed) {
  io_->faults->fail_at(0, Fault::kOnce);
  Rng rng(seed);
  for (auto& [path, file] : io_->tracked) {
    Content left = file.synced;
    for (const Change& change : file.since) {
      const bool is_name = change.kind == Change::Kind::kCreate || change.kind == Change::Kind::kDelete;
      if (after == AfterCrash::kSomeWrites ? rng.below(2) == 0 : after == AfterCrash::kAllNames && is_name)
        left.apply(change);
    }
    if (left.there) {
      write_all(path, left.bytes);
    } else {
      (void)::unlink(path.c_str());
    }
    (void)::unlink((path + "-shm").c_str());
  }
  forget();
}

}  // namespace cento::test
