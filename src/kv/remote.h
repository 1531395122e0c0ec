// The remote tier that a URL names.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "kv/tier.h"

namespace cento {

// kv/remote_url.h has the forms. `password`: used where the URL has none. Does not connect. Throws Error(kUsage) for
// what is wrong with the URL, Error(kInput) for a file for TLS that cannot be used.
std::unique_ptr<RemoteTier> open_remote(const std::string& url, const std::string& password = {},
                                        FileSystem& fs = FileSystem::real(), const Clock& clock = Clock::system());

}  // namespace cento
