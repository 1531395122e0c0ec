// The catalogue with 100,000 pieces of KV: nothing that a question or a put asks it may depend on how much there is.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <functional>

#include "base/clock.h"
#include "base/rng.h"
#include "kv/catalogue.h"
#include "support/shared_data.h"

using namespace cento;
using namespace cento::test;

namespace {

Hash random_hash(Rng& rng) {
  Hash hash;
  for (uint8_t& b : hash.bytes) b = static_cast<uint8_t>(rng.next());
  return hash;
}

double median_ms(const std::function<void(size_t)>& work) {
  std::vector<double> ms;
  for (size_t i = 0; i < 101; ++i) {
    const Stopwatch watch;
    work(i);
    ms.push_back(watch.ms());
  }
  std::nth_element(ms.begin(), ms.begin() + 50, ms.end());
  return ms[50];
}

}  // namespace

TEST_CASE("catalogue: with 100,000 pieces every look-up stays under a millisecond", "[kv][.slow]") {
  constexpr size_t kRows = 100'000, kBatch = 1000;
  const TempDir dir;
  Catalogue catalogue(dir / "store", Db::Mode::kReadWrite);
  Rng rng(3);
  const Hash fingerprint = random_hash(rng), layout = random_hash(rng), prefix = random_hash(rng);
  std::vector<KvRow> rows;
  std::vector<double> batch_ms;
  for (size_t i = 0; i < kRows; i += kBatch) {
    const Stopwatch watch;
    Transaction transaction(catalogue.db());
    for (size_t j = 0; j < kBatch; ++j) {
      KvRow row;
      row.key = random_hash(rng);
      row.fingerprint = fingerprint;
      row.layout = layout;
      row.prefix_id = prefix;
      row.ids_hash = random_hash(rng);
      row.context_id = random_hash(rng);
      row.chunk_hash = random_hash(rng);
      row.kind = KvKind::kChunkStandIn;
      row.codec = "int8";
      row.n_tokens = 200 + rng.below(56);
      row.n_bytes = 10'000 * row.n_tokens;
      row.cost_ms = static_cast<double>(row.n_tokens);
      row.created_ms = row.last_used_ms = static_cast<int64_t>(i + j);
      catalogue.put_kv(row);
      rows.push_back(row);
    }
    transaction.commit();
    batch_ms.push_back(watch.ms());
  }
  const auto mean = [&](size_t from) {
    double sum = 0;
    for (size_t i = from; i < from + 20; ++i) sum += batch_ms[i];
    return sum / 20;
  };
  const auto row_of = [&](size_t i) -> const KvRow& { return rows[i * 7919 % rows.size()]; };
  const double find = median_ms([&](size_t i) {
    const KvRow& row = row_of(i);
    REQUIRE(catalogue.find_kv(fingerprint, layout, prefix, row.ids_hash).size() == 1);
  });
  const double by_key = median_ms([&](size_t i) { REQUIRE(catalogue.kv(row_of(i).key)); });
  const double totals = median_ms([&](size_t) { REQUIRE(catalogue.kv_totals().n_blobs == kRows); });
  const double victims = median_ms([&](size_t) { REQUIRE(catalogue.next_to_evict(INT64_MAX, 64).size() == 64); });
  const double touch = median_ms([&](size_t i) { catalogue.touch_kv(row_of(i).key); });
  std::printf(
      "100,000 pieces: a put in a batch %.3f ms at first, %.3f ms at last; find %.3f, by key %.3f, totals %.3f, 64 "
      "victims %.3f, touch %.3f ms\n",
      mean(0) / kBatch, mean(batch_ms.size() - 20) / kBatch, find, by_key, totals, victims, touch);
  for (const double ms : {find, by_key, totals, victims}) CHECK(ms < 1);
  // Random keys in two B-trees whose depth grows by one: a put costs more pages, not more rows.
  CHECK(mean(batch_ms.size() - 20) < 4 * mean(0));
}
