// What a GGUF file says about its tokenizer, as plain lists: the common input of both kinds of tokenizer, so that tests
// can build one without a file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/tokenizer.h"

namespace cento {

struct TokenizerSpec {
  std::string model;                              // tokenizer.ggml.model: "gpt2", "llama"
  std::string pre;                                // tokenizer.ggml.pre; "" if absent
  std::string architecture;                       // general.architecture
  std::string model_name;                         // general.name
  std::vector<std::string> tokens;                // [V]
  std::vector<float> scores;                      // [V] or empty
  std::vector<int64_t> types;                     // [V] or empty: all normal
  std::vector<std::string> merges;                // "left right", best first
  std::optional<int64_t> bos, eos, eot, unknown;  // ids
  std::optional<bool> add_bos, add_space_prefix;
  std::string where;  // path, for messages
};

// Throws Error(kInput) as make_tokenizer(GgufFile) does.
std::unique_ptr<Tokenizer> make_tokenizer(TokenizerSpec spec);

}  // namespace cento
