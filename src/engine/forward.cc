#include "engine/forward.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "compute/rope_table.h"

namespace cento {
namespace {

constexpr size_t kFfnRows = 256;  // rows whose gate and up products are alive at once

KvShape shape_of(const LoadedModel& model) {
  const ModelConfig& c = model.config();
  return {c.n_layers, c.n_kv_heads, c.head_dim, model.kv_type()};
}

template <class T>
void put(Device& device, Buffer& buffer, std::span<const T> host) {
  buffer.reserve(device, host.size_bytes());
  buffer.upload(host);
}

}  // namespace

Forward::Forward(LoadedModel& model)
    : model_(model), config_(model.config()), ops_(model.ops()), live_(*model.ops().device, shape_of(model)) {}

void Forward::reserve(uint64_t slots, uint64_t used) {
  if (slots <= live_.capacity()) return;
  live_.reserve(slots, used);
  Device& device = *ops_.device;
  const std::span<const float> factors = model_.rope_factors();
  const auto table = [&](Buffer& buffer, double base, double scale) {
    const std::vector<float> host = make_rope_table(config_.rope_dims, base, scale, factors, 0, live_.capacity());
    put(device, buffer, std::span<const float>(host));
  };
  table(rope_global_, config_.rope_base, config_.rope_scaling == RopeScaling::kLinear ? config_.rope_scale : 1.0);
  if (config_.window > 0) table(rope_local_, config_.rope_base_local, 1.0);
}

RopeTable Forward::rope(uint32_t layer) const {
  const Buffer& table = config_.local(layer) ? rope_local_ : rope_global_;
  return {table.as<float>(), config_.rope_dims, config_.rope_pairs == RopePairs::kInterleaved};
}

void Forward::begin(std::span<const int32_t> ids, std::span<const int32_t> pos) {
  CHECK(ids.size() == pos.size() && (pos.empty() || static_cast<uint64_t>(pos.back()) < live_.capacity()));
  Device& device = *ops_.device;
  t_ = ids.size();
  pos_.assign(pos.begin(), pos.end());
  put(device, pos_dev_, pos);
  host_rows_.resize(t_ * config_.width);
  model_.embed(ids, host_rows_.data());
  put(device, x_, std::span<const float>(host_rows_));
  const size_t q_bytes = t_ * config_.n_heads * config_.head_dim * sizeof(float);
  const size_t kv_values = t_ * config_.n_kv_heads * config_.head_dim;
  h_.reserve(device, t_ * config_.width * sizeof(float));
  q_.reserve(device, q_bytes);
  attended_.reserve(device, q_bytes);
  k_.reserve(device, kv_values * sizeof(float));
  v_.reserve(device, kv_values * sizeof(float));
  k_cast_.reserve(device, kv_values * kv_type_bytes(live_.shape().type));
  v_cast_.reserve(device, kv_values * kv_type_bytes(live_.shape().type));
  const size_t ffn_rows = std::min(t_, kFfnRows);
  gate_.reserve(device, ffn_rows * config_.ffn_width * sizeof(float));
  up_.reserve(device, ffn_rows * config_.ffn_width * sizeof(float));
  if (config_.post_norms) tmp_.reserve(device, t_ * config_.width * sizeof(float));
}

void Forward::norm(const float* x, const Buffer& weight, float* y, size_t rows, bool add) {
  ops_.rms_norm(context(),
                {x, weight.as<float>(), y, rows, config_.width, config_.width, config_.width, config_.norm_eps, add});
}

void Forward::project(uint32_t layer) {
  if (t_ == 0) return;
  const PackedLayer& w = model_.layers()[layer];
  const size_t c = config_.width, d = config_.head_dim, q_width = config_.n_heads * d,
               kv_width = config_.n_kv_heads * d;
  const auto bias = [](const Buffer& b) { return b.n_bytes() > 0 ? b.as<float>() : nullptr; };
  norm(x_.as<float>(), w.attn_norm, h_.as<float>(), t_);
  MatmulArgs qkv{h_.as<float>(), t_, c, c, {}, 3};
  qkv.outs[0] = {&w.q, bias(w.q_bias), q_.as<float>(), q_width, false};
  qkv.outs[1] = {&w.k, bias(w.k_bias), k_.as<float>(), kv_width, false};
  qkv.outs[2] = {&w.v, bias(w.v_bias), v_.as<float>(), kv_width, false};
  ops_.matmul(context(), qkv);
  if (config_.qk_norm) {
    const auto head_norm = [&](Buffer& x, const Buffer& weight, size_t heads) {
      ops_.rms_norm(context(),
                    {x.as<float>(), weight.as<float>(), x.as<float>(), t_ * heads, d, d, d, config_.norm_eps, false});
    };
    head_norm(q_, w.q_norm, config_.n_heads);
    head_norm(k_, w.k_norm, config_.n_kv_heads);
  }
  ops_.rope_rows(context(), {q_.as<float>(), pos_dev_.as<int32_t>(), t_, config_.n_heads, d, q_width, rope(layer)});
  const KvType type = live_.shape().type;
  ops_.cast_rows(context(), {k_.as<float>(), k_cast_.as<std::byte>(), t_, kv_width, kv_width, type});
  ops_.cast_rows(context(), {v_.as<float>(), v_cast_.as<std::byte>(), t_, kv_width, kv_width, type});
}

void Forward::deviation(uint32_t layer, std::span<float> k_dev, std::span<float> v_dev) {
  CHECK(k_dev.size() == t_ && v_dev.size() == t_);
  if (t_ == 0) return;
  dev_.reserve(*ops_.device, 2 * t_ * sizeof(float));
  ops_.kv_deviation(context(), {k_cast_.as<std::byte>(), v_cast_.as<std::byte>(), pos_dev_.as<int32_t>(), t_,
                                rope(layer), live_.layer(layer), dev_.as<float>(), dev_.as<float>(t_)});
  dev_.download(k_dev);
  dev_.download(v_dev, t_);
}

void Forward::keep(std::span<const int32_t> rows) {
  Device& device = *ops_.device;
  put(device, rows_, rows);
  const auto gather = [&](Buffer& from, Buffer& to, size_t row_bytes) {
    CHECK(row_bytes % sizeof(float) == 0);  // moved as words, whatever they hold
    to.reserve(device, std::max<size_t>(from.n_bytes(), rows.size() * row_bytes));
    ops_.gather(context(),
                {from.as<float>(), rows_.as<int32_t>(), to.as<float>(), rows.size(), row_bytes / sizeof(float)});
    from.swap(to);
  };
  const size_t d = config_.head_dim, cast_bytes = config_.n_kv_heads * d * kv_type_bytes(live_.shape().type);
  gather(x_, x_next_, config_.width * sizeof(float));
  gather(q_, q_next_, config_.n_heads * d * sizeof(float));
  gather(k_cast_, cast_next_, cast_bytes);
  gather(v_cast_, cast_next_, cast_bytes);
  std::vector<int32_t> pos;
  pos.reserve(rows.size());
  for (const int32_t r : rows) pos.push_back(pos_[static_cast<size_t>(r)]);
  pos_ = std::move(pos);
  put(device, pos_dev_, std::span<const int32_t>(pos_));
  t_ = rows.size();
}

void Forward::attend(uint32_t layer, std::span<float> key_mass, size_t mass_from) {
  const size_t d = config_.head_dim, q_width = config_.n_heads * d;
  // Where the next product rounds its input to 8 bits and more coarsely anyway.
  const bool round_values =
      model_.precision() == Precision::kFast && dtype_info(model_.layers()[layer].o.source).elements > 1;
  const auto rows = [&](size_t from, size_t to, float* mass) {
    if (from == to) return;
    AttentionArgs args{};
    args.q = q_.as<float>(from * q_width);
    args.q_pos = pos_dev_.as<int32_t>(from);
    args.out = attended_.as<float>(from * q_width);
    args.t = to - from;
    args.h = config_.n_heads;
    args.d = d;
    args.ldq = args.ldo = q_width;
    args.kv = live_.layer(layer);
    args.scale = config_.attention_scale;
    args.window = config_.local(layer) ? config_.window : 0;
    args.round_values = round_values;
    args.key_mass = mass;
    args.n_mass = mass == nullptr ? 0 : key_mass.size();
    ops_.attention(context(), args);
  };
  if (key_mass.empty()) {
    rows(0, t_, nullptr);
  } else {
    mass_.reserve(*ops_.device, key_mass.size_bytes());
    mass_.clear();
    rows(0, mass_from, nullptr);
    rows(mass_from, t_, mass_.as<float>());
    mass_.download(key_mass);
  }
  if (!tap_) return;
  std::vector<float> attended(t_ * q_width);
  attended_.download(std::span(attended));
  tap_(layer, pos_, attended);
}

void Forward::mix_attention(const PackedLayer& w) {
  const size_t c = config_.width, q_width = config_.n_heads * config_.head_dim;
  MatmulArgs out{attended_.as<float>(), t_, q_width, q_width, {}, 1};
  if (!config_.post_norms) {
    out.outs[0] = {&w.o, nullptr, x_.as<float>(), c, true};
    ops_.matmul(context(), out);
    return;
  }
  out.outs[0] = {&w.o, nullptr, tmp_.as<float>(), c, false};
  ops_.matmul(context(), out);
  norm(tmp_.as<float>(), w.attn_post_norm, x_.as<float>(), t_, true);
}

void Forward::feed_forward(const PackedLayer& w) {
  const size_t c = config_.width, f = config_.ffn_width;
  norm(x_.as<float>(), w.ffn_norm, h_.as<float>(), t_);
  for (size_t from = 0; from < t_; from += kFfnRows) {
    const size_t rows = std::min(kFfnRows, t_ - from);
    MatmulArgs in{h_.as<float>(from * c), rows, c, c, {}, 2};
    in.outs[0] = {&w.gate, nullptr, gate_.as<float>(), f, false};
    in.outs[1] = {&w.up, nullptr, up_.as<float>(), f, false};
    ops_.matmul(context(), in);
    ops_.gate(context(), {gate_.as<float>(), up_.as<float>(), gate_.as<float>(), rows, f,
                          config_.activation == Activation::kSilu ? GateKind::kSilu : GateKind::kGeluTanh});
    MatmulArgs out{gate_.as<float>(), rows, f, f, {}, 1};
    if (!config_.post_norms) {
      out.outs[0] = {&w.down, nullptr, x_.as<float>(from * c), c, true};
      ops_.matmul(context(), out);
      continue;
    }
    out.outs[0] = {&w.down, nullptr, tmp_.as<float>(), c, false};
    ops_.matmul(context(), out);
    norm(tmp_.as<float>(), w.ffn_post_norm, x_.as<float>(from * c), rows, true);
  }
}

void Forward::finish(uint32_t layer, std::span<float> key_mass, size_t mass_from) {
  if (t_ == 0) return;
  CHECK(mass_from <= t_);
  const PackedLayer& w = model_.layers()[layer];
  place_current(layer);
  attend(layer, key_mass, mass_from);
  mix_attention(w);
  feed_forward(w);
}

void Forward::finish_last(uint32_t layer, size_t first) {
  CHECK(first <= t_);
  if (first == 0) {
    finish(layer, {}, 0);
    return;
  }
  place_current(layer);
  std::vector<int32_t> rest(t_ - first);
  std::iota(rest.begin(), rest.end(), static_cast<int32_t>(first));
  keep(rest);
  if (t_ == 0) return;
  const PackedLayer& w = model_.layers()[layer];
  attend(layer, {}, 0);
  mix_attention(w);
  feed_forward(w);
}

void Forward::place_current(uint32_t layer) {
  ops_.kv_place(context(), {k_cast_.as<std::byte>(), v_cast_.as<std::byte>(), pos_dev_.as<int32_t>(), t_, rope(layer),
                            live_.layer(layer)});
}

void Forward::fetch(uint32_t, size_t first, size_t n, std::span<std::byte> k, std::span<std::byte> v) {
  const size_t n_bytes = live_.shape().side_bytes(n), offset = live_.shape().side_bytes(first);
  CHECK(first + n <= t_ && k.size() == n_bytes && v.size() == n_bytes);
  k_cast_.download(k, offset);
  v_cast_.download(v, offset);
}

std::vector<float> Forward::logits(size_t first, size_t n) {
  CHECK(first + n <= t_);
  const size_t c = config_.width, vocab = model_.output().n;
  norm(x_.as<float>(first * c), model_.output_norm(), h_.as<float>(), n);
  logits_.reserve(*ops_.device, n * vocab * sizeof(float));
  MatmulArgs args{h_.as<float>(), n, c, c, {}, 1};
  args.outs[0] = {&model_.output(), nullptr, logits_.as<float>(), vocab, false};
  ops_.matmul(context(), args);
  std::vector<float> out(n * vocab);
  logits_.download(std::span(out));
  return out;
}

void Forward::place(uint32_t layer, std::span<const std::byte> k, std::span<const std::byte> v,
                    std::span<const int32_t> pos) {
  if (pos.empty()) return;
  CHECK(k.size() == live_.shape().side_bytes(pos.size()) && v.size() == k.size());
  Device& device = *ops_.device;
  put(device, place_k_, k);
  put(device, place_v_, v);
  put(device, place_pos_, pos);
  ops_.kv_place({&place_pool_}, {place_k_.as<std::byte>(), place_v_.as<std::byte>(), place_pos_.as<int32_t>(),
                                 pos.size(), rope(layer), live_.layer(layer)});
}

}  // namespace cento
