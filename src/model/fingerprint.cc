#include "model/fingerprint.h"

#include <algorithm>
#include <bit>
#include <vector>

namespace cento {
namespace {

constexpr uint64_t kSlice = 8ull << 20;  // hashed at once, then released: a model is not to be in memory for its hash

uint64_t bits(double v) { return std::bit_cast<uint64_t>(v); }

void add_config(Hasher& h, const ModelConfig& c) {
  h.add_text(c.architecture);
  for (const uint32_t n : {c.n_layers, c.n_heads, c.n_kv_heads, c.head_dim, c.width, c.ffn_width, c.vocab,
                           c.context_max, c.rope_dims, c.window}) {
    h.add_u64(n);
  }
  for (const double v : {static_cast<double>(c.norm_eps), c.rope_base, c.rope_base_local, c.rope_scale,
                         static_cast<double>(c.embedding_scale), static_cast<double>(c.attention_scale)}) {
    h.add_u64(bits(v));
  }
  h.add_u64(static_cast<uint64_t>(c.rope_pairs)).add_u64(static_cast<uint64_t>(c.rope_scaling));
  h.add_u64(static_cast<uint64_t>(c.activation));
  for (const bool flag : {c.qkv_bias, c.qk_norm, c.post_norms, c.tied_output}) h.add_u64(flag ? 1 : 0);
  h.add_u64(c.layer_is_local.size());
  for (const bool local : c.layer_is_local) h.add_u64(local ? 1 : 0);
}

// Everything under "tokenizer.ggml.": lists and numbers that decide which ids a text becomes. The chat template is text
// in front of the tokenizer; what it makes of a prompt shows in the token ids, which are part of every key.
void add_tokenizer(Hasher& h, const GgufFile& file) {
  static constexpr std::string_view kPrefix = "tokenizer.ggml.";
  for (auto it = file.values().lower_bound(kPrefix); it != file.values().end(); ++it) {  // sorted by key
    if (!it->first.starts_with(kPrefix)) break;
    const GgufValue& v = it->second;
    h.add_text(it->first).add_u64(static_cast<uint64_t>(v.type)).add_u64(static_cast<uint64_t>(v.element));
    h.add_u64(v.count).add_u64(v.bytes.size()).add(v.bytes);
  }
}

void add_tensors(Hasher& h, const GgufFile& file) {
  std::vector<const GgufTensor*> tensors;
  for (const GgufTensor& t : file.tensors()) tensors.push_back(&t);
  std::sort(tensors.begin(), tensors.end(), [](const auto* a, const auto* b) { return a->name < b->name; });
  h.add_u64(tensors.size());
  for (const GgufTensor* t : tensors) {
    h.add_text(t->name).add_u64(t->raw_type).add_u64(t->view.n_dims);
    for (uint32_t i = 0; i < t->view.n_dims; ++i) h.add_u64(t->view.shape[i]);
    h.add_u64(t->view.n_bytes);
    if (!t->readable) continue;
    for (uint64_t at = 0; at < t->view.n_bytes; at += kSlice) {
      const std::span slice(t->view.data + at, std::min(kSlice, t->view.n_bytes - at));
      h.add(slice);
      file.file().release(slice);
    }
  }
}

}  // namespace

Hash model_fingerprint(const GgufFile& file, const ModelConfig& config) {
  Hasher h("cento model 1");
  add_config(h, config);
  add_tokenizer(h, file);
  add_tensors(h, file);
  return h.finish();
}

Hash model_sample(const MappedFile& file) {
  constexpr uint64_t kPage = 4096, kPages = 256;
  const std::span<const std::byte> bytes = file.bytes();
  Hasher h("cento model sample");
  h.add_u64(bytes.size());
  const uint64_t n_pages = (bytes.size() + kPage - 1) / kPage;
  for (uint64_t i = 0; i < kPages; ++i) {
    const uint64_t page = n_pages <= kPages ? i : i * (n_pages - 1) / (kPages - 1);
    if (page >= n_pages) break;
    h.add(bytes.subspan(page * kPage, std::min(kPage, bytes.size() - page * kPage)));
  }
  return h.finish();
}

Hash kv_layout_id(const ModelConfig& config, bool precision_f32) {
  Hasher h("cento kv layout 1");
  for (const uint32_t n : {config.n_layers, config.n_kv_heads, config.head_dim}) h.add_u64(n);
  h.add_u64(precision_f32 ? 1 : 0);
  return h.finish();
}

}  // namespace cento
