#include "support/reference_model.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "base/rng.h"
#include "compute/quant.h"

namespace cento::test {
namespace {

constexpr double kU = 0x1p-24;      // unit roundoff of float32
constexpr double kHalfU = 0x1p-11;  // of half

using Row = std::vector<double>;
using Rows = std::vector<Row>;

struct Matrix {
  size_t n = 0, k = 0;
  bool quantised = false;
  std::vector<float> values;  // [N, K]
};

struct Layer {
  bool local = false;
  Row attn_norm, q_bias, k_bias, v_bias, q_norm, k_norm, attn_post_norm, ffn_norm, ffn_post_norm;  // empty: none
  Matrix q, k, v, o, gate, up, down;
};

// Moves values by up to a distance; does nothing for kNone.
class Noise {
 public:
  Noise(Rounding rounding, uint64_t seed) : rounding_(rounding), rng_(seed) {}
  bool float32() const { return rounding_ == Rounding::kFloat32; }
  bool fast() const { return rounding_ == Rounding::kFast; }
  double within(double distance) { return distance * (2 * rng_.uniform() - 1); }
  // x after an operation that is off by up to n units of float32.
  double rounded(double x, double n = 1) { return float32() ? x + within(n * kU * std::abs(x)) : x; }
  double half(double x) { return fast() ? x + within(kHalfU * std::abs(x)) : x; }

 private:
  Rounding rounding_;
  Rng rng_;
};

Row multiply(const Matrix& w, const Row& input, Noise& noise, const Row& bias = {}) {
  Row x = input;
  if (noise.fast() && w.quantised) {
    for (size_t from = 0; from < x.size(); from += 32) {
      double most = 0;
      for (size_t i = from; i < from + 32; ++i) most = std::max(most, std::abs(x[i]));
      for (size_t i = from; i < from + 32; ++i) x[i] += noise.within(0.5 * most / 127);
    }
  }
  Row y(w.n);
  for (size_t n = 0; n < w.n; ++n) {
    double sum = 0, squares = 0;
    for (size_t k = 0; k < w.k; ++k) {
      const double product = static_cast<double>(w.values[n * w.k + k]) * x[k];
      sum += product;
      squares += product * product;
    }
    if (noise.float32()) sum += noise.within(std::sqrt(static_cast<double>(w.k) * squares) * kU);
    y[n] = bias.empty() ? sum : noise.rounded(sum + bias[n]);
  }
  return y;
}

void rms_norm(double* x, size_t n, const Row& weight, double eps, Noise& noise) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += x[i] * x[i];
  const double scale =
      noise.rounded(1 / std::sqrt(sum / static_cast<double>(n) + eps), std::sqrt(static_cast<double>(n)) + 3);
  for (size_t i = 0; i < n; ++i) x[i] = noise.rounded(x[i] * scale * weight[i], 2);
}

void add_to(Row& x, const Row& y, Noise& noise) {
  for (size_t i = 0; i < x.size(); ++i) x[i] = noise.rounded(x[i] + y[i]);
}

struct Mass {
  size_t first_row;
  Row of_key;  // [T]
};

}  // namespace

struct ReferenceModel::Model {
  size_t n_layers, n_heads, n_kv_heads, head_dim, width, vocab, rope_dims, window = 0;
  double eps, base_global, base_local, linear_scale = 1, embedding_scale = 1;
  bool interleaved = false, gelu = false;
  Row factors;  // of the RoPE frequencies; empty: none
  Matrix embedding, output;
  Row output_norm;
  std::vector<Layer> layers;

  explicit Model(const GgufFile& file);
  void rotate(double* head, size_t pos, bool local, Noise& noise) const;
  Rows embed(std::span<const int32_t> ids, Noise& noise) const;
  Rows attention(const Layer& layer, Rows q, Rows k, Rows v, Noise& noise, Mass* mass) const;
  void run_layer(const Layer& layer, Rows& x, Noise& noise, Mass* mass = nullptr) const;
};

ReferenceModel::Model::Model(const GgufFile& file) {
  const std::string arch = file.text("general.architecture").value();
  const bool gemma = arch == "gemma3", llama = arch == "llama";
  if (!gemma && !llama && arch != "qwen2") throw std::runtime_error("reference model: architecture " + arch);
  const auto integer = [&](const std::string& key) { return file.integer(arch + "." + key); };
  const auto number = [&](const std::string& key) { return file.number(arch + "." + key); };
  const auto matrix = [&](const std::string& name) {
    const GgufTensor* t = file.find_tensor(name);
    if (t == nullptr) throw std::runtime_error("reference model: no tensor " + name);
    Matrix m{t->view.rows(), t->view.cols(), dtype_info(t->view.dtype).elements > 1, {}};
    m.values.resize(m.n * m.k);
    for (size_t r = 0; r < m.n; ++r) dequantize_row(t->view, r, &m.values[r * m.k]);
    return m;
  };
  const auto vector = [&](const std::string& name) {
    if (file.find_tensor(name) == nullptr) return Row{};
    const Matrix m = matrix(name);
    return Row(m.values.begin(), m.values.end());
  };
  n_layers = integer("block_count").value();
  n_heads = integer("attention.head_count").value();
  n_kv_heads = integer("attention.head_count_kv").value_or(n_heads);
  width = integer("embedding_length").value();
  head_dim = integer("attention.key_length").value_or(width / n_heads);
  rope_dims = integer("rope.dimension_count").value_or(head_dim);
  eps = number("attention.layer_norm_rms_epsilon").value();
  interleaved = llama;  // its GGUF files have the rows of Q and K permuted for that
  gelu = gemma;
  base_global = number("rope.freq_base").value_or(gemma ? 1e6 : 1e4);
  base_local = gemma ? 1e4 : base_global;
  if (file.text(arch + ".rope.scaling.type").value_or("none") == "linear")
    linear_scale = number("rope.scaling.factor").value();
  factors = vector("rope_freqs.weight");
  size_t global_every = 1;
  if (gemma) {
    embedding_scale = std::sqrt(static_cast<double>(width));
    window = integer("attention.sliding_window").value();
    global_every = integer("attention.sliding_window_pattern").value_or(6);
  }
  embedding = matrix("token_embd.weight");
  output = file.find_tensor("output.weight") != nullptr ? matrix("output.weight") : embedding;
  output_norm = vector("output_norm.weight");
  vocab = file.texts("tokenizer.ggml.tokens")->size();
  for (size_t l = 0; l < n_layers; ++l) {
    const std::string p = "blk." + std::to_string(l) + ".";
    Layer layer;
    layer.local = (l + 1) % global_every != 0;
    layer.attn_norm = vector(p + "attn_norm.weight");
    layer.q_bias = vector(p + "attn_q.bias");
    layer.k_bias = vector(p + "attn_k.bias");
    layer.v_bias = vector(p + "attn_v.bias");
    layer.q_norm = vector(p + "attn_q_norm.weight");
    layer.k_norm = vector(p + "attn_k_norm.weight");
    layer.attn_post_norm = vector(p + "post_attention_norm.weight");
    layer.ffn_norm = vector(p + "ffn_norm.weight");
    layer.ffn_post_norm = vector(p + "post_ffw_norm.weight");
    layer.q = matrix(p + "attn_q.weight");
    layer.k = matrix(p + "attn_k.weight");
    layer.v = matrix(p + "attn_v.weight");
    layer.o = matrix(p + "attn_output.weight");
    layer.gate = matrix(p + "ffn_gate.weight");
    layer.up = matrix(p + "ffn_up.weight");
    layer.down = matrix(p + "ffn_down.weight");
    layers.push_back(std::move(layer));
  }
}

void ReferenceModel::Model::rotate(double* head, size_t pos, bool local, Noise& noise) const {
  for (size_t i = 0; i < rope_dims / 2; ++i) {
    double frequency =
        std::pow(local ? base_local : base_global, -2.0 * static_cast<double>(i) / static_cast<double>(rope_dims));
    if (!local) frequency /= linear_scale;
    if (!factors.empty()) frequency /= factors[i];
    const double angle = static_cast<double>(pos) * frequency, c = std::cos(angle), s = std::sin(angle);
    double& a = head[interleaved ? 2 * i : i];
    double& b = head[interleaved ? 2 * i + 1 : i + rope_dims / 2];
    const double length = noise.float32() ? 4 * kU * std::hypot(a, b) : 0, x = a, y = b;
    a = x * c - y * s + noise.within(length);
    b = x * s + y * c + noise.within(length);
  }
}

Rows ReferenceModel::Model::attention(const Layer& layer, Rows q, Rows k, Rows v, Noise& noise, Mass* mass) const {
  const size_t d = head_dim;
  for (size_t t = 0; t < q.size(); ++t) {
    for (size_t h = 0; h < n_heads; ++h) {
      if (!layer.q_norm.empty()) rms_norm(&q[t][h * d], d, layer.q_norm, eps, noise);
      rotate(&q[t][h * d], t, layer.local, noise);
    }
    for (double& x : v[t]) x = noise.half(x);
    for (size_t h = 0; h < n_kv_heads; ++h) {
      if (!layer.k_norm.empty()) rms_norm(&k[t][h * d], d, layer.k_norm, eps, noise);
      for (size_t i = 0; i < d; ++i) k[t][h * d + i] = noise.half(k[t][h * d + i]);
      rotate(&k[t][h * d], t, layer.local, noise);
      for (size_t i = 0; i < d; ++i) k[t][h * d + i] = noise.half(k[t][h * d + i]);
    }
  }
  Rows out(q.size(), Row(n_heads * d, 0.0));
  for (size_t t = 0; t < q.size(); ++t) {
    const size_t first = layer.local && window > 0 && t + 1 > window ? t + 1 - window : 0;
    for (size_t h = 0; h < n_heads; ++h) {
      const size_t at = h / (n_heads / n_kv_heads) * d;
      Row p;
      double most = -INFINITY;
      for (size_t j = first; j <= t; ++j) {
        double dot = 0, squares = 0;
        for (size_t i = 0; i < d; ++i) {
          const double product = q[t][h * d + i] * k[j][at + i];
          dot += product;
          squares += product * product;
        }
        if (noise.float32()) dot += noise.within(std::sqrt(static_cast<double>(d) * squares) * kU);
        p.push_back(noise.rounded(dot / std::sqrt(static_cast<double>(d)), 2));
        most = std::max(most, p.back());
      }
      double sum = 0;
      for (double& x : p) sum += x = noise.rounded(std::exp(x - most), 4);
      sum = noise.rounded(sum, std::sqrt(static_cast<double>(p.size())));
      for (size_t j = first; mass != nullptr && t >= mass->first_row && j <= t; ++j) {
        mass->of_key[j] = std::max(mass->of_key[j], noise.rounded(p[j - first] / sum));
      }
      for (size_t i = 0; i < d; ++i) {
        double squares = 0;
        double& y = out[t][h * d + i];
        for (size_t j = first; j <= t; ++j) {
          const double product = p[j - first] / sum * v[j][at + i];
          y += product;
          squares += product * product;
        }
        if (noise.float32()) y += noise.within(std::sqrt(static_cast<double>(p.size()) * squares) * kU);
      }
    }
  }
  return out;
}

void ReferenceModel::Model::run_layer(const Layer& w, Rows& x, Noise& noise, Mass* mass) const {
  Rows q, k, v;
  for (const Row& row : x) {
    Row h = row;
    rms_norm(h.data(), width, w.attn_norm, eps, noise);
    q.push_back(multiply(w.q, h, noise, w.q_bias));
    k.push_back(multiply(w.k, h, noise, w.k_bias));
    v.push_back(multiply(w.v, h, noise, w.v_bias));
  }
  const Rows attended = attention(w, std::move(q), std::move(k), std::move(v), noise, mass);
  for (size_t t = 0; t < x.size(); ++t) {
    Row mixed = multiply(w.o, attended[t], noise);
    if (!w.attn_post_norm.empty()) rms_norm(mixed.data(), width, w.attn_post_norm, eps, noise);
    add_to(x[t], mixed, noise);
    Row h = x[t];
    rms_norm(h.data(), width, w.ffn_norm, eps, noise);
    Row gate = multiply(w.gate, h, noise);
    const Row up = multiply(w.up, h, noise);
    for (size_t i = 0; i < gate.size(); ++i) {
      const double g = gate[i], cubic = std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g);
      gate[i] = noise.rounded((gelu ? 0.5 * g * (1 + std::tanh(cubic)) : g / (1 + std::exp(-g))) * up[i], 5);
    }
    Row y = multiply(w.down, gate, noise);
    if (!w.ffn_post_norm.empty()) rms_norm(y.data(), width, w.ffn_post_norm, eps, noise);
    add_to(x[t], y, noise);
  }
}

ReferenceModel::ReferenceModel(const GgufFile& file) : model_(std::make_unique<Model>(file)) {}
ReferenceModel::~ReferenceModel() = default;

size_t ReferenceModel::vocab() const { return model_->vocab; }
size_t ReferenceModel::n_layers() const { return model_->n_layers; }

Rows ReferenceModel::Model::embed(std::span<const int32_t> ids, Noise& noise) const {
  Rows x;
  for (const int32_t id : ids) {
    const auto from = embedding.values.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(id) * width);
    Row row(from, from + static_cast<ptrdiff_t>(width));
    for (double& value : row) value = noise.rounded(value * embedding_scale);
    x.push_back(std::move(row));
  }
  return x;
}

std::vector<double> ReferenceModel::logits(std::span<const int32_t> ids, Rounding rounding, uint64_t seed) const {
  const Model& m = *model_;
  Noise noise(rounding, seed);
  Rows x = m.embed(ids, noise);
  for (const Layer& layer : m.layers) m.run_layer(layer, x, noise);
  std::vector<double> all;
  for (Row& row : x) {
    rms_norm(row.data(), m.width, m.output_norm, m.eps, noise);
    const Row y = multiply(m.output, row, noise);
    all.insert(all.end(), y.begin(), y.begin() + static_cast<ptrdiff_t>(m.vocab));
  }
  return all;
}

std::vector<double> ReferenceModel::key_mass(std::span<const int32_t> ids, size_t layer, size_t first_row,
                                             Rounding rounding, uint64_t seed) const {
  Noise noise(rounding, seed);
  Rows x = model_->embed(ids, noise);
  Mass mass{first_row, Row(ids.size(), 0.0)};
  for (size_t l = 0; l <= layer; ++l) model_->run_layer(model_->layers[l], x, noise, l == layer ? &mass : nullptr);
  return mass.of_key;
}

double largest_shift(const ReferenceModel& model, std::span<const int32_t> ids, Rounding rounding, int n_seeds) {
  const std::vector<double> exact = model.logits(ids);
  double most = 0;
  for (int seed = 1; seed <= n_seeds; ++seed) {
    const std::vector<double> moved = model.logits(ids, rounding, static_cast<uint64_t>(seed));
    for (size_t i = 0; i < exact.size(); ++i) most = std::max(most, std::abs(moved[i] - exact[i]));
  }
  return most;
}

double kl64(std::span<const double> p_logits, std::span<const double> q_logits) {
  double p_sum = 0, q_sum = 0, kl = 0;
  const double p_top = *std::max_element(p_logits.begin(), p_logits.end());
  const double q_top = *std::max_element(q_logits.begin(), q_logits.end());
  for (const double l : p_logits) p_sum += std::exp(l - p_top);
  for (const double l : q_logits) q_sum += std::exp(l - q_top);
  for (size_t i = 0; i < p_logits.size(); ++i) {
    const double log_p = p_logits[i] - p_top - std::log(p_sum), log_q = q_logits[i] - q_top - std::log(q_sum);
    kl += std::exp(log_p) * (log_p - log_q);
  }
  return kl;
}

double mean_kl(const ReferenceModel& model, std::span<const int32_t> ids, Rounding rounding, int n_seeds) {
  const std::vector<double> exact = model.logits(ids);
  const size_t v = model.vocab();
  double sum = 0;
  for (int seed = 1; seed <= n_seeds; ++seed) {
    const std::vector<double> moved = model.logits(ids, rounding, static_cast<uint64_t>(seed));
    for (size_t t = 0; t < ids.size(); ++t)
      sum += kl64(std::span(exact).subspan(t * v, v), std::span(moved).subspan(t * v, v));
  }
  return sum / static_cast<double>(ids.size() * static_cast<size_t>(n_seeds));
}

}  // namespace cento::test
