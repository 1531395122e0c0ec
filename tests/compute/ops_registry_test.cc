#include "compute/ops_registry.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <iostream>
#include <set>
#include <sstream>

#include "base/error.h"

namespace cento {
namespace {

TEST_CASE("ops registry: every backend that REQUIRE_OPS names is here", "[compute]") {
  std::set<std::string> present;
  std::cout << "backends:";
  for (const Ops* ops : all_ops()) {
    std::cout << ' ' << ops->name;
    present.insert(ops->name);
  }
  std::cout << '\n';
  const char* required = std::getenv("REQUIRE_OPS");
  std::istringstream names(required == nullptr ? "ref" : required);
  for (std::string name; std::getline(names, name, ',');) {
    CAPTURE(name);
    CHECK(present.count(name) == 1);
  }
}

TEST_CASE("ops registry: ref comes first, the best last, names are unique and every op is there", "[compute]") {
  const std::vector<const Ops*> all = all_ops(), simd = all_simd_ops();
  CHECK(all.front() == &ref_ops());
  CHECK(all.back() == &best_ops());
  CHECK(std::equal(simd.begin(), simd.end(), all.begin() + 1));
  std::set<std::string> names;
  for (const Ops* ops : all) {
    CAPTURE(ops->name);
    CHECK(names.insert(ops->name).second);
    CHECK(ops->device != nullptr);
    CHECK(ops->pack != nullptr);
    CHECK(ops->matmul != nullptr);
    CHECK(ops->rms_norm != nullptr);
    CHECK(ops->rope_rows != nullptr);
    CHECK(ops->cast_rows != nullptr);
    CHECK(ops->kv_place != nullptr);
    CHECK(ops->kv_deviation != nullptr);
    CHECK(ops->attention != nullptr);
    CHECK(ops->gate != nullptr);
    CHECK(ops->gather != nullptr);
    CHECK(ops->add != nullptr);
  }
}

TEST_CASE("ops registry: each target runs its own code", "[compute]") {
  std::set<void (*)(const ExecContext&, const MatmulArgs&)> kernels;
  for (const Ops* ops : all_ops()) CHECK(kernels.insert(ops->matmul).second);
}

TEST_CASE("ops registry: backends are found by name", "[compute]") {
  for (const Ops* ops : all_ops()) CHECK(&find_ops(ops->name) == ops);
  CHECK(&find_ops("") == &best_ops());
  CHECK(&find_ops("auto") == &best_ops());
  for (const char* bad : {"avx2", "AVX", "ref ", "none"}) {
    CAPTURE(bad);
    try {
      (void)find_ops(bad);
      FAIL("found");
    } catch (const Error& e) {
      CHECK(e.code() == Code::kUsage);
      CHECK(e.hint().find("ref") != std::string::npos);
    }
  }
}

}  // namespace
}  // namespace cento
