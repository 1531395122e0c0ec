#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "base/check.h"
#include "base/error.h"
#include "compute/ops_registry.h"

namespace cento {
namespace {

// Flipped in every address handed out. No user address has it: on x86-64 with 48-bit addresses the result is not
// canonical, with 57-bit addresses it is a place where nothing is mapped, on AArch64 it is outside the translated range
// (and below the byte that the processor may ignore). An access dies with SIGSEGV. Under AddressSanitizer so does the
// look at the shadow memory, which is address / 8 plus a constant.
constexpr uintptr_t kFenceBit = uintptr_t{1} << 52;

std::string hex(uintptr_t address) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(address));
  return text;
}

[[noreturn]] void refuse(const std::string& what, const std::string& where) {
  throw Error(Code::kInternal, what, where, "pass only addresses of buffers of this device, with the sizes they have");
}

class FencedDevice : public Device {
 public:
  const char* name() const override { return "fenced"; }
  bool is_host() const override { return false; }

  // Filled with ones: a float or half that is read before it is written is NaN.
  void* allocate(size_t n_bytes) override {
    void* real = Device::host().allocate(n_bytes);
    std::memset(real, 0xff, n_bytes);
    const uintptr_t fenced = reinterpret_cast<uintptr_t>(real) ^ kFenceBit;
    const std::lock_guard lock(mutex_);
    n_bytes_at_[fenced] = n_bytes;
    return reinterpret_cast<void*>(fenced);
  }
  void release(void* address, size_t n_bytes) noexcept override {
    if (address == nullptr) return;
    const uintptr_t fenced = reinterpret_cast<uintptr_t>(address);
    {
      const std::lock_guard lock(mutex_);
      const auto it = n_bytes_at_.find(fenced);
      CHECK(it != n_bytes_at_.end() && it->second == n_bytes);
      n_bytes_at_.erase(it);
    }
    Device::host().release(reinterpret_cast<void*>(fenced ^ kFenceBit), n_bytes);
  }
  void upload(void* to, const void* host_from, size_t n_bytes) override {
    if (n_bytes > 0) std::memcpy(real(to, n_bytes, "upload"), host_from, n_bytes);
  }
  void download(void* host_to, const void* from, size_t n_bytes) override {
    if (n_bytes > 0) std::memcpy(host_to, real(from, n_bytes, "download"), n_bytes);
  }
  void copy(void* to, const void* from, size_t n_bytes) override {
    if (n_bytes > 0) std::memcpy(real(to, n_bytes, "copy to"), real(from, n_bytes, "copy from"), n_bytes);
  }
  void clear(void* to, size_t n_bytes) override {
    if (n_bytes > 0) std::memset(real(to, n_bytes, "clear"), 0, n_bytes);
  }

  // The host address behind a fenced one. [address, address + n_bytes) must lie within one allocation; n_bytes 0: the
  // address is not looked at. `where` says whose address it is.
  template <class T>
  T* real(T* address, size_t n_bytes, const char* where) const {
    if (n_bytes == 0) return nullptr;
    const uintptr_t fenced = reinterpret_cast<uintptr_t>(address);
    const std::lock_guard lock(mutex_);
    auto it = n_bytes_at_.upper_bound(fenced);
    if (it == n_bytes_at_.begin()) refuse(hex(fenced) + " is no address of the fenced device", where);
    --it;
    const uintptr_t offset = fenced - it->first;
    if (offset >= it->second) refuse(hex(fenced) + " is no address of the fenced device", where);
    if (n_bytes > it->second - offset)
      refuse(std::to_string(n_bytes) + " bytes from byte " + std::to_string(offset) + " of an allocation of " +
                 std::to_string(it->second),
             where);
    return reinterpret_cast<T*>(fenced ^ kFenceBit);
  }

 private:
  mutable std::mutex mutex_;
  std::map<uintptr_t, size_t> n_bytes_at_;  // by fenced address; guarded by mutex_
};

struct Slot {
  const Ops* inner = nullptr;
  FencedDevice device;
  std::string name;
  Ops ops{};
};

constexpr size_t kSlots = 8;  // more than there are targets
Slot& slot(size_t i) {
  // Never destroyed: buffers of static lifetime may be released after any destructor here.
  static auto* slots = new std::array<Slot, kSlots>;
  return (*slots)[i];
}

// Bytes of `rows` rows of `cols` elements, `ld` elements apart.
size_t extent(size_t rows, size_t cols, size_t ld, size_t elem_bytes) {
  return rows == 0 || cols == 0 ? 0 : ((rows - 1) * ld + cols) * elem_bytes;
}
size_t extent(size_t rows, size_t cols, size_t ld) { return extent(rows, cols, ld, sizeof(float)); }

// The ops of the fence around slot kIdx's inner ops. Each replaces the addresses in a copy of its arguments, whole
// extents checked, and passes it on.
template <size_t kIdx>
struct Fence {
  static const FencedDevice& device() { return slot(kIdx).device; }
  static const Ops& inner() { return *slot(kIdx).inner; }

  static KvLayerView real(KvLayerView kv, const char* where) {
    const size_t n_bytes = static_cast<size_t>(kv.n_kv_heads) * kv.capacity * kv.head_dim * kv_type_bytes(kv.type);
    kv.k = device().real(kv.k, n_bytes, where);
    kv.v = device().real(kv.v, n_bytes, where);
    return kv;
  }
  // `pos` are real addresses. The table must reach the largest of them; all must be below `n_slots`.
  static RopeTable real(RopeTable rope, const int32_t* pos, size_t t, const char* where) {
    const size_t max = check_positions(pos, t, SIZE_MAX, where);
    rope.table = device().real(rope.table, extent(max + 1, rope.dims, rope.dims), where);
    return rope;
  }
  // Largest of t > 0 positions.
  static size_t check_positions(const int32_t* pos, size_t t, size_t n_slots, const char* where) {
    const auto [min, max] = std::minmax_element(pos, pos + t);
    if (*min < 0 || static_cast<size_t>(*max) >= n_slots)
      refuse("position " + std::to_string(*min < 0 ? *min : *max) + " is none of " + std::to_string(n_slots), where);
    return static_cast<size_t>(*max);
  }

  static PackedMatrix pack(const ExecContext& ctx, const PackArgs& args) {
    const TensorView& w = args.w;
    const PackedMatrix packed = inner().pack(ctx, args);
    PackedMatrix p;
    p.n = packed.n;
    p.k = packed.k;
    p.source = packed.source;
    p.layout = packed.layout;
    const auto* data = static_cast<const std::byte*>(packed.data);
    const auto* storage = packed.storage.template as<const std::byte>();
    const bool in_place = packed.storage.n_bytes() == 0;
    const size_t n_bytes = in_place ? w.n_bytes : packed.storage.n_bytes();
    p.storage = Buffer(slot(kIdx).device, n_bytes);
    p.storage.upload(std::span(in_place ? data : storage, n_bytes));
    p.data = p.storage.template as<const std::byte>(in_place ? 0 : static_cast<size_t>(data - storage));
    return p;
  }

  static void matmul(const ExecContext& ctx, const MatmulArgs& args) {
    if (args.t == 0) return;
    MatmulArgs a = args;
    std::array<PackedMatrix, 3> weights;
    a.x = device().real(a.x, extent(a.t, a.k, a.ldx), "matmul: x");
    for (size_t i = 0; i < a.n_outs; ++i) {
      MatmulOut& out = a.outs[i];
      const PackedMatrix& w = *out.w;
      const size_t offset =
          static_cast<size_t>(static_cast<const std::byte*>(w.data) - w.storage.template as<const std::byte>());
      weights[i].n = w.n;
      weights[i].k = w.k;
      weights[i].source = w.source;
      weights[i].layout = w.layout;
      weights[i].data = device().real(w.data, w.storage.n_bytes() - offset, "matmul: w");
      out.w = &weights[i];
      if (out.bias) out.bias = device().real(out.bias, extent(1, w.n, w.n), "matmul: bias");
      out.y = device().real(out.y, extent(a.t, w.n, out.ldy), "matmul: y");
    }
    inner().matmul(ctx, a);
  }
  static void rms_norm(const ExecContext& ctx, const RmsNormArgs& args) {
    if (args.r == 0) return;
    RmsNormArgs a = args;
    a.x = device().real(a.x, extent(a.r, a.c, a.ldx), "rms_norm: x");
    a.weight = device().real(a.weight, extent(1, a.c, a.c), "rms_norm: weight");
    a.y = device().real(a.y, extent(a.r, a.c, a.ldy), "rms_norm: y");
    inner().rms_norm(ctx, a);
  }
  static void rope_rows(const ExecContext& ctx, const RopeRowsArgs& args) {
    if (args.t == 0) return;
    RopeRowsArgs a = args;
    a.x = device().real(a.x, extent(a.t, a.h * a.d, a.ldx), "rope_rows: x");
    a.pos = device().real(a.pos, a.t * sizeof(int32_t), "rope_rows: pos");
    a.rope = real(a.rope, a.pos, a.t, "rope_rows: table");
    inner().rope_rows(ctx, a);
  }
  static void cast_rows(const ExecContext& ctx, const CastRowsArgs& args) {
    if (args.t == 0) return;
    CastRowsArgs a = args;
    a.x = device().real(a.x, extent(a.t, a.w, a.ldx), "cast_rows: x");
    a.y = device().real(a.y, extent(a.t, a.w, a.w, kv_type_bytes(a.type)), "cast_rows: y");
    inner().cast_rows(ctx, a);
  }
  static void kv_place(const ExecContext& ctx, const KvPlaceArgs& args) {
    if (args.t == 0) return;
    KvPlaceArgs a = args;
    const size_t width = static_cast<size_t>(a.dst.n_kv_heads) * a.dst.head_dim;
    const size_t n_bytes = extent(a.t, width, width, kv_type_bytes(a.dst.type));
    a.k = device().real(a.k, n_bytes, "kv_place: k");
    a.v = device().real(a.v, n_bytes, "kv_place: v");
    a.pos = device().real(a.pos, a.t * sizeof(int32_t), "kv_place: pos");
    check_positions(a.pos, a.t, a.dst.capacity, "kv_place: pos");
    a.rope = real(a.rope, a.pos, a.t, "kv_place: table");
    a.dst = real(a.dst, "kv_place: dst");
    inner().kv_place(ctx, a);
  }
  static void kv_deviation(const ExecContext& ctx, const KvDeviationArgs& args) {
    if (args.t == 0) return;
    KvDeviationArgs a = args;
    const size_t width = static_cast<size_t>(a.live.n_kv_heads) * a.live.head_dim;
    const size_t n_bytes = extent(a.t, width, width, kv_type_bytes(a.live.type));
    a.k = device().real(a.k, n_bytes, "kv_deviation: k");
    a.v = device().real(a.v, n_bytes, "kv_deviation: v");
    a.pos = device().real(a.pos, a.t * sizeof(int32_t), "kv_deviation: pos");
    check_positions(a.pos, a.t, a.live.capacity, "kv_deviation: pos");
    a.rope = real(a.rope, a.pos, a.t, "kv_deviation: table");
    a.live = real(a.live, "kv_deviation: live");
    a.k_dev = device().real(a.k_dev, a.t * sizeof(float), "kv_deviation: k_dev");
    a.v_dev = device().real(a.v_dev, a.t * sizeof(float), "kv_deviation: v_dev");
    inner().kv_deviation(ctx, a);
  }
  static void attention(const ExecContext& ctx, const AttentionArgs& args) {
    if (args.t == 0) return;
    AttentionArgs a = args;
    a.q = device().real(a.q, extent(a.t, a.h * a.d, a.ldq), "attention: q");
    a.q_pos = device().real(a.q_pos, a.t * sizeof(int32_t), "attention: q_pos");
    check_positions(a.q_pos, a.t, a.kv.capacity, "attention: q_pos");
    if (!std::is_sorted(a.q_pos, a.q_pos + a.t)) refuse("positions do not ascend", "attention: q_pos");
    a.out = device().real(a.out, extent(a.t, a.h * a.d, a.ldo), "attention: out");
    a.kv = real(a.kv, "attention: kv");
    if (a.key_mass) a.key_mass = device().real(a.key_mass, a.n_mass * sizeof(float), "attention: key_mass");
    inner().attention(ctx, a);
  }
  static void gate(const ExecContext& ctx, const GateArgs& args) {
    if (args.t == 0) return;
    GateArgs a = args;
    const size_t n_bytes = extent(a.t, a.f, a.f);
    a.gate = device().real(a.gate, n_bytes, "gate: gate");
    a.up = device().real(a.up, n_bytes, "gate: up");
    a.y = device().real(a.y, n_bytes, "gate: y");
    inner().gate(ctx, a);
  }
  static void gather(const ExecContext& ctx, const GatherArgs& args) {
    if (args.t == 0) return;
    GatherArgs a = args;
    a.rows = device().real(a.rows, a.t * sizeof(int32_t), "gather: rows");
    const size_t max = check_positions(a.rows, a.t, SIZE_MAX, "gather: rows");
    a.src = device().real(a.src, extent(max + 1, a.c, a.c), "gather: src");
    a.dst = device().real(a.dst, extent(a.t, a.c, a.c), "gather: dst");
    inner().gather(ctx, a);
  }
  static void add(const ExecContext& ctx, const AddArgs& args) {
    if (args.n == 0) return;
    AddArgs a = args;
    a.x = device().real(a.x, a.n * sizeof(float), "add: x");
    a.y = device().real(a.y, a.n * sizeof(float), "add: y");
    inner().add(ctx, a);
  }

  static void dequant_rows(const ExecContext& ctx, const DequantRowsArgs& args) {
    DequantRowsArgs a = args;
    const size_t n = a.t * a.c, n_scales = a.group == 0 ? a.c : a.t * ((a.c + a.group - 1) / a.group);
    a.codes = device().real(a.codes, n, "dequant_rows: codes");
    a.scale = device().real(a.scale, n_scales * sizeof(float), "dequant_rows: scale");
    a.centre = a.group == 0 ? device().real(a.centre, a.c * sizeof(float), "dequant_rows: centre") : nullptr;
    a.out = device().real(a.out, n * sizeof(fp16), "dequant_rows: out");
    inner().dequant_rows(ctx, a);
  }

  static void open(const Ops& inner_ops) {
    Slot& s = slot(kIdx);
    s.inner = &inner_ops;
    s.name = std::string("fenced ") + inner_ops.name;
    s.ops = Ops{s.name.c_str(), &s.device, inner_ops.value_rounding,
                pack,           matmul,    rms_norm,
                rope_rows,      cast_rows, kv_place,
                kv_deviation,   attention, gate,
                gather,         add,       dequant_rows};
  }
};

template <size_t... kIdx>
const Ops& open_slot(const Ops& inner, std::index_sequence<kIdx...>) {
  using Open = void (*)(const Ops&);
  static constexpr Open kOpen[] = {Fence<kIdx>::open...};
  for (size_t i = 0; i < kSlots; ++i) {
    Slot& s = slot(i);
    if (s.inner == nullptr) kOpen[i](inner);
    if (s.inner == &inner) return s.ops;
  }
  check_failed("a free slot for another fenced backend", __FILE__, __LINE__);
}

}  // namespace

const Ops& fenced_ops(const Ops& inner) {
  CHECK(inner.device->is_host());
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  return open_slot(inner, std::make_index_sequence<kSlots>());
}

}  // namespace cento
