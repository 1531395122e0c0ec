// What a fuzz target defines. fuzz_main.cc drives it with GCC; libFuzzer can drive the same LLVMFuzzerTestOneInput.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// Runs one input. Returns 0. A crash, a failed CHECK, a sanitizer's report, an exception that leaves it or ten seconds
// of running are findings; an Error that the tested code throws by contract is caught inside.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes);

namespace cento::test {

// Inputs to start from besides the files of the folder; may be empty.
std::vector<std::string> builtin_seeds();

}  // namespace cento::test
