#include "support/shared_data.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>

namespace cento::test {
namespace {

std::optional<std::string> found(const std::filesystem::path& path, const char* variable) {
  if (std::filesystem::exists(path)) return path.string();
  static std::set<std::string> told;
  if (told.insert(path.string()).second) {
    std::fprintf(stderr, "skipped: %s is not there (set %s)\n", path.c_str(), variable);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> find_shared_path(const std::string& relative) {
  const char* folder = std::getenv("CENTO_SHARED");
  return found(std::filesystem::path(folder ? folder : CENTO_SOURCE_DIR "/../shared") / relative, "CENTO_SHARED");
}

std::optional<std::string> find_model_path(const std::string& file_name) {
  const char* folder = std::getenv("CENTO_TEST_MODELS");
  return found(std::filesystem::path(folder ? folder : "models") / file_name, "CENTO_TEST_MODELS");
}

TempDir::TempDir() {
  std::string name = (std::filesystem::temp_directory_path() / "cento-test-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  path_ = name;
}

TempDir::~TempDir() {
  std::error_code ignored;  // a test may have taken away the permissions; the folder then stays in /tmp
  std::filesystem::remove_all(path_, ignored);
}

std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot open " + path);
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

void write_all(const std::string& path, const std::string& bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

}  // namespace cento::test
