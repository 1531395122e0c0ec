// A store that others hold, that cannot be written, or that is of another version, through the real program.

#include <chrono>
#include <filesystem>
#include <thread>

#include "base/clock.h"
#include "cli/sandbox.h"
#include "kv/sqlite.h"
#include "support/posix.h"

namespace cento::test {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kAsk = {"query", "Where does the key of the crane hang?", "--json", "--max-tokens", "4"};

void fill(const Sandbox& box) {
  box.add_model();
  box.add_documents();
  REQUIRE(box.run({"index", "-q", "docs"}).status == 0);
  REQUIRE(box.run({"precompute", "-q"}).status == 0);
}

// The write lock of the store, held by a process of its own for `seconds`.
class LockHolder {
 public:
  LockHolder(const Sandbox& box, double seconds)
      : thread_([path = box.store() + "/catalogue.sqlite", seconds] {
          (void)in_child([&] {
            Db db(path, Db::Mode::kReadWrite);
            const Transaction transaction(db);
            std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
            return std::string("let go");
          });
        }) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // it has it by then
  }
  ~LockHolder() { thread_.join(); }
  LockHolder(const LockHolder&) = delete;
  LockHolder& operator=(const LockHolder&) = delete;

 private:
  std::thread thread_;
};

TEST_CASE("cli: a store held for longer than the time-out is exit 4 with a message, and a question is answered",
          "[cli]") {
  const Sandbox box;
  fill(box);
  fs::remove(box / "docs/tides.txt");
  {
    const LockHolder holder(box, 14);
    const Stopwatch watch;
    const Json answer = box.json(kAsk);
    CHECK(watch.ms() < 4000);  // it waits for nobody: a statistic is left out
    CHECK_FALSE(answer["citations"].empty());
    check_error(box.run({"index", "-q"}), 4, "store is locked by another process");
    check_error(box.run({"cache", "gc"}), 4, "store is locked by another process");
  }
  CHECK(box.json({"index", "--json"})["files"]["removed"] == 1);
}

TEST_CASE("cli: a store held for a moment is waited for", "[cli]") {
  const Sandbox box;
  fill(box);
  const LockHolder holder(box, 1.5);
  const Stopwatch watch;
  const RunResult r = box.run({"cache", "trim", "--max-bytes", "0"});
  INFO(shown(r));
  CHECK(r.status == 0);
  CHECK(watch.ms() > 700);
}

TEST_CASE("cli: a store on a disk that cannot be written still answers, with its KV", "[cli]") {
  const auto disk = SmallDisk::mount(8 << 20);
  if (!disk) return;
  const Sandbox box;
  fill(box);
  fs::copy(box.store(), disk->path() + "/store", fs::copy_options::recursive);
  const Json before = box.json(kAsk);
  disk->make_read_only();
  std::vector<std::string> ask = kAsk;
  for (const char* more : {"--store", "", "--prefill", "blend"}) ask.push_back(more);
  ask[ask.size() - 3] = disk->path() + "/store";
  const Json answer = box.json(ask);
  CHECK(answer["citations"] == before["citations"]);
  CHECK(answer["cache"]["mode"] == "blend");
  for (const Json& chunk : answer["cache"]["chunks"]) CHECK(chunk["from"] == "disk");
  const std::string store = disk->path() + "/store";
  CHECK(box.json({"cache", "verify", "--store", store, "--json"})["bad"].empty());
  CHECK(box.json({"cache", "status", "--store", store, "--json"})["kv"]["blobs"].get<int>() > 3);
  for (const auto& args : std::vector<std::vector<std::string>>{
           {"cache", "gc"}, {"cache", "trim", "--max-bytes", "0"}, {"cache", "verify", "--repair"}, {"precompute"}}) {
    std::vector<std::string> with_store = args;
    with_store.insert(with_store.end(), {"--store", store});
    check_error(box.run(with_store), 3, "cannot be written");
  }
}

TEST_CASE("cli: a store of a newer cento is refused and left as it is", "[cli]") {
  const Sandbox box;
  fill(box);
  Db(box.store() + "/catalogue.sqlite", Db::Mode::kReadWrite).exec("PRAGMA user_version=42");
  for (const auto& args : std::vector<std::vector<std::string>>{kAsk, {"index"}, {"precompute"}, {"cache", "gc"}})
    check_error(box.run(args), 3, "schema version 42");
  CHECK(Db(box.store() + "/catalogue.sqlite", Db::Mode::kReadOnly).pragma("user_version") == 42);
}

TEST_CASE("cli: blobs that are gone, cut or another's cost time and nothing else", "[cli]") {
  const Sandbox box;
  fill(box);
  std::vector<std::string> reuse = kAsk;
  reuse.insert(reuse.end(), {"--prefill", "blend", "--ratio", "1"});
  const Json before = box.json(reuse);
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(box.store() + "/kv")) {
    if (entry.is_regular_file()) files.push_back(entry.path().string());
  }
  REQUIRE(files.size() >= 4);
  fs::remove(files[0]);
  fs::resize_file(files[1], fs::file_size(files[1]) / 2);
  fs::copy_file(files[3], files[2], fs::copy_options::overwrite_existing);
  const Json after = box.json(reuse);
  CHECK(after["answer"] == before["answer"]);
  CHECK(after["citations"] == before["citations"]);
  CHECK(box.run({"cache", "verify", "--repair"}).status != 1);
  CHECK(box.json({"cache", "verify", "--json"})["bad"].empty());
  REQUIRE(box.run({"precompute", "-q"}).status == 0);
  const Json chunks = box.json({"precompute", "--json"})["chunks"];
  CHECK(chunks["present"] == chunks["wanted"]);
  CHECK(box.json(reuse)["answer"] == before["answer"]);
}

}  // namespace
}  // namespace cento::test
