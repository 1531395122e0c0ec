// Input to measure speed with: random words and token ids of the model's own vocabulary, the same on every run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "model/tokenizer.h"

namespace cento {

// `n` ids drawn from those that stand for text, never one of control; a model's BOS first if it wants one.
std::vector<int32_t> synthetic_ids(const Tokenizer& tokenizer, size_t n, Rng& rng);

// Lower-case words of letters that the vocabulary holds whole; a few fixed ones if it holds hardly any.
std::vector<std::string> vocabulary_words(const Tokenizer& tokenizer);

// As many of random `words` (not empty) as have at most n_tokens together, but one at least; `count` says how many
// tokens a text has.
std::string synthetic_text(const std::vector<std::string>& words, size_t n_tokens,
                           const std::function<size_t(const std::string&)>& count, Rng& rng);

}  // namespace cento
