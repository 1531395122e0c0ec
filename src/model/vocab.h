// The token list of a model: names, types, look-up by name, and the part of Tokenizer that follows from these alone.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer.h"
#include "model/tokenizer_spec.h"

namespace cento {

// Numbers of GGUF's tokenizer.ggml.token_type (and of SentencePiece's proto).
enum class TokenType : uint8_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

// Names lie in one block of memory. If two tokens have one name, find() gives the later one, as llama.cpp does.
class Vocab {
 public:
  // `types` is empty or as long as `names`. Throws Error(kInput).
  Vocab(const std::vector<std::string>& names, const std::vector<int64_t>& types, const std::string& where);

  int32_t size() const { return static_cast<int32_t>(types_.size()); }
  bool contains(int32_t id) const { return id >= 0 && id < size(); }
  std::string_view name(int32_t id) const;  // id in [0, V)
  TokenType type(int32_t id) const { return types_[static_cast<size_t>(id)]; }
  std::optional<int32_t> find(std::string_view name) const;

 private:
  std::string names_;
  std::vector<uint32_t> ends_;    // [V] end of each name in names_
  std::vector<TokenType> types_;  // [V]
  std::vector<int32_t> slots_;    // open addressing, -1 is free; a power of two
};

// Finds names in text: the leftmost, and of those the longest.
class NameMatcher {
 public:
  struct Match {
    size_t begin, length;
    int32_t id;
  };
  // Names longer than kMaxName bytes and empty ones are left out: the first so that a hostile list cannot make a search
  // slow.
  void add(std::string name, int32_t id);
  void finish();  // once, after the last add
  bool empty() const { return names_.empty(); }
  std::optional<Match> find(std::string_view text, size_t from) const;

  static constexpr size_t kMaxName = 256;

 private:
  std::optional<Match> longest_at(std::string_view text, size_t i) const;

  struct Name {
    std::string text;
    int32_t id;
  };
  std::vector<Name> names_;  // sorted
  std::array<bool, 256> starts_{};
};

// Common part of both tokenizers. A user-defined token is matched in plain text, except one that ends a turn ("</s>" in
// Phi-3's file): no document may end a turn, so these count as control tokens whatever type the file gives them.
class VocabTokenizer : public Tokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text, bool dummy_prefix) const final;
  std::vector<int32_t> encode_with_specials(std::string_view text) const final;
  std::vector<Run> split_specials(std::string_view text) const final;
  std::string piece(int32_t id, bool specials) const final;
  int32_t vocab_size() const final { return vocab_.size(); }
  bool is_control(int32_t id) const final;
  std::optional<int32_t> find(std::string_view piece_text) const final { return vocab_.find(piece_text); }

 protected:
  // Throws Error(kInput) for damaged lists or ids outside of them.
  explicit VocabTokenizer(const TokenizerSpec& spec);

  // Appends the ids of valid UTF-8 that holds no user-defined token.
  virtual void encode_run(std::string_view text, std::vector<int32_t>& ids) const = 0;
  // Bytes of a token that is neither control nor unknown nor unused.
  virtual std::string bytes_of(int32_t id) const = 0;
  // A token name as it stands in text ("▁" of SentencePiece is a space).
  virtual std::string plain_name(int32_t id) const = 0;

  void build_matchers();  // called once by the constructors of the leaves, when plain_name() works

  Vocab vocab_;
  std::optional<int32_t> unknown_;

 private:
  bool swallows_space(int32_t id) const;

  NameMatcher user_defined_, specials_;
  bool phi3_ = false;
};

}  // namespace cento
