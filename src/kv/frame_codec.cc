#include "kv/frame_codec.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "kv/blob_format.h"
#include "kv/byte_planes.h"
#include "kv/kv_quant.h"
#include "kv/little_endian.h"
#include "kv/zstd_part.h"

namespace cento {
namespace {

// Chosen by what they cost in KL and bytes: docs/STORE.md.
constexpr uint32_t kKeyGroup = 64;       // rows of 8-bit keys that share a channel's scale
constexpr uint32_t kFewBitsGroup = 256;  // rows of values of few bits that do
constexpr double kFewBitsStep = 0.29;
// Keys of large spread are multiplied with queries of large spread: they get finer scales than the others.
constexpr double kKeysFollow = -0.3;
constexpr double kValuesFollow = 0;

QuantRecipe recipe_for(KvCodec codec, const FrameShape& shape) {
  const bool few_bits = codec == KvCodec::kInt4 || (codec == KvCodec::kK8v4 && !shape.is_k);
  if (few_bits) {
    const double follow = shape.is_k ? kKeysFollow : kValuesFollow;
    return {QuantMethod::kPerChannel, kFewBitsGroup, kFewBitsStep, follow, shape.is_k};
  }
  if (shape.is_k) return {QuantMethod::kPerChannel, kKeyGroup};
  return {QuantMethod::kPerToken, shape.head_dim};
}

// The block with its values rounded to `type`, or widened.
KvBlock in_type(const KvBlock& block, KvType type) {
  KvShape shape = block.shape();
  shape.type = type;
  KvBlock out(shape, block.n_tokens());
  const auto convert = [&](std::span<const std::byte> from, std::span<std::byte> to) {
    for (size_t i = 0; i < to.size() / kv_type_bytes(type); ++i) {
      const float value = kv_value(block.shape().type, from, i);
      const fp16 half = to_fp16(value);
      if (type == KvType::kF32) std::memcpy(to.data() + i * sizeof value, &value, sizeof value);
      if (type == KvType::kF16) std::memcpy(to.data() + i * sizeof half, &half, sizeof half);
    }
  };
  for (uint32_t layer = 0; layer < shape.n_layers; ++layer) {
    convert(block.k(layer), out.k(layer));
    convert(block.v(layer), out.v(layer));
  }
  return out;
}

Error error(std::string what) { return {Code::kInput, std::move(what)}; }

}  // namespace

std::string not_for_codec(KvCodec codec, KvType type) {
  if (!is_lossy(codec) || type == KvType::kF16) return {};
  return std::string("codec ") + kv_codec_name(codec) +
         " holds KV of half precision only, and this is single precision: use "
         "lossless or raw";
}

struct FrameCodec::State {
  ZstdParts parts;
  std::vector<uint8_t> planes;  // [bytes of a value, values]
  Quantiser quantiser;
  QuantFrame quant;
};

FrameCodec::FrameCodec() : state_(std::make_unique<State>()) {}
FrameCodec::~FrameCodec() = default;

void FrameCodec::encode(KvCodec codec, const FrameShape& shape, std::span<const std::byte> raw,
                        std::vector<std::byte>& out) {
  CHECK(raw.size() == shape.raw_bytes() && raw.size() <= blob::kFrameRawBytesMax);
  if (codec == KvCodec::kRaw) {
    out.insert(out.end(), raw.begin(), raw.end());
    return;
  }
  if (codec == KvCodec::kLossless) return encode_lossless(shape.type, raw, out);
  CHECK(not_for_codec(codec, shape.type).empty());
  const size_t start = out.size();
  const bool representable = encode_quantised(codec, shape, raw, out);
  const size_t n_quantised = out.size() - start;
  // Lossless frames of KV are larger than three quarters of the raw bytes;
  // short and regular ones may not be.
  if (representable && n_quantised < raw.size() * 3 / 4 && n_quantised > blob::kQuantHeaderBytes * 8) return;
  std::vector<std::byte> lossless;
  for (const uint8_t byte : {blob::kMethodLossless, blob::kQuantVersion, blob::kCodesWhole, uint8_t{0}})
    put_le<uint8_t>(lossless, byte);
  encode_lossless(shape.type, raw, lossless);
  if (representable && n_quantised < lossless.size()) return;
  out.resize(start);
  out.insert(out.end(), lossless.begin(), lossless.end());
}

Status FrameCodec::decode(KvCodec codec, const FrameShape& shape, std::span<const std::byte> stored,
                          std::span<std::byte> raw) {
  CHECK(raw.size() == shape.raw_bytes());
  if (codec == KvCodec::kRaw) {
    if (stored.size() != raw.size()) return error("frame has the wrong length");
    std::copy(stored.begin(), stored.end(), raw.begin());
    return Status::done();
  }
  if (codec == KvCodec::kLossless) return decode_lossless(shape.type, stored, raw);
  if (const std::string why = not_for_codec(codec, shape.type); !why.empty()) return error(why);
  return decode_quantised(shape, stored, raw);
}

// u32 stored length of each plane, then the planes.
void FrameCodec::encode_lossless(KvType type, std::span<const std::byte> raw, std::vector<std::byte>& out) {
  const size_t width = kv_type_bytes(type), n = raw.size() / width;
  State& s = *state_;
  s.planes.resize(raw.size());
  std::array<uint8_t*, 4> planes{};
  for (size_t p = 0; p < width; ++p) planes[p] = s.planes.data() + p * n;
  split_planes(raw.data(), n, width, planes);
  const size_t lengths_at = out.size();
  out.resize(out.size() + 4 * width);
  for (size_t p = 0; p < width; ++p) {
    const size_t length = s.parts.pack({planes[p], n}, blob::kWorthwhileShare, out);
    set_le<uint32_t>(out, lengths_at + 4 * p, static_cast<uint32_t>(length));
  }
}

Status FrameCodec::decode_lossless(KvType type, std::span<const std::byte> stored, std::span<std::byte> raw) {
  const size_t width = kv_type_bytes(type), n = raw.size() / width;
  State& s = *state_;
  if (stored.size() < 4 * width) return error("frame has the wrong length");
  s.planes.resize(raw.size());
  std::array<const uint8_t*, 4> planes{};
  std::span<const std::byte> rest = stored.subspan(4 * width);
  for (size_t p = 0; p < width; ++p) {
    const size_t length = get_le<uint32_t>(stored, 4 * p);
    if (length > n || length > rest.size()) return error("frame has the wrong length");
    const auto plane = s.parts.unpack(rest.first(length), n, s.planes.data() + p * n);
    if (!plane) return plane.error();
    planes[p] = *plane;
    rest = rest.subspan(length);
  }
  if (!rest.empty()) return error("frame has the wrong length");
  join_planes(planes, n, width, raw.data());
  return Status::done();
}

// The parts: the high bytes of the parameters, their low bytes, then the codes,
// whole or halved. False: a value cannot be represented, and nothing was
// appended.
bool FrameCodec::encode_quantised(KvCodec codec, const FrameShape& shape, std::span<const std::byte> raw,
                                  std::vector<std::byte>& out) {
  State& s = *state_;
  std::vector<fp16> values(raw.size() / sizeof(fp16));
  std::memcpy(values.data(), raw.data(), raw.size());
  const QuantRecipe recipe = recipe_for(codec, shape);
  if (!s.quantiser.quantise(recipe, values, shape.row_values(), s.quant)) return false;
  const size_t start = out.size(), n_params = s.quant.params.size(), n = values.size(), half = (n + 1) / 2;
  const bool halved = recipe.step == 0;
  for (const uint8_t byte : {static_cast<uint8_t>(recipe.method), blob::kQuantVersion,
                             halved ? blob::kCodesHalved : blob::kCodesWhole, uint8_t{0}})
    put_le<uint8_t>(out, byte);
  put_le<uint32_t>(out, s.quant.group);
  put_le<uint32_t>(out, static_cast<uint32_t>(s.quant.exact.size()));
  out.resize(start + blob::kQuantHeaderBytes);
  s.planes.resize(2 * n_params + n + half);
  uint8_t *high = s.planes.data(), *low = high + n_params, *upper = low + n_params, *lower = upper + n;
  split_planes(reinterpret_cast<const std::byte*>(s.quant.params.data()), n_params, 2, {high, low});
  const auto* codes = reinterpret_cast<const uint8_t*>(s.quant.codes.data());
  using Part = std::span<const uint8_t>;
  std::array<Part, 4> parts = {Part(high, n_params), Part(low, n_params), Part(codes, n), Part()};
  if (halved) {
    split_halves(codes, n, upper, lower);
    parts[2] = Part(upper, n);
    parts[3] = Part(lower, half);
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    const uint64_t share = i == 3 ? blob::kWorthwhileShare : blob::kWorthwhileShareOfCodes;
    const size_t length = parts[i].empty() ? 0 : s.parts.pack(parts[i], share, out);
    set_le<uint32_t>(out, start + 12 + 4 * i, static_cast<uint32_t>(length));
  }
  for (const fp16 h : s.quant.exact) put_le<uint16_t>(out, h.bits);
  return true;
}

Status FrameCodec::decode_quantised(const FrameShape& shape, std::span<const std::byte> stored,
                                    std::span<std::byte> raw) {
  if (stored.size() < blob::kQuantStartBytes) return error("frame has the wrong length");
  const auto method = get_le<uint8_t>(stored, 0), version = get_le<uint8_t>(stored, 1);
  const auto layout = get_le<uint8_t>(stored, 2), zero = get_le<uint8_t>(stored, 3);
  if (version != blob::kQuantVersion) return error("unknown frame version " + std::to_string(version));
  if (zero != 0 || layout > (method == blob::kMethodLossless ? blob::kCodesWhole : blob::kCodesHalved))
    return error("damaged frame: its first bytes");
  if (method == blob::kMethodLossless) return decode_lossless(shape.type, stored.subspan(blob::kQuantStartBytes), raw);
  if (method != static_cast<uint8_t>(QuantMethod::kPerChannel) &&
      method != static_cast<uint8_t>(QuantMethod::kPerToken))
    return error("unknown frame method " + std::to_string(method));
  if (stored.size() < blob::kQuantHeaderBytes) return error("frame has the wrong length");
  State& s = *state_;
  QuantFrame& q = s.quant;
  q.method = static_cast<QuantMethod>(method);
  q.group = get_le<uint32_t>(stored, 4);
  if (q.group == 0) return error("damaged frame: its group");
  const uint64_t n_exact = get_le<uint32_t>(stored, 8);
  const bool halved = layout == blob::kCodesHalved;
  const size_t c = shape.row_values(), n = shape.n_tokens * c, half = halved ? (n + 1) / 2 : 0;
  const size_t n_params = n_quant_params(q.method, q.group, shape.n_tokens, c);  // at most n + c
  const std::array<size_t, 4> n_bytes = {n_params, n_params, n, half};
  s.planes.resize(n_bytes[0] + n_bytes[1] + n_bytes[2] + n_bytes[3]);
  std::array<const uint8_t*, 4> parts{};
  std::span<const std::byte> rest = stored.subspan(blob::kQuantHeaderBytes);
  uint8_t* into = s.planes.data();
  for (size_t i = 0; i < parts.size(); ++i) {
    const size_t length = get_le<uint32_t>(stored, 12 + 4 * i);
    if (length > n_bytes[i] || length > rest.size()) return error("frame has the wrong length");
    const auto part = s.parts.unpack(rest.first(length), n_bytes[i], into);
    if (!part) return part.error();
    parts[i] = *part;
    into += n_bytes[i];
    rest = rest.subspan(length);
  }
  if (rest.size() != sizeof(fp16) * n_exact) return error("frame has the wrong length");
  q.params.resize(n_params);
  join_planes({parts[0], parts[1]}, n_params, 2, reinterpret_cast<std::byte*>(q.params.data()));
  q.exact.resize(n_exact);
  if (n_exact > 0) std::memcpy(q.exact.data(), rest.data(), rest.size());
  const uint8_t* codes = parts[2];
  if (halved) {
    q.codes.resize(n);
    join_halves(parts[2], parts[3], n, reinterpret_cast<uint8_t*>(q.codes.data()));
    codes = reinterpret_cast<const uint8_t*>(q.codes.data());
  }
  return dequantise(q, reinterpret_cast<const int8_t*>(codes), c, raw);
}

KvBlock through_codec(const KvBlock& block, KvCodec codec) {
  if (is_lossy(codec) && block.shape().type == KvType::kF32)
    return in_type(through_codec(in_type(block, KvType::kF16), codec), KvType::kF32);
  KvBlock out(block.shape(), block.n_tokens());
  FrameCodec frames;
  std::vector<std::byte> stored;
  for (uint32_t i = 0; i < 2 * block.shape().n_layers; ++i) {
    const FrameShape shape = frame_shape(block.shape(), block.n_tokens(), i / 2, i % 2 == 0);
    stored.clear();
    frames.encode(codec, shape, i % 2 == 0 ? block.k(i / 2) : block.v(i / 2), stored);
    const Status decoded = frames.decode(codec, shape, stored, i % 2 == 0 ? out.k(i / 2) : out.v(i / 2));
    CHECK(decoded.ok());
  }
  return out;
}

}  // namespace cento
