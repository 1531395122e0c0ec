// Writes GGUF files: single keys and tensors for tests of the reader (also bad ones), and whole tiny models with seeded
// random weights for tests of everything above it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/tensor_view.h"

namespace cento::test {

// Collects keys and tensors; bytes() lays them out. Nothing is checked: a test may write what no program should.
class GgufWriter {
 public:
  struct Key {
    std::string key;
    uint32_t type;        // GGUF's number, see GgufValue::Type
    std::string payload;  // as it stands in the file
  };
  struct Tensor {
    std::string name;
    std::vector<uint64_t> shape;  // slowest axis first, as in TensorView
    uint32_t type;
    std::string data;
    std::optional<uint64_t> offset;  // written in the table instead of where the data is
  };

  uint32_t version = 3;
  std::string magic = "GGUF";
  uint64_t alignment = 32;                    // used for the layout; the key general.alignment is the caller's business
  std::optional<uint64_t> n_tensors, n_keys;  // counts in the header; else the true ones
  std::vector<Key> keys;
  std::vector<Tensor> tensors;

  GgufWriter& put_u32(const std::string& key, uint32_t value);
  GgufWriter& put_i32(const std::string& key, int32_t value);
  GgufWriter& put_u64(const std::string& key, uint64_t value);
  GgufWriter& put_f32(const std::string& key, float value);
  GgufWriter& put_bool(const std::string& key, bool value);
  GgufWriter& put_text(const std::string& key, const std::string& value);
  GgufWriter& put_texts(const std::string& key, const std::vector<std::string>& values);
  GgufWriter& put_floats(const std::string& key, const std::vector<float>& values);
  GgufWriter& put_i32s(const std::string& key, const std::vector<int32_t>& values);
  GgufWriter& put_raw(const std::string& key, uint32_t type, const std::string& payload);
  GgufWriter& remove(const std::string& key_or_tensor);  // all of that name
  Key* find_key(const std::string& key);
  Tensor* find_tensor(const std::string& name);

  GgufWriter& add_raw(const std::string& name, const std::vector<uint64_t>& shape, uint32_t type, std::string data);
  // Rounds `values` (product of shape, which quantise() must be able to cut into blocks).
  GgufWriter& add_tensor(const std::string& name, const std::vector<uint64_t>& shape, DType type,
                         const std::vector<float>& values);

  std::string bytes() const;
  // Header and tensor table only, without the padding before the tensor data.
  std::string header() const;
  void write(const std::string& path) const;
};

// Little-endian bytes of a number, and a GGUF string (8-byte length first).
std::string le(uint64_t value, size_t n_bytes);
std::string gguf_string(const std::string& text);

// Blocks of F32, F16, BF16, Q4_0, Q4_1 or Q8_0 nearest to `values`; throws std::invalid_argument for another type or
// for a count that is no whole number of blocks.
std::string quantise(DType type, std::span<const float> values);

// n seeded random values of about mean 0 and standard deviation `deviation`, in any type. The block types get random
// bits in all their fields (every scale and every value occurs), with the one or two half-float scales chosen to fit.
std::string random_blocks(DType type, size_t n, double deviation, Rng& rng);

struct TinyVocab {
  enum class Kind {
    kBpe,  // byte-level BPE: tokenizer.ggml.model "gpt2"
    kSpm,  // SentencePiece: tokenizer.ggml.model "llama"
  };
  Kind kind = Kind::kSpm;
  std::string pre;  // tokenizer.ggml.pre, left out if empty
  std::vector<std::string> tokens;
  std::vector<int32_t> types;       // 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte
  std::vector<float> scores;        // SPM only
  std::vector<std::string> merges;  // BPE only, "a b"
  std::optional<uint32_t> bos, eos, unk;
  bool add_bos = false;
  std::optional<bool> add_space_prefix;
  std::string chat_template;  // left out if empty
};
// 256 byte tokens, a few dozen merges of English, <|endoftext|>, <|im_start|>, <|im_end|>; pre "gpt-2".
TinyVocab default_bpe_vocab();
// <unk>, <s>, </s>, <start_of_turn>, <end_of_turn>, 256 byte tokens, ASCII pieces and a few dozen common English ones.
TinyVocab default_spm_vocab();

// A complete small model. Block types need row lengths (width, ffn, heads * head_dim) in whole blocks: multiples of 32,
// of 256 for the K types.
struct TinyModelSpec {
  std::string architecture = "llama";  // "qwen2": QKV biases; "gemma3": QK norms, post norms, window
  std::string name = "tiny";
  uint32_t layers = 2, heads = 4, kv_heads = 2, head_dim = 16, width = 64, ffn = 96;
  uint32_t context = 1024;
  uint32_t window = 8;                  // gemma3 only
  DType type = DType::kF32;             // of the matrices of the layers
  std::optional<DType> down_type;       // of ffn_down and attn_v, as mixed files have it; else `type`
  std::optional<DType> embedding_type;  // of token_embd and output; else `type`
  std::optional<TinyVocab> vocab;       // else the default: BPE for qwen2, SPM for the others
  uint32_t padding_rows = 0;            // embedding rows beyond the tokens
  bool tied = false;                    // no output.weight; gemma3 is always tied
  std::optional<float> rope_base;       // else 10000, 1e6 for gemma3
  float rope_linear = 1;                // rope.scaling.factor of type "linear" if not 1
  bool rope_llama3 = false;             // adds rope_freqs.weight with divisors 1..8; llama only
  float norm_eps = 1e-5f;
  double gain = 1;  // of all matrices: above 1 attention is more peaked and layers matter more
  uint64_t seed = 1;
};

GgufWriter tiny_model(const TinyModelSpec& spec);
void write_tiny_model(const std::string& path, const TinyModelSpec& spec);

}  // namespace cento::test
