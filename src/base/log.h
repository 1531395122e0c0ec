// Messages about the work, for people, on stderr only. What a command answers goes to stdout and not through here.
#pragma once

#include <string_view>

namespace cento {

enum class LogLevel { kQuiet, kWarning, kInfo, kDebug };

void set_log_level(LogLevel level);
LogLevel log_level();
// Called before each line, from the thread that writes it (it takes a progress bar off the screen); null: nothing.
void set_before_log(void (*hook)());

// One line each; control characters in `text` are shown as \xHH so that a file name cannot drive the terminal.
void log_warning(std::string_view text);
void log_info(std::string_view text);
void log_debug(std::string_view text);

}  // namespace cento
