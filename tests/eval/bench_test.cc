// The whole measurement on tiny models: that it runs what it says it runs. How fast is not asked.
#include "eval/bench.h"

#include <catch2/catch.hpp>

#include <sys/stat.h>

#include <filesystem>

#include "base/error.h"
#include "engine/loaded_model.h"
#include "kv/catalogue.h"
#include "support/gguf_writer.h"
#include "support/shared_data.h"

namespace cento {
namespace {

using Catch::Contains;

std::unique_ptr<LoadedModel> load(const std::string& path) {
  ModelOptions options;
  options.path = path;
  options.threads = 2;
  return std::make_unique<LoadedModel>(options);
}

std::unique_ptr<LoadedModel> tiny(const test::TempDir& folder, uint32_t context,
                                  const std::string& architecture = "llama") {
  test::TinyModelSpec spec;
  spec.context = context;
  spec.architecture = architecture;
  test::write_tiny_model(folder / "tiny.gguf", spec);
  return load(folder / "tiny.gguf");
}

SpeedOptions quick(size_t prompt = 40, size_t decode = 6, size_t repeat = 2) {
  SpeedOptions options;
  options.prompt_tokens = prompt;
  options.decode_tokens = decode;
  options.repeat = repeat;
  return options;
}

std::string scratch_in(const test::TempDir& folder) {
  std::filesystem::create_directory(folder / "scratch");
  return folder / "scratch";
}

void check_measured(const Spread& s, size_t n) {
  CHECK(s.n == n);
  CHECK((s.q1 > 0 && s.q1 <= s.median && s.median <= s.q3));
}

void check_report(const BenchReport& r, const SpeedOptions& options) {
  check_measured(r.prefill, options.repeat);
  check_measured(r.decode, options.repeat);
  const FirstTokenReport& f = r.first_token;
  for (const Spread* s : {&f.full, &f.prefix, &f.reuse, &f.blend, &f.resume, &f.recompute})
    check_measured(*s, options.repeat);
  CHECK(f.reuse_cold.has_value() == f.blend_cold.has_value());
  if (f.reuse_cold) check_measured(*f.reuse_cold, options.repeat);
  if (f.resume_cold) check_measured(*f.resume_cold, options.repeat);
  CHECK(f.policy == "query");
  CHECK((f.charged > 0 && f.charged < 1));
  CHECK(f.recomputed > 0);
  CHECK((f.bytes_loaded > 0 && f.resumed_bytes > 0));
  CHECK(f.resumed_tokens < f.tokens);
  CHECK(r.peak_bytes > 0);
}

TEST_CASE("bench: measures everything on a model, with KV that is stored in its scratch folder", "[eval]") {
  for (const char* architecture : {"llama", "qwen2", "gemma3"}) {
    CAPTURE(architecture);
    const test::TempDir folder;
    const auto model = tiny(folder, 8192, architecture);
    const SpeedOptions options = quick(1200);
    size_t last = 0, total = 0, calls = 0;
    BenchHooks hooks;
    hooks.progress = [&](size_t done, size_t all) {
      CHECK(done == ++last);
      total = all;
      ++calls;
    };
    const auto report = run_bench(*model, options, "", scratch_in(folder), hooks);
    REQUIRE(report.has_value());
    check_report(*report, options);
    CHECK((calls == total && last == total));
    const FirstTokenReport& f = report->first_token;
    CHECK(f.chunks == 10);
    CHECK(f.context == "stand-in");
    // Each chunk may fall short by less than a word, which in a vocabulary of bytes has up to a dozen tokens.
    CHECK((f.tokens <= 1200 && f.tokens > 1200 - 10 * 12));
    CHECK_FALSE(report->peer.has_value());
    // Chunks, the fixed prefix and the conversation so far.
    Catalogue catalogue(folder / "scratch", Db::Mode::kReadOnly);
    CHECK(catalogue.all_kv().size() == 12);
  }
}

TEST_CASE("bench: a short prompt is made as long as ten chunks need, a long one as long as the context", "[eval]") {
  const test::TempDir folder;
  const auto model = tiny(folder, 768);
  std::filesystem::create_directory(folder / "a");
  std::filesystem::create_directory(folder / "b");
  const auto shortest = run_bench(*model, quick(1, 1, 1), "", folder / "a", {});
  REQUIRE(shortest.has_value());
  CHECK(shortest->first_token.chunks == 10);
  CHECK(shortest->first_token.tokens > 10 * 8);
  const auto longest = run_bench(*model, quick(768, 768, 1), "", folder / "b", {});
  REQUIRE(longest.has_value());
  check_report(*longest, quick(768, 768, 1));
  CHECK(longest->first_token.context == "prefix");  // there is no room for text in front of a chunk
  CHECK((longest->first_token.tokens < 768 && longest->first_token.tokens > 768 - 10 * 12));
}

TEST_CASE("bench: more tokens than the context, and a context too small for a prompt, are refused", "[eval]") {
  const test::TempDir folder;
  const auto model = tiny(folder, 512);
  const auto said = [&](const SpeedOptions& options, Code code) -> std::string {
    try {
      (void)run_bench(*model, options, "", scratch_in(folder), {});
    } catch (const Error& e) {
      CHECK(e.code() == code);
      return e.message();
    }
    return "";
  };
  CHECK_THAT(said(quick(513), Code::kUsage), Contains("--prompt: 513 tokens") && Contains("512"));
  CHECK_THAT(said(quick(10, 513), Code::kUsage), Contains("--decode: 513 tokens"));
  const test::TempDir other;
  const auto small = tiny(other, 64);
  CHECK_THROWS_WITH(run_bench(*small, quick(8), "", scratch_in(other), {}), Contains("too small for a prompt"));
}

TEST_CASE("bench: a stop ends it in every stage", "[eval]") {
  const test::TempDir folder;
  const auto model = tiny(folder, 2048);
  size_t asked = 0;
  BenchHooks hooks;
  hooks.stop = [&] {
    ++asked;
    return false;
  };
  std::filesystem::create_directory(folder / "whole");
  REQUIRE(run_bench(*model, quick(300, 4, 1), "", folder / "whole", hooks).has_value());
  const size_t in_all = asked;
  REQUIRE(in_all > 50);
  for (const size_t at : {size_t{1}, in_all / 8, in_all / 4, in_all / 2, 3 * in_all / 4, in_all}) {
    CAPTURE(at, in_all);
    asked = 0;
    hooks.stop = [&] { return ++asked >= at; };
    const std::string scratch = folder / ("at" + std::to_string(at));
    std::filesystem::create_directory(scratch);
    CHECK_FALSE(run_bench(*model, quick(300, 4, 1), "", scratch, hooks).has_value());
    CHECK(asked < at + 20);  // soon, that is
  }
}

TEST_CASE("bench: a stop is seen between two tokens of decode", "[eval]") {
  const test::TempDir folder;
  const auto model = tiny(folder, 512);
  size_t asked = 0;
  BenchHooks hooks;
  hooks.stop = [&] { return ++asked >= 100; };  // one token of prompt asks a few times only
  BenchSteps steps(hooks, 2);
  RateSamples out;
  CHECK_FALSE(measure_rates(*model, quick(1, 500), 1, steps, out));
  CHECK(asked == 100);
}

TEST_CASE("bench: the peer is run between the halves, and the ratios are to its better setting", "[eval]") {
  const test::TempDir folder;
  const auto model = tiny(folder, 2048);
  const auto test_of = [](size_t p, size_t n, int flash, int rate) {
    return "{\"n_prompt\":" + std::to_string(p) + ",\"n_gen\":" + std::to_string(n) +
           ",\"n_threads\":2,\"flash_attn\":" + std::to_string(flash) + ",\"samples_ts\":[" + std::to_string(rate) +
           "]}";
  };
  const std::string script = folder / "llama-bench";
  test::write_all(script, "#!/bin/sh\necho '[" + test_of(40, 0, 0, 10) + "," + test_of(0, 6, 0, 20) + "," +
                              test_of(40, 0, 1, 5) + "," + test_of(0, 6, 1, 40) + "]'\n");
  REQUIRE(::chmod(script.c_str(), 0700) == 0);
  const auto report = run_bench(*model, quick(40, 6, 3), script, scratch_in(folder), {});
  REQUIRE((report.has_value() && report->peer.has_value()));
  CHECK(report->prefill.n == 3);
  CHECK(report->prefill_ratio == report->prefill.median / 10);
  CHECK(report->decode_ratio == report->decode.median / 40);
  test::write_all(script, "#!/bin/sh\necho no\n");
  std::filesystem::create_directory(folder / "again");
  CHECK_THROWS_AS(run_bench(*model, quick(40, 6, 1), script, folder / "again", {}), Error);
}

TEST_CASE("bench: runs on a real small model", "[eval]") {
  const auto path = test::shared_path("data/models/stories260K.gguf");
  if (!path) return;
  const test::TempDir folder;
  const auto model = load(*path);
  const SpeedOptions options = quick(64, 8, 1);
  const auto report = run_bench(*model, options, "", scratch_in(folder), {});
  REQUIRE(report.has_value());
  check_report(*report, options);
}

}  // namespace
}  // namespace cento
