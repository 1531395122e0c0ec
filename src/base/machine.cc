#include "base/machine.h"

#include <cstdlib>
#include <fstream>
#include <string_view>

#include "base/text.h"

namespace cento {
namespace {

// What stands behind the first "`key` ... :" of a file of such lines; "" if there is none.
std::string value_of(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t colon = line.find(':');
    if (colon != std::string::npos) return std::string(trim(std::string_view(line).substr(colon + 1)));
  }
  return {};
}

}  // namespace

std::string processor_name() {
  const std::string name = value_of("/proc/cpuinfo", "model name");
  return name.empty() ? "unknown processor" : name;
}

uint64_t peak_memory_bytes() {
  return std::strtoull(value_of("/proc/self/status", "VmHWM").c_str(), nullptr, 10) * 1024;  // "123456 kB"
}

}  // namespace cento
