// SentencePiece BPE through the sentencepiece library, whose model is built in memory from a GGUF file's token list.
#pragma once

#include <memory>

#include "model/tokenizer_spec.h"

namespace cento {

// Throws Error(kInput): damaged lists, scores missing.
std::unique_ptr<Tokenizer> make_spm_tokenizer(TokenizerSpec spec);

}  // namespace cento
