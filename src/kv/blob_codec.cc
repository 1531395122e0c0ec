#include "kv/blob_codec.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/size_math.h"
#include "kv/blob_format.h"
#include "kv/little_endian.h"

namespace cento {
namespace {

void put_hash(std::vector<std::byte>& out, const Hash& hash) {
  const auto bytes = std::as_bytes(std::span(hash.bytes));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

Hash get_hash(std::span<const std::byte> bytes, size_t at) {
  Hash hash;
  CHECK(at + hash.bytes.size() <= bytes.size());
  std::memcpy(hash.bytes.data(), bytes.data() + at, hash.bytes.size());
  return hash;
}

// "" if the format can hold these.
std::string outside_limits(const KvShape& shape, uint64_t n_tokens) {
  if (n_tokens == 0 || n_tokens > blob::kTokensMax) return std::to_string(n_tokens) + " tokens";
  if (shape.n_layers == 0 || shape.n_layers > blob::kLayersMax) return std::to_string(shape.n_layers) + " layers";
  if (shape.n_kv_heads == 0 || shape.n_kv_heads > blob::kKvHeadsMax)
    return std::to_string(shape.n_kv_heads) + " KV heads";
  if (shape.head_dim == 0 || shape.head_dim > blob::kHeadDimMax)
    return "head dimension " + std::to_string(shape.head_dim);
  // At most 2^20 * 2^12 * 2^12 * 4 = 2^46: within 64 bits.
  if (shape.side_bytes(n_tokens) > blob::kFrameRawBytesMax)
    return std::to_string(shape.side_bytes(n_tokens)) + " bytes a frame";
  return {};
}

std::vector<std::byte> header_bytes(const BlobHeader& header) {
  std::vector<std::byte> out;
  out.reserve(header.header_bytes);
  for (const uint8_t byte : blob::kMagic) out.push_back(std::byte{byte});
  put_le<uint32_t>(out, blob::kVersion);
  put_le<uint32_t>(out, static_cast<uint32_t>(header.header_bytes));
  put_le<uint64_t>(out, header.file_bytes);
  for (const Hash* hash : {&header.fingerprint, &header.layout, &header.key, &header.prefix_id, &header.context_id}) {
    put_hash(out, *hash);
  }
  put_le<uint32_t>(out, static_cast<uint32_t>(header.ids.size()));
  put_le<uint32_t>(out, header.shape.n_layers);
  put_le<uint32_t>(out, header.shape.n_kv_heads);
  put_le<uint32_t>(out, header.shape.head_dim);
  put_le<uint8_t>(out, static_cast<uint8_t>(header.shape.type));
  put_le<uint8_t>(out, static_cast<uint8_t>(header.kind));
  put_le<uint8_t>(out, blob::kTransformPlanes);
  put_le<uint8_t>(out, 0);
  CHECK(out.size() == blob::kFixedBytes);
  for (const int32_t id : header.ids) put_le<uint32_t>(out, static_cast<uint32_t>(id));
  for (const KvCodec codec : header.codecs) put_le<uint8_t>(out, static_cast<uint8_t>(codec));
  for (const BlobFrame& frame : header.frames) {
    put_le<uint64_t>(out, frame.offset);
    put_le<uint64_t>(out, frame.stored_bytes);
    put_le<uint64_t>(out, frame.raw_bytes);
    put_le<uint32_t>(out, frame.crc);
  }
  put_le<uint32_t>(out, crc32c(out));
  CHECK(out.size() == header.header_bytes);
  return out;
}

// The numbers of the fixed part, as far as they can be checked without the rest. An Error's message says what is wrong.
Result<BlobHeader> parse_fixed(std::span<const std::byte> bytes, uint64_t file_bytes, const std::string& where) {
  const auto error = [&](std::string what) { return Error{Code::kInput, std::move(what), where}; };
  const size_t n_magic = std::min(bytes.size(), blob::kMagic.size());
  if (std::memcmp(bytes.data(), blob::kMagic.data(), n_magic) != 0) return error("not a KV blob");
  if (bytes.size() >= blob::kVersionAt + 4) {
    const auto version = get_le<uint32_t>(bytes, blob::kVersionAt);
    if (version != blob::kVersion) return error("unknown version " + std::to_string(version));
  }
  if (bytes.size() < blob::kFixedBytes) return error("file cut short");
  BlobHeader header;
  header.header_bytes = get_le<uint32_t>(bytes, blob::kHeaderBytesAt);
  header.file_bytes = get_le<uint64_t>(bytes, blob::kFileBytesAt);
  header.fingerprint = get_hash(bytes, blob::kFingerprintAt);
  header.layout = get_hash(bytes, blob::kLayoutAt);
  header.key = get_hash(bytes, blob::kKeyAt);
  header.prefix_id = get_hash(bytes, blob::kPrefixIdAt);
  header.context_id = get_hash(bytes, blob::kContextIdAt);
  const auto n_tokens = get_le<uint32_t>(bytes, blob::kTokensAt);
  header.shape.n_layers = get_le<uint32_t>(bytes, blob::kLayersAt);
  header.shape.n_kv_heads = get_le<uint32_t>(bytes, blob::kKvHeadsAt);
  header.shape.head_dim = get_le<uint32_t>(bytes, blob::kHeadDimAt);
  const auto type = get_le<uint8_t>(bytes, blob::kTypeAt);
  const auto kind = get_le<uint8_t>(bytes, blob::kKindAt);
  if (type > static_cast<uint8_t>(KvType::kF32)) return error("damaged header: value type " + std::to_string(type));
  if (kind > static_cast<uint8_t>(KvKind::kChunkStandIn)) return error("damaged header: kind " + std::to_string(kind));
  if (get_le<uint8_t>(bytes, blob::kTransformAt) != blob::kTransformPlanes ||
      get_le<uint8_t>(bytes, blob::kReservedAt) != 0) {
    return error("damaged header: order of values");
  }
  header.shape.type = static_cast<KvType>(type);
  header.kind = static_cast<KvKind>(kind);
  if (const std::string outside = outside_limits(header.shape, n_tokens); !outside.empty()) {
    return error("damaged header: " + outside);
  }
  if (header.header_bytes != blob_header_bytes(n_tokens, header.shape.n_layers))
    return error("damaged header: its length");
  if (header.header_bytes > file_bytes) return error("file cut short");
  header.ids.resize(n_tokens);
  return header;
}

// Token ids, codecs and frame table, behind the fixed part. `bytes` is the whole header; its CRC is right.
Status parse_tables(std::span<const std::byte> bytes, BlobHeader& header, const std::string& where) {
  size_t at = blob::kFixedBytes;
  for (int32_t& id : header.ids) {
    id = static_cast<int32_t>(get_le<uint32_t>(bytes, at));
    at += 4;
  }
  for (uint32_t layer = 0; layer < header.shape.n_layers; ++layer, ++at) {
    const auto codec = get_le<uint8_t>(bytes, at);
    if (codec > static_cast<uint8_t>(kKvCodecs.back())) {
      return Error{Code::kInput, "unknown codec " + std::to_string(codec), where};
    }
    header.codecs.push_back(static_cast<KvCodec>(codec));
  }
  const uint64_t raw_bytes = header.shape.side_bytes(header.ids.size());
  uint64_t end = header.header_bytes;
  for (uint32_t i = 0; i < 2 * header.shape.n_layers; ++i, at += blob::kFrameEntryBytes) {
    const BlobFrame frame{get_le<uint64_t>(bytes, at), get_le<uint64_t>(bytes, at + 8),
                          get_le<uint64_t>(bytes, at + 16), get_le<uint32_t>(bytes, at + 24)};
    const auto next = checked_add(frame.offset, frame.stored_bytes);
    const bool plausible = frame.stored_bytes <= header.file_bytes &&
                           frame.stored_bytes <= 2 * frame.raw_bytes + blob::kFrameExtraBytesMax &&
                           div_up(frame.raw_bytes, blob::kExpansionMax) <= frame.stored_bytes;
    if (frame.offset != end || !next || frame.raw_bytes != raw_bytes || !plausible) {
      return Error{Code::kInput, "damaged frame table: entry " + std::to_string(i), where};
    }
    header.frames.push_back(frame);
    end = *next;
  }
  if (end != header.file_bytes) return Error{Code::kInput, "damaged frame table: its end", where};
  return Status::done();
}

}  // namespace

// At most 204 + 4 * 2^20 + 1024 * (1 + 2 * 28) + 4 bytes: within 32 bits.
uint64_t blob_header_bytes(uint64_t n_tokens, uint64_t n_layers) {
  return blob::kFixedBytes + 4 * n_tokens + n_layers + 2 * n_layers * blob::kFrameEntryBytes + 4;
}

Result<std::vector<std::byte>> encode_blob(const BlobHeader& about, const KvBlock& block, KvCodec codec) {
  if (const std::string outside = outside_limits(about.shape, about.ids.size()); !outside.empty()) {
    return Error{Code::kInput, "KV cannot be stored: " + outside};
  }
  if (!(block.shape() == about.shape) || block.n_tokens() != about.ids.size()) {
    return Error{Code::kInput, "KV cannot be stored: its shape is not that of its tokens"};
  }
  if (const std::string why = not_for_codec(codec, about.shape.type); !why.empty()) return Error{Code::kInput, why};
  BlobHeader header = about;
  const uint32_t n_layers = header.shape.n_layers;
  header.header_bytes = blob_header_bytes(header.ids.size(), n_layers);
  header.codecs.assign(n_layers, codec);
  header.frames.clear();
  std::vector<std::byte> out(header.header_bytes);
  FrameCodec frames;
  for (uint32_t i = 0; i < 2 * n_layers; ++i) {
    const std::span<const std::byte> raw = i % 2 == 0 ? block.k(i / 2) : block.v(i / 2);
    const size_t offset = out.size();
    frames.encode(codec, frame_shape(header.shape, header.ids.size(), i / 2, i % 2 == 0), raw, out);
    const std::span<const std::byte> stored = std::span(out).subspan(offset);
    header.frames.push_back({offset, stored.size(), raw.size(), crc32c(stored)});
  }
  header.file_bytes = out.size();
  const std::vector<std::byte> head = header_bytes(header);
  std::copy(head.begin(), head.end(), out.begin());
  return out;
}

Result<BlobHeader> read_blob_header(const File& file, const std::string& where) {
  const auto size = file.size();
  if (!size) return size.error();
  std::vector<std::byte> bytes(std::min<uint64_t>(*size, blob::kFixedBytes));
  if (bytes.empty()) return Error{Code::kInput, "file cut short", where};
  if (auto s = file.read_at(0, bytes); !s) return s.error();
  auto header = parse_fixed(bytes, *size, where);
  if (!header) return header;
  // parse_fixed bounds it: by the limits of its parts (some 4 MiB) and by the file's size.
  bytes.resize(header->header_bytes);
  if (auto s = file.read_at(blob::kFixedBytes, std::span(bytes).subspan(blob::kFixedBytes)); !s) return s.error();
  const std::span<const std::byte> covered = std::span<const std::byte>(bytes).first(bytes.size() - 4);
  if (crc32c(covered) != get_le<uint32_t>(bytes, covered.size())) {
    return Error{Code::kInput, "header checksum mismatch", where};
  }
  if (header->file_bytes > *size) return Error{Code::kInput, "file cut short", where};
  if (header->file_bytes < *size) return Error{Code::kInput, "file longer than its header says", where};
  if (auto s = parse_tables(bytes, *header, where); !s) return s.error();
  return header;
}

}  // namespace cento
