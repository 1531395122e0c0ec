// Attention with online softmax over key tiles.
//
// A query vector is one head of one row. A block is some consecutive rows times the heads that share a KV head; its
// vectors go against a key tile together, so that the tile is read and converted to float32 once for all of them. Keys
// are cut into tiles of 64 and ranges of 256 from position 0. Within a range a vector's softmax is updated tile by
// tile; ranges are merged in ascending order. A vector therefore sees the same operations in the same order whether it
// comes alone or in a block, and whether the ranges are computed one after the other or side by side on several
// threads: the row independence that ops.h promises, bit for bit.
//
// What a lane or row must not see is never multiplied in: scores of hidden keys are replaced (not added to), and V rows
// are summed from the first visible key to the last. So stale slots may hold anything, NaN included.
#include <limits>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/attention.cc"
#include <hwy/aligned_allocator.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/simd/attention_bf16.h"
#include "kernels/simd/kv_vec-inl.h"
#include "kernels/simd/rows.h"
#include "kernels/simd/simd_ops.h"

#if CENTO_SIMD_TARGET
HWY_BEFORE_NAMESPACE();
namespace cento::HWY_NAMESPACE {
namespace {

constexpr size_t kTile = 64;          // keys
constexpr size_t kRange = 4 * kTile;  // keys
// Query vectors of a block, about (up to half more where that saves a block): Q, O and a K and V tile fit in L2.
constexpr size_t kBlockVectors = 96;
constexpr size_t kPad = 16;         // rows of Q, V and O scratch are padded to a multiple of this many floats
constexpr float kMaxScore = 1e30F;  // of the running maximum: keeps infinity minus infinity out of the softmax
constexpr size_t kPartialBytesMax = size_t{64} << 20;
constexpr size_t kScoreBytesMax = size_t{64} << 20;               // of scores kept for key_mass
constexpr float kNone = -std::numeric_limits<float>::infinity();  // maximum of a vector that has seen no key

// Registers of the inner loops: kMr query vectors times kNv vector registers of sums, plus one row of operands.
constexpr size_t kMr = 6;
constexpr size_t kNv = HWY_TARGET == HWY_AVX2 ? 2 : 4;

// Weighted sums of V by pairs of bfloat16. Then w.s holds weights of 16 bits, kTile of them at the front of each row,
// and w.v pairs.
template <class T>
HWY_INLINE bool by_pairs(const AttentionArgs& a) {
  return HWY_TARGET == HWY_AVX3 && std::is_same_v<T, fp16> && a.round_values && simd::has_bf16_dot();
}

// 2^x for x <= 0, at most 2 ulp off, exactly 1 at 0 and exactly 0 below -126.5; x > 0 counts as 0, NaN too (Min returns
// its second operand then). n + r = x with n whole and |r| <= 1/2; 2^r by a polynomial (minimax for the relative error,
// 2.6e-9, with the constant term held at 1; own computation), 2^n by shifting n + 127 into the exponent field, where
// n = -127 is 0.
HWY_INLINE VF exp2_neg(VF x) {
  const DF df;
  const hn::RebindToUnsigned<DF> du;
  x = hn::Max(hn::Min(x, hn::Zero(df)), hn::Set(df, -127.0F));
  // 1.5 * 2^23 + 127: adding it leaves n + 127 in the low bits of the sum.
  const VF magic = hn::Set(df, 12583039.0F);
  const VF shifted = hn::Add(x, magic);
  const VF r = hn::Sub(x, hn::Sub(shifted, magic));
  const VF scale = hn::BitCast(df, hn::ShiftLeft<23>(hn::BitCast(du, shifted)));
  VF p = hn::Set(df, 0x1.470b4ap-13F);
  p = hn::MulAdd(p, r, hn::Set(df, 0x1.5f7276p-10F));
  p = hn::MulAdd(p, r, hn::Set(df, 0x1.3b270ep-7F));
  p = hn::MulAdd(p, r, hn::Set(df, 0x1.c6ae72p-5F));
  p = hn::MulAdd(p, r, hn::Set(df, 0x1.ebfbe2p-3F));
  p = hn::MulAdd(p, r, hn::Set(df, 0x1.62e432p-1F));
  p = hn::MulAdd(p, r, hn::Set(df, 1.0F));
  return hn::Mul(p, scale);
}
HWY_INLINE float exp2_neg_one(float x) { return hn::GetLane(exp2_neg(hn::Set(DF(), x))); }

// Visible keys of a row: [first, end).
struct Keys {
  size_t first, end;
};
HWY_INLINE Keys visible(const AttentionArgs& a, size_t t) {
  const size_t end = static_cast<size_t>(a.q_pos[t]) + 1;
  return {a.window == 0 || end <= a.window ? 0 : end - a.window, end};
}

// Sizes of one call.
struct Shape {
  size_t group;       // query heads of a KV head
  size_t d_pad;       // D rounded up to kPad
  size_t block_rows;  // rows of a block
  // Blocks of one size: a short last one would have every key tile converted for little.
  explicit Shape(const AttentionArgs& a) : group(a.h / a.kv.n_kv_heads), d_pad((a.d + kPad - 1) / kPad * kPad) {
    const size_t n_blocks = std::max<size_t>(1, (a.t * group + kBlockVectors / 2) / kBlockVectors);
    block_rows = (a.t + n_blocks - 1) / n_blocks;
  }
  size_t block_vectors() const { return block_rows * group; }
};

struct Block {
  size_t head;         // KV head
  size_t row, n_rows;  // rows [row, row + n_rows)
};

// Softmax state of a block's vectors over some keys: maximum (base 2), sum, and weighted sum of V.
struct State {
  float* m;  // [vectors]
  float* l;  // [vectors]
  float* o;  // [vectors, d_pad]
};

// Working memory of a thread, kept for its life. At D = 256 and 96 vectors some 450 KiB, at 144 600.
struct Scratch {
  hwy::AlignedFreeUniquePtr<float[]> memory;
  size_t n_floats = 0;
  float *q, *kt, *v, *s, *l_lanes;  // [vectors, d_pad], [D, kTile], [kTile, d_pad], [vectors, kTile], [vectors, kLanes]
  State range, total;

  void reserve(const Shape& shape, size_t d) {
    const size_t n = shape.block_vectors(), state = (n * (shape.d_pad + 2) + kPad - 1) / kPad * kPad;
    const size_t need = n * shape.d_pad + d * kTile + kTile * shape.d_pad + n * kTile + n * kLanes + 2 * state;
    if (need > n_floats) {
      memory = hwy::AllocateAligned<float>(need);
      if (!memory) throw std::bad_alloc();
      n_floats = need;
      std::fill_n(memory.get(), need, 0.0F);
    }
    float* at = memory.get();
    const auto take = [&at](size_t count) { return std::exchange(at, at + count); };
    q = take(n * shape.d_pad);
    kt = take(d * kTile);
    v = take(kTile * shape.d_pad);
    s = take(n * kTile);
    l_lanes = take(n * kLanes);
    for (State* st : {&range, &total}) {
      st->o = take(n * shape.d_pad);
      st->m = take(n);
      st->l = take(n);
      at += state - n * (shape.d_pad + 2);
    }
  }
};
Scratch& thread_scratch() {
  thread_local Scratch scratch;
  return scratch;
}

// ---- Key tiles to float32 -----------------------------------------------------------------------------------------

// Four consecutive elements of each of kLanes/4 rows as one vector: block b of 128 bits comes from row b * row_step.
template <size_t kRows>
HWY_INLINE auto four_of_rows(const float* const* rows, size_t row_step, size_t i) {
  if constexpr (kRows == 1) {
    return hn::LoadU(hn::FixedTag<float, 4>(), rows[0] + i);
  } else {
    const hn::FixedTag<float, 4 * kRows> d;
    return hn::Combine(d, four_of_rows<kRows / 2>(rows + kRows / 2 * row_step, row_step, i),
                       four_of_rows<kRows / 2>(rows, row_step, i));
  }
}
template <size_t kRows>
HWY_INLINE auto four_of_rows_u64(const fp16* const* rows, size_t row_step, size_t i) {
  if constexpr (kRows == 1) {
    return hn::LoadU(hn::FixedTag<uint64_t, 1>(), reinterpret_cast<const uint64_t*>(rows[0] + i));
  } else {
    const hn::FixedTag<uint64_t, kRows> d;
    return hn::Combine(d, four_of_rows_u64<kRows / 2>(rows + kRows / 2 * row_step, row_step, i),
                       four_of_rows_u64<kRows / 2>(rows, row_step, i));
  }
}
template <size_t kRows>
HWY_INLINE VF four_of_rows(const fp16* const* rows, size_t row_step, size_t i) {
  const hn::Rebind<hwy::float16_t, DF> d16;
  return hn::PromoteTo(DF(), hn::BitCast(d16, four_of_rows_u64<kRows>(rows, row_step, i)));
}

// kt[i, j] = k[j, i] for j < n_keys. The lanes of missing keys repeat the last key; nothing looks at them.
template <class T>
void transpose_tile(const T* k, size_t n_keys, size_t d, float* kt) {
  const DF df;
  const hn::RepartitionToWide<hn::RebindToUnsigned<DF>> d64;
  for (size_t j = 0; j < n_keys; j += kLanes) {
    // rows[4 b + r]: lane 4 b + r of the result.
    const T* rows[kLanes];
    for (size_t lane = 0; lane < kLanes; ++lane) rows[lane] = k + std::min(j + lane, n_keys - 1) * d;
    size_t i = 0;
    for (; i + 4 <= d; i += 4) {
      const VF r0 = four_of_rows<kLanes / 4>(rows + 0, 4, i);
      const VF r1 = four_of_rows<kLanes / 4>(rows + 1, 4, i);
      const VF r2 = four_of_rows<kLanes / 4>(rows + 2, 4, i);
      const VF r3 = four_of_rows<kLanes / 4>(rows + 3, 4, i);
      const auto a01 = hn::BitCast(d64, hn::InterleaveLower(df, r0, r1));
      const auto b01 = hn::BitCast(d64, hn::InterleaveUpper(df, r0, r1));
      const auto a23 = hn::BitCast(d64, hn::InterleaveLower(df, r2, r3));
      const auto b23 = hn::BitCast(d64, hn::InterleaveUpper(df, r2, r3));
      float* to = kt + i * kTile + j;
      hn::Store(hn::BitCast(df, hn::InterleaveLower(d64, a01, a23)), df, to);
      hn::Store(hn::BitCast(df, hn::InterleaveUpper(d64, a01, a23)), df, to + kTile);
      hn::Store(hn::BitCast(df, hn::InterleaveLower(d64, b01, b23)), df, to + 2 * kTile);
      hn::Store(hn::BitCast(df, hn::InterleaveUpper(d64, b01, b23)), df, to + 3 * kTile);
    }
    for (; i < d; ++i)
      for (size_t lane = 0; lane < kLanes; ++lane) kt[i * kTile + j + lane] = load_one(rows[lane] + i);
  }
}

// v[j, :] for j in [begin, end). The padding keeps what it has: nobody looks at the sums it goes into.
template <class T>
void convert_tile(const T* from, size_t begin, size_t end, size_t d, size_t d_pad, float* v) {
  for (size_t j = begin; j < end; ++j) convert(from + j * d, v + j * d_pad, d);
}

// ---- Inner products -----------------------------------------------------------------------------------------------

// s[r, :] = sum_i q[r, i] * kt[i, :] for kRows vectors; each score is one chain of fused multiply-adds over i.
template <size_t kRows>
void scores_rows(const float* HWY_RESTRICT q, size_t d, size_t d_pad, const float* HWY_RESTRICT kt,
                 float* HWY_RESTRICT s) {
  const DF df;
  for (size_t j = 0; j < kTile; j += kNv * kLanes) {
    VF sum[kRows][kNv];
#pragma GCC unroll 8
    for (size_t r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (size_t c = 0; c < kNv; ++c) sum[r][c] = hn::Zero(df);
    for (size_t i = 0; i < d; ++i) {
      VF k[kNv];
#pragma GCC unroll 8
      for (size_t c = 0; c < kNv; ++c) k[c] = hn::Load(df, kt + i * kTile + j + c * kLanes);
#pragma GCC unroll 8
      for (size_t r = 0; r < kRows; ++r) {
        const VF x = hn::Set(df, q[r * d_pad + i]);
#pragma GCC unroll 8
        for (size_t c = 0; c < kNv; ++c) sum[r][c] = hn::MulAdd(x, k[c], sum[r][c]);
      }
    }
#pragma GCC unroll 8
    for (size_t r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (size_t c = 0; c < kNv; ++c) hn::Store(sum[r][c], df, s + r * kTile + j + c * kLanes);
  }
}

// o[r, c..] += sum over j in [begin, end), ascending, of s[r, j] * v[j, c..], for kRows vectors and kCols registers.
template <size_t kRows, size_t kCols>
HWY_INLINE void weighted_cols(const float* HWY_RESTRICT s, const float* HWY_RESTRICT v, size_t begin, size_t end,
                              size_t d_pad, float* HWY_RESTRICT o) {
  const DF df;
  VF sum[kRows][kCols];
#pragma GCC unroll 8
  for (size_t r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (size_t c = 0; c < kCols; ++c) sum[r][c] = hn::Load(df, o + r * d_pad + c * kLanes);
  for (size_t j = begin; j < end; ++j) {
    VF x[kCols];
#pragma GCC unroll 8
    for (size_t c = 0; c < kCols; ++c) x[c] = hn::Load(df, v + j * d_pad + c * kLanes);
#pragma GCC unroll 8
    for (size_t r = 0; r < kRows; ++r) {
      const VF p = hn::Set(df, s[r * kTile + j]);
#pragma GCC unroll 8
      for (size_t c = 0; c < kCols; ++c) sum[r][c] = hn::MulAdd(p, x[c], sum[r][c]);
    }
  }
#pragma GCC unroll 8
  for (size_t r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (size_t c = 0; c < kCols; ++c) hn::Store(sum[r][c], df, o + r * d_pad + c * kLanes);
}
template <size_t kRows>
void weighted_rows(const float* HWY_RESTRICT s, const float* HWY_RESTRICT v, size_t begin, size_t end, size_t d_pad,
                   float* HWY_RESTRICT o) {
  size_t c = 0;
  for (; c + kNv * kLanes <= d_pad; c += kNv * kLanes) weighted_cols<kRows, kNv>(s, v + c, begin, end, d_pad, o + c);
  for (; c < d_pad; c += kLanes) weighted_cols<kRows, 1>(s, v + c, begin, end, d_pad, o + c);
}

// Calls f.template operator()<n>() for n = 1..kMr.
template <class F>
HWY_INLINE void with_rows(size_t n, const F& f) {
  static_assert(kMr == 6);
  switch (n) {
    case 1:
      return f.template operator()<1>();
    case 2:
      return f.template operator()<2>();
    case 3:
      return f.template operator()<3>();
    case 4:
      return f.template operator()<4>();
    case 5:
      return f.template operator()<5>();
    default:
      return f.template operator()<6>();
  }
}

// ---- One tile -----------------------------------------------------------------------------------------------------

// Rows of the block that see a key of the tile, and which keys of the tile any of them sees. Rows ascend in position,
// so the rows are consecutive.
struct TileRows {
  size_t begin, end;          // rows, from the block's first
  size_t first_key, end_key;  // keys, from the tile's first
};
TileRows tile_rows(const AttentionArgs& a, const Block& b, size_t tile) {
  TileRows r{0, b.n_rows, 0, 0};
  while (r.begin < r.end && visible(a, b.row + r.begin).end <= tile) ++r.begin;
  while (r.end > r.begin && visible(a, b.row + r.end - 1).first >= tile + kTile) --r.end;
  if (r.begin == r.end) return r;
  const size_t first = visible(a, b.row + r.begin).first, end = visible(a, b.row + r.end - 1).end;
  r.first_key = first > tile ? first - tile : 0;
  r.end_key = std::min(end - tile, kTile);
  return r;
}

// The keys of the tile that row t sees, from the tile's first. Empty only if the row sees none.
HWY_INLINE Keys keys_in_tile(const AttentionArgs& a, size_t t, size_t tile) {
  const Keys keys = visible(a, t);
  const size_t first = keys.first > tile ? keys.first - tile : 0;
  const size_t end = keys.end > tile ? std::min(keys.end - tile, kTile) : 0;
  return {first, std::max(first, end)};
}

HWY_INLINE void tile_scores(const Scratch& w, size_t begin, size_t end, size_t d, size_t d_pad) {
  for (size_t i = begin; i < end; i += kMr)
    with_rows(std::min(kMr, end - i),
              [&]<size_t kRows>() HWY_ATTR { scores_rows<kRows>(w.q + i * d_pad, d, d_pad, w.kt, w.s + i * kTile); });
}

// Scores of hidden keys become -infinity.
HWY_INLINE void hide(float* s, Keys keys) {
  std::fill(s, s + keys.first, kNone);
  std::fill(s + keys.end, s + kTile, kNone);
}

// m = the maximum with these scores; l and o are scaled to it.
HWY_INLINE void raise_maximum(const float* HWY_RESTRICT s, float* HWY_RESTRICT m, float* HWY_RESTRICT l_lanes,
                              float* HWY_RESTRICT o, size_t d_pad) {
  const DF df;
  VF max = hn::Load(df, s);
  for (size_t j = kLanes; j < kTile; j += kLanes) max = hn::Max(max, hn::Load(df, s + j));
  // In this order std::max turns NaN (of scores that overflowed both ways) into its first argument.
  const float new_m = std::min(std::max(-kMaxScore, hn::GetLane(hn::MaxOfLanes(df, max))), kMaxScore);
  if (!(new_m > *m)) return;
  const VF scale = hn::Set(df, exp2_neg_one(*m - new_m));
  *m = new_m;
  hn::Store(hn::Mul(hn::Load(df, l_lanes), scale), df, l_lanes);
  for (size_t c = 0; c < d_pad; c += kLanes) hn::Store(hn::Mul(hn::Load(df, o + c), scale), df, o + c);
}

// s = 2^(s - m), added to l.
HWY_INLINE void weights(float* HWY_RESTRICT s, float m, float* HWY_RESTRICT l_lanes) {
  const DF df;
  const VF m_v = hn::Set(df, m);
  VF l = hn::Load(df, l_lanes);
  for (size_t j = 0; j < kTile; j += kLanes) {
    const VF p = exp2_neg(hn::Sub(hn::Load(df, s + j), m_v));
    hn::Store(p, df, s + j);
    l = hn::Add(l, p);
  }
  hn::Store(l, df, l_lanes);
}

// o += p v for vectors [begin, end) of the block. Vectors of one register block may see different keys: what all see is
// summed together, what is before and after it one by one; each vector's keys ascend all the same.
template <class T>
HWY_INLINE void add_values(const AttentionArgs& a, const Block& b, const Shape& shape, const Scratch& w, size_t tile,
                           size_t begin, size_t end, const State& state) {
  const bool pairs = by_pairs<T>(a);
  const auto sum = [&](size_t from, size_t n_vectors, Keys keys) HWY_ATTR {
    if (keys.first >= keys.end) return;
    const float* s = w.s + from * kTile;
    float* o = state.o + from * shape.d_pad;
    if constexpr (HWY_TARGET == HWY_AVX3) {
      if (pairs) {
        simd::add_weighted_pairs(n_vectors, reinterpret_cast<const uint16_t*>(s), 2 * kTile,
                                 reinterpret_cast<const uint32_t*>(w.v), keys.first, keys.end, shape.d_pad, o);
        return;
      }
    }
    with_rows(n_vectors,
              [&]<size_t kRows>() HWY_ATTR { weighted_rows<kRows>(s, w.v, keys.first, keys.end, shape.d_pad, o); });
  };
  for (size_t i = begin; i < end; i += kMr) {
    const size_t n = std::min(kMr, end - i);
    const Keys low = keys_in_tile(a, b.row + i / shape.group, tile);
    const Keys high = keys_in_tile(a, b.row + (i + n - 1) / shape.group, tile);
    if (low.first == high.first && low.end == high.end) {
      sum(i, n, low);
      continue;
    }
    // May be empty. Cut at even keys: no pair is summed half by half that one vector alone would sum whole.
    const Keys all{(high.first + 1) / 2 * 2, low.end / 2 * 2};
    for (size_t j = i; j < i + n; ++j) {
      const Keys keys = keys_in_tile(a, b.row + j / shape.group, tile);
      sum(j, 1, all.first < all.end ? Keys{keys.first, all.first} : keys);
    }
    if (all.first >= all.end) continue;
    sum(i, n, all);
    for (size_t j = i; j < i + n; ++j) sum(j, 1, {all.end, keys_in_tile(a, b.row + j / shape.group, tile).end});
  }
}

// ---- Ranges -------------------------------------------------------------------------------------------------------

// Query vectors of a block, times scale / ln 2: scores are logarithms to base 2.
void take_queries(const AttentionArgs& a, const Block& b, const Shape& shape, float* q) {
  const float scale = static_cast<float>(static_cast<double>(a.scale) * 1.4426950408889634074);
  const VF scale_v = hn::Set(DF(), scale);
  for (size_t i = 0; i < b.n_rows * shape.group; ++i) {
    const float* from = a.q + (b.row + i / shape.group) * a.ldq + (b.head * shape.group + i % shape.group) * a.d;
    float* to = q + i * shape.d_pad;
    size_t c = 0;
    for (; c + kLanes <= a.d; c += kLanes) store_vec(hn::Mul(load_vec(from + c), scale_v), to + c);
    for (; c < a.d; ++c) to[c] = from[c] * scale;
  }
}

template <class T>
const T* head_keys(const AttentionArgs& a, const void* keys, size_t head, size_t pos) {
  return static_cast<const T*>(keys) + (head * a.kv.capacity + pos) * a.d;
}

// Scores of all vectors, hidden keys -infinity, kept until each vector's maximum and sum are known. The memory is the
// calling thread's and stays for its life: fresh pages for every layer would cost as much as they save.
struct Scores {
  float* memory = nullptr;
  size_t first_key = 0, stride = 0;  // of a vector: keys from first_key on
  float* at(size_t vector, size_t key) const { return memory + vector * stride + (key - first_key); }
};
float* score_memory(size_t n_floats) {
  thread_local hwy::AlignedFreeUniquePtr<float[]> memory;
  thread_local size_t size = 0;
  if (n_floats > size) {
    memory = nullptr;
    size = 0;
    memory = hwy::AllocateAligned<float>(n_floats);
    if (!memory) throw std::bad_alloc();
    size = n_floats;
  }
  return memory.get();
}

// V of the tile as add_values wants it.
template <class T>
void value_tile(const AttentionArgs& a, const Block& b, const Shape& shape, size_t tile, const TileRows& rows,
                const Scratch& w) {
  const T* v = head_keys<T>(a, a.kv.v, b.head, tile);
  if constexpr (HWY_TARGET == HWY_AVX3 && std::is_same_v<T, fp16>) {
    if (by_pairs<T>(a)) {
      simd::pair_values(v, rows.first_key, rows.end_key, a.d, shape.d_pad, reinterpret_cast<uint32_t*>(w.v));
      return;
    }
  }
  convert_tile(v, rows.first_key, rows.end_key, a.d, shape.d_pad, w.v);
}

// The state of the block's vectors over the keys of one range. w.q holds the queries. Scores go to `kept`, from vector
// `first` on, if there is one.
template <class T>
void range_state(const AttentionArgs& a, const Block& b, const Shape& shape, size_t range, const Scratch& w,
                 const State& state, const Scores& kept, size_t first) {
  const size_t n = b.n_rows * shape.group;
  [[maybe_unused]] const bool pairs = by_pairs<T>(a);
  std::fill(state.m, state.m + n, kNone);
  std::fill(state.o, state.o + n * shape.d_pad, 0.0F);
  std::fill(w.l_lanes, w.l_lanes + n * kLanes, 0.0F);
  for (size_t tile = range * kRange; tile < (range + 1) * kRange; tile += kTile) {
    const TileRows rows = tile_rows(a, b, tile);
    if (rows.begin == rows.end) continue;
    const size_t begin = rows.begin * shape.group, end = rows.end * shape.group;
    transpose_tile(head_keys<T>(a, a.kv.k, b.head, tile), rows.end_key, a.d, w.kt);
    tile_scores(w, begin, end, a.d, shape.d_pad);
    for (size_t i = begin; i < end; ++i) {
      float* s = w.s + i * kTile;
      hide(s, keys_in_tile(a, b.row + i / shape.group, tile));
      if (kept.memory != nullptr) std::copy_n(s, kTile, kept.at(first + i, tile));
      raise_maximum(s, state.m + i, w.l_lanes + i * kLanes, state.o + i * shape.d_pad, shape.d_pad);
      if constexpr (HWY_TARGET == HWY_AVX3) {
        if (pairs) {
          simd::weights(s, state.m[i], w.l_lanes + i * kLanes, reinterpret_cast<uint16_t*>(s));
          continue;
        }
      }
      weights(s, state.m[i], w.l_lanes + i * kLanes);
    }
    value_tile<T>(a, b, shape, tile, rows, w);
    add_values<T>(a, b, shape, w, tile, begin, end, state);
  }
  for (size_t i = 0; i < n; ++i) state.l[i] = hn::GetLane(hn::SumOfLanes(DF(), hn::Load(DF(), w.l_lanes + i * kLanes)));
}

// total = total and range together, for one vector. A range without visible keys changes nothing.
HWY_INLINE void merge(const State& total, size_t to, const State& range, size_t from, size_t d_pad) {
  const DF df;
  if (range.m[from] == kNone) return;
  float* o = total.o + to * d_pad;
  const float* more = range.o + from * d_pad;
  if (total.m[to] == kNone) {
    total.m[to] = range.m[from];
    total.l[to] = range.l[from];
    std::copy(more, more + d_pad, o);
    return;
  }
  const float m = std::max(total.m[to], range.m[from]);
  const VF old_scale = exp2_neg(hn::Set(df, total.m[to] - m)), scale = exp2_neg(hn::Set(df, range.m[from] - m));
  total.m[to] = m;
  total.l[to] =
      hn::GetLane(hn::MulAdd(hn::Set(df, total.l[to]), old_scale, hn::Mul(hn::Set(df, range.l[from]), scale)));
  for (size_t c = 0; c < d_pad; c += kLanes)
    hn::Store(hn::MulAdd(hn::Load(df, o + c), old_scale, hn::Mul(hn::Load(df, more + c), scale)), df, o + c);
}

// 1/l; 0 where every score was so far below what float32 holds that l is 0.
HWY_INLINE float inverse(float l) { return l > 0 ? 1 / l : 0.0F; }

// out of vector i of the block = o / l.
HWY_INLINE void write_out(const AttentionArgs& a, const Block& b, const Shape& shape, size_t i, const float* o,
                          float l) {
  float* to = a.out + (b.row + i / shape.group) * a.ldo + (b.head * shape.group + i % shape.group) * a.d;
  const float inv = inverse(l);
  const VF inv_v = hn::Set(DF(), inv);
  size_t c = 0;
  for (; c + kLanes <= a.d; c += kLanes) store_vec(hn::Mul(load_vec(o + c), inv_v), to + c);
  for (; c < a.d; ++c) to[c] = o[c] * inv;
}

// Ranges [first, end) in which the block has visible keys.
Keys block_ranges(const AttentionArgs& a, const Block& b) {
  return {visible(a, b.row).first / kRange, (visible(a, b.row + b.n_rows - 1).end - 1) / kRange + 1};
}

// ---- The call -----------------------------------------------------------------------------------------------------

// What key_mass needs of each vector: final maximum and 1/l. Indexed by (head * T + row) * group + head of the group.
struct Finals {
  std::vector<float> m, inv_l;
};

template <class T>
class Attention {
 public:
  Attention(const ExecContext& ctx, const AttentionArgs& a) : ctx_(ctx), a_(a), shape_(a) {
    n_row_blocks_ = (a.t + shape_.block_rows - 1) / shape_.block_rows;
    if (a.key_mass) {
      finals_.m.resize(a.t * a.h);
      finals_.inv_l.resize(a.t * a.h);
      const Keys keys = ranges();
      scores_.first_key = keys.first * kRange;
      scores_.stride = (keys.end - keys.first) * kRange;
      scores_.memory = score_memory(a.t * a.h * scores_.stride);
    }
  }

  void run() {
    const size_t n_threads = ctx_.pool ? ctx_.pool->size() : 1;
    const size_t n_blocks = n_row_blocks_ * a_.kv.n_kv_heads;
    const Keys all = ranges();
    const size_t n_ranges = all.end - all.first;
    const size_t partial_floats = n_ranges * range_floats();
    // Enough blocks keep all threads busy; else their ranges are computed side by side.
    const bool split =
        n_threads > 1 && n_blocks < 4 * n_threads && n_ranges > 1 && partial_floats * sizeof(float) <= kPartialBytesMax;
    if (split) {
      run_ranges(all, partial_floats);
    } else {
      // The last rows see the most keys: they go first, so that no thread is left with one at the end.
      each(n_blocks, work(), [&](size_t i) { whole_block(block(n_blocks - 1 - i)); });
    }
    if (a_.key_mass) add_key_mass(all);
  }

  static size_t score_bytes(const AttentionArgs& a) {
    return a.t * a.h * (visible(a, a.t - 1).end - visible(a, 0).first + 2 * kRange) * sizeof(float);
  }

 private:
  // In which any row has visible keys.
  Keys ranges() const { return {visible(a_, 0).first / kRange, (visible(a_, a_.t - 1).end - 1) / kRange + 1}; }

  // Multiply-adds of the call, about.
  size_t work() const { return a_.t * a_.h * a_.d * (visible(a_, a_.t - 1).end - visible(a_, 0).first); }

  template <class F>
  void each(size_t n, size_t n_work, const F& f) {
    if (ctx_.pool && n > 1 && n_work >= 8 * kParallelElements) {
      ctx_.pool->parallel_for(n, [&](size_t i, size_t) { f(i); });
    } else {
      for (size_t i = 0; i < n; ++i) f(i);
    }
  }

  // Of the states of all vectors over one range.
  size_t range_floats() const { return (a_.t * a_.h * (shape_.d_pad + 2) + kPad - 1) / kPad * kPad; }

  // Block i: row blocks ascend, KV heads within.
  Block block(size_t i) const {
    const size_t row = i / a_.kv.n_kv_heads * shape_.block_rows;
    return {i % a_.kv.n_kv_heads, row, std::min(shape_.block_rows, a_.t - row)};
  }
  size_t vector_index(const Block& b) const { return (b.head * a_.t + b.row) * shape_.group; }

  void finish(const Block& b, const State& total) {
    const size_t at = vector_index(b);
    for (size_t i = 0; i < b.n_rows * shape_.group; ++i) {
      write_out(a_, b, shape_, i, total.o + i * shape_.d_pad, total.l[i]);
      if (!a_.key_mass) continue;
      finals_.m[at + i] = total.m[i];
      finals_.inv_l[at + i] = inverse(total.l[i]);
    }
  }

  void whole_block(const Block& b) {
    Scratch& w = thread_scratch();
    w.reserve(shape_, a_.d);
    take_queries(a_, b, shape_, w.q);
    const size_t n = b.n_rows * shape_.group;
    std::fill(w.total.m, w.total.m + n, kNone);
    const Keys ranges = block_ranges(a_, b);
    for (size_t range = ranges.first; range < ranges.end; ++range) {
      range_state<T>(a_, b, shape_, range, w, w.range, scores_, vector_index(b));
      for (size_t i = 0; i < n; ++i) merge(w.total, i, w.range, i, shape_.d_pad);
    }
    finish(b, w.total);
  }

  // Each (block, range) on its own into `partial`, then the ranges of each block merged in order.
  void run_ranges(Keys ranges, size_t partial_floats) {
    const auto partial = hwy::AllocateAligned<float>(partial_floats);
    if (!partial) throw std::bad_alloc();
    const size_t n_vectors = a_.t * a_.h, n_ranges = ranges.end - ranges.first;
    const size_t n_blocks = n_row_blocks_ * a_.kv.n_kv_heads;
    // [range]: o of all vectors, then m, then l.
    const auto state_at = [&](size_t range, size_t vector) {
      float* o = partial.get() + (range - ranges.first) * range_floats();
      float* m = o + n_vectors * shape_.d_pad;
      return State{m + vector, m + n_vectors + vector, o + vector * shape_.d_pad};
    };
    each(n_blocks * n_ranges, work(), [&](size_t i) {
      const Block b = block(i / n_ranges);
      const size_t range = ranges.first + i % n_ranges;
      const Keys own = block_ranges(a_, b);
      if (range < own.first || range >= own.end) return;
      Scratch& w = thread_scratch();
      w.reserve(shape_, a_.d);
      take_queries(a_, b, shape_, w.q);
      range_state<T>(a_, b, shape_, range, w, state_at(range, vector_index(b)), scores_, vector_index(b));
    });
    each(n_blocks, n_vectors * n_ranges * shape_.d_pad, [&](size_t i) {
      const Block b = block(i);
      Scratch& w = thread_scratch();
      w.reserve(shape_, a_.d);
      const Keys own = block_ranges(a_, b);
      const size_t n = b.n_rows * shape_.group;
      std::fill(w.total.m, w.total.m + n, kNone);
      for (size_t range = own.first; range < own.end; ++range) {
        const State from = state_at(range, vector_index(b));
        for (size_t v = 0; v < n; ++v) merge(w.total, v, from, v, shape_.d_pad);
      }
      finish(b, w.total);
    });
  }

  // Probabilities of the kept scores, now that each vector's maximum and sum are known. Ranges go side by side: no two
  // threads touch the same key.
  void add_key_mass(Keys ranges) {
    each(ranges.end - ranges.first, work(), [&](size_t i) {
      const size_t end = std::min((ranges.first + i + 1) * kRange, a_.n_mass);
      for (size_t tile = (ranges.first + i) * kRange; tile < end; tile += kTile) tile_mass(tile);
    });
  }

  void tile_mass(size_t tile) {
    const DF df;
    HWY_ALIGN float mass[kTile] = {};
    for (size_t head = 0; head < a_.kv.n_kv_heads; ++head) {
      for (size_t row = 0; row < a_.t; row += shape_.block_rows) {
        const Block b{head, row, std::min(shape_.block_rows, a_.t - row)};
        const TileRows rows = tile_rows(a_, b, tile);
        if (rows.begin == rows.end) continue;
        for (size_t v = rows.begin * shape_.group; v < rows.end * shape_.group; ++v) {
          const float* s = scores_.at(vector_index(b) + v, tile);
          const VF m = hn::Set(df, finals_.m[vector_index(b) + v]),
                   inv_l = hn::Set(df, finals_.inv_l[vector_index(b) + v]);
          for (size_t c = 0; c < kTile; c += kLanes) {
            const VF p = hn::Mul(exp2_neg(hn::Sub(hn::Load(df, s + c), m)), inv_l);
            hn::Store(hn::Max(hn::Load(df, mass + c), p), df, mass + c);
          }
        }
      }
    }
    for (size_t j = 0; j < kTile && tile + j < a_.n_mass; ++j)
      a_.key_mass[tile + j] = std::max(a_.key_mass[tile + j], mass[j]);
  }

  const ExecContext& ctx_;
  const AttentionArgs& a_;
  const Shape shape_;
  size_t n_row_blocks_;
  Finals finals_;
  Scores scores_;
};

// Rows are independent and key_mass is a maximum over them, so that a call with too many scores to keep is made in
// parts.
template <class T>
void attention_of(const ExecContext& ctx, const AttentionArgs& a) {
  if (a.key_mass == nullptr || a.t == 1 || Attention<T>::score_bytes(a) <= kScoreBytesMax) {
    Attention<T>(ctx, a).run();
    return;
  }
  AttentionArgs half = a;
  half.t = a.t / 2;
  attention_of<T>(ctx, half);
  half.q += half.t * a.ldq;
  half.q_pos += half.t;
  half.out += half.t * a.ldo;
  half.t = a.t - half.t;
  attention_of<T>(ctx, half);
}

}  // namespace

void attention(const ExecContext& ctx, const AttentionArgs& a) {
  CHECK(a.d <= kMaxHeadDim && a.kv.n_kv_heads > 0 && a.h % a.kv.n_kv_heads == 0);
  if (a.t == 0) return;
  if (a.kv.type == KvType::kF16)
    attention_of<fp16>(ctx, a);
  else
    attention_of<float>(ctx, a);
}

}  // namespace cento::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
