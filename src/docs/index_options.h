// The options a folder was indexed with, as the collection keeps them.
#pragma once

#include <string>

#include "docs/indexer.h"

namespace cento {

std::string stored_options(const IndexOptions& options);  // JSON

// The stored options, and over them what this run says differently from the defaults.
IndexOptions with_stored(const IndexOptions& given, const std::string& stored);

}  // namespace cento
