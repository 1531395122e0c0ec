// Any bytes as a blob: an Error or data, never a crash, a hang or memory without bound. Each input is read as it is,
// then with its checksums made right, so that what lies behind them is reached.
#include <cstring>

#include "fuzz/fuzz_main.h"
#include "kv/blob_codec.h"
#include "kv/blob_format.h"
#include "kv/blob_reader.h"
#include "support/kv_samples.h"
#include "support/memory_file.h"

using namespace cento;
using namespace cento::test;

namespace {

constexpr uint64_t kSideBytesMax = 64 << 20;  // of what is read here: larger planes test the same code

void put_u32(std::vector<std::byte>& bytes, size_t at, uint32_t value) {
  for (size_t i = 0; i < 4; ++i) bytes[at + i] = static_cast<std::byte>(value >> (8 * i));
}

uint64_t get(const std::vector<std::byte>& bytes, size_t at, size_t n_bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < n_bytes; ++i) value |= static_cast<uint64_t>(bytes[at + i]) << (8 * i);
  return value;
}

void read_blob(const std::vector<std::byte>& bytes) {
  auto file = std::make_unique<MemoryFile>(bytes);
  auto header = read_blob_header(*file, "input");
  if (!header.ok()) return;
  const uint64_t side_bytes = header->shape.side_bytes(header->ids.size());
  if (side_bytes > kSideBytesMax) return;
  BlobReader reader(std::move(file), std::move(*header), "input");
  std::vector<std::byte> k(side_bytes), v(side_bytes);
  for (uint32_t layer = 0; layer < reader.shape().n_layers; ++layer) (void)reader.read_layer(layer, k, v).ok();
}

// The lengths and checksums that the rest of the input calls for, where it is long enough to hold them.
void correct(std::vector<std::byte>& bytes) {
  if (bytes.size() < blob::kFixedBytes) return;
  const uint64_t n_tokens = get(bytes, blob::kTokensAt, 4), n_layers = get(bytes, blob::kLayersAt, 4);
  const uint64_t table_at = blob::kFixedBytes + 4 * n_tokens + n_layers;
  const uint64_t header_bytes = table_at + 2 * n_layers * blob::kFrameEntryBytes + 4;
  if (header_bytes > bytes.size()) return;
  put_u32(bytes, blob::kHeaderBytesAt, static_cast<uint32_t>(header_bytes));
  put_u32(bytes, blob::kFileBytesAt, static_cast<uint32_t>(bytes.size()));
  put_u32(bytes, blob::kFileBytesAt + 4, 0);
  for (uint64_t i = 0; i < 2 * n_layers; ++i) {
    const size_t at = table_at + i * blob::kFrameEntryBytes;
    const uint64_t offset = get(bytes, at, 8), stored = get(bytes, at + 8, 8);
    if (offset > bytes.size() || stored > bytes.size() - offset) continue;
    put_u32(bytes, at + 24, crc32c(std::span<const std::byte>(bytes).subspan(offset, stored)));
  }
  put_u32(bytes, header_bytes - 4, crc32c(std::span<const std::byte>(bytes).first(header_bytes - 4)));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes) {
  std::vector<std::byte> bytes(n_bytes);
  if (n_bytes > 0) std::memcpy(bytes.data(), data, n_bytes);
  read_blob(bytes);
  correct(bytes);
  read_blob(bytes);
  return 0;
}

namespace cento::test {

std::vector<std::string> builtin_seeds() {
  std::vector<std::string> seeds;
  for (const KvType type : {KvType::kF16, KvType::kF32}) {
    for (const KvCodec codec : kKvCodecs) {
      for (const KvPattern pattern : {KvPattern::kZero, KvPattern::kNormal, KvPattern::kNan}) {
        BlobHeader header;
        header.shape = {2, 1, 8, type};
        header.ids = {1, 2, 3, 4, 5, 6, 7, 8};
        const auto bytes = encode_blob(header, sample_block(header.shape, header.ids.size(), pattern, 1), codec);
        if (bytes.ok()) seeds.emplace_back(reinterpret_cast<const char*>(bytes->data()), bytes->size());
      }
    }
  }
  return seeds;
}

}  // namespace cento::test
