#include "session/model_record.h"

#include <cmath>

#include "engine/engine_test.h"
#include "session/answer.h"

using namespace cento;
using namespace cento::test;

namespace {

ModelRecord sample() {
  ModelRecord r;
  r.ratio = 0.2;
  r.repair = Repair::kShift;
  r.kl = 1.0 / 3;
  r.kl_worst = 2;
  r.top1 = 0.9;
  r.n_prompts = 12;
  r.guard = Guard{-0.5, {1, 2, 3, 4, 5, 6}, 0.75};
  return r;
}

// A guard that says the same whatever it is shown: chance 1 / (1 + e^-bias).
ModelRecord with_guard(double bias, double limit) {
  ModelRecord r;
  r.guard = Guard{bias, {}, limit};
  return r;
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
  prompt.stand_in = {};
  prompt.keep = true;
  return prompt;
}

struct Asked {
  Asked() : file(tiny_spec("llama", DType::kF32)), catalogue(dir.path(), Db::Mode::kReadWrite), store(catalogue) {}

  Answer ask(const std::optional<ModelRecord>& record, const AskOptions& options) {
    LoadedModel model({file.path(), Precision::kFast, "auto", &ref_ops(), 1, ""});  // slow: the controller blends
    {
      Answerer fills_store(model, &store, nullptr);  // and notes the model's fingerprint
      AskOptions reuse;
      reuse.prefill = PrefillMode::kReuse;
      reuse.max_tokens = 1;
      fills_store.ask_prompt(prompt_of_chunks(), reuse, {});
    }
    Engine engine(model);
    if (record) write_record(engine, catalogue, *record);
    Answerer answerer(model, &store, nullptr);
    return answerer.ask_prompt(prompt_of_chunks(), options, {});
  }

  TempDir dir;
  ModelFile file;
  Catalogue catalogue;
  KvStore store;
};

AskOptions blend() {
  AskOptions options;
  options.prefill = PrefillMode::kBlend;
  options.max_tokens = 4;
  return options;
}

}  // namespace

TEST_CASE("model record: what is written is read back, anything else is no record", "[session]") {
  const ModelRecord r = sample();
  const auto back = record_from_text(to_text(r));
  REQUIRE(back);
  CHECK((back->ratio == r.ratio && back->repair == r.repair && back->kl == r.kl && back->kl_worst == r.kl_worst));
  CHECK((back->top1 == r.top1 && back->n_prompts == r.n_prompts));
  REQUIRE(back->guard);
  CHECK((back->guard->bias == r.guard->bias && back->guard->weights == r.guard->weights &&
         back->guard->limit == r.guard->limit));
  ModelRecord plain = r;
  plain.guard.reset();
  CHECK_FALSE(record_from_text(to_text(plain))->guard);
  const std::string text = to_text(r);
  for (size_t cut = 0; cut < text.size(); ++cut) CHECK_FALSE(record_from_text(text.substr(0, cut)));
  for (const char* wrong : {"", "{}", "[]", R"({"ratio":2,"repair":"none","kl":0,"kl_worst":0,"top1":0,"prompts":1})",
                            R"({"ratio":0.1,"repair":"magic","kl":0,"kl_worst":0,"top1":0,"prompts":1})"})
    CHECK_FALSE(record_from_text(wrong));
}

TEST_CASE("model record: the ratio holds up to 4000 rows, from then on the number of rows", "[session]") {
  ModelRecord r;
  r.ratio = 0.25;
  CHECK(ratio_for(r, 0) == 0.25);
  CHECK(ratio_for(r, 4000) == 0.25);
  CHECK(ratio_for(r, 8000) == 0.125);
}

TEST_CASE("model record: a blend takes its ratio unless one is asked for", "[session]") {
  Asked asked;
  ModelRecord record;
  record.ratio = 0.4;
  AskOptions options = blend();
  const double without = asked.ask({}, options).cache.ratio;
  CHECK(without == Approx(0.15).margin(0.01));
  CHECK(asked.ask(record, options).cache.ratio == Approx(0.4).margin(0.01));  // rows are whole
  options.blend.ratio = 0.1;
  CHECK(asked.ask(record, options).cache.ratio == Approx(0.1).margin(0.01));
}

TEST_CASE("guard: a chance is the logistic of the weighted features", "[session]") {
  Guard guard;
  guard.bias = 0.5;
  guard.weights = {1, -2, 0, 0, 0.25, 0};
  Residual r;
  r.unselected = 0.5;
  r.entropy = 0.75;
  r.shift = std::exp(2.0);
  CHECK(guard.probability(r) == Approx(1 / (1 + std::exp(0.0))));  // 0.5 + 0.5 - 1.5 + 0.5 = 0
}

TEST_CASE("guard: what it does not trust is computed with more rows, then in full", "[session]") {
  Asked asked;
  AskOptions by_itself = blend();
  by_itself.prefill = PrefillMode::kAuto;
  by_itself.want_logits = true;

  SECTION("trusted") {
    const Answer answer = asked.ask(with_guard(-3, 0.5), by_itself);
    REQUIRE(answer.cache.guard);
    CHECK(answer.cache.guard->chance == Approx(1 / (1 + std::exp(3.0))));
    CHECK(answer.cache.guard->limit == 0.5);
    CHECK(answer.cache.guard->action == "none");
    CHECK(answer.cache.mode == PrefillMode::kBlend);
    CHECK(answer.cache.charged < 1);
  }
  SECTION("never trusted: the answer is full prefill's, and what the tries cost is told") {
    const Answer answer = asked.ask(with_guard(3, 0.5), by_itself);
    REQUIRE(answer.cache.guard);
    CHECK(answer.cache.guard->action == "full");
    CHECK(answer.cache.mode == PrefillMode::kPrefix);
    CHECK(answer.cache.why.find("guard") != std::string::npos);
    CHECK(answer.cache.charged > 1);
    CHECK((answer.cache.reused == 0 && answer.cache.recomputed == 0));
    AskOptions full = by_itself;
    full.prefill = PrefillMode::kFull;
    CHECK(answer.logits == asked.ask({}, full).logits);
    CHECK(answer.cache.chunks[0].from == "ram");  // right behind the prefix it was exact already
    for (size_t i = 1; i < answer.cache.chunks.size(); ++i)
      CHECK(answer.cache.chunks[i].reason.find("guard") != std::string::npos);
  }
  SECTION("trusted with more rows") {
    // The chance is the logistic of the share of attention that stays on rows not recomputed: less with more rows.
    ModelRecord share;
    share.guard = Guard{0, {1}, 1};
    const auto unselected = [&](double ratio) {
      AskOptions options = blend();
      options.blend.ratio = ratio;
      const double p = asked.ask(share, options).cache.guard->chance;
      return std::log(p / (1 - p));
    };
    const double few = unselected(0.15), more = unselected(0.3);
    REQUIRE(few > more + 1e-3);
    ModelRecord record;
    const double steep = 100 / (few - more);
    record.guard = Guard{-steep * (few + more) / 2, {steep}, 0.5};
    const Answer answer = asked.ask(record, by_itself);
    REQUIRE(answer.cache.guard);
    CHECK(answer.cache.guard->action == "ratio");
    CHECK(answer.cache.guard->chance < 0.5);
    CHECK(answer.cache.mode == PrefillMode::kBlend);
    CHECK(answer.cache.ratio == Approx(0.3).margin(0.01));
  }
  SECTION("asked for by name it is told, not done") {
    const Answer answer = asked.ask(with_guard(3, 0.5), blend());
    REQUIRE(answer.cache.guard);
    CHECK(answer.cache.guard->chance > 0.5);
    CHECK(answer.cache.guard->action == "none");
    CHECK(answer.cache.mode == PrefillMode::kBlend);
  }
  SECTION("switched off") {
    AskOptions off = by_itself;
    off.guard = false;
    CHECK_FALSE(asked.ask(with_guard(3, 0.5), off).cache.guard);
  }
}
