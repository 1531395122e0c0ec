#include "session/chunk_order.h"

#include <catch2/catch.hpp>

using namespace cento;

namespace {

using Order = std::vector<size_t>;

// By rank, the best first: source, place in it, exact in front.
std::vector<ChunkToOrder> found() {
  return {{7, 4, false}, {8, 1, false}, {7, 2, false}, {9, 0, false}, {7, 3, false}};
}

}  // namespace

TEST_CASE("order: by rank the best stands last", "[session]") {
  CHECK(chunk_order(found(), ChunkOrder::kRank) == Order{4, 3, 2, 1, 0});
  CHECK(chunk_order({}, ChunkOrder::kRank).empty());
  CHECK(chunk_order({{1, 1, true}}, ChunkOrder::kRank) == Order{0});
}

TEST_CASE("order: in reading order the chunks of a source stand side by side, the best one's source last",
          "[session]") {
  CHECK(chunk_order(found(), ChunkOrder::kReading) == Order{3, 1, 2, 4, 0});
  CHECK(chunk_order({}, ChunkOrder::kReading).empty());
}

TEST_CASE("order: a chunk that is exact in front stands there, but never the best", "[session]") {
  auto chunks = found();
  chunks[1].exact = true;
  CHECK(chunk_order(chunks, ChunkOrder::kRank) == Order{1, 4, 3, 2, 0});
  CHECK(chunk_order(chunks, ChunkOrder::kReading) == Order{1, 3, 2, 4, 0});
  chunks[3].exact = true;  // of two the one that is worse by rank, which stands there anyway
  CHECK(chunk_order(chunks, ChunkOrder::kReading) == Order{3, 1, 2, 4, 0});
  CHECK(chunk_order(chunks, ChunkOrder::kRank) == Order{3, 4, 2, 1, 0});
  chunks = found();
  chunks[0].exact = true;
  CHECK(chunk_order(chunks, ChunkOrder::kRank) == Order{4, 3, 2, 1, 0});
  chunks[4].exact = true;  // in the middle of its source: it stays with its neighbours in reading order
  CHECK(chunk_order(chunks, ChunkOrder::kReading) == Order{3, 1, 2, 4, 0});
}
