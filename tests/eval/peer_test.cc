#include "eval/peer.h"

#include <catch2/catch.hpp>

#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "support/shared_data.h"

namespace cento {
namespace {

using Json = nlohmann::json;
using Catch::Contains;

const PeerRequest kRequest{"llama-bench", "m.gguf", 512, 64, 2, 3};

Json test_of(size_t prompt, size_t decode, Json flash, const std::vector<double>& samples) {
  return {{"build_commit", "0c1e570"}, {"backends", "CPU"}, {"n_threads", 2}, {"n_prompt", prompt},
          {"n_gen", decode},           {"n_depth", 0},      {"avg_ts", 1.0},  {"flash_attn", flash},
          {"samples_ts", samples}};
}

// As llama-bench prints it: flash attention off and on, prompt and decode each.
Json good_output() {
  return Json::array({test_of(512, 0, 0, {300, 100, 200}), test_of(0, 64, 0, {50, 51, 52}),
                      test_of(512, 0, 1, {150, 160, 170}), test_of(0, 64, 1, {60, 61, 62})});
}

std::string refusal(const std::string& output) {
  try {
    (void)parse_peer_output(output, kRequest);
  } catch (const Error& e) {
    CHECK(e.code() == Code::kInput);
    CHECK(e.where() == "llama-bench");
    return e.message();
  }
  return "";
}
std::string refusal(const Json& output) { return refusal(output.dump()); }

TEST_CASE("peer: each figure is the median of the better flash-attention setting", "[eval]") {
  const PeerReport r = parse_peer_output(good_output().dump(1), kRequest);
  CHECK(r.prefill.tokens_per_second.median == 200);  // not the average, which avg_ts would be
  CHECK(r.prefill.tokens_per_second.q1 == 150);
  CHECK_FALSE(r.prefill.flash_attention);
  CHECK(r.decode.tokens_per_second.median == 61);
  CHECK(r.decode.flash_attention);
  REQUIRE((r.all_prefill.size() == 2 && r.all_decode.size() == 2));
  CHECK(r.all_prefill[1].tokens_per_second.median == 160);
  CHECK(r.all_decode[0].tokens_per_second.median == 51);
  CHECK(r.build == "0c1e570");
  CHECK(r.backends == "CPU");
}

TEST_CASE("peer: other tests in the list, other versions' fields and missing extras do no harm", "[eval]") {
  Json j = good_output();
  j.insert(j.begin(), test_of(128, 0, 0, {9999}));
  j.insert(j.begin(), test_of(512, 0, -1, {9999}));  // "auto" is neither setting
  Json deep = test_of(512, 0, 0, {9999});
  deep["n_depth"] = 4096;
  j.insert(j.begin(), deep);
  for (Json& run : j) {
    if (run["flash_attn"] != -1) run["flash_attn"] = run["flash_attn"] == 1;  // a bool, once
    run.erase("build_commit");
    run.erase("backends");
    run.erase("n_threads");
  }
  j[3].erase("samples_ts");
  j[3]["avg_ts"] = 123.5;
  const PeerReport r = parse_peer_output(j.dump(), kRequest);
  CHECK(r.all_prefill[0].tokens_per_second.median == 123.5);
  CHECK(r.prefill.tokens_per_second.median == 160);
  CHECK(r.build.empty());
}

TEST_CASE("peer: what is no result of llama-bench is refused in words", "[eval]") {
  CHECK_THAT(refusal(std::string()), Contains("printed nothing"));
  CHECK_THAT(refusal(std::string("  \n")), Contains("printed nothing"));
  CHECK_THAT(refusal(std::string("usage: ls \x1b[31m")), Contains("something else") && Contains("\\x1b[31m"));
  CHECK_THAT(refusal(std::string(100'000, '[')), Contains("something else"));
  CHECK_THAT(refusal(std::string("{\"n_prompt\": 512}")), Contains("something else"));
  CHECK_THAT(refusal(std::string("\xff\xfe\x00", 3)), Contains("something else"));
  CHECK_THAT(refusal(std::string("[]")),
             Contains("no result of its prompt test of 512 tokens with flash attention off"));
  CHECK_THAT(refusal(std::string("[1, 2]")), Contains("something else than test results"));
  CHECK_THAT(refusal(good_output().dump() + "trailing"), Contains("something else"));

  const auto without = [](size_t i) {
    Json j = good_output();
    j.erase(i);
    return j;
  };
  CHECK_THAT(refusal(without(0)), Contains("prompt test of 512 tokens with flash attention off"));
  CHECK_THAT(refusal(without(1)), Contains("decode test of 64 tokens with flash attention off"));
  CHECK_THAT(refusal(without(2)), Contains("prompt test of 512 tokens with flash attention on"));
  CHECK_THAT(refusal(without(3)), Contains("decode test of 64 tokens with flash attention on"));

  Json threads = good_output();
  threads[1]["n_threads"] = 8;
  CHECK_THAT(refusal(threads), Contains("on 8 threads, not on 2"));
}

TEST_CASE("peer: a field of another type or a speed that is none is refused", "[eval]") {
  for (const Json& samples :
       std::vector<Json>{Json::array(), Json::array({0}), Json::array({-1.0}), Json::array({"fast"}),
                         Json::array({300, nullptr}), "300", 300, nullptr, Json::object()}) {
    CAPTURE(samples);
    Json j = good_output();
    j[0]["samples_ts"] = samples;
    CHECK_THAT(refusal(j), Contains("no usable speed"));
  }
  std::string huge = good_output().dump();
  huge.replace(huge.find("300.0"), 5, "1e999");
  CHECK_FALSE(refusal(huge).empty());
  for (const char* key : {"n_prompt", "n_gen", "flash_attn"}) {
    for (const Json& value : std::vector<Json>{nullptr, "512", 512.5, -512, Json::array(), Json::object()}) {
      CAPTURE(key, value);
      Json j = good_output();
      j[0][key] = value;
      CHECK_THAT(refusal(j), Contains("no result of its prompt test"));
    }
  }
}

TEST_CASE("peer: output cut anywhere is refused", "[eval]") {
  const std::string whole = good_output().dump();
  for (size_t n = 0; n < whole.size(); ++n) {
    CAPTURE(n);
    REQUIRE_FALSE(refusal(whole.substr(0, n)).empty());
  }
}

TEST_CASE("peer: output with any byte changed is refused or understood", "[eval]") {
  const std::string whole = good_output().dump();
  for (size_t i = 0; i < whole.size(); ++i) {
    for (const char flip : {1, 0x10, -128}) {
      std::string damaged = whole;
      damaged[i] = static_cast<char>(damaged[i] ^ flip);
      CAPTURE(i, damaged);
      const std::string said = refusal(damaged);
      if (said.empty()) REQUIRE(parse_peer_output(damaged, kRequest).prefill.tokens_per_second.median > 0);
    }
  }
}

// A program in a folder of its own.
struct Script {
  explicit Script(const std::string& text, bool executable = true) {
    test::write_all(path(), "#!/bin/sh\n" + text);
    REQUIRE(::chmod(path().c_str(), executable ? 0700 : 0600) == 0);
  }
  std::string path() const { return folder / "llama-bench"; }
  test::TempDir folder;
};

std::string run_refusal(const std::string& script, const ProcessLimits& limits = {2000, 1 << 20}) {
  const Script program(script);
  PeerRequest request = kRequest;
  request.program = program.path();
  try {
    (void)run_peer(request, limits, {});
  } catch (const Error& e) {
    CHECK(e.code() == Code::kInput);
    CHECK(e.where() == program.path());
    return e.message();
  }
  return "";
}

TEST_CASE("peer: it is run on the same file with the same threads and lengths", "[eval]") {
  const test::TempDir folder;
  const Script program("echo \"$@\" > '" + folder / "args" + "'\necho noise >&2\ncat '" + folder / "answer" + "'\n");
  test::write_all(folder / "answer", good_output().dump());
  PeerRequest request = kRequest;
  request.program = program.path();
  const auto report = run_peer(request, {}, {});
  REQUIRE(report.has_value());
  CHECK(report->program == program.path());
  CHECK(report->decode.tokens_per_second.median == 61);
  CHECK(test::read_all(folder / "args") == "-m m.gguf -p 512 -n 64 -t 2 -r 3 -ngl 0 -fa 0,1 -o json\n");
}

TEST_CASE("peer: a program that fails, hangs, talks too much or is another one is named with what it did", "[eval]") {
  CHECK(run_refusal("echo 'failed to load model' >&2; exit 1") == "the peer ended with status 1: failed to load model");
  CHECK(run_refusal("kill -SEGV $$") == "the peer was ended by signal 11");
  CHECK(run_refusal("exec sleep 60", {300, 1 << 20}) == "the peer took more than 0 s");
  CHECK(run_refusal("exec yes") == "the peer printed more than 1.0 MiB");
  CHECK_THAT(run_refusal("echo Hello"), Contains("something else than llama-bench's JSON: \"Hello\""));
  CHECK(run_refusal("true") == "the peer printed nothing");
  CHECK_THAT(run_refusal("exec /no/such/interpreter"), Contains("the peer ended with status 127"));
}

TEST_CASE("peer: a stop ends it", "[eval]") {
  const Script program("exec sleep 60");
  PeerRequest request = kRequest;
  request.program = program.path();
  const Stopwatch watch;
  CHECK_FALSE(run_peer(request, {}, [&] { return watch.ms() > 200; }).has_value());
  CHECK(watch.ms() < 2000);
}

TEST_CASE("peer: it has to be there and to be a program", "[eval]") {
  const auto said = [](const std::string& program) -> std::string {
    try {
      (void)find_peer(program);
    } catch (const Error& e) {
      CHECK(e.code() == Code::kInput);
      CHECK_FALSE(e.hint().empty());
      return e.message();
    }
    return "";
  };
  const Script good("true"), plain("true", false);
  CHECK(find_peer(good.path()) == good.path());
  CHECK(find_peer("sh").ends_with("/sh"));
  CHECK_THAT(said("/no/such/llama-bench"), Contains("no such program"));
  CHECK_THAT(said(plain.path()), Contains("no program that may be executed"));
  CHECK_THAT(said(good.folder.path()), Contains("no program that may be executed"));
  CHECK_THAT(said("no-such-llama-bench"), Contains("no program \"no-such-llama-bench\" in PATH"));
}

}  // namespace
}  // namespace cento
