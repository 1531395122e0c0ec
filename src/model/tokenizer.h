// Text <-> token ids. One interface over byte-level BPE and SentencePiece, both built from a GGUF file's metadata.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/gguf_reader.h"

namespace cento {

// Thread-safe after construction.
class Tokenizer {
 public:
  // A stretch of template text: the token a special name stands for, or plain text between such names.
  struct Run {
    std::optional<int32_t> special;
    std::string_view text;  // part of the text that was split; empty for a special
  };

  virtual ~Tokenizer() = default;

  // Ids of `text` as plain text: nothing in it is read as a control token, no BOS or EOS is added. Any bytes are
  // accepted; bytes that are no UTF-8 go through byte tokens or U+FFFD, never an exception. Near-linear in the length.
  // `dummy_prefix`: SentencePiece models that put a space before the first word do so only if this is true.
  virtual std::vector<int32_t> encode(std::string_view text, bool dummy_prefix = true) const = 0;

  // As encode, but the names of control and user-defined tokens in `text` become those tokens. For template text of
  // ours only.
  virtual std::vector<int32_t> encode_with_specials(std::string_view text) const = 0;

  // `text` cut at the names of control and user-defined tokens, in order; white space that a model's special tokens
  // swallow behind them (Phi-3) is left out.
  virtual std::vector<Run> split_specials(std::string_view text) const = 0;

  // Bytes that `id` stands for; control tokens give "" unless `specials`. An id outside [0, V) gives "".
  virtual std::string piece(int32_t id, bool specials = false) const = 0;
  // Text of a sequence: pieces joined; the leading space that a dummy prefix put there is taken off again if
  // `strip_prefix`.
  std::string decode(std::span<const int32_t> ids, bool specials = false, bool strip_prefix = true) const;

  virtual int32_t vocab_size() const = 0;
  virtual bool is_control(int32_t id) const = 0;
  virtual std::optional<int32_t> find(std::string_view piece_text) const = 0;  // exact name of a token
  virtual bool has_dummy_prefix() const = 0;

  std::optional<int32_t> bos, eos;  // as the file says
  bool add_bos = false;             // a prompt starts with bos
  std::vector<int32_t>
      end_of_turn;   // any of these ends an answer: eos, <|im_end|>, <|eot_id|>, <end_of_turn>, ... where present
  std::string kind;  // "bpe/gpt-2", "bpe/qwen2", "spm", ... for `model show`
};

// Throws Error(kInput): no tokenizer in the file, an unknown model or pre-tokeniser (named), damaged lists.
std::unique_ptr<Tokenizer> make_tokenizer(const GgufFile& file);

// Turns a stream of ids into text that never ends inside a UTF-8 character.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  std::string push(int32_t id);  // text that is complete now; may be empty
  std::string finish();          // what is left, invalid parts as U+FFFD

 private:
  const Tokenizer* tokenizer_;
  std::string pending_;
};

}  // namespace cento
