// What this process runs on and how much of it it took. For reports.
#pragma once

#include <cstdint>
#include <string>

namespace cento {

std::string processor_name();  // as the system names it; "unknown processor" where it does not

// Most physical memory the process has held at once (VmHWM: mapped files count with the pages that were touched), in
// bytes; 0 where the system does not say.
uint64_t peak_memory_bytes();

}  // namespace cento
