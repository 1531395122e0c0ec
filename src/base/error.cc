#include "base/error.h"

#include <cerrno>
#include <system_error>
#include <utility>

namespace cento {

int exit_status(Code code) {
  switch (code) {
    case Code::kInternal:
      return 1;
    case Code::kUsage:
      return 2;
    case Code::kInput:
      return 3;
    case Code::kResource:
      return 4;
  }
  return 1;
}

int http_status(Code code) {
  switch (code) {
    case Code::kInternal:
      return 500;
    case Code::kUsage:
      return 400;
    case Code::kInput:
      return 422;
    case Code::kResource:
      return 503;
  }
  return 500;
}

const char* code_name(Code code) {
  switch (code) {
    case Code::kInternal:
      return "internal";
    case Code::kUsage:
      return "usage";
    case Code::kInput:
      return "input";
    case Code::kResource:
      return "resource";
  }
  return "internal";
}

Error::Error(Code code, std::string what_happened, std::string where_it_was, std::string what_to_do)
    : code_(code),
      message_(std::move(what_happened)),
      where_(std::move(where_it_was)),
      hint_(std::move(what_to_do)),
      text_("error: " + message_) {
  if (!where_.empty()) text_ += "\n  in:  " + where_;
  if (!hint_.empty()) text_ += "\n  try: " + hint_;
}

std::string errno_text(int errno_value) { return std::generic_category().message(errno_value); }

Error system_error(const std::string& action, const std::string& path, int errno_value) {
  switch (errno_value) {
    case ENOSPC:
    case EDQUOT:
      return {Code::kResource, action + ": " + errno_text(errno_value), path, "free disk space, then run it again"};
    case ENOMEM:
      return {Code::kResource, action + ": " + errno_text(errno_value), path,
              "close other programs or use a smaller model"};
    case EMFILE:
    case ENFILE:
    case EAGAIN:
    case EBUSY:
      return {Code::kResource, action + ": " + errno_text(errno_value), path, "run it again in a moment"};
    case EIO:  // the medium, not what is on it: nothing is thrown away for it
      return {Code::kResource, action + ": " + errno_text(errno_value), path, "check the disk, then run it again"};
    case EACCES:
    case EPERM:
    case EROFS:
      return {Code::kInput, action + ": " + errno_text(errno_value), path, "check owner and permissions"};
    default:
      return {Code::kInput, action + ": " + errno_text(errno_value), path, "check the path"};
  }
}

}  // namespace cento
