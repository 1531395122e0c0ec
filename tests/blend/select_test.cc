#include "blend/select.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <set>

#include "base/rng.h"
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

namespace {

std::vector<int32_t> part(size_t n, int32_t first) {
  std::vector<int32_t> ids(n);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

std::vector<int32_t> joined(const std::vector<std::vector<int32_t>>& parts) {
  std::vector<int32_t> all;
  for (const auto& p : parts) all.insert(all.end(), p.begin(), p.end());
  return all;
}

}  // namespace

TEST_CASE("stand_in_context: own preceding chunks behind the beginning of the passages, all of them whole", "[blend]") {
  const auto a = part(100, 1000), b = part(200, 2000), p = part(300, 5000), q = part(250, 6000), r = part(190, 7000);
  // The pad ends with the passage that makes it 700, however much of its own there is.
  CHECK(stand_in_context({{a, 5}, {b, 6}}, true, {p, q, r, a}) == joined({p, q, r, a, b}));
  CHECK(stand_in_context({}, true, {p, q, r, a}) == joined({p, q, r}));
  CHECK(stand_in_context({p, q, r, a}) == joined({p, q, r}));
  // As much as there is, if that is enough together.
  CHECK(stand_in_context({{a, 5}, {b, 6}}, true, {p, q}) == joined({p, q, a, b}));
  CHECK(stand_in_context({{a, 5}, {b, 6}}, true, {p}).empty());
  CHECK(stand_in_context({{a, 5}, {b, 6}}, false, {p, q, r}).empty());
  CHECK(stand_in_context({}).empty());
  // A passage longer than the whole context keeps its end, next to the chunk.
  const auto huge = part(5000, 10000);
  CHECK(stand_in_context({{huge, 1}}, true, {}) ==
        part(kStandInPassageMax, 15000 - static_cast<int32_t>(kStandInPassageMax)));
  CHECK(stand_in_context({{a, 1}}, true, {huge}).size() == kStandInPassageMax + a.size());
}

TEST_CASE("stand_in_context: far from the start it begins at the nearest landmark that leaves enough", "[blend]") {
  // 14 of 200 tokens: own text of 800 to 2,000 is allowed, chunks 4 to 10; a landmark has the smallest draw of itself
  // and one neighbour on each side.
  std::vector<OwnChunk> own;
  for (int32_t i = 0; i < 14; ++i) own.push_back({part(200, 1000 * i), static_cast<uint64_t>(100 + i)});
  const auto begins_at = [&] { return stand_in_context(own, false, {part(900, 0)}).front() / 1000; };
  CHECK(begins_at() == 4);  // draws only rise: no landmark, the smallest of those that may be
  own[6].draw = 50;
  CHECK(begins_at() == 6);
  own[9].draw = 60;  // nearer, if not as small
  CHECK(begins_at() == 9);
  own[8].draw = 55;  // its neighbour is smaller
  CHECK(begins_at() == 8);
  own[12].draw = 0;  // would leave 400
  own[2].draw = 0;   // 2,400
  CHECK(begins_at() == 8);
  CHECK(stand_in_context(own, false, {}).size() == 1200);
  // A model without room: the shortest.
  CHECK(stand_in_context(own, false, {}, kStandInTokens).size() == 800);
}

TEST_CASE("stand_in_context: of chunks in order, most contexts go on where the one before ended", "[blend]") {
  Rng rng(5);
  std::vector<OwnChunk> all;
  size_t n_chunk = 0, n_fresh = 0;
  std::vector<int32_t> before;
  for (int32_t i = 0; i < 400; ++i) {
    const size_t first = all.size() > 64 ? all.size() - 64 : 0;
    const std::vector<OwnChunk> own(all.begin() + static_cast<ptrdiff_t>(first), all.end());
    const auto context = stand_in_context(own, first == 0, {part(400, -1000), part(400, -2000)});
    REQUIRE(context.size() >= kStandInTokens);
    REQUIRE(context.size() < kOwnTokensMax + 800 + 256);
    all.push_back({part(64 + rng.below(192), 1000 * i), rng.next()});
    const auto [same, there] = std::mismatch(context.begin(), context.end(), before.begin(), before.end());
    n_fresh += static_cast<size_t>(context.end() - same) + all.back().ids.size();
    n_chunk += all.back().ids.size();
    before = context;
    before.insert(before.end(), all.back().ids.begin(), all.back().ids.end());
  }
  // Each of them on its own would be at least 700 / 160 + 1 = 5.4 times its own tokens.
  CHECK(n_fresh < 2.2 * static_cast<double>(n_chunk));
}

TEST_CASE("stand_in_context: an edit changes the contexts of the chunks near it alone", "[blend]") {
  Rng rng(6);
  std::vector<OwnChunk> one;
  for (int32_t i = 0; i < 60; ++i) one.push_back({part(160, 1000 * i), rng.next()});
  std::vector<OwnChunk> other = one;
  other[10] = {part(90, 777), rng.next()};
  const auto at = [](const std::vector<OwnChunk>& all, size_t n) {
    return stand_in_context({all.begin(), all.begin() + static_cast<ptrdiff_t>(n)}, true, {part(700, 5)});
  };
  for (size_t n = 0; n <= 10; ++n) CHECK(at(one, n) == at(other, n));
  for (size_t n = 11 + (kOwnTokensMax + 2 * kLandmarkReach) / 90 + 1; n < one.size(); ++n)
    CHECK(at(one, n) == at(other, n));
}

TEST_CASE("layer_budgets: one ratio a layer, never rising again", "[blend]") {
  BlendSettings s;
  s.policy = PolicyKind::kQuery;
  s.ratio = 0.2;
  CHECK(layer_budgets(s, 100, 3) == std::vector<size_t>{20, 20, 20});
  s.layer_ratios = {0.5, 0.3, 0.4, 0.1};
  CHECK(layer_budgets(s, 100, 6) == std::vector<size_t>{50, 30, 30, 10, 10, 10});
  s.policy = PolicyKind::kAll;
  CHECK(layer_budgets(s, 100, 2) == std::vector<size_t>{100, 100});
  s.policy = PolicyKind::kNone;
  CHECK(layer_budgets(s, 100, 2) == std::vector<size_t>{0, 0});
}

TEST_CASE("gradual_ratios: fall from 1.5 to 0.5 of the ratio behind the check layer", "[blend]") {
  const std::vector<double> r = gradual_ratios(0.2, 1, 6);
  REQUIRE(r.size() == 6);
  CHECK(r[0] == Approx(0.3));
  CHECK(r[1] == Approx(0.3));
  CHECK(r[3] == Approx(0.2));
  CHECK(r[5] == Approx(0.1));
  CHECK(gradual_ratios(0.2, 1, 2).back() == Approx(0.3));  // nothing behind the check layer to fall in
}
