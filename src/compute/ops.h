// The kernels of a backend as one struct of function pointers.
//
// All pointers in argument structs are device addresses of the backend's Device (host arrays are named host_*). Tensors
// are dense, row-major, unless a stride `ld*` (in elements) is given. float means float32. Inputs and outputs do not
// overlap unless an op says so. T = 0 does nothing. Every op is complete (for a device: queued in order) when it
// returns.
//
// Row independence: what an op computes for row t depends only on row t's inputs, never on T, on the other rows or on
// the number of threads, bit for bit. Blended prefill computes gathered rows, full prefill whole slices and decode
// single rows; thanks to this rule they agree exactly, and a test can say so. (Attention: for equal q, q_pos and keys.)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/tensor_view.h"
#include "base/thread_pool.h"
#include "compute/buffer.h"

namespace cento {

struct ExecContext {
  ThreadPool* pool;  // CPU backends split their loops over it
};

enum class Precision {
  kFast,  // int8 activations against quantised blocks, fp16 live KV
  kF32,   // dequantised weights, float32 products and sums, float32 live KV
};

// A weight matrix [N, K] in the private layout of the Ops that packed it.
struct PackedMatrix {
  uint64_t n = 0, k = 0;
  DType source = DType::kF32;
  int32_t layout = 0;          // meaning private to the Ops
  const void* data = nullptr;  // device address; into `storage`, or the mapped file where that needs no repacking
  Buffer storage;
};

struct PackArgs {
  TensorView w;  // host memory, which must outlive the result
  Precision precision;
  // If set: called, perhaps by several threads at once, when rows [first, first + n) of w have been copied and the
  // result does not need them. Never called for rows that the result uses in place.
  std::function<void(uint64_t first, uint64_t n)> rows_copied = nullptr;
};

struct MatmulOut {
  const PackedMatrix* w;        // [N, K]
  const float* bias = nullptr;  // [N] or null
  float* y = nullptr;           // [T, N], stride ldy
  size_t ldy = 0;
  bool add = false;  // y += instead of y =
};

// y_i[t, n] = sum_k x[t, k] * w_i[n, k] (+ bias_i[n]) for up to three matrices that share x, so that its rows are
// quantised once.
struct MatmulArgs {
  const float* x;  // [T, K], stride ldx
  size_t t, k, ldx;
  std::array<MatmulOut, 3> outs;
  size_t n_outs;
};

// y[r, :] = x[r, :] / sqrt(mean(x[r, :]^2) + eps) * weight  (y += with `add`). y may be x.
struct RmsNormArgs {
  const float* x;       // [R, C], stride ldx
  const float* weight;  // [C]
  float* y;             // [R, C], stride ldy
  size_t r, c, ldx, ldy;
  float eps;
  bool add = false;
};

// Rotations for every position: table[p, i] = (cos, sin)(p * frequency_i), i < dims/2, computed in double on the host.
struct RopeTable {
  const float* table;  // [positions, dims/2, 2]
  uint32_t dims;       // leading dims of a head that are rotated, even
  bool interleaved;    // pairs (2i, 2i+1), else (i, i + dims/2)
};

// Live KV of one layer. A key's slot is its absolute position. K is rotated to it.
enum class KvType : uint8_t { kF16 = 0, kF32 = 1 };
constexpr size_t kv_type_bytes(KvType t) { return t == KvType::kF16 ? 2 : 4; }
struct KvLayerView {
  void* k;  // [Hkv, capacity, D] of `type`
  void* v;  // [Hkv, capacity, D]
  KvType type;
  uint32_t n_kv_heads, head_dim;
  uint64_t capacity;  // slots
};

// x[t, h, :] is rotated in place to pos[t].
struct RopeRowsArgs {
  float* x;            // [T, H, D], stride ldx a row
  const int32_t* pos;  // [T]
  size_t t, h, d, ldx;
  RopeTable rope;
};

// y[t, i] = x[t, i] rounded to `type` (nearest even; beyond the largest finite half: clamped to it).
struct CastRowsArgs {
  const float* x;  // [T, W], stride ldx
  void* y;         // [T, W] of `type`, dense
  size_t t, w, ldx;
  KvType type;
};

// Puts rows into the live KV: K, stored un-rotated, is rotated to pos[t] in float32 and rounded to `type`; V is copied.
// The only way rows get into live KV, computed or loaded, so that both are bit-identical.
struct KvPlaceArgs {
  const void* k;       // [T, Hkv, D] of dst.type, not rotated
  const void* v;       // [T, Hkv, D]
  const int32_t* pos;  // [T] slots, each < dst.capacity, distinct
  size_t t;
  RopeTable rope;
  KvLayerView dst;
};

// Squared distance of fresh rows to what the live KV holds at their positions (K compared after rotation):
// k_dev[t] = sum over Hkv, D of (rot(k) - live_k)^2, v_dev alike.
// rot(k) is rounded as kv_place rounds it: a row that has not changed deviates by exactly 0.
struct KvDeviationArgs {
  const void* k;  // [T, Hkv, D] of live.type, not rotated
  const void* v;
  const int32_t* pos;  // [T]
  size_t t;
  RopeTable rope;
  KvLayerView live;
  float* k_dev;  // [T]
  float* v_dev;  // [T]
};

// out[t, h, :] = sum_j p_j v[j, h / (H/Hkv), :], p = softmax_j(scale * q[t, h] . k[j, h / (H/Hkv)]) over the keys j
// with q_pos[t] - window < j <= q_pos[t] (window 0: from 0). The key of the row itself is in the live KV already.
// Online softmax in float32 over key tiles whose borders depend on nothing but the position 0.
struct AttentionArgs {
  const float* q;        // [T, H, D] rotated, stride ldq a row
  const int32_t* q_pos;  // [T] ascending
  float* out;            // [T, H, D], stride ldo a row
  size_t t, h, d, ldq, ldo;
  KvLayerView kv;
  float scale;
  uint32_t window;
  // A backend may round p and v before it multiplies them, by Ops::value_rounding at most (KvType::kF16 only).
  bool round_values = false;
  // If not null: key_mass[j] = max(key_mass[j], p_j) over all rows and heads of this call, for j < n_mass.
  float* key_mass = nullptr;  // [n_mass]
  size_t n_mass = 0;
};

enum class GateKind { kSilu, kGeluTanh };
// y[t, f] = act(gate[t, f]) * up[t, f]; y may be gate. gelu: tanh approximation (Hendrycks and Gimpel 2016).
struct GateArgs {
  const float* gate;  // [T, F]
  const float* up;    // [T, F]
  float* y;           // [T, F]
  size_t t, f;
  GateKind kind;
};

// dst[i, :] = src[rows[i], :]
struct GatherArgs {
  const float* src;     // [*, C]
  const int32_t* rows;  // [T]
  float* dst;           // [T, C], not overlapping src
  size_t t, c;
};

// y[i] += x[i], i < n
struct AddArgs {
  const float* x;
  float* y;
  size_t n;
};

// out[t, c] = half(centre[c] + scale[c] * codes[t, c]), or, where `group` is not 0, half(scale[t, c / group] * codes[t,
// c]) with ceil(C / group) scales a row. Product and sum are rounded to float32 one by one, the result to nearest even,
// clamped to the largest finite half: the same bits on every target. Stored KV is unpacked with it, so it runs on the
// calling thread alone.
struct DequantRowsArgs {
  const int8_t* codes;  // [T, C]
  const float* scale;   // [C], or [T, ceil(C / group)]
  const float* centre;  // [C]; not read where group is not 0
  fp16* out;            // [T, C]
  size_t t, c, group;
};

struct Ops {
  const char* name;  // "ref", "AVX2", "AVX3_ZEN4", ...: shown, and the value of --target
  Device* device;
  float value_rounding;  // AttentionArgs::round_values: largest relative error of p and of v; 0: none is made
  // Prepares a weight for matmul. Throws Error(kResource).
  PackedMatrix (*pack)(const ExecContext&, const PackArgs&);
  void (*matmul)(const ExecContext&, const MatmulArgs&);
  void (*rms_norm)(const ExecContext&, const RmsNormArgs&);
  void (*rope_rows)(const ExecContext&, const RopeRowsArgs&);
  void (*cast_rows)(const ExecContext&, const CastRowsArgs&);
  void (*kv_place)(const ExecContext&, const KvPlaceArgs&);
  void (*kv_deviation)(const ExecContext&, const KvDeviationArgs&);
  void (*attention)(const ExecContext&, const AttentionArgs&);
  void (*gate)(const ExecContext&, const GateArgs&);
  void (*gather)(const ExecContext&, const GatherArgs&);
  void (*add)(const ExecContext&, const AddArgs&);
  void (*dequant_rows)(const ExecContext&, const DequantRowsArgs&);
};

}  // namespace cento
