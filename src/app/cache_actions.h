// The actions of `cento cache` that have files of their own.
#pragma once

#include <cstdint>
#include <string>

#include "app/commands.h"

namespace cento {

int cache_status(Run& run);               // cache_status.cc
int cache_verify(Run& run, bool repair);  // cache_upkeep.cc, from here on
int cache_gc(Run& run);
int cache_trim(Run& run, uint64_t max_bytes);
int cache_folder(Run& run, const CacheCommand& command);
int cache_rekey(Run& run, const CacheCommand& command);

std::string utc_text(int64_t unix_ms);  // "2026-11-30T12:00:00Z"

}  // namespace cento
