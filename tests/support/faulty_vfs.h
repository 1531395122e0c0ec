// SQLite's own file layer, whose n-th operation fails, and which forgets at a power cut what was not synced.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "support/faults.h"

namespace cento::test {

// While it lives it stands between SQLite and the system, for every database that is opened: make it before the first
// connection, and let it go after the last. Counted are opens, reads, writes, truncations, syncs, sizes, deletions,
// looks for a file, locks taken (not given back) and shared memory. Nothing is really synced: it would only take time.
class FaultyVfs {
 public:
  explicit FaultyVfs(Faults& faults);
  ~FaultyVfs();
  FaultyVfs(const FaultyVfs&) = delete;
  FaultyVfs& operator=(const FaultyVfs&) = delete;

  // Gives every database and log the content that a power cut leaves; `seed` draws for kSomeWrites. No connection may
  // be open. Shared memory is gone.
  void crash(AfterCrash after, uint64_t seed);
  // What is on the disk is taken for synced: for files put there by other means.
  void forget();

 private:
  struct Io;
  std::unique_ptr<Io> io_;
};

}  // namespace cento::test
