#include "blend/select.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "blend/policy.h"
#include "blend/stand_in.h"

using namespace cento;

TEST_CASE("select_top: highest scores, ascending, ties to the earlier row, NaN last", "[blend]") {
  const std::vector<float> scores = {0.5f, NAN, 2.0f, 0.5f, -1.0f};
  CHECK(select_top(scores, 0).empty());
  CHECK(select_top(scores, 1) == std::vector<int32_t>{2});
  CHECK(select_top(scores, 2) == std::vector<int32_t>{0, 2});
  CHECK(select_top(scores, 4) == std::vector<int32_t>{0, 2, 3, 4});
  CHECK(select_top(scores, 5) == std::vector<int32_t>{0, 1, 2, 3, 4});
  CHECK(select_top(scores, 99).size() == 5);
  CHECK(select_top({}, 3).empty());
}

TEST_CASE("smooth_within: averages stay inside a run", "[blend]") {
  const std::vector<float> scores = {9, 0, 0, 0, 3, 3};
  const std::vector<size_t> lengths = {4, 2};
  const std::vector<float> smoothed = smooth_within(scores, lengths, 1);
  CHECK(smoothed == std::vector<float>{4.5f, 3.0f, 0.0f, 0.0f, 3.0f, 3.0f});
  CHECK(smooth_within(scores, lengths, 0) == scores);
}

TEST_CASE("select_random: distinct, in range, seeded", "[blend]") {
  const auto a = select_random(100, 20, 7), b = select_random(100, 20, 7), c = select_random(100, 20, 8);
  CHECK(a == b);
  CHECK(a != c);
  CHECK(std::set<int32_t>(a.begin(), a.end()).size() == 20);
  CHECK(std::is_sorted(a.begin(), a.end()));
  CHECK((a.front() >= 0 && a.back() < 100));
  CHECK(select_random(5, 9, 1) == std::vector<int32_t>{0, 1, 2, 3, 4});
}

TEST_CASE("select_heads: the first rows of each run, evenly", "[blend]") {
  const std::vector<size_t> lengths = {3, 1, 4};
  CHECK(select_heads(lengths, 0).empty());
  CHECK(select_heads(lengths, 3) == std::vector<int32_t>{0, 3, 4});
  CHECK(select_heads(lengths, 5) == std::vector<int32_t>{0, 1, 3, 4, 5});
  CHECK(select_heads(lengths, 7) == std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6});
  CHECK(select_heads(lengths, 99).size() == 8);
}

TEST_CASE("row_budget: the ratio where one is given, else at most 600 rows", "[blend]") {
  BlendSettings s;
  CHECK(row_budget(s, 0) == 0);
  CHECK(row_budget(s, 1000) == 150);
  CHECK(row_budget(s, 1001) == 151);
  CHECK(row_budget(s, 100000) == 600);
  s.ratio = 0.05;
  CHECK(row_budget(s, 1000) == 50);
  s.ratio = 1.0;
  CHECK(row_budget(s, 777) == 777);
  s.policy = PolicyKind::kNone;
  CHECK(row_budget(s, 777) == 0);
  s.policy = PolicyKind::kAll;
  s.ratio = 0.1;
  CHECK(row_budget(s, 777) == 777);
}

TEST_CASE("policies: every name is found and found once", "[blend]") {
  std::set<std::string> names;
  for (const PolicyInfo& info : policies()) {
    CHECK(names.insert(info.name).second);
    CHECK(find_policy(info.name) == info.kind);
    CHECK(policy_name(info.kind) == std::string(info.name));
  }
  CHECK_FALSE(find_policy("dev").has_value());
  CHECK_FALSE(find_policy("").has_value());
}

TEST_CASE("stand_in_context: own preceding text behind the beginning of the passages, to a fixed length", "[blend]") {
  const std::vector<int32_t> p(400, 1), q(500, 2);
  std::vector<int32_t> preceding(100);
  for (size_t i = 0; i < preceding.size(); ++i) preceding[i] = static_cast<int32_t>(1000 + i);
  const auto context = stand_in_context(preceding, {p, q});
  REQUIRE(context.size() == kStandInTokens);
  CHECK(std::count(context.begin(), context.end(), 1) == 400);
  CHECK(std::count(context.begin(), context.end(), 2) == 200);
  CHECK(std::equal(preceding.begin(), preceding.end(), context.end() - 100));
  // A long text keeps its nearest part; pads are not needed then.
  std::vector<int32_t> many(900);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<int32_t>(i);
  const auto near = stand_in_context(many, {});
  REQUIRE(near.size() == kStandInTokens);
  CHECK(near.front() == 200);
  CHECK(near.back() == 899);
  // Too little text of the kind: no stand-in at all.
  CHECK(stand_in_context(preceding, {p}).empty());
  CHECK(stand_in_context({}, {}).empty());
}
