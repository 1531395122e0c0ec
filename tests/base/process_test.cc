#include "base/process.h"

#include <catch2/catch.hpp>

#include <cerrno>
#include <csignal>
#include <filesystem>

#include "base/clock.h"
#include "base/machine.h"
#include "support/shared_data.h"

namespace cento {
namespace {

using How = ProcessEnd::How;

ProcessEnd sh(const std::string& script, const ProcessLimits& limits = {}, const std::function<bool()>& stop = {}) {
  return run_process({"sh", "-c", script, "sh", "two words", "$(id) ;'\""}, limits, stop).or_throw();
}

TEST_CASE("process: arguments arrive as they are, both outputs come back, input is empty", "[base]") {
  const ProcessEnd end = sh("cat; printf '%s|%s' \"$1\" \"$2\"; echo noise >&2");
  CHECK(end.ok());
  CHECK(end.out == "two words|$(id) ;'\"");
  CHECK(end.err == "noise\n");
}

TEST_CASE("process: how a program can end, and the words for it", "[base]") {
  const ProcessLimits limits{500, 1000};
  struct Row {
    const char* script;
    How how;
    int value;
    const char* said;
  };
  const std::vector<Row> rows = {{"echo bad >&2; echo worse >&2; exit 3", How::kExited, 3, "ended with status 3: bad"},
                                 {"kill -TERM $$", How::kSignalled, SIGTERM, "was ended by signal 15"},
                                 {"exec sleep 60", How::kTooLong, 0, "took more than 0 s"},
                                 {"exec yes", How::kTooMuch, 0, "printed more than 1000 B"}};
  for (const Row& row : rows) {
    CAPTURE(row.script);
    const ProcessEnd end = sh(row.script, limits);
    CHECK_FALSE(end.ok());
    CHECK(end.how == row.how);
    CHECK(end.value == row.value);
    CHECK(process_failure(end, limits) == row.said);
  }
  const ProcessEnd none = run_process({"/no/such/program"}, limits).or_throw();
  CHECK((none.how == How::kNotStarted && none.value == ENOENT));
  CHECK(process_failure(none, limits) == "cannot be started: No such file or directory");
}

TEST_CASE("process: a stop ends it soon, with all that it started", "[base]") {
  const test::TempDir folder;
  const Stopwatch watch;
  const ProcessEnd end =
      sh("(sleep 2; touch '" + folder / "late" + "') & exec sleep 60", {}, [&] { return watch.ms() > 200; });
  CHECK(end.how == How::kStopped);
  CHECK(watch.ms() < 1500);
  // Also when it has closed its outputs and just goes on.
  const Stopwatch again;
  CHECK(sh("exec >&- 2>&-; sleep 60", {}, [&] { return again.ms() > 200; }).how == How::kStopped);
  CHECK(again.ms() < 1500);
  (void)run_process({"sleep", "2"}, {});
  CHECK_FALSE(std::filesystem::exists(folder / "late"));
}

TEST_CASE("machine: it has a name, and memory once touched counts from then on", "[base]") {
  CHECK_FALSE(processor_name().empty());
  const uint64_t before = peak_memory_bytes();
  REQUIRE(before > 0);
  constexpr size_t kBytes = 64 << 20;
  {
    const std::string touched(before + kBytes, 'x');
    CHECK(touched.back() == 'x');
  }
  CHECK(peak_memory_bytes() >= before + kBytes);
}

}  // namespace
}  // namespace cento
