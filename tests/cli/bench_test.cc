// cento bench through the real program, on a tiny model and against a script in llama-bench's place.
#include <catch2/catch.hpp>

#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "cli/sandbox.h"

namespace cento::test {
namespace {

// Prints what llama-bench prints, for the lengths and threads that it is given.
const std::string kFakePeer = R"(#!/bin/sh
while [ $# -gt 1 ]; do
  case $1 in -p) p=$2 ;; -n) n=$2 ;; -t) t=$2 ;; -m) [ -f "$2" ] || exit 9 ;; -o) [ "$2" = json ] || exit 9 ;; esac
  shift 2
done
run() { printf '{"build_commit":"abc","backends":"CPU","n_threads":%s,"n_prompt":%s,"n_gen":%s,"flash_attn":%s,"samples_ts":[%s]}' "$t" "$@"; }
echo "[$(run "$p" 0 0 100,300,200),$(run 0 "$n" 0 10),$(run "$p" 0 1 50),$(run 0 "$n" 1 20)]"
)";

std::string program(const Sandbox& box, const std::string& name, const std::string& text) {
  write_all(box / name, text);
  REQUIRE(::chmod((box / name).c_str(), 0700) == 0);
  return "./" + name;
}

std::vector<std::string> bench(const std::vector<std::string>& more) {
  std::vector<std::string> args = {"bench", "--prompt", "64", "--decode", "4", "--repeat", "1", "--threads", "2"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

// Of the sandbox's folder for temporary files: the scratch store's name.
size_t scratch_folders(const Sandbox& box) {
  const std::string temporary = box.spec({}).environment.at("TMPDIR");
  return static_cast<size_t>(
      std::count_if(std::filesystem::directory_iterator(temporary), std::filesystem::directory_iterator(),
                    [](const auto& entry) { return entry.path().filename().string().starts_with("cento-"); }));
}

bool has_number(const Json& object, const char* key) {
  return object.contains(key) && object[key].is_number() && object[key].get<double>() > 0;
}

TEST_CASE("cli: bench --json has the names of the contract, and leaves nothing behind", "[cli]") {
  const Sandbox box;
  box.add_model();
  const Json j = box.json(bench({"--json"}));
  for (const char* key : {"cpu", "target", "threads", "compiler"}) CHECK(j["machine"].contains(key));
  CHECK(j["machine"]["threads"] == 2);
  CHECK(j["model"]["type"] == "F32");
  CHECK_THAT(j["model"]["file"].get<std::string>(), Catch::EndsWith("tiny.gguf"));
  CHECK(j["prefill"]["tokens"] == 64);
  CHECK(j["decode"]["tokens"] == 4);
  for (const char* part : {"prefill", "decode"}) {
    CHECK(has_number(j[part], "tokens_per_second"));
    CHECK(j[part]["quartiles"].size() == 2);
  }
  for (const char* key : {"full_ms", "prefix_ms", "reuse_ms", "blend_ms"}) CHECK(has_number(j["ttft"], key));
  for (const char* key : {"reuse_cold_ms", "blend_cold_ms"})
    CHECK((j["ttft"][key].is_null() || has_number(j["ttft"], key)));
  CHECK(j["ttft"]["page_cache"] == "warm");
  CHECK(j["ttft"]["policy"] == "query");
  CHECK(has_number(j, "resume_ms"));
  CHECK(has_number(j["resume"], "recompute_ms"));
  CHECK(has_number(j, "peak_bytes"));
  CHECK(j["repeat"] == 1);
  CHECK(j["seed"] == 1);
  CHECK_FALSE(j.contains("peer"));
  CHECK_FALSE(j.contains("ratios"));
  CHECK(scratch_folders(box) == 0);
  CHECK_FALSE(std::filesystem::exists(box.store()));
}

TEST_CASE("cli: bench against a peer gives its figures and the ratios", "[cli]") {
  const Sandbox box;
  box.add_model();
  const std::string peer = program(box, "llama-bench", kFakePeer);
  const Json j = box.json(bench({"--json", "--against", peer}));
  CHECK(j["peer"]["program"] == peer);
  CHECK(j["peer"]["build"] == "abc");
  CHECK(j["peer"]["prefill"]["tokens_per_second"] == 200);
  CHECK(j["peer"]["prefill"]["flash_attention"] == false);
  CHECK(j["peer"]["decode"]["tokens_per_second"] == 20);
  CHECK(j["peer"]["decode"]["flash_attention"] == true);
  CHECK(j["peer"]["settings"].size() == 2);
  // Rates have two decimals, ratios three: what is left of the division is below 0.005 / 20 + 0.0005.
  CHECK(j["ratios"]["prefill"].get<double>() ==
        Approx(j["prefill"]["tokens_per_second"].get<double>() / 200).margin(0.001));
  CHECK(j["ratios"]["decode"].get<double>() ==
        Approx(j["decode"]["tokens_per_second"].get<double>() / 20).margin(0.001));
}

TEST_CASE("cli: bench for people is a table", "[cli]") {
  const Sandbox box;
  box.add_model();
  const RunResult r = box.run(bench({"--against", program(box, "llama-bench", kFakePeer)}));
  INFO(shown(r));
  REQUIRE(r.status == 0);
  CHECK(r.err.empty());
  for (const char* line :
       {"model:    tiny, ", "machine:  ", "2 threads, ", "peer:     ./llama-bench, build abc, CPU", "\nprefill of 64  ",
        "\ndecode of 4 ", "cento / llama.cpp", "\nfull ", "\nprefix ", "\nreuse, page cache warm ",
        "\nblend, page cache cold ", "\nresumed, page cache warm ", "\nblend: policy query, ", "\npeak memory: "}) {
    CAPTURE(line);
    CHECK_THAT(r.out, Catch::Contains(line));
  }
}

TEST_CASE("cli: bench with lengths that cannot be, or without a model, ends with the right status", "[cli]") {
  const Sandbox box;
  check_error(box.run(bench({})), 3, "no model found");
  box.add_model();
  for (const char* flag : {"--prompt", "--decode", "--repeat"}) {
    CAPTURE(flag);
    check_error(box.run({"bench", flag, "0"}), 2, std::string(flag) + ": \"0\" is not a whole number");
    check_error(box.run({"bench", flag, "many"}), 2, flag);
  }
  check_error(box.run({"bench", "--prompt", "9000"}), 2,
              "--prompt: 9000 tokens are more than the model's context of 8192");
  check_error(box.run({"bench", "--decode", "9000"}), 2, "--decode: 9000 tokens");
  check_error(box.run({"bench", "--target", "none-such"}), 2, "none-such");
  CHECK(scratch_folders(box) == 0);
}

TEST_CASE("cli: bench with a peer that is none ends with 3 and says what it did", "[cli]") {
  const Sandbox box;
  box.add_model();
  check_error(box.run(bench({"--against", "./none"})), 3, "no such program");
  write_all(box / "plain", "text");
  check_error(box.run(bench({"--against", "./plain"})), 3, "no program that may be executed");
  check_error(box.run(bench({"--against", "no-such-program-here"})), 3, "in PATH");
  const auto fails = [&](const std::string& text, const std::string& said) {
    const RunResult r = box.run(bench({"--json", "--against", program(box, "peer", "#!/bin/sh\n" + text)}));
    CHECK_THAT(r.err, Catch::Contains(said) && Catch::Contains("  in:  ./peer"));
    CHECK(r.status == 3);
    CHECK(r.out.empty());
  };
  fails("echo 'cannot load' >&2; exit 1", "error: the peer ended with status 1: cannot load");
  fails("kill -ABRT $$", "error: the peer was ended by signal 6");
  fails("echo Hello", "error: the peer printed something else than llama-bench's JSON");
  fails("exec yes", "error: the peer printed more than 4.0 MiB");
  CHECK(scratch_folders(box) == 0);
}

TEST_CASE("cli: Ctrl-C ends bench with 130, the peer too, and the scratch store is gone", "[cli]") {
  const Sandbox box;
  box.add_model();
  const std::string peer = program(box, "peer", "#!/bin/sh\necho $$ > pid\nexec sleep 60\n");
  RunSpec spec = box.spec({"bench", "--prompt", "64", "--decode", "4", "--repeat", "1", "--against", peer});
  spec.terminal = true;
  spec.signal = SIGINT;
  spec.signal_delay_seconds = 4;  // the little there is before the peer is done by then
  const RunResult waiting = box.run(spec);
  INFO(shown(waiting));
  CHECK(waiting.status == 130);
  CHECK_FALSE(waiting.timed_out);
  CHECK(scratch_folders(box) == 0);
  REQUIRE(std::filesystem::exists(box / "pid"));
  CHECK(::kill(std::stoi(read_all(box / "pid")), 0) != 0);

  RunSpec busy = box.spec({"bench", "--prompt", "4096", "--repeat", "1000"});
  busy.terminal = true;
  busy.signal = SIGINT;
  busy.signal_after = "bench [";
  const RunResult cut = box.run(busy);
  INFO(shown(cut));
  REQUIRE(cut.signalled);
  CHECK(cut.status == 130);
  CHECK(scratch_folders(box) == 0);
}

}  // namespace
}  // namespace cento::test
