// Integers and values of KV blobs, which are little-endian.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"

namespace cento {

// Values are written as they lie in memory.
static_assert(std::endian::native == std::endian::little, "KV blobs hold little-endian values");

template <class T>
void put_le(std::vector<std::byte>& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out.push_back(static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i)));
}

// Into bytes that are there already.
template <class T>
void set_le(std::span<std::byte> bytes, size_t at, T value) {
  CENTO_CHECK(at + sizeof(T) <= bytes.size());
  for (size_t i = 0; i < sizeof(T); ++i)
    bytes[at + i] = static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i));
}

// Reads at offsets that the caller has checked against the span's size.
template <class T>
T get_le(std::span<const std::byte> bytes, size_t at) {
  CENTO_CHECK(at + sizeof(T) <= bytes.size());
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= static_cast<uint64_t>(bytes[at + i]) << (8 * i);
  return static_cast<T>(value);
}

}  // namespace cento
