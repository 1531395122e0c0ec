// Speed and ratio of the blob codecs on one thread.
//
//   bench_blob [FILE]    FILE: a blob of a store whose codec loses nothing (DIR/kv/ab/....kv); else made-up values
//
// Warm: everything is in memory. Bytes are raw bytes; beside them stands a plain copy of the same bytes.
#include <cstdlib>
#include <cstring>

#include "bench.h"
#include "kv/blob_codec.h"
#include "kv/blob_reader.h"
#include "support/kv_samples.h"

using namespace cento;
using namespace cento::test;

namespace {

KvBlock block_of(const std::string& path) {
  auto file = std::move(FileSystem::real().open_read(path)).or_throw();
  auto header = std::move(read_blob_header(*file, path)).or_throw();
  KvBlock block(header.shape, header.ids.size());
  BlobReader reader(std::move(file), std::move(header), path);
  for (uint32_t l = 0; l < block.shape().n_layers; ++l) reader.read_layer(l, block.k(l), block.v(l)).or_throw();
  return block;
}

void report(const char* what, double raw_bytes, const bench::Timing& t) {
  std::printf("  %-8s %6.2f GB/s (spread %.0f %%, %zu runs)\n", what, raw_bytes / t.median / 1e9, 100 * t.spread,
              t.runs);
}

void run(KvCodec codec, const KvBlock& block) {
  const KvShape& shape = block.shape();
  const double raw_bytes = 2.0 * shape.n_layers * static_cast<double>(shape.side_bytes(block.n_tokens()));
  FrameCodec frames;
  std::vector<std::vector<std::byte>> stored(2 * shape.n_layers);
  const auto of = [&](size_t i) {
    return frame_shape(shape, block.n_tokens(), static_cast<uint32_t>(i / 2), i % 2 == 0);
  };
  const auto side = [&](size_t i) {
    return i % 2 == 0 ? block.k(static_cast<uint32_t>(i / 2)) : block.v(static_cast<uint32_t>(i / 2));
  };
  const bench::Timing encode = bench::measure([&] {
    for (size_t i = 0; i < stored.size(); ++i) {
      stored[i].clear();
      frames.encode(codec, of(i), side(i), stored[i]);
    }
  });
  size_t stored_bytes = 0, k_bytes = 0;
  for (size_t i = 0; i < stored.size(); ++i) {
    stored_bytes += stored[i].size();
    if (i % 2 == 0) k_bytes += stored[i].size();
  }
  std::printf("%s: %.1f %% of raw (K %.1f, V %.1f)\n", kv_codec_name(codec),
              100.0 * static_cast<double>(stored_bytes) / raw_bytes, 200.0 * static_cast<double>(k_bytes) / raw_bytes,
              200.0 * static_cast<double>(stored_bytes - k_bytes) / raw_bytes);
  std::vector<std::byte> raw(side(0).size());
  for (size_t i = 0; i < stored.size(); ++i) {
    if (!frames.decode(codec, of(i), stored[i], raw).ok() || (!is_lossy(codec) && !std::ranges::equal(raw, side(i)))) {
      std::fprintf(stderr, "frame %zu does not come back\n", i);
      std::exit(1);
    }
  }
  report("encode", raw_bytes, encode);
  report("decode", raw_bytes, bench::measure([&] {
           for (size_t i = 0; i < stored.size(); ++i) (void)frames.decode(codec, of(i), stored[i], raw).ok();
         }));
  uint32_t crc = 0;
  report("CRC-32C", raw_bytes, bench::measure([&] {
           for (size_t i = 0; i < stored.size(); ++i) crc = crc32c(side(i), crc);
         }));
  report("copy", raw_bytes, bench::measure([&] {
           for (size_t i = 0; i < stored.size(); ++i) std::memcpy(raw.data(), side(i).data(), raw.size());
         }));
  if (crc == 0) std::printf("\n");  // the checksums are used, so they are computed
}

}  // namespace

int main(int argc, char** argv) {
  bench::use_processor_time = true;
  bench::print_machine(1);
  const KvBlock block =
      argc == 2 ? block_of(argv[1]) : sample_block({16, 4, 64, KvType::kF16}, 256, KvPattern::kNormal, 1);
  std::printf("%s: %u layers, %llu tokens, %llu values a row\n", argc == 2 ? argv[1] : "made-up values",
              block.shape().n_layers, static_cast<unsigned long long>(block.n_tokens()),
              static_cast<unsigned long long>(block.shape().row_values()));
  for (const KvCodec codec : kKvCodecs) run(codec, block);
  return 0;
}
