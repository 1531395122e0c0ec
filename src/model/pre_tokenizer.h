// Cuts text into the words that byte-level BPE works on. The PCRE2 header stops in pre_tokenizer.cc.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace cento {

// Thread-safe after construction.
class PreTokenizer {
 public:
  // By the value of tokenizer.ggml.pre; nullopt if it is not known.
  static std::optional<PreTokenizer> of(std::string_view pre);
  static std::string known_names();

  // Calls `word` for each word in order; the words join to `text`, which must be valid UTF-8. Linear in the length.
  void split(std::string_view text, const std::function<void(std::string_view)>& word) const;

  bool whole_word_first() const { return whole_word_first_; }  // a word that is a token is not merged ("ignore_merges")
  bool adds_bos() const { return adds_bos_; }                  // where the file does not say

 private:
  struct Stages;
  std::shared_ptr<const Stages> stages_;
  bool whole_word_first_ = false, adds_bos_ = false;
};

}  // namespace cento
