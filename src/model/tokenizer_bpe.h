// Byte-level BPE as of GPT-2: text is cut into words by a pattern, each word's bytes are merged pair by pair, best rank
// first.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer_spec.h"

namespace cento {

// Throws Error(kInput): unknown pre-tokeniser (named), no merges, damaged lists.
std::unique_ptr<Tokenizer> make_bpe_tokenizer(TokenizerSpec spec);

// The words that the pre-tokeniser `pre` (a value of tokenizer.ggml.pre) makes of `text`; they join to `text` again.
// Throws Error(kInput) for an unknown name. `text` must be valid UTF-8.
std::vector<std::string> pre_tokenize(std::string_view pre, std::string_view text);

}  // namespace cento
