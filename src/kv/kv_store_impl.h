// Inside of KvStore. Included by kv/kv_*.cc alone.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kv/kv_store.h"

namespace cento {

// Settings of the catalogue: id of the store's key ("": none); while a rekey is on its way, of the one to come.
inline constexpr const char* kCipherSetting = "cipher";
inline constexpr const char* kCipherNextSetting = "cipher/next";
inline constexpr const char* kRekeyStopped = "a rekey of the store was stopped in the middle";

struct KvStore::Packed {
  std::vector<std::byte> bytes;
  std::vector<uint64_t> parts;
  std::optional<CipherId> cipher;
};

inline std::string store_folder(const Catalogue& catalogue, const char* name) {
  return (catalogue.dir().empty() ? "." : catalogue.dir()) + "/" + name;
}

}  // namespace cento
