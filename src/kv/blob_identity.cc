#include "kv/blob_identity.h"

#include <new>

#include "kv/blob_reader.h"
#include "kv/bytes_file.h"

namespace cento {
namespace {

Hash key_of(const Hash& fingerprint, const Hash& layout, KvKind kind, const Hash& prefix_id, const Hash& context_id,
            const Hash& ids_hash) {
  Hasher hasher("cento kv key");
  hasher.add_hash(fingerprint).add_hash(layout).add_u64(static_cast<uint64_t>(kind));
  return hasher.add_hash(prefix_id).add_hash(context_id).add_hash(ids_hash).finish();
}

}  // namespace

Hash kv_ids_hash(std::span<const int32_t> ids) { return Hasher("cento token ids").add_i32s(ids).finish(); }

Hash kv_key(const KvIdentity& identity) {
  return key_of(identity.fingerprint, identity.layout, identity.kind, kv_ids_hash(identity.prefix_ids),
                kv_ids_hash(identity.context_ids), kv_ids_hash(identity.ids));
}

Hash key_of(const BlobHeader& h) {
  return key_of(h.fingerprint, h.layout, h.kind, h.prefix_id, h.context_id, kv_ids_hash(h.ids));
}

BlobHeader header_of(const KvIdentity& identity) {
  BlobHeader header;
  header.fingerprint = identity.fingerprint;
  header.layout = identity.layout;
  header.prefix_id = kv_ids_hash(identity.prefix_ids);
  header.context_id = kv_ids_hash(identity.context_ids);
  header.shape = identity.shape;
  header.kind = identity.kind;
  header.ids.assign(identity.ids.begin(), identity.ids.end());
  header.key = key_of(header);
  return header;
}

Hash group_of(const BlobHeader& h) {
  Hasher hasher("cento kv group");
  hasher.add_hash(h.fingerprint).add_hash(h.layout).add_hash(h.prefix_id);
  return hasher.add_hash(kv_ids_hash(h.ids)).finish();
}

KvRow row_of(const BlobHeader& header, uint64_t n_bytes, const std::optional<Hash>& chunk_hash, int64_t now_ms) {
  KvRow row;
  row.key = header.key;
  row.fingerprint = header.fingerprint;
  row.layout = header.layout;
  row.prefix_id = header.prefix_id;
  row.ids_hash = kv_ids_hash(header.ids);
  row.context_id = header.context_id;
  row.chunk_hash = chunk_hash;
  row.kind = header.kind;
  if (!header.codecs.empty()) row.codec = kv_codec_name(header.codecs.back());
  row.n_tokens = header.ids.size();
  row.n_bytes = n_bytes;
  row.created_ms = row.last_used_ms = now_ms;
  return row;
}

std::string difference(const BlobHeader& found, const BlobHeader& wanted, bool any_context) {
  if (found.fingerprint != wanted.fingerprint) return "other model";
  if (found.layout != wanted.layout || !(found.shape == wanted.shape)) return "other KV layout";
  if (found.prefix_id != wanted.prefix_id) return "other prefix";
  if (found.ids != wanted.ids) return "other tokens";
  if (any_context) return found.key == key_of(found) ? "" : "other key";
  if (found.context_id != wanted.context_id) return "other context";
  if (found.kind != wanted.kind) return "other kind";
  if (found.key != wanted.key) return "other key";
  return {};
}

std::pair<int, const char*> agreement(const KvRow& row, const BlobHeader& wanted) {
  if (row.fingerprint != wanted.fingerprint) return {1, "other model"};
  if (row.layout != wanted.layout) return {2, "other KV layout"};
  if (row.prefix_id != wanted.prefix_id) return {3, "other prefix"};
  if (row.context_id != wanted.context_id) return {4, "other context"};
  return {5, "other kind"};
}

Result<BlobHeader> check_blob(std::unique_ptr<File> file, const std::string& where, const std::optional<Hash>& wanted) {
  auto header = read_blob_header(*file, where);
  if (!header) return header.error();
  if (key_of(*header) != header->key || (wanted && header->key != *wanted))
    return Error{Code::kInput, "other key", where};
  try {
    const BlobHeader checked = *header;
    const uint64_t n_bytes = checked.shape.side_bytes(checked.ids.size());
    std::vector<std::byte> k(n_bytes), v(n_bytes);
    BlobReader reader(std::move(file), std::move(*header), where);
    for (uint32_t layer = 0; layer < reader.shape().n_layers; ++layer) {
      if (auto s = reader.read_layer(layer, k, v); !s) return s.error();
    }
    return checked;
  } catch (const std::bad_alloc&) {
    return Error{Code::kResource, "not enough memory to read it", where};
  }
}

std::vector<uint64_t> parts_of(const BlobHeader& header) {
  std::vector<uint64_t> parts = {header.header_bytes};
  for (const BlobFrame& frame : header.frames) parts.push_back(frame.stored_bytes);
  return parts;
}

Result<std::vector<std::byte>> read_whole(const File& file, const std::string& where) {
  const auto size = file.size();
  if (!size) return size.error();
  try {
    std::vector<std::byte> bytes(*size);
    if (auto s = file.read_at(0, bytes); !s) return s.error();
    return bytes;
  } catch (const std::bad_alloc&) {
    return Error{Code::kResource, "not enough memory to read it", where};
  }
}

Result<std::vector<std::byte>> read_checked(const File& file, const std::string& where, const Hash& wanted) {
  auto bytes = read_whole(file, where);
  if (!bytes) return bytes;
  const auto checked = check_blob(std::make_unique<BytesFile>(*bytes), where, wanted);
  if (!checked) return checked.error();
  return bytes;
}

}  // namespace cento
