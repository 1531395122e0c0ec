// GGUF files, versions 2 and 3, little-endian. Source: GGUF specification (ggml docs/gguf.md).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/mapped_file.h"
#include "base/tensor_view.h"

namespace cento {

// An array value is a view into the mapped file: strings are cut out on demand, numbers are copied out by a typed
// getter.
struct GgufValue {
  enum class Type : uint32_t { kU8 = 0, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };
  Type type = Type::kU8;
  Type element = Type::kU8;          // of an array
  uint64_t count = 0;                // of an array
  std::span<const std::byte> bytes;  // the payload, checked to lie in the file; for strings without the length
};

struct GgufTensor {
  std::string name;
  TensorView view;    // points into the mapping; dtype is one that cento reads
  uint32_t raw_type;  // GGUF's number, also for types that cento does not read
  bool readable;      // false: unknown type; view.data is null
};

// Owns the mapping. Opening checks every count, length, offset and alignment against the bytes left; nothing is
// allocated by an unchecked count. Throws Error(kInput) with the byte offset of what is wrong.
class GgufFile {
 public:
  explicit GgufFile(const std::string& path);

  uint32_t version() const { return version_; }
  const MappedFile& file() const { return file_; }
  const std::map<std::string, GgufValue, std::less<>>& values() const { return values_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }  // in file order
  const GgufTensor* find_tensor(std::string_view name) const;          // nullptr if absent
  uint64_t tensor_data_offset() const { return data_offset_; }

  bool has(std::string_view key) const { return values_.find(key) != values_.end(); }
  // The typed value; nullopt if the key is absent; throws Error(kInput) if it is there with an unfit type or out of
  // range.
  std::optional<std::string> text(std::string_view key) const;
  std::optional<uint64_t> integer(std::string_view key) const;  // any integer type, not negative
  std::optional<double> number(std::string_view key) const;     // any number type
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::vector<std::string>> texts(std::string_view key) const;
  std::optional<std::vector<float>> floats(std::string_view key) const;
  std::optional<std::vector<int64_t>> integers(std::string_view key) const;  // arrays of integers or bools

 private:
  MappedFile file_;
  uint32_t version_ = 0;
  uint64_t data_offset_ = 0;
  std::map<std::string, GgufValue, std::less<>> values_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, size_t, std::less<>> by_name_;
};

// Name of the type that most of the tensors' bytes have, "Q4_1"; "" for a file without tensors.
std::string main_type_name(const GgufFile& file);

}  // namespace cento
