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

// Puts a blob into the remote tier and lists it there. What fails is told to the log alone: a copy is a service.
bool put_and_list(RemoteTier& remote, const BlobView& blob, const Hash& group, const RemoteTier::Listed& listed);

inline std::string store_folder(const Catalogue& catalogue, const char* name) {
  return (catalogue.dir().empty() ? "." : catalogue.dir()) + "/" + name;
}

}  // namespace cento
