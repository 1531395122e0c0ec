#include "kernels/simd/matmul_layout.h"

#include <cstring>

#include "base/check.h"
#include "base/size_math.h"

namespace cento::simd {
namespace {

// Words of one row's 32 codes into its lane of the vectors at `out`.
void put_codes(int bits, const uint8_t* codes, size_t row, std::byte* out) {
  uint32_t word[8];
  std::memcpy(word, codes, sizeof word);
  const auto put = [&](int vector, uint32_t value) {
    std::memcpy(out + static_cast<size_t>(vector) * 64 + row * 4, &value, sizeof value);
  };
  if (bits == 8) {
    for (int j = 0; j < 8; ++j) put(j, word[j]);
    return;
  }
  const int low = bits >= 4 ? 4 : 2;  // bits of the low part
  const uint32_t low_mask = low == 4 ? 0x0f0f0f0fu : 0x03030303u;
  const int per_vector = 8 / low;
  for (int i = 0; i < low; ++i) {
    uint32_t value = 0;
    for (int s = 0; s < per_vector; ++s) value |= (word[i * per_vector + s] & low_mask) << (s * low);
    put(i, value);
  }
  const int high = bits - low;
  if (high == 1) {
    uint32_t value = 0;
    for (int j = 0; j < 8; ++j) value |= (word[j] >> low & 0x01010101u) << j;
    put(low, value);
  } else if (high == 2) {
    for (int i = 0; i < 2; ++i) {
      uint32_t value = 0;
      for (int s = 0; s < 4; ++s) value |= (word[4 * i + s] >> low & 0x03030303u) << (2 * s);
      put(low + i, value);
    }
  }
}

// Row `row` of a record.
void put_block(const QuantFormat& f, const QuantBlock& block, size_t row, std::byte* record) {
  std::memcpy(record + row * 2, &block.d.bits, 2);
  if (f.has_min) std::memcpy(record + 32 + row * 2, &block.m.bits, 2);
  const size_t n_sub = static_cast<size_t>(sub_blocks(f));
  std::byte* at = record + head_bytes(f);
  for (size_t i = 0; i < record_values(f) / 32; ++i) {
    for (size_t s = 0; f.super_block && s < n_sub; ++s) {
      at[s * 16 + row] = static_cast<std::byte>(block.scale[i * n_sub + s]);
      if (f.has_min) at[(n_sub + s) * 16 + row] = static_cast<std::byte>(block.min_code[i * n_sub + s]);
    }
    at += scale_bytes(f);
    put_codes(f.bits, block.code + i * 32, row, at);
    at += code_bytes(f);
  }
}

void put_row(const QuantFormat& f, const TensorView& w, size_t n, std::byte* panel) {
  const size_t block_bytes = dtype_info(w.dtype).bytes, n_blocks = w.cols() / record_values(f);
  const std::byte* from = w.data + n * w.row_bytes();
  QuantBlock block;
  for (size_t b = 0; b < n_blocks; ++b) {
    read_quant_block(w.dtype, from + b * block_bytes, block);
    put_block(f, block, n % kPanelRows, panel + b * record_bytes(f));
  }
}

}  // namespace

PackedMatrix pack_panels(const ExecContext& ctx, const TensorView& w, Precision precision) {
  PackedMatrix packed;
  packed.n = w.rows();
  packed.k = w.cols();
  packed.source = w.dtype;
  packed.data = w.data;
  const QuantFormat* f = quant_format(w.dtype);
  if (f == nullptr || precision == Precision::kF32) {
    packed.layout = f == nullptr ? kFloatInPlace : kDequantInPlace;
    return packed;
  }
  CHECK(packed.k % record_values(*f) == 0);
  const size_t n_panels = div_up<size_t>(packed.n, kPanelRows), bytes = panel_bytes(*f, packed.k);
  packed.layout = kPanels;
  packed.storage = Buffer(Device::host(), n_panels * bytes);
  packed.data = packed.storage.as<std::byte>();
  ctx.pool->parallel_for(n_panels, [&](size_t p, size_t) {
    std::byte* panel = packed.storage.as<std::byte>(p * bytes);
    const size_t end = std::min<size_t>((p + 1) * kPanelRows, packed.n);
    if (end - p * kPanelRows < kPanelRows) std::memset(panel, 0, bytes);
    for (size_t n = p * kPanelRows; n < end; ++n) put_row(*f, w, n, panel);
  });
  return packed;
}

}  // namespace cento::simd
