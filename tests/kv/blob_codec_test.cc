#include "kv/blob_codec.h"

#include <catch2/catch.hpp>

#include "base/clock.h"
#include "kv/blob_format.h"
#include "kv/blob_reader.h"
#include "support/kv_samples.h"
#include "support/memory_file.h"
#include "support/shared_data.h"

using namespace cento;
using namespace cento::test;

namespace {

std::vector<std::byte> as_bytes(const std::string& s) {
  const auto bytes = std::as_bytes(std::span(s));
  return {bytes.begin(), bytes.end()};
}

BlobHeader sample_header(const KvShape& shape, size_t n_tokens) {
  BlobHeader header;
  header.fingerprint = hash_filled(1);
  header.layout = hash_filled(2);
  header.key = hash_filled(3);
  header.prefix_id = hash_filled(4);
  header.context_id = hash_filled(5);
  header.shape = shape;
  header.kind = KvKind::kChunkPrefix;
  for (size_t i = 0; i < n_tokens; ++i) header.ids.push_back(static_cast<int32_t>(i * 2654435761u));
  return header;
}

std::vector<std::byte> encoded(const BlobHeader& header, const KvBlock& block, KvCodec codec) {
  auto bytes = encode_blob(header, block, codec);
  REQUIRE(bytes.ok());
  return *bytes;
}

// Everything the bytes say, or the first Error.
struct Decoded {
  BlobHeader header;
  KvBlock block;
};
Result<Decoded> decoded(std::vector<std::byte> bytes) {
  auto file = std::make_unique<MemoryFile>(std::move(bytes));
  auto header = read_blob_header(*file, "a.kv");
  if (!header) return header.error();
  BlobReader reader(std::move(file), *header, "a.kv");
  auto block = read_all_layers(reader);
  if (!block) return block.error();
  return Decoded{std::move(*header), std::move(*block)};
}

std::string message_of(std::vector<std::byte> bytes) {
  const auto result = decoded(std::move(bytes));
  return result.ok() ? "read" : result.error().message();
}

template <class T>
void set_le(std::vector<std::byte>& bytes, size_t at, T value) {
  for (size_t i = 0; i < sizeof(T); ++i)
    bytes[at + i] = static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i));
}

void correct_header_crc(std::vector<std::byte>& bytes, size_t header_bytes) {
  set_le<uint32_t>(bytes, header_bytes - 4, crc32c(std::span<const std::byte>(bytes).first(header_bytes - 4)));
}

}  // namespace

TEST_CASE("blob: every bit pattern comes back, whatever the codec, type and number of tokens", "[kv]") {
  const KvType type = GENERATE(KvType::kF16, KvType::kF32);
  const KvCodec codec = GENERATE(KvCodec::kRaw, KvCodec::kLossless);
  const KvPattern pattern = GENERATE(KvPattern::kZero, KvPattern::kRandomBits, KvPattern::kNan, KvPattern::kNormal);
  const size_t n_tokens = GENERATE(1, 2, 31, 257);
  CAPTURE(static_cast<int>(type), kv_codec_name(codec), static_cast<int>(pattern), n_tokens);
  const KvShape shape{3, 1, 7, type};
  const BlobHeader header = sample_header(shape, n_tokens);
  const KvBlock block = sample_block(shape, n_tokens, pattern, 11);
  const auto back = decoded(encoded(header, block, codec));
  REQUIRE(back.ok());
  CHECK(same_bytes(back->block, block));
  CHECK(back->header.fingerprint == header.fingerprint);
  CHECK(back->header.layout == header.layout);
  CHECK(back->header.key == header.key);
  CHECK(back->header.prefix_id == header.prefix_id);
  CHECK(back->header.context_id == header.context_id);
  CHECK(back->header.shape == shape);
  CHECK(back->header.kind == header.kind);
  CHECK(back->header.ids == header.ids);
  CHECK(back->header.codecs == std::vector<KvCodec>(3, codec));
}

TEST_CASE("blob: the lossless codec makes KV smaller and never grows it by more than its lengths", "[kv]") {
  const KvShape shape{1, 4, 64, GENERATE(KvType::kF16, KvType::kF32)};
  const size_t width = kv_type_bytes(shape.type);
  const auto frame_bytes = [&](KvPattern pattern) {
    const KvBlock block = sample_block(shape, 256, pattern, 5);
    std::vector<std::byte> out;
    FrameCodec().encode(KvCodec::kLossless, frame_shape(shape, 256, 0, true), block.k(0), out);
    return static_cast<double>(out.size()) / static_cast<double>(block.k(0).size());
  };
  CHECK(frame_bytes(KvPattern::kZero) < 0.001);
  CHECK(frame_bytes(KvPattern::kNormal) < 0.95);
  CHECK(frame_bytes(KvPattern::kRandomBits) ==
        Approx(1 + 4.0 * static_cast<double>(width) / (256.0 * 256.0 * static_cast<double>(width))));
}

TEST_CASE("blob: a blob cut at any byte is an error", "[kv]") {
  const KvCodec codec = GENERATE(from_range(kKvCodecs));
  const KvShape shape{2, 1, 4, KvType::kF16};
  const auto bytes = encoded(sample_header(shape, 40), sample_block(shape, 40, KvPattern::kNormal, 1), codec);
  for (size_t n = 0; n < bytes.size(); ++n) {
    const std::string message = message_of({bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(n)});
    if (message != "file cut short") FAIL("cut at byte " << n << ": " << message);
  }
  auto longer = bytes;
  longer.push_back(std::byte{0});
  CHECK(message_of(longer) == "file longer than its header says");
}

TEST_CASE("blob: a blob with any byte changed is an error", "[kv]") {
  const KvCodec codec = GENERATE(from_range(kKvCodecs));
  const auto pattern = GENERATE(KvPattern::kNormal, KvPattern::kZero);
  const KvShape shape{2, 1, 4, GENERATE(KvType::kF16, KvType::kF32)};
  if (!not_for_codec(codec, shape.type).empty()) {
    CHECK_FALSE(encode_blob(sample_header(shape, 40), sample_block(shape, 40, pattern, 1), codec).ok());
    return;
  }
  const auto bytes = encoded(sample_header(shape, 40), sample_block(shape, 40, pattern, 1), codec);
  REQUIRE(message_of(bytes) == "read");
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (const int mask : {0x01, 0x10, 0x80, 0xff}) {
      auto changed = bytes;
      changed[at] ^= static_cast<std::byte>(mask);
      const std::string message = message_of(changed);
      if (message == "read") FAIL("byte " << at << " xor " << mask << " went unseen");
    }
  }
}

TEST_CASE("blob: a changed byte is named for what it damages", "[kv]") {
  const KvShape shape{2, 1, 4, KvType::kF16};
  const auto bytes =
      encoded(sample_header(shape, 3), sample_block(shape, 3, KvPattern::kNormal, 1), KvCodec::kLossless);
  const auto with_flip = [&](size_t at) {
    auto changed = bytes;
    changed[at] ^= std::byte{1};
    return message_of(changed);
  };
  CHECK(with_flip(blob::kMagicAt) == "not a KV blob");
  CHECK(with_flip(blob::kVersionAt) == "unknown version 0");
  CHECK(with_flip(blob::kFingerprintAt) == "header checksum mismatch");
  CHECK(with_flip(blob::kFixedBytes) == "header checksum mismatch");  // first token id
  CHECK_THAT(with_flip(bytes.size() - 1), Catch::Contains("checksum mismatch in V of layer 1"));
}

// What a program with another idea of the format, or an attacker, could write: the checksum is right, the content is
// not.
TEST_CASE("blob: a header with a right checksum and wrong content is refused by its reason", "[kv]") {
  const KvShape shape{2, 1, 4, KvType::kF16};
  const BlobHeader header = sample_header(shape, 3);
  const auto bytes = encoded(header, sample_block(shape, 3, KvPattern::kNormal, 1), KvCodec::kLossless);
  const size_t codecs_at = blob::kFixedBytes + 3 * 4, table_at = codecs_at + 2, header_bytes = table_at + 4 * 28 + 4;
  struct Row {
    size_t at;
    int n_bytes;
    uint64_t value;
    const char* message;
  };
  const std::vector<Row> rows = {
      {blob::kVersionAt, 4, 7, "unknown version 7"},
      {blob::kHeaderBytesAt, 4, header_bytes + 1, "damaged header: its length"},
      {blob::kHeaderBytesAt, 4, 0, "damaged header: its length"},
      {blob::kFileBytesAt, 8, bytes.size() + 1, "file cut short"},
      {blob::kFileBytesAt, 8, bytes.size() - 1, "file longer than its header says"},
      {blob::kFileBytesAt, 8, UINT64_MAX, "file cut short"},
      {blob::kTokensAt, 4, 0, "damaged header: 0 tokens"},
      {blob::kTokensAt, 4, 2, "damaged header: its length"},
      {blob::kTokensAt, 4, UINT32_MAX, "damaged header: 4294967295 tokens"},
      {blob::kLayersAt, 4, 0, "damaged header: 0 layers"},
      {blob::kLayersAt, 4, 1025, "damaged header: 1025 layers"},
      {blob::kKvHeadsAt, 4, 0, "damaged header: 0 KV heads"},
      {blob::kKvHeadsAt, 4, UINT32_MAX, "damaged header: 4294967295 KV heads"},
      {blob::kKvHeadsAt, 4, 2, "damaged frame table: entry 0"},
      {blob::kHeadDimAt, 4, 0, "damaged header: head dimension 0"},
      {blob::kHeadDimAt, 4, 4097, "damaged header: head dimension 4097"},
      {blob::kTypeAt, 1, 2, "damaged header: value type 2"},
      {blob::kTypeAt, 1, 1, "damaged frame table: entry 0"},
      {blob::kKindAt, 1, 3, "damaged header: kind 3"},
      {blob::kTransformAt, 1, 0, "damaged header: order of values"},
      {blob::kReservedAt, 1, 1, "damaged header: order of values"},
      {codecs_at + 1, 1, 5, "unknown codec 5"},
      {table_at, 8, header_bytes + 1, "damaged frame table: entry 0"},
      {table_at, 8, 0, "damaged frame table: entry 0"},
      {table_at + 8, 8, 0, "damaged frame table: entry 0"},
      {table_at + 8, 8, UINT64_MAX, "damaged frame table: entry 0"},
      {table_at + 8, 8, 33, "damaged frame table: entry 1"},
      {table_at + 16, 8, 25, "damaged frame table: entry 0"},
      {table_at + 28, 8, header_bytes, "damaged frame table: entry 1"},
      {table_at + 3 * 28 + 8, 8, 31, "damaged frame table: its end"},
  };
  REQUIRE(message_of(bytes) == "read");
  for (const Row& row : rows) {
    auto changed = bytes;
    for (int i = 0; i < row.n_bytes; ++i)
      changed[row.at + static_cast<size_t>(i)] = static_cast<std::byte>(row.value >> (8 * i));
    correct_header_crc(changed, header_bytes);
    CAPTURE(row.at, row.value);
    CHECK(message_of(changed) == row.message);
  }
}

TEST_CASE("blob: raw bytes beyond what the stored ones can hold are refused before they are allocated", "[kv]") {
  // 2^20 tokens of one value each, in a frame of 8 bytes: more than 65536 times its size.
  const KvShape shape{1, 1, 1, KvType::kF32};
  const BlobHeader header = sample_header(shape, 1 << 20);
  auto bytes = encoded(header, sample_block(shape, 1 << 20, KvPattern::kZero, 1), KvCodec::kLossless);
  REQUIRE(message_of(bytes) == "read");
  const size_t table_at = blob::kFixedBytes + 4 * (size_t{1} << 20) + 1, header_bytes = table_at + 2 * 28 + 4;
  set_le<uint64_t>(bytes, table_at + 8, 8);
  correct_header_crc(bytes, header_bytes);
  CHECK(message_of(bytes) == "damaged frame table: entry 0");
}

TEST_CASE("blob: what the format cannot hold is not written", "[kv]") {
  const KvShape shape{2, 1, 4, KvType::kF16};
  const auto refused = [](const KvShape& s, size_t n_ids, const KvBlock& block) {
    const auto result = encode_blob(sample_header(s, n_ids), block, KvCodec::kRaw);
    return result.ok() ? "written" : result.error().message();
  };
  CHECK_THAT(refused(shape, 0, KvBlock(shape, 0)), Catch::Contains("0 tokens"));
  CHECK_THAT(refused({0, 1, 4, KvType::kF16}, 3, {}), Catch::Contains("0 layers"));
  CHECK_THAT(refused({1, 4096, 4096, KvType::kF32}, 64, {}), Catch::Contains("bytes a frame"));
  CHECK_THAT(refused(shape, 3, KvBlock(shape, 4)), Catch::Contains("its shape"));
  CHECK_THAT(refused(shape, 3, KvBlock({2, 4, 1, KvType::kF16}, 3)), Catch::Contains("its shape"));
}

TEST_CASE("frames: damage below the checksum is an error or other data, never a crash", "[kv]") {
  const KvType type = GENERATE(KvType::kF16, KvType::kF32);
  const KvPattern pattern = GENERATE(KvPattern::kNormal, KvPattern::kZero);
  const KvShape shape{1, 1, 8, type};
  const KvBlock block = sample_block(shape, 64, pattern, 3);
  const FrameShape frame_of = frame_shape(shape, 64, 0, true);
  FrameCodec codec;
  std::vector<std::byte> frame, raw(block.k(0).size());
  codec.encode(KvCodec::kLossless, frame_of, block.k(0), frame);
  REQUIRE(codec.decode(KvCodec::kLossless, frame_of, frame, raw).ok());
  for (size_t n = 0; n < frame.size(); ++n) {
    CHECK(!codec.decode(KvCodec::kLossless, frame_of, std::span(frame).first(n), raw).ok());
  }
  auto longer = frame;
  longer.push_back(std::byte{0});
  CHECK(codec.decode(KvCodec::kLossless, frame_of, longer, raw).error().message() == "frame has the wrong length");
  for (size_t at = 0; at < frame.size(); ++at) {
    for (const int mask : {0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xff}) {
      auto changed = frame;
      changed[at] ^= static_cast<std::byte>(mask);
      (void)codec.decode(KvCodec::kLossless, frame_of, changed, raw).ok();
    }
  }
  // The codec is as good as new afterwards.
  REQUIRE(codec.decode(KvCodec::kLossless, frame_of, frame, raw).ok());
  CHECK(std::ranges::equal(raw, block.k(0)));
}

TEST_CASE("frames: a plane must be one zstd frame of exactly its size", "[kv]") {
  const KvShape shape{1, 1, 64, KvType::kF16};
  FrameCodec codec;
  std::vector<std::byte> frame, raw(shape.side_bytes(8)), other(shape.side_bytes(9));
  codec.encode(KvCodec::kLossless, frame_shape(shape, 8, 0, true), sample_block(shape, 8, KvPattern::kZero, 1).k(0),
               frame);
  const auto message = [&](const std::vector<std::byte>& stored, std::span<std::byte> out) {
    const Status s = codec.decode(KvCodec::kLossless, frame_shape(shape, out.size() / 128, 0, true), stored, out);
    return s.ok() ? "read" : s.error().message();
  };
  CHECK(message(frame, raw) == "read");
  CHECK(message(frame, other) == "frame has the wrong decompressed size");
  // An empty skippable frame (RFC 8878, 3.1.2) behind the first plane's zstd frame.
  auto skippable = frame;
  const auto length = static_cast<size_t>(frame[0]);
  const auto extra = as_bytes(std::string("\x50\x2a\x4d\x18\0\0\0\0", 8));
  skippable.insert(skippable.begin() + 8 + static_cast<ptrdiff_t>(length), extra.begin(), extra.end());
  skippable[0] = static_cast<std::byte>(length + 8);
  CHECK(message(skippable, raw) == "frame has the wrong decompressed size");
}

// Written by tests/tools/make_blob_golden.py from the manual page, without this code.
TEST_CASE("blob: golden files are read, and written again to the byte", "[kv]") {
  const auto golden = [](const std::string& name) {
    return as_bytes(read_all(std::string(CENTO_SOURCE_DIR "/tests/data/") + name));
  };
  const auto check = [](const BlobHeader& h, const KvBlock& block) {
    for (size_t i = 0; i < 32; ++i) {
      CHECK(h.fingerprint.bytes[i] == i);
      CHECK(h.layout.bytes[i] == i + 32);
    }
    CHECK(h.ids == std::vector<int32_t>{5, -1, 70000});
    CHECK(h.shape.n_layers == 2);
    CHECK(h.shape.n_kv_heads == 1);
    CHECK(h.shape.head_dim == 2);
    CHECK(h.kind == KvKind::kChunkStandIn);
    // The bytes of K count up from 0x80 * layer + 1, those of V from 0x40 more.
    for (uint32_t l = 0; l < 2; ++l) {
      for (size_t i = 0; i < block.k(l).size(); ++i) {
        CHECK(block.k(l)[i] == static_cast<std::byte>(l * 0x80 + i + 1));
        CHECK(block.v(l)[i] == static_cast<std::byte>(l * 0x80 + i + 0x41));
      }
    }
  };
  const auto [name, codec, type] = GENERATE(table<const char*, KvCodec, KvType>({
      {"blob_raw_f16.kv", KvCodec::kRaw, KvType::kF16},
      {"blob_lossless_f16.kv", KvCodec::kLossless, KvType::kF16},
      {"blob_lossless_f32.kv", KvCodec::kLossless, KvType::kF32},
  }));
  CAPTURE(name);
  const auto bytes = golden(name);
  const auto back = decoded(bytes);
  REQUIRE(back.ok());
  CHECK(back->header.shape.type == type);
  check(back->header, back->block);
  CHECK(encoded(back->header, back->block, codec) == bytes);

  // Planes compressed by another zstd: to be read, not to be written again.
  const auto zeros = decoded(golden("blob_lossless_zstd.kv"));
  REQUIRE(zeros.ok());
  CHECK(same_bytes(zeros->block, KvBlock(zeros->header.shape, 3)));
  CHECK(zeros->header.shape.head_dim == 512);
}

TEST_CASE("blob: golden files of the lossy codecs give the values that they were made with", "[kv]") {
  const auto [name, codec] = GENERATE(
      table<std::string, KvCodec>({{"int8", KvCodec::kInt8}, {"k8v4", KvCodec::kK8v4}, {"int4", KvCodec::kInt4}}));
  CAPTURE(name);
  const std::string path = CENTO_SOURCE_DIR "/tests/data/blob_" + name;
  const auto lossy = decoded(as_bytes(read_all(path + ".kv"))),
             values = decoded(as_bytes(read_all(path + "_values.kv")));
  REQUIRE(lossy.ok());
  REQUIRE(values.ok());
  CHECK(lossy->header.codecs == std::vector<KvCodec>(2, codec));
  CHECK(same_bytes(lossy->block, values->block));
}

TEST_CASE("blob: the identity of a golden file is the one computed today", "[kv]") {
  const auto back = decoded(as_bytes(read_all(CENTO_SOURCE_DIR "/tests/data/blob_raw_f16.kv")));
  REQUIRE(back.ok());
  SampleIdentity identity;
  identity.fingerprint = back->header.fingerprint;
  identity.layout = back->header.layout;
  identity.prefix = {1, 2};
  identity.context = {1, 2, 3};
  identity.ids = back->header.ids;
  CHECK(back->header.prefix_id == kv_ids_hash(identity.prefix));
  CHECK(back->header.context_id == kv_ids_hash(identity.context));
  CHECK(back->header.key == kv_key(identity.get()));
}
