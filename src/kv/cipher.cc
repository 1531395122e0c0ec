#include "kv/cipher.h"

#include <sodium.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <new>

#include "base/check.h"
#include "base/size_math.h"
#include "kv/little_endian.h"

namespace cento {
namespace {

// Bytes of a sealed blob, all integers little-endian, no gaps: magic, u32 version, u32 number of parts, key id, nonce,
// u64 file bytes, u64[parts] lengths of the parts before sealing, u32 CRC-32C of all that; then the parts, each 16
// bytes longer than before. What stands before the parts is every part's associated data; part i's nonce is the file's,
// then u64 i.
constexpr std::array<uint8_t, 8> kMagic = {0x89, 'C', 'K', 'S', '\r', '\n', 0x1a, '\n'};
constexpr uint32_t kVersion = 1;
constexpr size_t kVersionAt = 8, kPartsAt = 12, kIdAt = 16, kNonceAt = 32, kFileBytesAt = 48, kLengthsAt = 56;
constexpr size_t kFileNonceBytes = 16;
constexpr uint32_t kPartsMax = 1 + 2 * 1024;
constexpr uint64_t kPartBytesMax = uint64_t{1} << 32;
constexpr size_t kTagBytes = crypto_aead_xchacha20poly1305_ietf_ABYTES;
static_assert(crypto_aead_xchacha20poly1305_ietf_NPUBBYTES == kFileNonceBytes + sizeof(uint64_t));
static_assert(crypto_aead_xchacha20poly1305_ietf_KEYBYTES == SecretKey::kBytes);
static_assert(crypto_kdf_KEYBYTES == SecretKey::kBytes);

constexpr size_t header_bytes(size_t n_parts) { return kLengthsAt + 8 * n_parts + sizeof(uint32_t); }

void require_sodium() {
  if (sodium_init() < 0) throw Error{Code::kResource, "the system gives no random numbers", "libsodium"};
}

const uint8_t* bytes_of(std::span<const std::byte> s) { return reinterpret_cast<const uint8_t*>(s.data()); }
uint8_t* bytes_of(std::span<std::byte> s) { return reinterpret_cast<uint8_t*>(s.data()); }

using Nonce = std::array<uint8_t, crypto_aead_xchacha20poly1305_ietf_NPUBBYTES>;

Nonce nonce_of(std::span<const std::byte> header, uint64_t part) {
  Nonce nonce;
  std::memcpy(nonce.data(), header.data() + kNonceAt, kFileNonceBytes);
  for (size_t i = 0; i < sizeof part; ++i) nonce[kFileNonceBytes + i] = static_cast<uint8_t>(part >> (8 * i));
  return nonce;
}

std::shared_ptr<const SecretKey> derived(const SecretKey& key, uint64_t number) {
  std::array<uint8_t, SecretKey::kBytes> bytes;
  constexpr char kContext[crypto_kdf_CONTEXTBYTES + 1] = "centokv1";
  CHECK(crypto_kdf_derive_from_key(bytes.data(), bytes.size(), number, kContext, key.data()) == 0);
  auto out = std::make_shared<const SecretKey>(std::as_bytes(std::span(bytes)));
  sodium_memzero(bytes.data(), bytes.size());
  return out;
}

struct SealedHeader {
  std::vector<std::byte> bytes;    // as in the file
  std::vector<uint64_t> lengths;   // of the parts before sealing
  std::vector<uint64_t> at, from;  // where each begins: in the file, in the blob
  uint64_t blob_bytes = 0;
};

Result<SealedHeader> read_header(const File& file, const CipherId& id, const std::string& where) {
  const auto bad = [&](const char* what) { return Error{Code::kInput, what, where}; };
  const auto size = file.size();
  if (!size) return size.error();
  SealedHeader h;
  h.bytes.resize(kLengthsAt);
  if (*size < header_bytes(0)) return bad("file cut short");
  if (auto s = file.read_at(0, h.bytes); !s) return s.error();
  if (std::memcmp(h.bytes.data(), kMagic.data(), kMagic.size()) != 0) return bad("not encrypted");
  if (get_le<uint32_t>(h.bytes, kVersionAt) != kVersion) return bad("unknown version of encryption");
  const auto n_parts = get_le<uint32_t>(h.bytes, kPartsAt);
  if (n_parts == 0 || n_parts > kPartsMax) return bad("impossible number of parts");
  if (*size < header_bytes(n_parts)) return bad("file cut short");
  h.bytes.resize(header_bytes(n_parts));
  if (auto s = file.read_at(0, h.bytes); !s) return s.error();
  const size_t crc_at = h.bytes.size() - sizeof(uint32_t);
  if (get_le<uint32_t>(h.bytes, crc_at) != crc32c(std::span(h.bytes).first(crc_at)))
    return bad("header checksum mismatch");
  if (std::memcmp(h.bytes.data() + kIdAt, id.data(), id.size()) != 0) return bad("encrypted with another key");
  uint64_t at = h.bytes.size();
  for (uint32_t i = 0; i < n_parts; ++i) {
    const auto n = get_le<uint64_t>(h.bytes, kLengthsAt + 8 * size_t{i});
    if (n == 0 || n > kPartBytesMax) return bad("impossible length of a part");
    h.lengths.push_back(n);
    h.at.push_back(at);
    h.from.push_back(h.blob_bytes);
    at += n + kTagBytes;
    h.blob_bytes += n;
  }
  if (get_le<uint64_t>(h.bytes, kFileBytesAt) != at || at != *size) return bad("file cut short");
  return h;
}

class SealedFile final : public File {
 public:
  SealedFile(std::unique_ptr<File> file, SealedHeader header, std::shared_ptr<const SecretKey> key, std::string where)
      : file_(std::move(file)), header_(std::move(header)), key_(std::move(key)), where_(std::move(where)) {}
  ~SealedFile() override { sodium_memzero(opened_.data(), opened_.size()); }

  Status write(std::span<const std::byte>) override {
    return Error{Code::kInternal, "an encrypted blob is not written in place", where_};
  }
  Status sync() override { return Status::done(); }
  Result<uint64_t> size() const override { return header_.blob_bytes; }

  Status read_at(uint64_t offset, std::span<std::byte> out) const override {
    if (offset > header_.blob_bytes || out.size() > header_.blob_bytes - offset)
      return Error{Code::kInput, "file ends too early", where_};
    while (!out.empty()) {
      const auto after = std::upper_bound(header_.from.begin(), header_.from.end(), offset);
      const auto part = static_cast<size_t>(after - header_.from.begin()) - 1;
      const uint64_t skip = offset - header_.from[part];
      const size_t n = std::min<uint64_t>(out.size(), header_.lengths[part] - skip);
      if (n == header_.lengths[part]) {
        if (auto s = open_part(part, out.first(n)); !s) return s;
      } else {
        if (auto s = keep_part(part); !s) return s;
        std::copy_n(opened_.begin() + static_cast<ptrdiff_t>(skip), n, out.begin());
      }
      out = out.subspan(n);
      offset += n;
    }
    return Status::done();
  }

 private:
  Status open_part(size_t part, std::span<std::byte> out) const {
    try {
      sealed_.resize(out.size() + kTagBytes);
    } catch (const std::bad_alloc&) {
      return Error{Code::kResource, "not enough memory to read it", where_};
    }
    if (auto s = file_->read_at(header_.at[part], sealed_); !s) return s;
    const Nonce nonce = nonce_of(header_.bytes, part);
    if (crypto_aead_xchacha20poly1305_ietf_decrypt(bytes_of(out), nullptr, nullptr, bytes_of(std::span(sealed_)),
                                                   sealed_.size(), bytes_of(header_.bytes), header_.bytes.size(),
                                                   nonce.data(), key_->data()) == 0)
      return Status::done();
    return Error{Code::kInput, "damaged, or changed by somebody without the key",
                 where_ + ", byte " + std::to_string(header_.at[part])};
  }

  Status keep_part(size_t part) const {
    if (part == opened_part_) return Status::done();
    opened_part_ = SIZE_MAX;
    try {
      opened_.resize(header_.lengths[part]);
    } catch (const std::bad_alloc&) {
      return Error{Code::kResource, "not enough memory to read it", where_};
    }
    if (auto s = open_part(part, opened_); !s) return s;
    opened_part_ = part;
    return Status::done();
  }

  std::unique_ptr<File> file_;
  SealedHeader header_;
  std::shared_ptr<const SecretKey> key_;
  std::string where_;
  mutable std::vector<std::byte> sealed_, opened_;  // a part as it is in the file; one that was read in pieces
  mutable size_t opened_part_ = SIZE_MAX;
};

}  // namespace

std::string cipher_id_text(const CipherId& id) {
  std::string out(2 * id.size() + 1, '\0');
  (void)sodium_bin2hex(out.data(), out.size(), id.data(), id.size());
  out.pop_back();
  return out;
}

SecretKey::SecretKey(std::span<const std::byte, kBytes> bytes) {
  require_sodium();
  bytes_ = static_cast<uint8_t*>(sodium_malloc(kBytes));  // locked, guarded, zeroed by sodium_free
  if (bytes_ == nullptr) throw Error{Code::kResource, "no memory for a key", "libsodium"};
  std::memcpy(bytes_, bytes.data(), kBytes);
}

SecretKey::~SecretKey() {
  if (bytes_ != nullptr) sodium_free(bytes_);
}

SecretKey parse_secret_key(std::string& text, const std::string& where) {
  require_sodium();
  struct Zero {
    std::string* text;
    ~Zero() { sodium_memzero(text->data(), text->size()); }
  } const zero{&text};
  if (text.size() == SecretKey::kBytes) return SecretKey(std::as_bytes(std::span(text)).first<SecretKey::kBytes>());
  const auto is_space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  size_t first = 0, last = text.size();
  while (first < last && is_space(text[first])) ++first;
  while (last > first && is_space(text[last - 1])) --last;
  std::array<uint8_t, SecretKey::kBytes> bytes{};
  size_t n = 0;
  const bool good =
      last - first == 2 * bytes.size() &&
      sodium_hex2bin(bytes.data(), bytes.size(), text.data() + first, last - first, nullptr, &n, nullptr) == 0 &&
      n == bytes.size();
  if (!good) {
    sodium_memzero(bytes.data(), bytes.size());
    throw Error{Code::kUsage, "not a key: it takes 64 digits 0-9 a-f, or 32 bytes", where,
                "`cento cache rekey --new-key-file FILE` makes one where FILE does not exist"};
  }
  SecretKey key(std::as_bytes(std::span(bytes)));
  sodium_memzero(bytes.data(), bytes.size());
  return key;
}

std::string random_hex(size_t n_bytes) {
  require_sodium();
  std::vector<uint8_t> bytes(n_bytes);
  randombytes_buf(bytes.data(), bytes.size());
  std::string out(2 * n_bytes + 1, '\0');
  (void)sodium_bin2hex(out.data(), out.size(), bytes.data(), bytes.size());
  sodium_memzero(bytes.data(), bytes.size());
  out.pop_back();
  return out;
}

StoreCipher::StoreCipher(const SecretKey& key) : seal_key_(derived(key, 1)), name_key_(derived(key, 2)) {
  const auto id_key = derived(key, 3);
  std::memcpy(id_.data(), id_key->data(), id_.size());
}

Hash StoreCipher::name(const Hash& key) const {
  Hash out;
  static_assert(sizeof out.bytes == crypto_generichash_BYTES);
  CHECK(crypto_generichash(out.bytes.data(), out.bytes.size(), key.bytes.data(), key.bytes.size(), name_key_->data(),
                           SecretKey::kBytes) == 0);
  return out;
}

StoreCipher::Sealed StoreCipher::seal(const BlobView& blob) const {
  CHECK(!blob.parts.empty() && blob.parts.size() <= kPartsMax);
  Sealed out;
  std::vector<std::byte> header;
  for (const uint8_t b : kMagic) header.push_back(static_cast<std::byte>(b));
  put_le(header, kVersion);
  put_le(header, static_cast<uint32_t>(blob.parts.size()));
  for (const uint8_t b : id_) header.push_back(static_cast<std::byte>(b));
  std::array<uint8_t, kFileNonceBytes> nonce;
  randombytes_buf(nonce.data(), nonce.size());
  for (const uint8_t b : nonce) header.push_back(static_cast<std::byte>(b));
  const uint64_t file_bytes = header_bytes(blob.parts.size()) + blob.bytes.size() + kTagBytes * blob.parts.size();
  put_le(header, file_bytes);
  for (const uint64_t n : blob.parts) put_le(header, n);
  put_le(header, crc32c(header));

  out.bytes.reserve(file_bytes);
  out.bytes = header;
  out.bytes.resize(file_bytes);
  size_t from = 0, at = header.size();
  for (size_t i = 0; i < blob.parts.size(); ++i) {
    const size_t n = blob.parts[i];
    CHECK(n > 0 && n <= kPartBytesMax && n <= blob.bytes.size() - from);
    const Nonce part_nonce = nonce_of(header, i);
    CHECK(crypto_aead_xchacha20poly1305_ietf_encrypt(bytes_of(std::span(out.bytes).subspan(at)), nullptr,
                                                     bytes_of(blob.bytes.subspan(from, n)), n,
                                                     bytes_of(std::span<const std::byte>(header)), header.size(),
                                                     nullptr, part_nonce.data(), seal_key_->data()) == 0);
    out.parts.push_back((i == 0 ? header.size() : 0) + n + kTagBytes);
    from += n;
    at += n + kTagBytes;
  }
  CHECK(from == blob.bytes.size() && at == out.bytes.size());
  return out;
}

Result<std::unique_ptr<File>> StoreCipher::open(std::unique_ptr<File> sealed, const std::string& where) const {
  auto header = read_header(*sealed, id_, where);
  if (!header) return header.error();
  return std::unique_ptr<File>(std::make_unique<SealedFile>(std::move(sealed), std::move(*header), seal_key_, where));
}

bool is_sealed(const File& file) {
  std::array<std::byte, kMagic.size()> start{};
  const auto size = file.size();
  return size.ok() && *size >= start.size() && file.read_at(0, start).ok() &&
         std::memcmp(start.data(), kMagic.data(), start.size()) == 0;
}

}  // namespace cento
