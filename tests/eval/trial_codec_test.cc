// Trials on KV that went through a codec.
#include "engine/engine_test.h"
#include "eval/eval_summary.h"
#include "eval/trial.h"
#include "eval/trial_key.h"
#include "kv/frame_codec.h"

namespace cento::test {
namespace {

TrialSetting reuse(KvCodec codec, bool stand_in = false) {
  TrialSetting s;
  s.stand_in = stand_in;
  s.codec = codec;
  s.blend.policy = PolicyKind::kNone;
  s.name = setting_name(s);
  return s;
}

struct CodecBench {
  explicit CodecBench(Precision precision = Precision::kFast) : engine(path(), ref_ops(), precision) {
    const size_t vocab = engine.model.config().vocab;
    prompt.prefix = random_ids(9, vocab, 11);
    prompt.chunks = {random_ids(70, vocab, 12)};
    prompt.contexts = {random_ids(31, vocab, 16)};
    prompt.question = random_ids(10, vocab, 15);
    options.answer_tokens = 4;
    options.own_answer_tokens = 0;
    options.want_logits = true;
  }
  static std::string path() {
    static const ModelFile file([] {
      TinyModelSpec spec = tiny_spec("llama", DType::kF32);
      spec.gain = 2;
      return spec;
    }());
    return file.path();
  }
  LoadedEngine engine;
  TrialPrompt prompt;
  TrialOptions options;
};

double mean(const std::vector<double>& x) {
  double sum = 0;
  for (const double v : x) sum += v;
  return sum / static_cast<double>(x.size());
}

}  // namespace

TEST_CASE("trial: a setting's codec is what its stored KV has been through, and nothing else changes", "[eval]") {
  CodecBench bench;
  Trial trial(bench.engine.engine, bench.prompt, bench.options);
  REQUIRE(trial.prepare(nullptr));
  // A chunk that stands where it was computed is full prefill, bit for bit, unless a codec has lost something.
  CHECK(mean(trial.run(reuse(KvCodec::kLossless))->kl) == 0);
  double last = 0;
  for (const KvCodec codec : {KvCodec::kInt8, KvCodec::kInt4}) {
    const auto outcome = trial.run(reuse(codec));
    CAPTURE(kv_codec_name(codec), mean(outcome->kl));
    CHECK(mean(outcome->kl) > last);
    last = mean(outcome->kl);
    // The same put together by hand.
    PromptPlan plan = plan_of(fresh(bench.prompt.prefix));
    const KvBlock block = computed_kv(bench.engine.engine, bench.prompt.prefix, bench.prompt.chunks[0]);
    plan.segments.push_back(
        stored(SegmentFrom::kExact, bench.prompt.chunks[0], as_reader(through_codec(block, codec))));
    plan.segments.push_back(fresh(bench.prompt.question));
    const auto by_hand = prefill_anew(bench.engine.engine, std::move(plan), with(PolicyKind::kNone)).logits;
    CHECK(std::equal(by_hand.begin(), by_hand.end(), outcome->logits.begin()));
  }
  CHECK(mean(trial.run(reuse(KvCodec::kLossless))->kl) == 0);
}

TEST_CASE("trial: codecs are in names and keys, and today's are what they were", "[eval]") {
  const EvalOptions options;
  CHECK(setting_name(reuse(KvCodec::kLossless)) == "none prefix");
  CHECK(setting_name(reuse(KvCodec::kInt8)) == "none prefix int8");
  CHECK(setting_name(reuse(KvCodec::kInt4, true)) == "none stand-in int4");
  const Hash prompt = hash_of_text("test", "a prompt");
  CHECK(trial_key(prompt, reuse(KvCodec::kLossless), options).hex() ==
        "3b09e1eb79e981d4a3d717dbaa0b9c24b6ea43bcb13457abbb7ab810c3726860");
  CHECK(trial_key(prompt, reuse(KvCodec::kInt8), options) != trial_key(prompt, reuse(KvCodec::kInt4), options));
  CHECK((is_plain_reuse(reuse(KvCodec::kLossless)) && !is_plain_reuse(reuse(KvCodec::kInt8))));
}

TEST_CASE("trial: in single precision a codec takes the KV rounded to half", "[eval]") {
  CodecBench bench(Precision::kF32);
  Trial trial(bench.engine.engine, bench.prompt, bench.options);
  REQUIRE(trial.prepare(nullptr));
  const double kl = mean(trial.run(reuse(KvCodec::kInt8))->kl);
  CHECK(kl > 0);
  CHECK(kl < mean(trial.run(reuse(KvCodec::kInt4))->kl));
}

}  // namespace cento::test
