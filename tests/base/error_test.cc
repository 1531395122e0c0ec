#include "base/error.h"

#include <catch2/catch.hpp>
#include <cerrno>
#include <memory>
#include <string>

#include "base/result.h"

namespace cento {
namespace {

TEST_CASE("error: tells what, where and what to do, each only if it is there", "[base]") {
  const Error full(Code::kInput, "checksum mismatch", "f.kv, byte 12", "remove the file");
  CHECK(std::string(full.what()) == "error: checksum mismatch\n  in:  f.kv, byte 12\n  try: remove the file");
  CHECK(std::string(Error(Code::kUsage, "bad flag").what()) == "error: bad flag");
  CHECK(std::string(Error(Code::kUsage, "bad flag", "", "see --help").what()) == "error: bad flag\n  try: see --help");
  CHECK(full.message() == "checksum mismatch");
  CHECK(full.where() == "f.kv, byte 12");
  CHECK(full.hint() == "remove the file");
}

TEST_CASE("error: codes have the exit and HTTP status of the style guide", "[base]") {
  struct Row {
    Code code;
    int exit, http;
    const char* name;
  };
  for (const Row& row : {Row{Code::kInternal, 1, 500, "internal"}, Row{Code::kUsage, 2, 400, "usage"},
                         Row{Code::kInput, 3, 422, "input"}, Row{Code::kResource, 4, 503, "resource"}}) {
    CHECK(exit_status(row.code) == row.exit);
    CHECK(http_status(row.code) == row.http);
    CHECK(std::string(code_name(row.code)) == row.name);
  }
}

TEST_CASE("error: a failed system call is the input's fault or a lack of resources", "[base]") {
  for (const int e : {ENOSPC, EDQUOT, ENOMEM, EMFILE, ENFILE, EAGAIN, EBUSY, EIO}) {
    CHECK(system_error("cannot write", "f", e).code() == Code::kResource);
  }
  for (const int e : {ENOENT, EACCES, EPERM, EROFS, EISDIR}) {
    CHECK(system_error("cannot write", "f", e).code() == Code::kInput);
  }
  const Error e = system_error("cannot open", "some/file", ENOENT);
  CHECK(e.message() == "cannot open: No such file or directory");
  CHECK(e.where() == "some/file");
  CHECK_FALSE(e.hint().empty());
}

TEST_CASE("result: holds a value or an error", "[base]") {
  Result<std::unique_ptr<int>> good(std::make_unique<int>(7));
  CHECK(good.ok());
  CHECK(**good == 7);
  CHECK(*std::move(good).or_throw() == 7);
  Result<int> bad(Error{Code::kInput, "no"});
  CHECK_FALSE(bad);
  CHECK(bad.error().message() == "no");
  CHECK_THROWS_AS(std::move(bad).or_throw(), Error);
  CHECK(Status::done().ok());
  CHECK_NOTHROW(Status::done().or_throw());
  const Status failed = Error{Code::kResource, "full"};
  CHECK_FALSE(failed);
  CHECK_THROWS_AS(failed.or_throw(), Error);
}

}  // namespace
}  // namespace cento
