#include "support/gguf_writer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>

#include "support/shared_data.h"

namespace cento::test {
namespace {

constexpr uint32_t kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7, kString = 8, kArray = 9, kU64 = 10;

std::string f32(float v) { return le(std::bit_cast<uint32_t>(v), 4); }
std::string half(double v) { return le(to_fp16(static_cast<float>(v)).bits, 2); }

void pad_to(std::string& s, uint64_t alignment) {
  while (s.size() % alignment != 0) s += '\0';
}

// d such that the largest magnitude is at -8: one more step on that side than on the other.
std::string q4_0(std::span<const float> x) {
  float largest = 0;
  for (const float v : x) largest = std::abs(v) > std::abs(largest) ? v : largest;
  const float d = to_float(to_fp16(largest / -8));
  std::string block = half(d);
  const auto q = [&](float v) {
    return static_cast<unsigned>(std::clamp(d == 0 ? 8.0f : std::round(v / d) + 8, 0.0f, 15.0f));
  };
  for (size_t j = 0; j < 16; ++j) block += static_cast<char>(q(x[j]) | q(x[j + 16]) << 4);
  return block;
}

std::string q4_1(std::span<const float> x) {
  const auto [low, high] = std::minmax_element(x.begin(), x.end());
  const float m = to_float(to_fp16(*low)), d = to_float(to_fp16((*high - *low) / 15));
  std::string block = half(d) + half(m);
  const auto q = [&](float v) {
    return static_cast<unsigned>(d == 0 ? 0.0f : std::clamp(std::round((v - m) / d), 0.0f, 15.0f));
  };
  for (size_t j = 0; j < 16; ++j) block += static_cast<char>(q(x[j]) | q(x[j + 16]) << 4);
  return block;
}

std::string q8_0(std::span<const float> x) {
  float largest = 0;
  for (const float v : x) largest = std::max(largest, std::abs(v));
  const float d = to_float(to_fp16(largest / 127));
  std::string block = half(d);
  for (const float v : x) {
    block += static_cast<char>(static_cast<int8_t>(d == 0 ? 0.0f : std::clamp(std::round(v / d), -127.0f, 127.0f)));
  }
  return block;
}

// Where the half floats of a block lie, and what d must be multiplied with for the wanted deviation of the values if
// all other bits are random. With uniform integers, E[(q - mean)^2] = (n^2 - 1) / 12 for n steps, so for Q4_K: d *
// sqrt(E[sc^2] * 21.25 + 7.5^2 * 2 * var(sc)), sc in 0..63, when dmin = 7.5 * d; the others alike.
struct BlockRecipe {
  DType type;
  int d_at;
  double d_factor;    // d = deviation * d_factor
  int min_at;         // or -1
  double min_factor;  // min = d * min_factor
};
constexpr BlockRecipe kRecipes[] = {
    {DType::kQ4_0, 0, 1 / 4.64, -1, 0},     {DType::kQ4_1, 0, 1 / 4.61, 2, -7.5}, {DType::kQ5_0, 0, 1 / 9.25, -1, 0},
    {DType::kQ5_1, 0, 1 / 9.23, 2, -15.5},  {DType::kQ8_0, 0, 1 / 73.9, -1, 0},   {DType::kQ2_K, 80, 1 / 13.9, 82, 1.5},
    {DType::kQ3_K, 108, 1 / 43.3, -1, 0},   {DType::kQ4_K, 0, 1 / 258.0, 2, 7.5}, {DType::kQ5_K, 0, 1 / 527.0, 2, 15.5},
    {DType::kQ6_K, 208, 1 / 1369.0, -1, 0},
};

// GPT-2's printable stand-ins for bytes: the printable Latin-1 characters stand for themselves, the others, in order,
// for U+0100 and up.
std::vector<std::string> byte_tokens() {
  std::vector<std::string> tokens;
  uint32_t next = 256;
  for (uint32_t b = 0; b < 256; ++b) {
    const bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    const uint32_t c = itself ? b : next++;
    std::string s;
    if (c < 0x80) {
      s += static_cast<char>(c);
    } else {
      s += static_cast<char>(0xc0 | c >> 6);
      s += static_cast<char>(0x80 | (c & 0x3f));
    }
    tokens.push_back(s);
  }
  return tokens;
}

class ModelBuilder {
 public:
  explicit ModelBuilder(const TinyModelSpec& spec) : s_(spec), rng_(spec.seed) {}

  GgufWriter build() {
    metadata();
    vocabulary();
    const uint64_t c = s_.width, n_vocab = vocab_.tokens.size() + s_.padding_rows;
    const DType embedding_type = s_.embedding_type.value_or(s_.type);
    // Unit rows after gemma's scaling by sqrt(C), and about that size elsewhere: the first norm makes them equal
    // anyway.
    matrix("token_embd.weight", n_vocab, c, embedding_type, gemma() ? 1 / std::sqrt(static_cast<double>(c)) : 1);
    for (uint32_t l = 0; l < s_.layers; ++l) layer("blk." + std::to_string(l) + ".");
    norm("output_norm.weight", c);
    // Logits with a spread of a few units: a greedy choice that is stable and not always the same.
    if (!s_.tied && !gemma())
      matrix("output.weight", n_vocab, c, embedding_type, 3 / std::sqrt(static_cast<double>(c)));
    if (s_.rope_llama3) {
      std::vector<float> factors(s_.head_dim / 2);
      for (size_t i = 0; i < factors.size(); ++i) {
        factors[i] = 1 + 7 * static_cast<float>(i) / static_cast<float>(std::max<size_t>(factors.size() - 1, 1));
      }
      w_.add_tensor("rope_freqs.weight", {factors.size()}, DType::kF32, factors);
    }
    return std::move(w_);
  }

 private:
  bool gemma() const { return s_.architecture == "gemma3"; }

  void metadata() {
    const std::string a = s_.architecture + ".";
    w_.put_text("general.architecture", s_.architecture).put_text("general.name", s_.name);
    w_.put_u32(a + "block_count", s_.layers).put_u32(a + "context_length", s_.context);
    w_.put_u32(a + "embedding_length", s_.width).put_u32(a + "feed_forward_length", s_.ffn);
    w_.put_u32(a + "attention.head_count", s_.heads).put_u32(a + "attention.head_count_kv", s_.kv_heads);
    w_.put_f32(a + "attention.layer_norm_rms_epsilon", s_.norm_eps);
    w_.put_f32(a + "rope.freq_base", s_.rope_base.value_or(gemma() ? 1e6f : 1e4f));
    if (gemma() || s_.head_dim * s_.heads != s_.width) {
      w_.put_u32(a + "attention.key_length", s_.head_dim).put_u32(a + "attention.value_length", s_.head_dim);
    }
    if (gemma()) w_.put_u32(a + "attention.sliding_window", s_.window);
    if (s_.architecture == "llama") w_.put_u32(a + "rope.dimension_count", s_.head_dim);
    if (s_.rope_linear != 1) {
      w_.put_text(a + "rope.scaling.type", "linear").put_f32(a + "rope.scaling.factor", s_.rope_linear);
    }
  }

  void vocabulary() {
    vocab_ = s_.vocab ? *s_.vocab : s_.architecture == "qwen2" ? default_bpe_vocab() : default_spm_vocab();
    const std::string t = "tokenizer.ggml.";
    w_.put_text(t + "model", vocab_.kind == TinyVocab::Kind::kBpe ? "gpt2" : "llama");
    if (!vocab_.pre.empty()) w_.put_text(t + "pre", vocab_.pre);
    w_.put_texts(t + "tokens", vocab_.tokens);
    if (!vocab_.scores.empty()) w_.put_floats(t + "scores", vocab_.scores);
    w_.put_i32s(t + "token_type", vocab_.types);
    if (vocab_.kind == TinyVocab::Kind::kBpe) w_.put_texts(t + "merges", vocab_.merges);
    if (vocab_.bos) w_.put_u32(t + "bos_token_id", *vocab_.bos);
    if (vocab_.eos) w_.put_u32(t + "eos_token_id", *vocab_.eos);
    if (vocab_.unk) w_.put_u32(t + "unknown_token_id", *vocab_.unk);
    w_.put_bool(t + "add_bos_token", vocab_.add_bos);
    if (vocab_.add_space_prefix) w_.put_bool(t + "add_space_prefix", *vocab_.add_space_prefix);
    if (!vocab_.chat_template.empty()) w_.put_text("tokenizer.chat_template", vocab_.chat_template);
  }

  void layer(const std::string& p) {
    const uint64_t c = s_.width, f = s_.ffn, q = uint64_t{s_.heads} * s_.head_dim,
                   kv = uint64_t{s_.kv_heads} * s_.head_dim;
    const DType down_type = s_.down_type.value_or(s_.type);
    norm(p + "attn_norm.weight", c);
    linear(p + "attn_q.weight", q, c, s_.type);
    linear(p + "attn_k.weight", kv, c, s_.type);
    linear(p + "attn_v.weight", kv, c, down_type);
    linear(p + "attn_output.weight", c, q, s_.type);
    if (s_.architecture == "qwen2") {
      vector(p + "attn_q.bias", q, 0, 0.5);
      vector(p + "attn_k.bias", kv, 0, 0.5);
      vector(p + "attn_v.bias", kv, 0, 0.1);
    }
    if (gemma()) {
      norm(p + "attn_q_norm.weight", s_.head_dim);
      norm(p + "attn_k_norm.weight", s_.head_dim);
      norm(p + "post_attention_norm.weight", c);
      norm(p + "post_ffw_norm.weight", c);
    }
    norm(p + "ffn_norm.weight", c);
    linear(p + "ffn_gate.weight", f, c, s_.type);
    linear(p + "ffn_up.weight", f, c, s_.type);
    linear(p + "ffn_down.weight", c, f, down_type);
  }

  // y = W x keeps the size of x at gain 1.
  void linear(const std::string& name, uint64_t n, uint64_t k, DType type) {
    matrix(name, n, k, type, s_.gain / std::sqrt(static_cast<double>(k)));
  }
  void matrix(const std::string& name, uint64_t n, uint64_t k, DType type, double deviation) {
    if (k % dtype_info(type).elements != 0) throw std::invalid_argument(name + ": row is no whole number of blocks");
    w_.add_raw(name, {n, k}, static_cast<uint32_t>(type), random_blocks(type, n * k, deviation, rng_));
  }
  void norm(const std::string& name, uint64_t n) { vector(name, n, 1, 0.2); }
  void vector(const std::string& name, uint64_t n, double mean, double deviation) {
    std::vector<float> values(n);
    for (float& v : values) v = static_cast<float>(mean + deviation * std::sqrt(3.0) * (2 * rng_.uniform() - 1));
    w_.add_tensor(name, {n}, DType::kF32, values);
  }

  const TinyModelSpec& s_;
  Rng rng_;
  TinyVocab vocab_;
  GgufWriter w_;
};

}  // namespace

std::string le(uint64_t value, size_t n_bytes) {
  std::string s;
  for (size_t i = 0; i < n_bytes; ++i) s += static_cast<char>(value >> (8 * i));
  return s;
}

std::string gguf_string(const std::string& text) { return le(text.size(), 8) + text; }

GgufWriter& GgufWriter::put_raw(const std::string& key, uint32_t type, const std::string& payload) {
  keys.push_back({key, type, payload});
  return *this;
}
GgufWriter& GgufWriter::put_u32(const std::string& key, uint32_t v) { return put_raw(key, kU32, le(v, 4)); }
GgufWriter& GgufWriter::put_i32(const std::string& key, int32_t v) {
  return put_raw(key, kI32, le(static_cast<uint32_t>(v), 4));
}
GgufWriter& GgufWriter::put_u64(const std::string& key, uint64_t v) { return put_raw(key, kU64, le(v, 8)); }
GgufWriter& GgufWriter::put_f32(const std::string& key, float v) { return put_raw(key, kF32, f32(v)); }
GgufWriter& GgufWriter::put_bool(const std::string& key, bool v) { return put_raw(key, kBool, le(v ? 1 : 0, 1)); }
GgufWriter& GgufWriter::put_text(const std::string& key, const std::string& v) {
  return put_raw(key, kString, gguf_string(v));
}
GgufWriter& GgufWriter::put_texts(const std::string& key, const std::vector<std::string>& values) {
  std::string payload = le(kString, 4) + le(values.size(), 8);
  for (const std::string& v : values) payload += gguf_string(v);
  return put_raw(key, kArray, payload);
}
GgufWriter& GgufWriter::put_floats(const std::string& key, const std::vector<float>& values) {
  std::string payload = le(kF32, 4) + le(values.size(), 8);
  for (const float v : values) payload += f32(v);
  return put_raw(key, kArray, payload);
}
GgufWriter& GgufWriter::put_i32s(const std::string& key, const std::vector<int32_t>& values) {
  std::string payload = le(kI32, 4) + le(values.size(), 8);
  for (const int32_t v : values) payload += le(static_cast<uint32_t>(v), 4);
  return put_raw(key, kArray, payload);
}

GgufWriter& GgufWriter::remove(const std::string& name) {
  std::erase_if(keys, [&](const Key& k) { return k.key == name; });
  std::erase_if(tensors, [&](const Tensor& t) { return t.name == name; });
  return *this;
}

GgufWriter::Key* GgufWriter::find_key(const std::string& key) {
  const auto it = std::find_if(keys.begin(), keys.end(), [&](const Key& k) { return k.key == key; });
  return it == keys.end() ? nullptr : &*it;
}

GgufWriter::Tensor* GgufWriter::find_tensor(const std::string& name) {
  const auto it = std::find_if(tensors.begin(), tensors.end(), [&](const Tensor& t) { return t.name == name; });
  return it == tensors.end() ? nullptr : &*it;
}

GgufWriter& GgufWriter::add_raw(const std::string& name, const std::vector<uint64_t>& shape, uint32_t type,
                                std::string data) {
  tensors.push_back({name, shape, type, std::move(data), std::nullopt});
  return *this;
}

GgufWriter& GgufWriter::add_tensor(const std::string& name, const std::vector<uint64_t>& shape, DType type,
                                   const std::vector<float>& values) {
  return add_raw(name, shape, static_cast<uint32_t>(type), quantise(type, values));
}

std::string GgufWriter::header() const {
  std::string s =
      magic + le(version, 4) + le(n_tensors.value_or(tensors.size()), 8) + le(n_keys.value_or(keys.size()), 8);
  for (const Key& k : keys) s += gguf_string(k.key) + le(k.type, 4) + k.payload;
  uint64_t next = 0;
  for (const Tensor& t : tensors) {
    s += gguf_string(t.name) + le(t.shape.size(), 4);
    for (auto dim = t.shape.rbegin(); dim != t.shape.rend(); ++dim) s += le(*dim, 8);
    s += le(t.type, 4) + le(t.offset.value_or(next), 8);
    next = (next + t.data.size() + alignment - 1) / alignment * alignment;
  }
  return s;
}

std::string GgufWriter::bytes() const {
  std::string s = header();
  pad_to(s, alignment);
  for (const Tensor& t : tensors) {
    s += t.data;
    pad_to(s, alignment);
  }
  return s;
}

void GgufWriter::write(const std::string& path) const { write_all(path, bytes()); }

std::string quantise(DType type, std::span<const float> values) {
  const DTypeInfo info = dtype_info(type);
  if (values.size() % info.elements != 0) throw std::invalid_argument("quantise: no whole number of blocks");
  std::string out;
  out.reserve(values.size() / info.elements * info.bytes);
  for (size_t i = 0; i < values.size(); i += info.elements) {
    const std::span<const float> x = values.subspan(i, info.elements);
    switch (type) {
      case DType::kF32:
        out += f32(x[0]);
        break;
      case DType::kF16:
        out += half(x[0]);
        break;
      case DType::kBF16: {  // nearest, ties to even; values are finite
        const uint32_t u = std::bit_cast<uint32_t>(x[0]);
        out += le((u + 0x7fffu + (u >> 16 & 1u)) >> 16, 2);
        break;
      }
      case DType::kQ4_0:
        out += q4_0(x);
        break;
      case DType::kQ4_1:
        out += q4_1(x);
        break;
      case DType::kQ8_0:
        out += q8_0(x);
        break;
      default:
        throw std::invalid_argument(std::string("quantise: no quantiser for ") + info.name);
    }
  }
  return out;
}

std::string random_blocks(DType type, size_t n, double deviation, Rng& rng) {
  const DTypeInfo info = dtype_info(type);
  if (n % info.elements != 0) throw std::invalid_argument("random_blocks: no whole number of blocks");
  if (info.elements == 1) {
    std::vector<float> values(n);
    for (float& v : values) v = static_cast<float>(deviation * std::sqrt(3.0) * (2 * rng.uniform() - 1));
    return quantise(type, values);
  }
  const BlockRecipe& recipe =
      *std::find_if(std::begin(kRecipes), std::end(kRecipes), [&](const BlockRecipe& r) { return r.type == type; });
  std::string out;
  out.reserve(n / info.elements * info.bytes + 8);
  for (size_t i = 0; i < n; i += info.elements) {
    const size_t start = out.size();
    while (out.size() < start + info.bytes) out += le(rng.next(), 8);
    out.resize(start + info.bytes);
    const double d = deviation * recipe.d_factor * (0.75 + 0.5 * rng.uniform());
    out.replace(start + static_cast<size_t>(recipe.d_at), 2, half(d));
    if (recipe.min_at >= 0) out.replace(start + static_cast<size_t>(recipe.min_at), 2, half(d * recipe.min_factor));
  }
  return out;
}

TinyVocab default_bpe_vocab() {
  TinyVocab v;
  v.kind = TinyVocab::Kind::kBpe;
  v.pre = "gpt-2";
  v.tokens = byte_tokens();
  const std::string space = v.tokens[' '];
  for (const char* merge : {"t h", "th e", "i n", "a n", "e r", "r e", "o n", "a t", "an d", "in g",
                            "e n", "o r",  "i s", "e s", "l l", "o u", "a l", "i t", "s t",  "o f"}) {
    v.merges.push_back(merge);
  }
  for (const char* word : {"t", "a", "s", "o", "the", "in", "and", "of", "th", "is"})
    v.merges.push_back(space + " " + word);
  for (const std::string& merge : v.merges) {
    std::string token = merge;
    token.erase(token.find(' '), 1);
    v.tokens.push_back(token);
  }
  v.types.assign(v.tokens.size(), 1);
  for (const char* special : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) {
    v.tokens.push_back(special);
    v.types.push_back(3);
  }
  v.bos = static_cast<uint32_t>(v.tokens.size() - 3);
  v.eos = static_cast<uint32_t>(v.tokens.size() - 1);
  return v;
}

TinyVocab default_spm_vocab() {
  TinyVocab v;
  const auto add = [&](const std::string& token, int32_t type, float score) {
    v.tokens.push_back(token);
    v.types.push_back(type);
    v.scores.push_back(score);
  };
  add("<unk>", 2, 0);
  add("<s>", 3, 0);
  add("</s>", 3, 0);
  add("<start_of_turn>", 3, 0);
  add("<end_of_turn>", 3, 0);
  static constexpr char kHex[] = "0123456789ABCDEF";
  for (int b = 0; b < 256; ++b) add(std::string("<0x") + kHex[b >> 4] + kHex[b & 15] + ">", 6, 0);
  const std::string space = "\xE2\x96\x81";  // U+2581
  float rank = 0;  // as in real files the score is minus the rank: an earlier piece is merged first
  for (const char* piece : {"th", "the", "in", "an", "er", "re", "on", "at", "and", "ing",
                            "en", "or",  "is", "es", "ll", "ou", "al", "it", "st",  "of"}) {
    add(piece, 1, -rank++);
  }
  for (const char* piece : {"t", "a", "s", "o", "the", "in", "and", "of", "th", "is"}) add(space + piece, 1, -rank++);
  add(space, 1, -rank++);
  for (char c = '!'; c <= '~'; ++c) add(std::string(1, c), 1, -rank++);
  v.bos = 1;
  v.eos = 2;
  v.unk = 0;
  v.add_bos = true;
  return v;
}

GgufWriter tiny_model(const TinyModelSpec& spec) { return ModelBuilder(spec).build(); }

void write_tiny_model(const std::string& path, const TinyModelSpec& spec) { tiny_model(spec).write(path); }

}  // namespace cento::test
