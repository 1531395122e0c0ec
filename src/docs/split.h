// Where a long text may be cut: lines, sentences, words, characters.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>
#include <vector>

namespace cento {

struct TextRange {
  size_t begin = 0, end = 0;  // bytes, never inside a character
};

enum class SplitAt { kLines, kSentences };

using CountTokens = std::function<size_t(std::string_view)>;

// Cuts `text` into ranges in order that together hold all of it but white space between them, each of at most `room`
// tokens by the sum of its parts: as many whole lines or sentences as go in, a longer one by words, a longer word
// between characters (behind a CJK comma if there is one). room > 0; a single character may be above it.
std::vector<TextRange> split_text(std::string_view text, SplitAt where, size_t room, const CountTokens& count);

// The best place to cut `text` near its middle: 0 < place < text.size(), or 0 if it is one character.
size_t middle_cut(std::string_view text);

}  // namespace cento
