#include "session/gate.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "engine/engine_test.h"

using namespace cento;
using namespace cento::test;

namespace {

// Backends that are wrong on purpose: the best one with an op replaced. Each is right as long as everything is computed
// in one go, so that nothing but the gate would tell.
std::thread::id computing_thread;
bool on_loader() { return std::this_thread::get_id() != computing_thread; }

void place_nothing_loaded(const ExecContext& ctx, const KvPlaceArgs& args) {
  if (!on_loader()) best_ops().kv_place(ctx, args);
}

// Stored rows land one slot too far down.
void place_loaded_shifted(const ExecContext& ctx, const KvPlaceArgs& args) {
  if (!on_loader()) return best_ops().kv_place(ctx, args);
  std::vector<int32_t> pos(args.pos, args.pos + args.t);
  for (int32_t& p : pos) p -= 1;
  KvPlaceArgs shifted = args;
  shifted.pos = pos.data();
  best_ops().kv_place(ctx, shifted);
}

// Stored K is taken as rotated already.
void place_loaded_unrotated(const ExecContext& ctx, const KvPlaceArgs& args) {
  if (!on_loader()) return best_ops().kv_place(ctx, args);
  int32_t most = 0;
  for (size_t t = 0; t < args.t; ++t) most = std::max(most, args.pos[t]);
  std::vector<float> identity((static_cast<size_t>(most) + 1) * args.rope.dims);
  for (size_t i = 0; i < identity.size(); i += 2) identity[i] = 1;  // (cos, sin) of 0
  KvPlaceArgs plain = args;
  plain.rope.table = identity.data();
  best_ops().kv_place(ctx, plain);
}

// A row's result depends on how many rows come with it.
void norm_by_rows(const ExecContext& ctx, const RmsNormArgs& args) {
  RmsNormArgs wrong = args;
  wrong.eps *= static_cast<float>(args.r);
  best_ops().rms_norm(ctx, wrong);
}

void attention_of_nan(const ExecContext& ctx, const AttentionArgs& args) {
  best_ops().attention(ctx, args);
  for (size_t t = 0; t < args.t; ++t)
    std::fill_n(args.out + t * args.ldo, args.h * args.d, std::numeric_limits<float>::quiet_NaN());
}

// Attention that shows gathered rows the keys up to their index in the call instead of up to their position: the
// mistake of the published code of CacheBlend (DESIGN 3). Ungathered slices from position 0 on are right.
void attention_by_index(const ExecContext& ctx, const AttentionArgs& args) {
  std::vector<int32_t> pos(args.t);
  for (size_t t = 0; t < args.t; ++t) pos[t] = static_cast<int32_t>(t);
  AttentionArgs wrong = args;
  wrong.q_pos = pos.data();
  best_ops().attention(ctx, wrong);
}

struct Defect {
  const char* what;
  void (*break_it)(Ops&);
};
const Defect kDefects[] = {
    {"loaded rows are not placed", [](Ops& o) { o.kv_place = place_nothing_loaded; }},
    {"loaded rows are placed one slot off", [](Ops& o) { o.kv_place = place_loaded_shifted; }},
    {"loaded K is not rotated", [](Ops& o) { o.kv_place = place_loaded_unrotated; }},
    {"rows depend on each other", [](Ops& o) { o.rms_norm = norm_by_rows; }},
    {"attention gives NaN", [](Ops& o) { o.attention = attention_of_nan; }},
    {"the mask goes by index", [](Ops& o) { o.attention = attention_by_index; }},
};

}  // namespace

TEST_CASE("gate: every architecture passes on every backend, in both precisions", "[session]") {
  for (const std::string& architecture : architectures()) {
    const ModelFile file(tiny_spec(architecture, DType::kQ8_0));
    for (const Precision precision : {Precision::kF32, Precision::kFast}) {
      for (const Ops* ops : engine_ops()) {
        CAPTURE(architecture, precision_name(precision), ops->name);
        LoadedEngine loaded(file.path(), *ops, precision);
        const GateResult result = run_gate(loaded.engine);
        CHECK(result.passed);
        CHECK(result.kl_max == 0);  // bit for bit on a CPU
        CHECK(result.why.empty());
        CHECK(loaded.engine.ids().empty());
      }
    }
  }
}

TEST_CASE("gate: a backend that is wrong in any of these ways does not pass, and the reason is named", "[session]") {
  computing_thread = std::this_thread::get_id();
  const std::string architecture = GENERATE("llama", "gemma3");
  const ModelFile file(tiny_spec(architecture, DType::kQ8_0));
  for (const Defect& defect : kDefects) {
    CAPTURE(architecture, defect.what);
    Ops wrong = best_ops();
    wrong.name = "wrong";
    defect.break_it(wrong);
    LoadedEngine loaded(file.path(), wrong, Precision::kFast);
    const GateResult result = run_gate(loaded.engine);
    CHECK_FALSE(result.passed);
    CHECK_FALSE(result.kl_max <= 1e-6);  // NaN as well
    CHECK(result.why.find("differ") != std::string::npos);
    CHECK(loaded.engine.ids().empty());
  }
}

TEST_CASE("gate: a pass is remembered for this model and backend, a failure is not", "[session]") {
  computing_thread = std::this_thread::get_id();
  const TempDir dir;
  Catalogue catalogue(dir / "store", Db::Mode::kReadWrite);
  const ModelFile file(tiny_spec("llama", DType::kQ8_0));
  Ops wrong = best_ops();
  wrong.kv_place = place_nothing_loaded;  // under the good backend's name

  LoadedEngine bad(file.path(), wrong, Precision::kFast);
  CHECK_FALSE(gate(bad.engine, &catalogue).passed);
  LoadedEngine good(file.path(), best_ops(), Precision::kFast);
  CHECK(gate(good.engine, &catalogue).passed);
  // Only what is remembered can let this one through now.
  CHECK(gate(bad.engine, &catalogue).passed);
  CHECK_FALSE(gate(bad.engine, nullptr).passed);

  // Another precision, backend or model is looked at anew.
  LoadedEngine bad_f32(file.path(), wrong, Precision::kF32);
  CHECK_FALSE(gate(bad_f32.engine, &catalogue).passed);
  wrong.name = "other";
  CHECK_FALSE(gate(bad.engine, &catalogue).passed);
  wrong.name = best_ops().name;
  TinyModelSpec spec = tiny_spec("llama", DType::kQ8_0);
  spec.seed = 2;
  const ModelFile second(spec);
  LoadedEngine bad_second(second.path(), wrong, Precision::kFast);
  CHECK_FALSE(gate(bad_second.engine, &catalogue).passed);
}

TEST_CASE("gate: a store that may only be read is left alone", "[session]") {
  const TempDir dir;
  { const Catalogue catalogue(dir / "store", Db::Mode::kReadWrite); }
  Catalogue catalogue(dir / "store", Db::Mode::kReadOnly);
  const ModelFile file(tiny_spec("qwen2", DType::kF32));
  LoadedEngine loaded(file.path(), best_ops(), Precision::kFast);
  CHECK(gate(loaded.engine, &catalogue).passed);
}
