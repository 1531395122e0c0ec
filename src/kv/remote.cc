#include "kv/remote.h"

#include "kv/remote_url.h"
#include "kv/tier_folder.h"
#include "kv/tier_redis.h"

namespace cento {

std::unique_ptr<RemoteTier> open_remote(const std::string& url, const std::string& password, FileSystem& fs,
                                        const Clock& clock) {
  RemoteUrl settings = parse_remote_url(url);
  if (settings.kind == RemoteUrl::Kind::kFolder)
    return std::make_unique<FolderTier>(fs, settings.folder, settings.ttl_ms, clock);
  if (settings.password.empty()) settings.password = password;
  return std::make_unique<RedisTier>(std::move(settings), clock);
}

}  // namespace cento
