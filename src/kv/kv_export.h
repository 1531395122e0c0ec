// Stored KV in one file, for another machine's store.
//
//   magic          8 bytes, kExportMagic
//   a record each: u64 bytes of the blob (above 0), u8[32] hash of the chunk's text (zeros: none), the blob as it is
//                  stored (blob_format.h), u32 CRC-32C of the record before it
//   end            u64 0, u64 number of records, u32 CRC-32C of these 16 bytes
//
// Integers are little-endian. Blobs say for themselves which model, prefix and tokens they are of.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kv/kv_store.h"

namespace cento {

inline constexpr std::array<uint8_t, 8> kExportMagic = {0x89, 'C', 'K', 'X', '\r', '\n', 0x1a, '1'};
inline constexpr uint64_t kExportBlobBytesMax = uint64_t{4} << 30;

struct ExportReport {
  uint64_t blobs = 0, bytes = 0;  // written; bytes of the whole file
  // Left out, with the reason: damaged or gone since the list was made. They are not set aside here.
  std::vector<std::pair<Hash, std::string>> skipped;
  bool stopped = false;  // there is no file then
};

struct ImportReport {
  uint64_t imported = 0, present = 0, bytes = 0;             // blobs; bytes of those imported
  std::vector<std::pair<std::string, std::string>> refused;  // "record 3", reason
  bool stopped = false;                                      // what was imported before stays
};

struct ExportHooks {
  std::function<void(uint64_t done, uint64_t total)> progress;  // blobs; of an import bytes. May be empty
  std::function<bool()> stop;                                   // may be empty
};

// Every blob is checked before it is written. `path` appears whole or not at all; a file that is there is replaced.
// Throws Error for a disk that is full and the like.
ExportReport export_kv(KvStore& store, const std::vector<KvRow>& rows, const std::string& path,
                       const ExportHooks& hooks, FileSystem& fs = FileSystem::real());

// Every blob is checked as one that is read, frames included, before it is stored; one that is there already is left as
// it is. A record that is damaged is refused, and what stands behind it is still read as long as the lengths hold.
// Throws Error(kInput) for a file that is no export, Error(kResource) when the store cannot take more.
ImportReport import_kv(KvStore& store, const std::string& path, const ExportHooks& hooks,
                       FileSystem& fs = FileSystem::real());

}  // namespace cento
