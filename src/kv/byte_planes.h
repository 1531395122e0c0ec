// Values of 2 or 4 bytes <-> planes of their bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace cento {

// planes[0] gets the most significant byte of each of n values of `width` bytes, planes[width - 1] the least.
void split_planes(const std::byte* raw, size_t n, size_t width, const std::array<uint8_t*, 4>& planes);
// Its inverse.
void join_planes(const std::array<const uint8_t*, 4>& planes, size_t n, size_t width, std::byte* raw);

// The upper four bits of n bytes, one a byte: [n]; and the lower four, two a byte: [ceil(n / 2)], where byte i holds
// those of bytes i (in its lower four bits) and i + ceil(n / 2) (in its upper ones; 0 behind the end).
void split_halves(const uint8_t* bytes, size_t n, uint8_t* upper, uint8_t* lower);
// Its inverse.
void join_halves(const uint8_t* upper, const uint8_t* lower, size_t n, uint8_t* bytes);

}  // namespace cento
