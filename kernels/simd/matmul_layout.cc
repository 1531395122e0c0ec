#include "kernels/simd/matmul_layout.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/size_math.h"

namespace cento::simd {
namespace {

// Words of one row's 32 codes into its lane of the vectors at `out`.
template <int kBits>
void put_codes(const uint8_t* codes, size_t row, std::byte* out) {
  constexpr int kLow = kBits == 8 ? 8 : kBits >= 4 ? 4 : 2, kHigh = kBits - kLow;  // bits of a code in the two parts
  constexpr uint32_t kLowMask = 0x01010101u * ((1u << kLow) - 1), kHighMask = 0x01010101u * ((1u << kHigh) - 1);
  uint32_t word[8];
  std::memcpy(word, codes, sizeof word);
  const auto put = [&](int vector, uint32_t value) {
    std::memcpy(out + static_cast<size_t>(vector) * 64 + row * 4, &value, sizeof value);
  };
  for (int i = 0; i < kLow; ++i) {
    constexpr int kPerVector = 8 / kLow;
    uint32_t value = 0;
    for (int s = 0; s < kPerVector; ++s) value |= (word[i * kPerVector + s] & kLowMask) << (s * kLow);
    put(i, value);
  }
  for (int i = 0; i < kHigh; ++i) {
    constexpr int kPerVector = 8 / std::max(kHigh, 1);
    uint32_t value = 0;
    for (int s = 0; s < kPerVector; ++s) value |= (word[i * kPerVector + s] >> kLow & kHighMask) << (s * kHigh);
    put(kLow + i, value);
  }
}

// Row `row` of a record.
template <QuantFormat f>
void put_block(const QuantBlock& block, size_t row, std::byte* record) {
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
    put_codes<f.bits>(block.code + i * 32, row, at);
    at += code_bytes(f);
  }
}

template <QuantFormat f>
void put_row(const TensorView& w, size_t n, std::byte* panel) {
  const size_t block_bytes = dtype_info(w.dtype).bytes, n_blocks = w.cols() / record_values(f);
  const std::byte* from = w.data + n * w.row_bytes();
  QuantBlock block;
  for (size_t b = 0; b < n_blocks; ++b) {
    read_quant_block(w.dtype, from + b * block_bytes, block);
    put_block<f>(block, n % kPanelRows, panel + b * record_bytes(f));
  }
}

using PutRow = void (*)(const TensorView& w, size_t n, std::byte* panel);

PutRow row_packer(DType type) {
  switch (type) {
    case DType::kQ4_0:
      return put_row<kQ4_0>;
    case DType::kQ4_1:
      return put_row<kQ4_1>;
    case DType::kQ5_0:
      return put_row<kQ5_0>;
    case DType::kQ5_1:
      return put_row<kQ5_1>;
    case DType::kQ8_0:
      return put_row<kQ8_0>;
    case DType::kQ2_K:
      return put_row<kQ2_K>;
    case DType::kQ3_K:
      return put_row<kQ3_K>;
    case DType::kQ4_K:
      return put_row<kQ4_K>;
    case DType::kQ5_K:
      return put_row<kQ5_K>;
    case DType::kQ6_K:
      return put_row<kQ6_K>;
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      return nullptr;
  }
  return nullptr;
}

}  // namespace

PackedMatrix pack_panels(const ExecContext& ctx, const PackArgs& args) {
  const TensorView& w = args.w;
  PackedMatrix packed;
  packed.n = w.rows();
  packed.k = w.cols();
  packed.source = w.dtype;
  packed.data = w.data;
  const QuantFormat* f = quant_format(w.dtype);
  if (f == nullptr || args.precision == Precision::kF32) {
    packed.layout = f == nullptr ? kFloatInPlace : kDequantInPlace;
    return packed;
  }
  CHECK(packed.k % record_values(*f) == 0);
  const size_t n_panels = div_up<size_t>(packed.n, kPanelRows), bytes = panel_bytes(*f, packed.k);
  const PutRow put_row = row_packer(w.dtype);
  packed.layout = kPanels;
  packed.storage = Buffer(Device::host(), n_panels * bytes);
  packed.data = packed.storage.as<std::byte>();
  const auto put_panel = [&](size_t p) {
    std::byte* panel = packed.storage.as<std::byte>(p * bytes);
    const size_t end = std::min<size_t>((p + 1) * kPanelRows, packed.n);
    if (end - p * kPanelRows < kPanelRows) std::memset(panel, 0, bytes);
    for (size_t n = p * kPanelRows; n < end; ++n) put_row(w, n, panel);
  };
  // A task is about a MiB: what is released of the file behind it is hardly less than what was read.
  const size_t per_task = std::max<size_t>(1, (size_t{1} << 20) / std::max<size_t>(bytes, 1));
  ctx.pool->parallel_for(div_up(n_panels, per_task), [&](size_t task, size_t) {
    const size_t first = task * per_task, last = std::min(n_panels, first + per_task);
    for (size_t p = first; p < last; ++p) put_panel(p);
    const size_t row = first * kPanelRows;
    if (args.rows_copied) args.rows_copied(row, std::min<size_t>(last * kPanelRows, packed.n) - row);
  });
  return packed;
}

}  // namespace cento::simd
