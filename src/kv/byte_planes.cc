#include "kv/byte_planes.h"

#include <cstring>

namespace cento {
namespace {

// Sixteen bytes at a time in the compiler's vector types, which become the instructions that every target has for this.
using Bytes = uint8_t __attribute__((vector_size(16)));
struct Pair {
  Bytes first, second;
};

Bytes load(const void* from) {
  Bytes bytes;
  std::memcpy(&bytes, from, sizeof bytes);
  return bytes;
}

void store(void* to, const Bytes& bytes) { std::memcpy(to, &bytes, sizeof bytes); }

// a0 b0 a1 b1 ... a15 b15
Pair interleave(const Bytes& a, const Bytes& b) {
  return {__builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23),
          __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)};
}

// Its inverse.
Pair separate(const Bytes& a, const Bytes& b) {
  return {__builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30),
          __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)};
}

}  // namespace

void split_planes(const std::byte* raw, size_t n, size_t width, const std::array<uint8_t*, 4>& planes) {
  size_t i = 0;
  for (; width == 2 && i + 16 <= n; i += 16) {
    const Pair p = separate(load(raw + 2 * i), load(raw + 2 * i + 16));
    store(planes[1] + i, p.first);
    store(planes[0] + i, p.second);
  }
  for (; width == 4 && i + 16 <= n; i += 16) {
    const std::byte* at = raw + 4 * i;
    const Pair low = separate(load(at), load(at + 16)), high = separate(load(at + 32), load(at + 48));
    const Pair bytes02 = separate(low.first, high.first), bytes13 = separate(low.second, high.second);
    store(planes[3] + i, bytes02.first);
    store(planes[2] + i, bytes13.first);
    store(planes[1] + i, bytes02.second);
    store(planes[0] + i, bytes13.second);
  }
  for (; i < n; ++i) {
    for (size_t p = 0; p < width; ++p) planes[p][i] = static_cast<uint8_t>(raw[width * i + width - 1 - p]);
  }
}

void join_planes(const std::array<const uint8_t*, 4>& planes, size_t n, size_t width, std::byte* raw) {
  size_t i = 0;
  for (; width == 2 && i + 16 <= n; i += 16) {
    const Pair p = interleave(load(planes[1] + i), load(planes[0] + i));
    store(raw + 2 * i, p.first);
    store(raw + 2 * i + 16, p.second);
  }
  for (; width == 4 && i + 16 <= n; i += 16) {
    std::byte* at = raw + 4 * i;
    const Pair bytes02 = interleave(load(planes[3] + i), load(planes[1] + i));
    const Pair bytes13 = interleave(load(planes[2] + i), load(planes[0] + i));
    const Pair low = interleave(bytes02.first, bytes13.first), high = interleave(bytes02.second, bytes13.second);
    store(at, low.first);
    store(at + 16, low.second);
    store(at + 32, high.first);
    store(at + 48, high.second);
  }
  for (; i < n; ++i) {
    for (size_t p = 0; p < width; ++p) raw[width * i + width - 1 - p] = static_cast<std::byte>(planes[p][i]);
  }
}

void split_halves(const uint8_t* bytes, size_t n, uint8_t* upper, uint8_t* lower) {
  const size_t half = (n + 1) / 2;
  for (size_t i = 0; i < n; ++i) upper[i] = static_cast<uint8_t>(bytes[i] >> 4);
  for (size_t i = 0; i < half; ++i) lower[i] = static_cast<uint8_t>(bytes[i] & 0x0f);
  for (size_t i = half; i < n; ++i) lower[i - half] = static_cast<uint8_t>(lower[i - half] | bytes[i] << 4);
}

void join_halves(const uint8_t* upper, const uint8_t* lower, size_t n, uint8_t* bytes) {
  const size_t half = (n + 1) / 2;
  const auto piece = [](const Bytes& high, const Bytes& low) { return high << 4 | low; };
  size_t i = 0;
  for (; half + i + 16 <= n; i += 16) {
    const Bytes low = load(lower + i);
    store(bytes + i, piece(load(upper + i), low & 0x0f));
    store(bytes + half + i, piece(load(upper + half + i), low >> 4));
  }
  for (size_t j = i; j < half; ++j) bytes[j] = static_cast<uint8_t>(upper[j] << 4 | (lower[j] & 0x0f));
  for (size_t j = half + i; j < n; ++j) bytes[j] = static_cast<uint8_t>(upper[j] << 4 | lower[j - half] >> 4);
}

}  // namespace cento
