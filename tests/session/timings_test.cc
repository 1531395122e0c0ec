#include <cmath>

#include "engine/engine_test.h"
#include "session/answer.h"

using namespace cento;
using namespace cento::test;

namespace {

double stages(const Timings& t) {
  return t.retrieve_ms + t.prepare_ms + t.load_wait_ms + t.probe_ms + t.select_ms + t.recompute_ms + t.first_token_ms;
}

PromptFile prompt_of_chunks() {
  PromptFile prompt;
  prompt.system = "S";
  prompt.question = "Which ship came last?";
  for (const char* name : {"Wren", "Heron", "Gull", "Tern"}) {
    std::string text;
    for (int i = 0; i < 9; ++i) text += std::string("The ") + name + " came at " + std::to_string(i) + ". ";
    prompt.chunks.push_back(text);
  }
  prompt.keep = true;
  return prompt;
}

}  // namespace

TEST_CASE("timings: the stages of every mode make up the time to first token", "[session]") {
  const ModelFile file(tiny_spec("llama", DType::kF32));
  // The slow backend, so that a stage that is left out shows.
  LoadedModel model({file.path(), Precision::kFast, "auto", &ref_ops(), 1, ""});
  TempDir dir;
  Catalogue catalogue(dir.path(), Db::Mode::kReadWrite);
  KvStore store(catalogue);
  Answerer answerer(model, &store, nullptr);
  const PromptFile prompt = prompt_of_chunks();
  AskOptions options;
  options.max_tokens = 1;
  // The first run computes the chunks' KV, which is no part of the time; the second finds it.
  for (const bool stored : {false, true}) {
    for (const PrefillMode mode :
         {PrefillMode::kBlend, PrefillMode::kReuse, PrefillMode::kPrefix, PrefillMode::kFull}) {
      CAPTURE(stored, prefill_mode_name(mode));
      options.prefill = mode;
      const Answer answer = answerer.ask_prompt(prompt, options, {});
      REQUIRE(answer.cache.mode == mode);
      const Timings& t = answer.timings;
      CAPTURE(t.ttft_ms, stages(t), t.prepare_ms, t.load_wait_ms, t.probe_ms, t.recompute_ms, t.first_token_ms);
      // A few percent go between the stages; 5 ms more are for a thread that has to give way between two clocks.
      if (mode == PrefillMode::kFull) REQUIRE(t.ttft_ms > 50);
      CHECK(stages(t) >= 0.95 * t.ttft_ms - 5);
      CHECK(stages(t) <= t.ttft_ms + 5);
      for (const double ms : {t.prepare_ms, t.load_wait_ms, t.probe_ms, t.select_ms, t.recompute_ms, t.first_token_ms,
                              t.kv_read_ms, t.kv_unpack_ms, t.kv_place_ms}) {
        CHECK(ms >= 0);
      }
      CHECK(t.recompute_ms > 0);
      CHECK((t.probe_ms > 0) == (mode == PrefillMode::kBlend));
      if (mode != PrefillMode::kBlend) CHECK(t.select_ms == 0);
      const bool loads = mode == PrefillMode::kBlend || mode == PrefillMode::kReuse;
      if (loads) CHECK(t.kv_read_ms + t.kv_unpack_ms + t.kv_place_ms > 0);
      if (mode == PrefillMode::kFull) CHECK(t.kv_load_ms + t.load_wait_ms + t.kv_read_ms + t.kv_unpack_ms == 0);
      // They follow each other in one thread; waiting for the disk and processor time both pass within its life.
      CHECK(t.kv_read_ms + t.kv_unpack_ms + t.kv_place_ms <= t.kv_load_ms + 5);
    }
  }
}

TEST_CASE("timings: a fixed prefix is stored behind the first token and found by the next question", "[session]") {
  const ModelFile file(tiny_spec("llama", DType::kF32));
  LoadedModel model({file.path(), Precision::kFast, "auto", &best_ops(), 1, ""});
  TempDir dir;
  Catalogue catalogue(dir.path(), Db::Mode::kReadWrite);
  KvStore store(catalogue);
  AskOptions options;
  options.max_tokens = 1;
  options.prefill = PrefillMode::kPrefix;
  AskHooks hooks;
  uint64_t stored_when_answered = 0;
  hooks.on_answered = [&](const Answer&) { stored_when_answered = catalogue.all_kv().size(); };
  Answerer(model, &store, nullptr).ask_prompt(prompt_of_chunks(), options, hooks);
  CHECK(stored_when_answered == 0);
  CHECK(catalogue.all_kv().size() == 1);
  const Answer again = Answerer(model, &store, nullptr).ask_prompt(prompt_of_chunks(), options, {});
  CHECK(again.cache.exact > 0);
  CHECK(again.cache.bytes_loaded > 0);
}
