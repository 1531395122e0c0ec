// Encryption of blobs at rest: XChaCha20-Poly1305, one box a part, and names that tell nothing (DESIGN 5). The format
// is in man/cento-blob.5. The libsodium header stops in cipher.cc.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "base/result.h"
#include "kv/tier.h"

namespace cento {

// Says which key a blob or a store needs, and nothing of the key itself.
using CipherId = std::array<uint8_t, 16>;
std::string cipher_id_text(const CipherId& id);  // 32 digits

// 32 bytes that are zeroed when they go, and kept out of core dumps and swap where the system allows it.
class SecretKey {
 public:
  static constexpr size_t kBytes = 32;
  explicit SecretKey(std::span<const std::byte, kBytes> bytes);
  ~SecretKey();
  SecretKey(SecretKey&& other) noexcept : bytes_(std::exchange(other.bytes_, nullptr)) {}
  SecretKey& operator=(SecretKey&&) = delete;
  SecretKey(const SecretKey&) = delete;
  const uint8_t* data() const { return bytes_; }

 private:
  uint8_t* bytes_;
};

// A key as people write it: 64 hexadecimal digits, with spaces or a line end around them, or exactly 32 bytes. Throws
// Error(kUsage) naming `where`; `text` is zeroed.
SecretKey parse_secret_key(std::string& text, const std::string& where);
// Random bytes as hexadecimal digits, two a byte: a new key, the mark of a folder.
std::string random_hex(size_t n_bytes);

// Several threads may use one.
class StoreCipher {
 public:
  explicit StoreCipher(const SecretKey& key);

  const CipherId& id() const { return id_; }
  // The name of a blob in every tier.
  Hash name(const Hash& key) const;

  // The sealed blob; its parts are the header of the sealed file together with the first part, then each part by
  // itself.
  struct Sealed {
    std::vector<std::byte> bytes;
    std::vector<uint64_t> parts;
  };
  Sealed seal(const BlobView& blob) const;

  // A sealed file read as the blob in it. Each part is opened when it is asked for, and checked before any of its bytes
  // is given out. Error(kInput): not sealed, sealed with another key, cut short, damaged.
  Result<std::unique_ptr<File>> open(std::unique_ptr<File> sealed, const std::string& where) const;

 private:
  std::shared_ptr<const SecretKey> seal_key_, name_key_;
  CipherId id_;
};

// Whether a file begins as a sealed blob does, whatever its key.
bool is_sealed(const File& file);

}  // namespace cento
