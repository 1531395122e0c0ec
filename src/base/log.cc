#include "base/log.h"

#include <atomic>
#include <cstdio>
#include <string>

#include "base/text.h"

namespace cento {
namespace {

std::atomic<LogLevel> g_level{LogLevel::kInfo};
std::atomic<void (*)()> g_before{nullptr};

void write_line(std::string_view prefix, std::string_view text) {
  std::string line(prefix);
  line += printable(text);
  line += '\n';
  if (const auto before = g_before.load()) before();
  std::fwrite(line.data(), 1, line.size(), stderr);  // one call a line: lines of two threads do not mix
}

}  // namespace

void set_log_level(LogLevel level) { g_level = level; }
LogLevel log_level() { return g_level; }
void set_before_log(void (*hook)()) { g_before = hook; }

void log_warning(std::string_view text) {
  if (log_level() >= LogLevel::kWarning) write_line("warning: ", text);
}
void log_info(std::string_view text) {
  if (log_level() >= LogLevel::kInfo) write_line("", text);
}
void log_debug(std::string_view text) {
  if (log_level() >= LogLevel::kDebug) write_line("debug: ", text);
}

}  // namespace cento
