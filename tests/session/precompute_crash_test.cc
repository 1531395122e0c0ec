// `cento precompute` that stops anywhere (tests/kv/crash_suite.h).
#include <string>

#include "docs/indexer.h"
#include "engine/engine_test.h"
#include "kv/crash_suite.h"
#include "session/precompute.h"

using namespace cento;
using namespace cento::test;

namespace {

class Precomputed {
 public:
  Precomputed() {
    write_all(disk / "docs/leave.md", "# Leave\n\nUp to five days of annual leave may be carried over.\n");
    write_all(disk / "docs/harbour.md", "# Harbour\n\nThe crane at the eastern quay lifts twelve tonnes.\n");
    CrashStore s(disk);
    DocStore docs(s.catalogue);
    IndexOptions options;
    options.paths = {disk / "docs"};
    index_documents(docs, &model_.tokenizer(), options, {});
  }

  PrecomputeReport run(const PrecomputeOptions& options) {
    CrashStore s(disk);
    DocStore docs(s.catalogue);
    return precompute(model_, s.kv, docs, options, {});
  }

  CrashDisk disk;

 private:
  ModelFile file_{tiny_spec("llama", DType::kF32)};
  LoadedModel model_{{file_.path(), Precision::kFast, "auto", nullptr, 1, ""}};
};

void check_precompute(const CrashKind& kind) {
  Precomputed p;
  PrecomputeOptions options;
  options.context = ContextKind::kBoth;
  p.disk.keep();
  const CrashCommand command{"precompute", [&](CrashDisk&) {
                               const auto report = p.run(options);
                               CHECK(report.made + report.present == report.wanted);
                             }};
  CHECK(survive(p.disk, command, kind) > 20);
}

// What is stored lossless is packed anew, in its place.
void check_recode(const CrashKind& kind) {
  Precomputed p;
  PrecomputeOptions options;
  options.codec = KvCodec::kLossless;
  p.run(options);
  p.disk.keep();
  options.codec = KvCodec::kInt8;
  const CrashCommand command{"precompute --codec", [&](CrashDisk&) { p.run(options); }};
  CHECK(survive(p.disk, command, kind) > 20);
}

const std::vector<CrashKind> kQuick = {kErrorOnce, kKilled},
                             kRest = {kHalfWrite, kNoRoom, kCutSynced, kCutNames, kCutSome};

}  // namespace

TEST_CASE("crash: precompute goes on where it was stopped", "[session][crash]") {
  check_precompute(GENERATE(from_range(kQuick)));
}
TEST_CASE("crash: precompute, by every other kind of fault", "[session][crash][.slow]") {
  check_precompute(GENERATE(from_range(kRest)));
}
TEST_CASE("crash: precompute with another codec leaves old or new", "[session][crash]") {
  check_recode(GENERATE(from_range(kQuick)));
}
TEST_CASE("crash: precompute with another codec, by every other kind of fault", "[session][crash][.slow]") {
  check_recode(GENERATE(from_range(kRest)));
}
