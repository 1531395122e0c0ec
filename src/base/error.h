// The one exception type of the program and the meaning of its codes for the shell and for HTTP.
#pragma once

#include <exception>
#include <string>

namespace cento {

enum class Code {
  kInternal,  // anything unforeseen; a defect of ours
  kUsage,     // flags, configuration, request body
  kInput,     // model, document or store missing, damaged, unsupported or not matching
  kResource,  // memory, disk, GPU or lock not available; worth a retry
};

int exit_status(Code code);
int http_status(Code code);
const char* code_name(Code code);

// What happened, where, and what to do about it. `where` and `hint` may be empty.
class Error : public std::exception {
 public:
  Error(Code code, std::string what_happened, std::string where_it_was = {}, std::string what_to_do = {});

  // The three lines a person sees: "error: what", "  in:  where", "  try: what to do"; no final line end.
  const char* what() const noexcept override { return text_.c_str(); }

  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  const std::string& where() const { return where_; }
  const std::string& hint() const { return hint_; }

 private:
  Code code_;
  std::string message_, where_, hint_, text_;
};

// "No space left on device (ENOSPC)"-like text of an errno value, safe in any thread.
std::string errno_text(int errno_value);

// The Error for a failed system call on `path`: kResource for a full disk, quota, memory and handles, else kInput.
Error system_error(const std::string& action, const std::string& path, int errno_value);

}  // namespace cento
