// The real program, killed at random moments. tests/kv/crash_suite.h stops commands at every operation of the disk;
// here is what that cannot reach: a process that is really gone, with its locks, its shared memory and its children.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>

#include "base/rng.h"
#include "cli/sandbox.h"

namespace cento::test {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kAsk = {
    "query", "Which crane lifts at quay 3?", "--json", "--max-tokens", "4", "--prefill", "reuse"};

std::string part(int n, const std::string& word) {
  std::string text = "# Part " + std::to_string(n) + "\n\n";
  for (int i = 0; i < 6; ++i)
    text += "The " + word + " at quay " + std::to_string(n) + " lifts " + std::to_string(10 * n + i) + " tonnes.\n";
  return text;
}

void add_parts(const Sandbox& box, int from, int to, const std::string& word) {
  for (int n = from; n < to; ++n) write_all(box / ("docs/part" + std::to_string(n) + ".md"), part(n, word));
}

struct Command {
  std::string name;
  std::vector<std::string> args;
  std::function<void(const Sandbox&)> prepare;
};

void index_parts(const Sandbox& box) {
  box.add_model();
  add_parts(box, 0, 16, "crane");
  REQUIRE(box.run({"index", "-q", "docs"}).status == 0);
}
void edit_parts(const Sandbox& box) {
  add_parts(box, 4, 12, "lighthouse");
  for (int n = 12; n < 16; ++n) fs::remove(box / ("docs/part" + std::to_string(n) + ".md"));
  add_parts(box, 16, 24, "ferry");
}
void precompute_parts(const Sandbox& box) {
  index_parts(box);
  REQUIRE(box.run({"precompute", "-q"}).status == 0);
}

const std::vector<Command>& commands() {
  static const std::vector<Command> all = {
      {"index",
       {"index", "-q"},
       [](const Sandbox& box) {
         index_parts(box);
         edit_parts(box);
       }},
      {"precompute", {"precompute", "-q"}, index_parts},
      {"cache trim", {"cache", "trim", "--max-bytes", "20000"}, precompute_parts},
      {"cache gc",
       {"cache", "gc"},
       [](const Sandbox& box) {
         precompute_parts(box);
         edit_parts(box);
         REQUIRE(box.run({"index", "-q"}).status == 0);
       }},
      {"cache import",
       {"cache", "import", "all.cento"},
       [](const Sandbox& box) {
         precompute_parts(box);
         REQUIRE(box.run({"cache", "export", "all.cento"}).status == 0);
         REQUIRE(box.run({"cache", "trim", "--max-bytes", "0"}).status == 0);
       }},
  };
  return all;
}

class Killing {
 public:
  explicit Killing(const Command& command) : command_(command) {
    command.prepare(box_);
    fs::copy(box_.store(), kept_ / "store", fs::copy_options::recursive);
    for (int i = 0; i < 3; ++i) {
      go_back();
      const auto from = std::chrono::steady_clock::now();
      REQUIRE(box_.run(command.args).status == 0);
      seconds_ = std::min(seconds_, std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count());
    }
    finished_ = state();
  }

  // The number of kills that came before the end.
  int run(int n_kills) {
    int n_killed = 0;
    for (int i = 0; i < n_kills; ++i) {
      go_back();
      RunSpec spec = box_.spec(command_.args);
      spec.signal = SIGKILL;
      spec.signal_delay_seconds = rng_.uniform() * seconds_;
      CAPTURE(command_.name, i, spec.signal_delay_seconds);
      const RunResult killed = box_.run(spec);
      INFO(shown(killed));
      REQUIRE((killed.status == -SIGKILL || killed.status == 0));  // it may have been done before
      n_killed += killed.status == -SIGKILL;
      if (fs::exists(box_.store() + "/catalogue.sqlite"))
        CHECK(box_.json({"cache", "verify", "--json"})["bad"].empty());
      const RunResult again = box_.run(command_.args);
      INFO(shown(again));
      REQUIRE(again.status == 0);
      CHECK(state() == finished_);
    }
    std::printf("crash: %-16s %-28s %5d of %d moments were in the middle\n", command_.name.c_str(), "kill -9", n_killed,
                n_kills);
    std::fflush(stdout);
    return n_killed;
  }

 private:
  void go_back() {
    fs::remove_all(box_.store());
    fs::copy(kept_ / "store", box_.store(), fs::copy_options::recursive);
  }

  // What the store has and what it answers, without times.
  Json state() const {
    Json out;
    // What a killed process left and nobody refers to; the files of the first hour are left alone.
    REQUIRE(box_.run({"cache", "gc"}).status == 0);
    for (const Json& blob : box_.json({"cache", "list", "--json"})["blobs"])
      out["kv"][blob["id"].get<std::string>()] = {blob["codec"], blob["bytes"], blob.value("source", "")};
    const Json status = box_.json({"cache", "status", "--json"});
    out["collections"] = status["collections"];
    out["models"] = status["models"];
    const Json asked = box_.json(kAsk);
    out["answer"] = asked["answer"];
    out["citations"] = asked["citations"];
    for (const Json& chunk : asked["cache"]["chunks"]) out["from"].push_back(chunk["from"]);
    return out;
  }

  Sandbox box_;
  TempDir kept_;
  const Command& command_;
  Json finished_;
  double seconds_ = 60;
  Rng rng_{20260};
};

void kill_each(int n_kills) {
  int n_killed = 0;
  for (const Command& command : commands()) n_killed += Killing(command).run(n_kills);
  CHECK(n_killed > n_kills);  // a fifth of them at the least: how long a command takes depends on the neighbours
}

TEST_CASE("cli: killed at a random moment, a command run again ends as if nothing had been", "[cli][crash]") {
  kill_each(3);
}

TEST_CASE("cli: the same at 200 moments", "[cli][crash][.slow]") { kill_each(40); }

}  // namespace
}  // namespace cento::test
