// Makes a file cold.
#pragma once

#include <string>

namespace cento {

// Asks the system to forget the file's pages, and looks whether it did: true if none of them is in memory any more.
// False where that does not work (a file system in memory, pages that somebody else has mapped, no such file). The
// file's bytes must be on the disk already: what is not written yet stays.
bool evict_from_page_cache(const std::string& path);

}  // namespace cento
