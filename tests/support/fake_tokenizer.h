// A tokenizer without a vocabulary file, for tests of what counts tokens: a byte is a token, and so is a pair of ASCII
// letters or blanks. Decodes exactly.
#pragma once

#include <string>
#include <vector>

#include "model/tokenizer.h"

namespace cento::test {

class FakeTokenizer : public Tokenizer {
 public:
  FakeTokenizer() { kind = "fake"; }

  std::vector<int32_t> encode(std::string_view text, bool = true) const override {
    std::vector<int32_t> ids;
    for (size_t i = 0; i < text.size();) {
      const auto a = static_cast<unsigned char>(text[i]);
      if (i + 1 < text.size() && pairs(text[i]) && pairs(text[i + 1])) {
        ids.push_back(256 + a * 256 + static_cast<unsigned char>(text[i + 1]));
        i += 2;
      } else {
        ids.push_back(a);
        ++i;
      }
    }
    return ids;
  }
  std::vector<int32_t> encode_with_specials(std::string_view text) const override { return encode(text); }
  std::vector<Run> split_specials(std::string_view text) const override { return {{std::nullopt, text}}; }
  std::string piece(int32_t id, bool = false) const override {
    if (id < 0 || id >= vocab_size()) return "";
    if (id < 256) return std::string(1, static_cast<char>(id));
    return {static_cast<char>((id - 256) / 256), static_cast<char>((id - 256) % 256)};
  }
  int32_t vocab_size() const override { return 256 + 65536; }
  bool is_control(int32_t) const override { return false; }
  std::optional<int32_t> find(std::string_view piece_text) const override {
    const std::vector<int32_t> ids = encode(piece_text);
    return ids.size() == 1 ? std::optional(ids[0]) : std::nullopt;
  }
  bool has_dummy_prefix() const override { return false; }

 private:
  static bool pairs(char c) { return c == ' ' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
};

}  // namespace cento::test
