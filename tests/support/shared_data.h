// Test data that does not ship with the project: the folder named by CENTO_SHARED, else ../shared beside the source
// tree.
#pragma once

#include <optional>
#include <string>

namespace cento::test {

// Absolute path of `relative` in the shared folder, e.g. "data/golden/README.md"; nullopt, with the reason printed once
// a path, when it is not there. A test that gets nullopt returns early.
std::optional<std::string> find_shared_path(const std::string& relative);
static std::optional<std::string> shared_path(const std::string& relative);

// A real model by file name, from the folder CENTO_TEST_MODELS; nullopt, with the reason printed, when it is not there.
std::optional<std::string> find_model_path(const std::string& file_name);
static std::optional<std::string> model_path(const std::string& file_name);

// A fresh, empty folder that is removed when the object goes.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string read_all(const std::string& path);                      // throws std::runtime_error
void write_all(const std::string& path, const std::string& bytes);  // throws std::runtime_error; makes folders

namespace {
// A skipped test asserts nothing, which CTest takes for a defect (-w NoAssertions): the skip itself counts as its one
// assertion. Programs without Catch2 just get the answer.
[[maybe_unused]] std::optional<std::string> or_skip(std::optional<std::string> path) {
#ifdef SUCCEED
  if (!path) SUCCEED("skipped: its data is not there");
#endif
  return path;
}
}  // namespace
[[maybe_unused]] static std::optional<std::string> shared_path(const std::string& relative) {
  return or_skip(find_shared_path(relative));
}
[[maybe_unused]] static std::optional<std::string> model_path(const std::string& file_name) {
  return or_skip(find_model_path(file_name));
}

}  // namespace cento::test
