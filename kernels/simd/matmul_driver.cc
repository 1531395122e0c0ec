#include "kernels/simd/matmul_driver.h"

#include <algorithm>

#include "base/check.h"
#include "base/size_math.h"
#include "compute/quant.h"

namespace cento::simd {
namespace {

// Weights that a task multiplies with every row tile before it goes on: they stay in the second-level cache (512 KiB
// and up on the machines this is for) next to the tiles.
constexpr size_t kResidentBytes = 192 * 1024;
constexpr size_t kTasksPerThread = 6;   // enough to even out threads that are slowed by something else
constexpr size_t kRowsPerTaskMin = 48;  // where there are too few columns to go round, rows are split too
// Below this many weight bytes times row tiles, waking other threads costs more than it brings.
constexpr size_t kAloneBytes = 24 * 1024;

// Memory that only grows, one a thread that calls matmul and one a worker.
struct Scratch {
  Buffer buffer;
  std::byte* at_least(size_t n_bytes) {
    buffer.reserve(Device::host(), n_bytes);
    return buffer.as<std::byte>();
  }
};

struct Tile {
  size_t t0, rows, size_idx;
};

// The tile at row t of T: the largest that fits.
Tile tile_at(size_t t, size_t n_rows) {
  size_t i = 0;
  while (kTileRows[i] > n_rows - t) ++i;
  return {t, kTileRows[i], i};
}

// One of the call's outputs, cut into tasks: column groups times row ranges.
struct Part {
  const MatmulOut* out;
  const QuantFormat* format;   // null: float
  size_t n_units, unit_bytes;  // a panel, or a weight row as floats
  size_t group_units, n_groups;
  size_t rows_per_task, n_row_ranges;
};

struct Call {
  const MatmulTarget* target;
  const MatmulArgs* args;
  std::array<Part, 3> parts;
  size_t n_tasks = 0;
  bool any_panels = false, any_halves = false;
  QuantTile tiles{};  // of the first row on
};

// Where the tile that begins at row t0 lies: room for the worst case, most of it never touched.
QuantTile tile_of(const Call& call, size_t t0) {
  const size_t at = t0 * (call.args->k / 32);
  return {call.tiles.a + at * kTileBytesA, call.any_halves ? call.tiles.b + at * kTileBytesB : nullptr,
          call.tiles.masks + at, call.tiles.second + at * kSecondBytes};
}

void quantize_tile(const Call& call, Tile tile) {
  const MatmulArgs& args = *call.args;
  call.target->quantize(args.x + tile.t0 * args.ldx, tile.rows, args.ldx, args.k, tile_of(call, tile.t0));
}

void quantize_all(const ExecContext& ctx, Call& call) {
  static thread_local Scratch a, b, masks, second;
  const size_t t = call.args->t, n_blocks = t * (call.args->k / 32);
  call.tiles.a = a.at_least(n_blocks * kTileBytesA);
  if (call.any_halves) call.tiles.b = b.at_least(n_blocks * kTileBytesB);
  call.tiles.masks = reinterpret_cast<uint16_t*>(masks.at_least(n_blocks * sizeof(uint16_t)));
  call.tiles.second = second.at_least(n_blocks * kSecondBytes);
  const size_t step = kTileRows[0], n_steps = div_up(t, step);
  const auto one = [&call, t, step](size_t i, size_t) {
    for (size_t row = i * step; row < std::min(t, (i + 1) * step);) {
      const Tile tile = tile_at(row, t);
      quantize_tile(call, tile);
      row += tile.rows;
    }
  };
  if (n_blocks < 2048) {
    for (size_t i = 0; i < n_steps; ++i) one(i, 0);
  } else {
    ctx.pool->parallel_for(n_steps, std::cref(one));
  }
}

void run_panels(const Call& call, const Part& part, size_t first, size_t last, size_t t_first, size_t t_last) {
  const MatmulArgs& args = *call.args;
  const MatmulOut& out = *part.out;
  const MatmulTarget::Panel* kernels = call.target->panels(out.w->source);
  PanelJob job{};
  job.n_records = args.k / record_values(*part.format);
  job.ldy = out.ldy;
  job.add = out.add;
  for (size_t t = t_first; t < t_last;) {
    const Tile tile = tile_at(t, args.t);
    const QuantTile quantised = tile_of(call, tile.t0);
    job.a = quantised.a;
    job.b = quantised.b;
    job.masks = quantised.masks;
    job.second = quantised.second;
    for (size_t p = first; p < last; ++p) {
      const size_t n = p * kPanelRows;
      job.panel = static_cast<const std::byte*>(out.w->data) + p * part.unit_bytes;
      job.y = out.y + tile.t0 * out.ldy + n;
      job.bias = out.bias == nullptr ? nullptr : out.bias + n;
      job.n_lanes = std::min<size_t>(kPanelRows, out.w->n - n);
      kernels[tile.size_idx](job);
    }
    t += tile.rows;
  }
}

void run_floats(const Call& call, const Part& part, size_t first, size_t last, size_t t_first, size_t t_last) {
  const MatmulArgs& args = *call.args;
  const MatmulOut& out = *part.out;
  const DTypeInfo info = dtype_info(out.w->source);
  const size_t row_bytes = args.k / info.elements * info.bytes;
  DotJob job{};
  job.w = static_cast<const std::byte*>(out.w->data) + first * row_bytes;
  job.n_cols = last - first;
  job.row_bytes = row_bytes;
  DType type = out.w->source;
  if (out.w->layout == kDequantInPlace) {
    static thread_local Scratch expanded;
    std::byte* to = expanded.at_least(job.n_cols * args.k * sizeof(float));
    dequantize(type, job.w, reinterpret_cast<float*>(to), job.n_cols * args.k);
    job.w = to;
    job.row_bytes = args.k * sizeof(float);
    type = DType::kF32;
  }
  job.x = args.x + t_first * args.ldx;
  job.n_rows = t_last - t_first;
  job.ldx = args.ldx;
  job.k = args.k;
  job.y = out.y + t_first * out.ldy + first;
  job.ldy = out.ldy;
  job.bias = out.bias == nullptr ? nullptr : out.bias + first;
  job.add = out.add;
  call.target->dot(type, job);
}

Part cut(const ExecContext& ctx, const MatmulArgs& args, const MatmulOut& out) {
  CHECK(out.w->k == args.k);
  Part part{};
  part.out = &out;
  part.format = out.w->layout == kPanels ? quant_format(out.w->source) : nullptr;
  const size_t granule = part.format != nullptr ? 1 : 4;  // float kernels take four weight rows at a time
  part.n_units = part.format != nullptr ? div_up<size_t>(out.w->n, kPanelRows) : out.w->n;
  part.unit_bytes = part.format != nullptr ? panel_bytes(*part.format, args.k) : args.k * sizeof(float);
  const size_t wanted = ctx.pool->size() * kTasksPerThread;
  const size_t resident = std::max<size_t>(1, kResidentBytes / std::max<size_t>(part.unit_bytes, 1));
  const size_t even = div_up(part.n_units, wanted);
  part.group_units = round_up(std::max<size_t>(1, std::min(resident, even)), granule);
  part.n_groups = div_up(part.n_units, part.group_units);
  part.rows_per_task = args.t;
  if (part.n_groups > 0 && part.n_groups < wanted && args.t > kRowsPerTaskMin) {
    const size_t ranges = std::min(div_up(wanted, part.n_groups), args.t / kRowsPerTaskMin);
    part.rows_per_task = round_up(div_up(args.t, ranges), kTileRows[0]);
  }
  part.n_row_ranges = div_up(args.t, part.rows_per_task);
  return part;
}

void run_task(const Call& call, size_t task) {
  size_t i = 0;
  while (task >= call.parts[i].n_groups * call.parts[i].n_row_ranges) {
    task -= call.parts[i].n_groups * call.parts[i].n_row_ranges;
    ++i;
  }
  const Part& part = call.parts[i];
  const size_t group = task / part.n_row_ranges, range = task % part.n_row_ranges;
  const size_t first = group * part.group_units, last = std::min(part.n_units, first + part.group_units);
  const size_t t_first = range * part.rows_per_task, t_last = std::min(call.args->t, t_first + part.rows_per_task);
  if (part.format != nullptr)
    run_panels(call, part, first, last, t_first, t_last);
  else
    run_floats(call, part, first, last, t_first, t_last);
}

}  // namespace

void run_matmul(const MatmulTarget& target, const ExecContext& ctx, const MatmulArgs& args) {
  if (args.t == 0) return;
  Call call{};
  call.target = &target;
  call.args = &args;
  size_t bytes = 0;
  for (size_t i = 0; i < args.n_outs; ++i) {
    const Part& part = call.parts[i] = cut(ctx, args, args.outs[i]);
    call.n_tasks += part.n_groups * part.n_row_ranges;
    call.any_panels |= part.format != nullptr;
    call.any_halves |= part.format != nullptr && part.format->sub == 16;
    bytes += part.n_units * part.unit_bytes;
  }
  if (call.any_panels) quantize_all(ctx, call);
  const auto one = [&call](size_t task, size_t) { run_task(call, task); };
  if (bytes * div_up(args.t, kTileRows[0]) < kAloneBytes) {
    for (size_t task = 0; task < call.n_tasks; ++task) one(task, 0);
  } else {
    ctx.pool->parallel_for(call.n_tasks, one);
  }
}

}  // namespace cento::simd
