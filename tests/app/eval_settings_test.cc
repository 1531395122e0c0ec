// The settings that the lists of `cento eval` ask for.
#include <catch2/catch.hpp>

#include "app/options.h"
#include "base/error.h"

namespace cento {
namespace {

using Names = std::vector<std::string>;

Names names_of(const EvalCommand& command, size_t n_layers = 30) {
  Names names;
  for (const TrialSetting& s : settings_of(command, n_layers)) names.push_back(s.name);
  return names;
}

TEST_CASE("eval settings: the lists are taken each with each", "[app]") {
  EvalCommand c;
  CHECK(names_of(c) ==
        Names{"query r=0.05 stand-in", "query r=0.15 stand-in", "dev-kv r=0.05 stand-in", "dev-kv r=0.15 stand-in"});
  c.policies = {"hybrid"};
  c.ratios = {-1, 0.5};
  c.contexts = {"prefix", "stand-in"};
  c.repairs = {"none", "shift"};
  CHECK(names_of(c) == Names{"hybrid default prefix", "hybrid default repair=shift prefix", "hybrid r=0.5 prefix",
                             "hybrid r=0.5 repair=shift prefix", "hybrid default stand-in",
                             "hybrid default repair=shift stand-in", "hybrid r=0.5 stand-in",
                             "hybrid r=0.5 repair=shift stand-in"});
}

TEST_CASE("eval settings: what changes nothing makes no setting of its own", "[app]") {
  EvalCommand c;
  c.policies = {"none", "all", "query", "query"};
  c.ratios = {0.05, 0.15, 0.05};
  c.repairs = {"none", "shift"};
  c.blend.smooth = 7;
  CHECK(names_of(c) == Names{"none stand-in", "all stand-in", "query r=0.05 smooth=7 stand-in",
                             "query r=0.05 smooth=7 repair=shift stand-in", "query r=0.15 smooth=7 stand-in",
                             "query r=0.15 smooth=7 repair=shift stand-in"});
  CHECK_FALSE(settings_of(c, 30)[0].blend.ratio);
}

TEST_CASE("eval settings: gradual filtering starts at one and a half times the ratio and needs one", "[app]") {
  EvalCommand c;
  c.policies = {"dev-kv-gradual"};
  c.ratios = {0.2};
  const auto settings = settings_of(c, 4);
  REQUIRE(settings.size() == 1);
  CHECK(settings[0].blend.policy == PolicyKind::kDevKv);
  CHECK(settings[0].blend.layer_ratios == gradual_ratios(0.2, 1, 4));
  CHECK(settings[0].name == "dev-kv r=0.3..0.1 stand-in");
  c.ratios = {-1};
  CHECK_THROWS_AS(settings_of(c, 4), Error);
}

TEST_CASE("eval settings: layer ratios take the place of ratios", "[app]") {
  EvalCommand c;
  c.policies = {"query", "none"};
  c.layer_ratios = {0.3, 0.2, 0.1};
  const auto settings = settings_of(c, 4);
  REQUIRE(settings.size() == 2);  // one for both of the default ratios
  CHECK(settings[0].blend.layer_ratios == std::vector<double>{0.3, 0.2, 0.1});
  CHECK_FALSE(settings[0].blend.ratio);
  CHECK(settings[0].name == "query r=0.3..0.1 stand-in");
  CHECK(settings[1].name == "none stand-in");
  c.policies = {"dev-kv-gradual"};
  CHECK_THROWS_AS(settings_of(c, 4), Error);
}

}  // namespace
}  // namespace cento
