// Bytes of a KV blob on disk, version 1. man/cento-blob.5 says the same byte by byte; keep them in step, and change
// kBlobVersion with any change of meaning.
//
// All integers are little-endian, nothing is aligned, there are no gaps:
//   fixed part (kFixedBytes)
//   token ids      i32[n_tokens]
//   codecs         u8[n_layers]
//   frame table    2 * n_layers entries of kFrameEntryBytes: K of layer 0, V of layer 0, K of layer 1, ...
//   header CRC     u32, CRC-32C of everything before it
//   frames         in the order of the table, the first right behind the header CRC, the last ends the file
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace cento::blob {

// A first byte above 127 and both kinds of line end: a transfer that takes the file for text damages this first.
inline constexpr std::array<uint8_t, 8> kMagic = {0x89, 'C', 'K', 'V', '\r', '\n', 0x1a, '\n'};
inline constexpr uint32_t kVersion = 1;

// Offsets in the fixed part.
inline constexpr size_t kMagicAt = 0;         // u8[8]
inline constexpr size_t kVersionAt = 8;       // u32
inline constexpr size_t kHeaderBytesAt = 12;  // u32: fixed part to header CRC, all included
inline constexpr size_t kFileBytesAt = 16;    // u64
inline constexpr size_t kFingerprintAt = 24;  // u8[32] each:
inline constexpr size_t kLayoutAt = 56;
inline constexpr size_t kKeyAt = 88;
inline constexpr size_t kPrefixIdAt = 120;
inline constexpr size_t kContextIdAt = 152;
inline constexpr size_t kTokensAt = 184;     // u32
inline constexpr size_t kLayersAt = 188;     // u32
inline constexpr size_t kKvHeadsAt = 192;    // u32
inline constexpr size_t kHeadDimAt = 196;    // u32
inline constexpr size_t kTypeAt = 200;       // u8: 0 fp16, 1 fp32
inline constexpr size_t kKindAt = 201;       // u8: KvKind
inline constexpr size_t kTransformAt = 202;  // u8: how a lossless frame orders the values, below
inline constexpr size_t kReservedAt = 203;   // u8: 0
inline constexpr size_t kFixedBytes = 204;

// A frame table entry: u64 offset from the start of the file, u64 stored bytes, u64 raw bytes, u32 CRC-32C of the
// stored bytes.
inline constexpr size_t kFrameEntryBytes = 28;

// Limits. They bound what a header can make its reader allocate and keep every product within 64 bits.
inline constexpr uint32_t kTokensMax = 1u << 20;
inline constexpr uint32_t kLayersMax = 1024;
inline constexpr uint32_t kKvHeadsMax = 4096;
inline constexpr uint32_t kHeadDimMax = 4096;
inline constexpr uint64_t kFrameRawBytesMax = uint64_t{1} << 31;
// zstd's densest block gives 128 KiB for 4 bytes (RFC 8878, 3.1.1.2), and a code of one byte is two raw ones, so a
// frame that claims more raw bytes than this times its stored bytes is false.
inline constexpr uint64_t kExpansionMax = 65536;
// No codec makes a frame longer than what goes in, but for some tables: one that claims more than twice that and this
// is false. It is what a reader allocates before the first byte has come, and "the file" may be another machine's word.
inline constexpr uint64_t kFrameExtraBytesMax = 4096;

// The one order of values so far: as in memory, [T, Hkv, D]. A lossless frame holds one plane for each byte of a value,
// the most significant byte first. Measured on the KV of two small models (256 tokens, fp16, zstd level 1), per cent of
// raw size, and decoded bytes per second of a core:
//   planes apart                       84.0 and 84.7, 3 GB/s
//   all planes in one zstd frame       90.9 and 91.6, 1.4 GB/s
//   channel by channel, planes apart   84.6 and 85.5
//   XOR with the token before, apart   85.0 and 87.1
//   difference to it, apart            85.7 and 88.3
inline constexpr uint8_t kTransformPlanes = 1;

// The level that decodes fastest; levels 2 and 3 save 0.1 per cent more and encode slower.
inline constexpr int kZstdLevel = 1;
// A plane is compressed only if that saves at least 1/32 of it: mantissa bytes save less, and are copied, not decoded.
inline constexpr uint64_t kWorthwhileShare = 32;
// Codes of 8 bits are compressed for less: it is what makes int8 smaller than half.
inline constexpr uint64_t kWorthwhileShareOfCodes = 128;

// A frame of a lossy codec: u8 method, u8 version, u8 layout of the codes, u8 0. Where the method is kMethodLossless
// the layout is 0 and a lossless frame follows. Else: u32 group, u32 number of exact values, u32[4] stored lengths of
// the parts, the parts, the exact values. The other methods are those of kv_quant.h.
inline constexpr uint8_t kMethodLossless = 1;
inline constexpr uint8_t kQuantVersion = 1;
inline constexpr size_t kQuantStartBytes = 4;
inline constexpr size_t kQuantHeaderBytes = 28;
// Few bits: one part of whole codes. Eight: their upper halves, one a byte, and their lower ones, two a byte. The lower
// ones are as good as random, and sixteen symbols unpack faster than 256 (docs/STORE.md).
inline constexpr uint8_t kCodesWhole = 0;
inline constexpr uint8_t kCodesHalved = 1;

}  // namespace cento::blob
