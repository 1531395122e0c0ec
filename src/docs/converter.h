// Runs the command a person named for a file format and takes what it prints as the document's text.
#pragma once

#include <string>
#include <vector>

#include "base/process.h"
#include "base/result.h"

namespace cento {

// A command as words: blanks part them, '...' and "..." keep them together, a backslash takes the next character as it
// is (not inside '...'). Nothing else is special; there is no shell. Error(kUsage) for an open quote or no word.
Result<std::vector<std::string>> split_command(const std::string& command);

using ConverterLimits = ProcessLimits;

// `command` as above; "{}" in a word becomes `path` (absolute), which is added at the end if no word has it. Standard
// input is empty. Error(kInput), with the first line of what went to standard error, for: a command that is not there,
// an exit status other than 0, a signal, too much time or output (it and its children are then killed).
Result<std::string> convert_file(const std::string& command, const std::string& path, const ConverterLimits& limits);

}  // namespace cento
