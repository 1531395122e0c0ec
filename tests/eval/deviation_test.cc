#include "eval/deviation.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <stdexcept>

namespace cento::test {
namespace {

using Layers = std::vector<std::vector<float>>;

double at(const DeviationProfile& profile, double share) {
  for (size_t i = 0; i < kTopRows.size(); ++i) {
    if (kTopRows[i] == share) return profile.top_share.at(i);
  }
  throw std::runtime_error("no such share");
}

// Sums of a few floats below 100, which are within some 2^-24 of them.
auto near_to(double x) { return Approx(x).margin(1e-6); }

std::shared_ptr<const KvBlock> block_of(const KvShape& shape, const std::vector<std::vector<float>>& sides) {
  KvBlock block(shape, sides.at(0).size() / shape.row_values());
  for (uint32_t l = 0; l < shape.n_layers; ++l) {
    std::memcpy(block.k(l).data(), sides.at(2 * l).data(), block.k(l).size());
    std::memcpy(block.v(l).data(), sides.at(2 * l + 1).data(), block.v(l).size());
  }
  return std::make_shared<const KvBlock>(std::move(block));
}

TEST_CASE("deviation: squared distances of K and of V, each over its mean over all rows of all blocks", "[eval]") {
  const KvShape shape{2, 1, 2, KvType::kF32};
  // Two values a row; K and V of layer 0, then of layer 1.
  const auto first = block_of(shape, {{1, 2}, {3, 4}, {1, 0}, {5, 5}});
  const auto second = block_of(shape, {{0, 0, 9, 9}, {1, 1, 2, 2}, {2, 2, 0, 0}, {6, 6, 7, 7}});
  const auto full = block_of(shape, {{1, 2, 0, 0, 9, 9}, {3, 4, 1, 1, 2, 2}, {1, 3, 2, 2, 4, 0}, {5, 5, 6, 8, 7, 7}});
  size_t polls = 0;
  const std::vector<std::shared_ptr<const KvBlock>> stored = {first, second};
  const Layers out = deviation_by_layer(stored, *full, [&] { ++polls; });
  CHECK(polls == 4);
  REQUIRE((out.size() == 2 && out[0].size() == 3 && out[1].size() == 3));
  CHECK(out[0] == std::vector<float>{0, 0, 0});
  // K: 9, 0, 16 of mean 25/3; V: 0, 4, 0 of mean 4/3.
  CHECK(static_cast<double>(out[1][0]) == near_to(27.0 / 25));
  CHECK(static_cast<double>(out[1][1]) == near_to(3));
  CHECK(static_cast<double>(out[1][2]) == near_to(48.0 / 25));
  CHECK_THROWS_AS(deviation_by_layer(stored, *full, [] { throw 1; }), int);
}

TEST_CASE("deviation: the top rows' share is of the mean over layers, layer 0 left out, and in proportion between rows",
          "[eval]") {
  // Means over layers 1 and 2: 1, 5, 3, 1.
  const Layers layers = {{90, 0, 0, 0}, {1, 6, 2, 1}, {1, 4, 4, 1}};
  CHECK(mean_over_layers(layers) == std::vector<float>{1, 5, 3, 1});
  const DeviationProfile profile = deviation_profile(layers, 0);
  REQUIRE(profile.top_share.size() == kTopRows.size());
  CHECK(at(profile, 0.25) == near_to(0.5));
  CHECK(at(profile, 0.5) == near_to(0.8));
  CHECK(at(profile, 0.75) == near_to(0.9));
  CHECK(at(profile, 1) == near_to(1));
  CHECK(at(profile, 0.05) == near_to(0.2 * 0.5));  // a fifth of the first row
  CHECK(at(profile, 0.6) == near_to(0.8 + 0.4 * 0.1));
  const DeviationProfile later = deviation_profile(layers, 2);  // rows 3, 1
  CHECK(at(later, 0.5) == near_to(0.75));
}

TEST_CASE("deviation: a layer is compared by rank with the next and with the last", "[eval]") {
  const Layers layers = {{0, 0, 0, 0}, {1, 2, 3, 4}, {10, 20, 40, 30}, {4, 3, 2, 1}};
  const DeviationProfile profile = deviation_profile(layers, 0);
  REQUIRE((profile.next_layer.size() == 3 && profile.last_layer.size() == 3));
  CHECK((std::isnan(profile.next_layer[0]) && std::isnan(profile.last_layer[0])));
  CHECK(profile.next_layer[1] == near_to(0.8));  // 1 - 6 * 2 / (4 * 15)
  CHECK(profile.next_layer[2] == near_to(-0.8));
  CHECK(profile.last_layer[1] == near_to(-1));
  CHECK(profile.last_layer[2] == near_to(-0.8));
  CHECK(deviation_profile(layers, 2).next_layer[1] == near_to(-1));  // rows 3 and 4 alone
}

TEST_CASE("deviation: rows that deviate alike, not at all, or are not there", "[eval]") {
  const DeviationProfile alike = deviation_profile(Layers{{0, 0, 0}, {2, 2, 2}}, 0);
  for (size_t i = 0; i < kTopRows.size(); ++i) CHECK(alike.top_share.at(i) == near_to(kTopRows[i]));
  CHECK(std::isnan(alike.next_layer.at(0)));
  const DeviationProfile none = deviation_profile(Layers{{0, 0}, {0, 0}}, 0);
  CHECK((none.top_share.empty() && none.next_layer.size() == 1 && std::isnan(none.next_layer[0])));
  for (const size_t first : {2, 3}) {
    const DeviationProfile behind = deviation_profile(Layers{{0, 0}, {1, 2}}, first);
    CHECK((behind.top_share.empty() && std::isnan(behind.last_layer.at(0))));
  }
  CHECK(deviation_profile(Layers{}, 0).next_layer.empty());
  CHECK(deviation_profile(Layers{{1, 2}}, 0).top_share.empty());  // layer 0 does not count
}

}  // namespace
}  // namespace cento::test
