// The lossy codecs: what comes back, and what of it is promised.
#include <catch2/catch.hpp>

#include <cmath>
#include <map>

#include "kv/blob_codec.h"
#include "kv/blob_format.h"
#include "kv/blob_reader.h"
#include "kv/byte_planes.h"
#include "kv/little_endian.h"
#include "support/kv_samples.h"
#include "support/memory_file.h"

using namespace cento;
using namespace cento::test;

namespace {

constexpr double kStep = 0.29;  // of few bits: the scale as a share of the standard deviation
constexpr std::array kLossy = {KvCodec::kInt8, KvCodec::kK8v4, KvCodec::kInt4};

std::vector<std::byte> encoded(KvCodec codec, const FrameShape& shape, std::span<const std::byte> raw) {
  std::vector<std::byte> out;
  FrameCodec().encode(codec, shape, raw, out);
  return out;
}

std::vector<std::byte> halves(const std::vector<float>& values) {
  std::vector<std::byte> out;
  for (const float v : values) put_le<uint16_t>(out, to_fp16(v).bits);
  return out;
}

std::vector<std::byte> round_trip(KvCodec codec, const FrameShape& shape, std::span<const std::byte> raw) {
  std::vector<std::byte> out(raw.size());
  const Status s = FrameCodec().decode(codec, shape, encoded(codec, shape, raw), out);
  if (!s.ok()) FAIL(s.error().message());
  return out;
}

float value(std::span<const std::byte> raw, size_t i) { return kv_value(KvType::kF16, raw, i); }

// Half a unit in the last place of a half of this size: 11 significant bits, 2^-24 at the least.
double half_ulp(double x) { return std::max(std::ldexp(std::abs(x), -11), std::ldexp(1.0, -25)); }

bool of_few_bits(KvCodec codec, const FrameShape& s) {
  return codec == KvCodec::kInt4 || (codec == KvCodec::kK8v4 && !s.is_k);
}

// The largest scale that value i may have got, from the description of the codecs alone: the largest distance from the
// centre of those that share the scale over 112; or, of few bits, a share of the spread of 256 rows: the mean distance
// from the centre of the channel that has most of it, keys following theirs inversely (-0.3 of the way from the
// geometric mean, so at most the mean times (mean / least) ^ 0.3). A scale is rounded up to five significant bits, by
// at most 1/16 of itself or the smallest half.
double scale_bound(KvCodec codec, const FrameShape& s, std::span<const std::byte> raw, size_t i) {
  const size_t c = s.row_values(), row = i / c, channel = i % c;
  const auto at = [&](size_t t, size_t j) { return static_cast<double>(value(raw, t * c + j)); };
  double asked = 0;
  if (of_few_bits(codec, s)) {
    const size_t first = row / 256 * 256, end = std::min<size_t>(first + 256, s.n_tokens);
    double least = INFINITY, most = 0;
    for (size_t j = 0; j < c; ++j) {
      double mean = 0, distance = 0;
      for (size_t t = 0; t < s.n_tokens && s.is_k; ++t) mean += at(t, j) / static_cast<double>(s.n_tokens);
      for (size_t t = first; t < end; ++t) distance += std::abs(at(t, j) - mean) / static_cast<double>(end - first);
      distance += half_ulp(mean);
      most = std::max(most, distance);
      if (distance > 0) least = std::min(least, distance);
    }
    asked = most == 0 ? 0 : kStep / 0.79788 * most * (s.is_k ? std::pow(most / least, 0.3) : 1);
  } else if (s.is_k) {
    double low = at(0, channel), high = low;
    for (size_t t = 0; t < s.n_tokens; ++t) {
      low = std::min(low, at(t, channel));
      high = std::max(high, at(t, channel));
    }
    const size_t first = row / 64 * 64, end = std::min<size_t>(first + 64, s.n_tokens);
    for (size_t t = first; t < end; ++t) asked = std::max(asked, std::abs(at(t, channel) - (low + high) / 2));
    asked = (asked + half_ulp((low + high) / 2)) / 112;
  } else {
    const size_t first = i / s.head_dim * s.head_dim;
    for (size_t j = first; j < first + s.head_dim; ++j) asked = std::max(asked, std::abs(double{value(raw, j)}) / 112);
  }
  return asked * 17 / 16 + std::ldexp(1.0, -24);
}

// A value is moved to the nearest multiple of the scale (scale / 2), and the result is rounded to half; float32 adds
// 2^-22 of what it adds up. Values with exact codes do not move at all.
void check_bounds(KvCodec codec, const FrameShape& shape, std::span<const std::byte> raw) {
  const std::vector<std::byte> back = round_trip(codec, shape, raw);
  std::map<size_t, double> scales;
  size_t n_bad = 0;
  for (size_t i = 0; i < raw.size() / 2; ++i) {
    const double x = value(raw, i), y = value(back, i);
    const size_t c = shape.row_values();
    // Of those that share a scale it is computed once.
    const size_t shared = of_few_bits(codec, shape) ? i / c / 256
                          : shape.is_k              ? i / c / 64 * c + i % c
                                                    : i / shape.head_dim;
    const auto [known, is_new] = scales.try_emplace(shared, 0);
    if (is_new) known->second = scale_bound(codec, shape, raw, i);
    const double scale = known->second;
    const double bound = scale / 2 + half_ulp(std::abs(x) + scale) + std::ldexp(std::abs(x) + 130 * scale, -22);
    if (!(std::abs(y - x) <= bound) && n_bad++ == 0)
      FAIL_CHECK("value " << i << ": " << x << " came back as " << y << ", bound " << bound);
  }
  CHECK(n_bad == 0);
}

}  // namespace

TEST_CASE("lossy: every value comes back within half a scale, at any number of rows and head dimension", "[kv]") {
  const KvCodec codec = GENERATE(from_range(kLossy));
  const size_t n_tokens = GENERATE(1, 2, 63, 64, 65, 257);
  const auto [n_heads, head_dim] = GENERATE(table<uint32_t, uint32_t>({{1, 7}, {3, 64}, {2, 128}, {1, 256}}));
  const KvBlock block = sample_block({2, n_heads, head_dim, KvType::kF16}, n_tokens, KvPattern::kNormal, n_tokens);
  for (uint32_t layer = 0; layer < 2; ++layer) {
    for (const bool is_k : {true, false}) {
      CAPTURE(kv_codec_name(codec), n_tokens, n_heads, head_dim, layer, is_k);
      check_bounds(codec, frame_shape(block.shape(), n_tokens, layer, is_k), is_k ? block.k(layer) : block.v(layer));
    }
  }
}

TEST_CASE("lossy: channels far from zero, constant ones, zeros, the largest halves and the smallest", "[kv]") {
  const KvCodec codec = GENERATE(from_range(kLossy));
  const bool is_k = GENERATE(true, false);
  const FrameShape shape{KvType::kF16, 80, 1, 8, 5, is_k};
  Rng rng(7);
  std::vector<float> values;
  for (size_t t = 0; t < shape.n_tokens; ++t) {
    const auto u = [&] { return static_cast<float>(rng.uniform() - 0.5); };
    values.insert(values.end(), {100 + u(), -3000 + 50 * u(), 1.25F, 0, t % 2 == 0 ? 65504.0F : -65504.0F, 1e-6F * u(),
                                 t == 40 ? 1.0F : 0.0F, 1e4F * u()});
  }
  CAPTURE(kv_codec_name(codec), is_k);
  check_bounds(codec, shape, halves(values));
  check_bounds(codec, shape, halves(std::vector<float>(values.size(), 0)));
  check_bounds(codec, shape, halves(std::vector<float>(values.size(), -65504)));
}

TEST_CASE("lossy: with few bits, a value that is far out comes back as it was, and the others do not pay for it",
          "[kv]") {
  const FrameShape shape{KvType::kF16, 256, 1, 64, 3, false};
  Rng rng(3);
  std::vector<float> values;
  for (size_t i = 0; i < 256 * 64; ++i) values.push_back(static_cast<float>(rng.uniform() - 0.5));
  const std::vector<std::byte> plain = halves(values);
  for (size_t c = 0; c < 64; ++c) values[c] = c % 2 == 0 ? 500 : -777;  // the first row, as an attention sink may be
  const std::vector<std::byte> raw = halves(values), back = round_trip(KvCodec::kInt4, shape, raw);
  for (size_t i = 0; i < 64; ++i) CHECK(value(back, i) == values[i]);
  // Uniform over 1: the mean distance is 1/4, once the first row is left out. A sample of 256 may have a tenth more.
  double error = 0;
  for (size_t i = 64; i < values.size(); ++i)
    error = std::max(error, std::abs(double{value(back, i)} - double{value(raw, i)}));
  CHECK(error < kStep / 0.79788 * 0.25 * 1.1 * 17 / 16 / 2 + 2e-4);
}

TEST_CASE("lossy: a frame with a value that is not finite is lossless, the others of its block are not", "[kv]") {
  const KvCodec codec = GENERATE(from_range(kLossy));
  const uint16_t bits = GENERATE(0x7c00, 0xfc00, 0x7e01, 0xffff);
  const KvShape shape{2, 2, 64, KvType::kF16};
  KvBlock block = sample_block(shape, 64, KvPattern::kNormal, 4);
  std::memcpy(block.v(1).data() + 100, &bits, 2);
  const KvBlock back = through_codec(block, codec);
  CHECK(std::ranges::equal(back.v(1), block.v(1)));
  CHECK(!std::ranges::equal(back.k(1), block.k(1)));
  CHECK(encoded(codec, frame_shape(shape, 64, 1, false), block.v(1))[0] == std::byte{blob::kMethodLossless});
  CHECK(encoded(codec, frame_shape(shape, 64, 1, true), block.k(1))[0] != std::byte{blob::kMethodLossless});
}

TEST_CASE("lossy: single precision is refused by the codec's name, when written and when read", "[kv]") {
  const KvCodec codec = GENERATE(from_range(kLossy));
  BlobHeader header;
  header.shape = {1, 1, 8, KvType::kF32};
  header.ids = {1, 2};
  const auto written = encode_blob(header, sample_block(header.shape, 2, KvPattern::kNormal, 1), codec);
  REQUIRE(!written.ok());
  CHECK_THAT(written.error().message(), Catch::Contains(std::string("codec ") + kv_codec_name(codec)));
  std::vector<std::byte> raw(64), frame(64);
  const Status read = FrameCodec().decode(codec, frame_shape(header.shape, 2, 0, true), frame, raw);
  REQUIRE(!read.ok());
  CHECK_THAT(read.error().message(), Catch::Contains("half precision"));
}

TEST_CASE("lossy: frames are as small as promised, and never much larger than lossless ones", "[kv]") {
  const KvCodec codec = GENERATE(from_range(kLossy));
  const KvShape shape{4, 3, 64, KvType::kF16};
  const auto stored_bytes = [&](KvCodec with, const KvBlock& block) {
    size_t n = 0;
    for (uint32_t i = 0; i < 8; ++i)
      n += encoded(with, frame_shape(shape, block.n_tokens(), i / 2, i % 2 == 0),
                   i % 2 == 0 ? block.k(i / 2) : block.v(i / 2))
               .size();
    return static_cast<double>(n);
  };
  const KvBlock block = sample_block(shape, 256, KvPattern::kNormal, 9);
  const double share = stored_bytes(codec, block) / (8.0 * static_cast<double>(shape.side_bytes(256)));
  // One layer in four is kept at 8 bits by int4 here, one in 24 or 30 with real models.
  CHECK(share < (codec == KvCodec::kInt8 ? 0.52 : codec == KvCodec::kK8v4 ? 0.40 : 0.33));
  for (const KvPattern pattern : {KvPattern::kZero, KvPattern::kRandomBits, KvPattern::kNan, KvPattern::kNormal}) {
    for (const size_t n_tokens : {1, 2, 5}) {
      const KvBlock small = sample_block(shape, n_tokens, pattern, 2);
      CHECK(stored_bytes(codec, small) <= stored_bytes(KvCodec::kLossless, small) + 8 * 4);
    }
  }
}

TEST_CASE("lossy: damage below the checksum is an error or other data, never a crash", "[kv]") {
  const KvCodec codec = GENERATE(from_range(kLossy));
  const bool is_k = GENERATE(true, false);
  const KvShape shape{2, 1, 8, KvType::kF16};
  const KvBlock block = sample_block(shape, 70, GENERATE(KvPattern::kNormal, KvPattern::kNan), 3);
  const FrameShape frame_of = frame_shape(shape, 70, 1, is_k);
  FrameCodec frames;
  std::vector<std::byte> raw(frame_of.raw_bytes());
  const std::vector<std::byte> frame = encoded(codec, frame_of, is_k ? block.k(1) : block.v(1));
  REQUIRE(frames.decode(codec, frame_of, frame, raw).ok());
  const std::vector<std::byte> good = raw;
  for (size_t n = 0; n < frame.size(); ++n) {
    if (frames.decode(codec, frame_of, std::span(frame).first(n), raw).ok()) FAIL("cut at byte " << n);
  }
  auto longer = frame;
  longer.push_back(std::byte{0});
  CHECK(frames.decode(codec, frame_of, longer, raw).error().message() == "frame has the wrong length");
  for (size_t at = 0; at < frame.size(); ++at) {
    for (const int mask : {0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xff}) {
      auto changed = frame;
      changed[at] ^= static_cast<std::byte>(mask);
      (void)frames.decode(codec, frame_of, changed, raw).ok();
    }
  }
  // The codec is as good as new afterwards.
  REQUIRE(frames.decode(codec, frame_of, frame, raw).ok());
  CHECK(raw == good);
}

// What a program with another idea of the format, or an attacker, could write.
TEST_CASE("lossy: a frame that says what cannot be is refused by its reason", "[kv]") {
  const FrameShape shape{KvType::kF16, 2, 1, 2, 1, true};
  // Written by hand: per channel, whole codes, one exact value; centres 1 and 0, scales 0.5 and 2, codes 3, 4, -128,
  // -1.
  std::vector<std::byte> frame;
  for (const int byte : {2, 1, 0, 0}) frame.push_back(static_cast<std::byte>(byte));
  for (const uint32_t n : {2u, 1u, 4u, 4u, 4u, 0u}) put_le<uint32_t>(frame, n);
  for (const int byte : {0x3c, 0x00, 0x38, 0x40, 0, 0, 0, 0, 3, 4, 0x80, 0xff, 0xff, 0x7b})
    frame.push_back(static_cast<std::byte>(byte));
  std::vector<std::byte> raw(8);
  const auto message = [&](size_t at, uint32_t changed, size_t n_bytes) {
    auto other = frame;
    for (size_t i = 0; i < n_bytes; ++i) other[at + i] = static_cast<std::byte>(changed >> (8 * i));
    const Status s = FrameCodec().decode(KvCodec::kInt4, shape, other, raw);
    return s.ok() ? "read" : s.error().message();
  };
  REQUIRE(message(0, 2, 1) == "read");
  CHECK(value(raw, 0) == 2.5F);
  CHECK(value(raw, 1) == 8);
  CHECK(value(raw, 2) == 65504);
  CHECK(value(raw, 3) == -2);
  struct Row {
    size_t at;
    uint32_t changed;
    size_t n_bytes;
    const char* message;
  };
  for (const Row& row : std::vector<Row>{
           {0, 9, 1, "unknown frame method 9"},
           {0, 0, 1, "unknown frame method 0"},
           {1, 2, 1, "unknown frame version 2"},
           {2, 2, 1, "damaged frame: its first bytes"},
           {3, 1, 1, "damaged frame: its first bytes"},
           {0, 0x00010101, 3, "damaged frame: its first bytes"},
           {4, 0, 4, "damaged frame: its group"},
           {4, 1, 4, "frame has the wrong decompressed size"},
           {4, UINT32_MAX, 4, "read"},
           {8, 0, 4, "frame has the wrong length"},
           {8, UINT32_MAX, 4, "frame has the wrong length"},
           {12, 5, 4, "frame has the wrong length"},
           {16, UINT32_MAX, 4, "frame has the wrong length"},
           {20, 3, 4, "frame has the wrong decompressed size"},
           {24, 1, 4, "frame has the wrong length"},
           {28, 0x7c, 1, "frame has a scale that cannot be"},
           {30, 0xb8, 1, "frame has a scale that cannot be"},
           {31, 0x7e, 1, "frame has a scale that cannot be"},
           {36, 0x80, 1, "frame has too few exact values"},
           {38, 0x00, 1, "frame has too many exact values"},
       }) {
    CAPTURE(row.at, row.changed);
    CHECK(message(row.at, row.changed, row.n_bytes) == row.message);
  }
}

TEST_CASE("lossy: what a blob gives back is what through_codec foretells", "[kv]") {
  const KvCodec codec = GENERATE(from_range(kKvCodecs));
  BlobHeader header;
  header.shape = {3, 2, 16, KvType::kF16};
  for (int i = 0; i < 70; ++i) header.ids.push_back(i);
  const KvBlock block = sample_block(header.shape, 70, KvPattern::kNormal, 8);
  const auto bytes = encode_blob(header, block, codec);
  REQUIRE(bytes.ok());
  auto file = std::make_unique<MemoryFile>(*bytes);
  auto read = read_blob_header(*file, "a.kv");
  REQUIRE(read.ok());
  CHECK(read->codecs == std::vector<KvCodec>(3, codec));
  BlobReader reader(std::move(file), *read, "a.kv");
  const auto back = read_all_layers(reader);
  REQUIRE(back.ok());
  CHECK(same_bytes(*back, through_codec(block, codec)));
  CHECK(same_bytes(*back, block) == !is_lossy(codec));
}

TEST_CASE("byte planes: halves of bytes come back, odd numbers of them too", "[kv]") {
  for (const size_t n : {0, 1, 2, 3, 16, 33, 1001}) {
    std::vector<uint8_t> bytes(n), upper(n), lower((n + 1) / 2), back(n);
    for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<uint8_t>(i * 37 + 11);
    split_halves(bytes.data(), n, upper.data(), lower.data());
    join_halves(upper.data(), lower.data(), n, back.data());
    CHECK(back == bytes);
  }
}
