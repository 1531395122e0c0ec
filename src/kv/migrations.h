// Brings a database from its schema version to the newest one, step by step.
#pragma once

#include <cstdint>
#include <span>

#include "kv/sqlite.h"

namespace cento {

// `steps[i]` is the SQL that takes version i to version i + 1; the newest version is steps.size(). Each step runs in a
// transaction of its own with foreign keys off (so that tables can be rebuilt) and checked before the commit; a step
// that fails leaves the version before it. Several processes may migrate at once. Throws Error(kInput): a version that
// is newer than the newest step, or negative; an older one on a read-only connection.
void migrate(Db& db, std::span<const char* const> steps, int32_t application_id);

}  // namespace cento
