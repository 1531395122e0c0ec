#include "model/tokenizer_spm.h"

#include <sentencepiece_processor.h>

#include <array>
#include <bitset>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"
#include "model/vocab.h"

namespace cento {
namespace {

constexpr std::string_view kSpaceMark = "\xe2\x96\x81";  // U+2581, SentencePiece's space

std::string with_spaces(std::string_view name) {
  std::string text;
  for (size_t i = 0; i < name.size();) {
    const bool mark = name.substr(i, kSpaceMark.size()) == kSpaceMark;
    text += mark ? ' ' : name[i];
    i += mark ? kSpaceMark.size() : 1;
  }
  return text;
}

// Field numbers of sentencepiece_model.proto (Apache-2.0 schema, stable since 2018); the wire format is protobuf's.
class ProtoWriter {
 public:
  void number(uint32_t field, uint64_t value) { varint(field << 3), varint(value); }
  void real(uint32_t field, float value) {
    varint(field << 3 | 5);
    std::array<char, 4> bytes;
    std::memcpy(bytes.data(), &value, 4);  // little-endian, as every machine cento runs on
    out_.append(bytes.data(), 4);
  }
  void text(uint32_t field, std::string_view value) {
    varint(field << 3 | 2), varint(value.size());
    out_ += value;
  }
  std::string take() { return std::move(out_); }

 private:
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_ += static_cast<char>(value | 0x80);
    out_ += static_cast<char>(value);
  }
  std::string out_;
};

// "<0x41>" -> 0x41
std::optional<int> byte_of_name(std::string_view name) {
  if (name.size() != 6 || name.substr(0, 3) != "<0x" || name[5] != '>') return std::nullopt;
  const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; };
  const int high = digit(name[3]), low = digit(name[4]);
  return high < 0 || low < 0 ? std::nullopt : std::optional(high * 16 + low);
}

size_t char_length(std::string_view text, size_t i) {  // of valid UTF-8
  const auto b = static_cast<unsigned char>(text[i]);
  return b < 0x80 ? 1 : b < 0xe0 ? 2 : b < 0xf0 ? 3 : 4;
}

// Pairs of neighbouring characters that occur inside some piece. Merging only ever makes pieces, so between two
// characters that are no such pair a text may be cut without changing its ids. A hash set without collision handling: a
// false "yes" only costs a place to cut.
class InnerPairs {
 public:
  void add_piece(std::string_view text) {
    for (size_t i = 0; i < text.size();) {
      const size_t n = char_length(text, i);
      if (i + n < text.size()) set_.set(slot(text.substr(i, n), text.substr(i + n, char_length(text, i + n))));
      i += n;
    }
  }
  bool has(std::string_view left, std::string_view right) const { return set_.test(slot(left, right)); }

 private:
  static constexpr size_t kBits = size_t{1} << 20;
  static size_t slot(std::string_view left, std::string_view right) {
    uint64_t key = 0xcbf29ce484222325ull;
    for (const std::string_view part : {left, right})
      for (const char c : part) key = (key ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
    return (key * 0x9e3779b97f4a7c15ull >> 40) & (kBits - 1);
  }
  std::bitset<kBits> set_;  // 128 KiB
};

class SpmTokenizer final : public VocabTokenizer {
 public:
  explicit SpmTokenizer(const TokenizerSpec& spec);
  bool has_dummy_prefix() const override { return dummy_prefix_; }

 protected:
  void encode_run(std::string_view text, std::vector<int32_t>& ids) const override;
  std::string bytes_of(int32_t id) const override;
  std::string plain_name(int32_t id) const override { return with_spaces(vocab_.name(id)); }

 private:
  std::string model_proto(const TokenizerSpec& spec);
  void encode_part(std::string_view text, std::vector<int32_t>& ids) const;
  size_t cut_after(std::string_view text, size_t from) const;

  sentencepiece::SentencePieceProcessor processor_;
  std::unique_ptr<InnerPairs> inner_ = std::make_unique<InnerPairs>();
  std::array<int32_t, 256> byte_ids_{};  // -1 where there is none
  bool dummy_prefix_ = true;
};

SpmTokenizer::SpmTokenizer(const TokenizerSpec& spec) : VocabTokenizer(spec) {
  const auto damaged = [&](const std::string& what) {
    return Error(Code::kInput, what, spec.where, "the file is damaged; fetch or convert it again");
  };
  if (spec.scores.size() != spec.tokens.size())
    throw damaged("token list has " + std::to_string(spec.tokens.size()) + " entries, its scores " +
                  std::to_string(spec.scores.size()));
  for (size_t i = 0; i < spec.scores.size(); ++i)
    if (std::isnan(spec.scores[i])) throw damaged("token " + std::to_string(i) + " has no number for a score");
  // Files of before the keys existed are Llama's, whose control tokens have these names.
  const auto control_named = [&](const char* name) -> std::optional<int32_t> {
    const auto id = vocab_.find(name);
    return id && vocab_.type(*id) == TokenType::kControl ? id : std::nullopt;
  };
  if (!spec.bos) bos = control_named("<s>");
  if (!spec.eos && (eos = control_named("</s>"))) end_of_turn.insert(end_of_turn.begin(), *eos);
  if (!unknown_)
    for (int32_t id = 0; id < vocab_.size() && !unknown_; ++id)
      if (vocab_.type(id) == TokenType::kUnknown) unknown_ = id;

  byte_ids_.fill(-1);
  const auto status = processor_.LoadFromSerializedProto(model_proto(spec));
  if (!status.ok()) throw damaged("the token list makes no SentencePiece model: " + printable(status.ToString()));
  add_bos = spec.add_bos.value_or(true) && bos.has_value();
  dummy_prefix_ = spec.add_space_prefix.value_or(true);
  kind = "spm";
  build_matchers();
}

// Piece i is token i. The library wants names that are unique and not empty, exactly one unknown piece, and all 256
// byte pieces or none: what does not fit becomes a control piece, which no text can reach. So do user-defined tokens:
// they are taken out of the text before the library sees it (VocabTokenizer::encode), which gives the same ids.
std::string SpmTokenizer::model_proto(const TokenizerSpec& spec) {
  enum Type : uint64_t { kNormal = 1, kUnknown = 2, kControl = 3, kUnused = 5, kByte = 6 };
  size_t n_bytes = 0;
  for (int32_t id = 0; id < vocab_.size(); ++id)
    if (vocab_.type(id) == TokenType::kByte && vocab_.find(vocab_.name(id)) == id)
      if (const auto byte = byte_of_name(vocab_.name(id))) byte_ids_[static_cast<size_t>(*byte)] = id, ++n_bytes;
  const bool byte_fallback = n_bytes == 256;

  ProtoWriter model;
  const auto add = [&](const std::string& name, float score, Type type) {
    ProtoWriter piece;
    piece.text(1, name), piece.real(2, score), piece.number(3, type);
    model.text(1, piece.take());
  };
  for (int32_t id = 0; id < vocab_.size(); ++id) {
    const std::string name(vocab_.name(id));
    const TokenType token_type = vocab_.type(id);
    const float score = spec.scores[static_cast<size_t>(id)];
    Type type = kControl;
    if (token_type == TokenType::kNormal) type = kNormal;
    if (token_type == TokenType::kUnused) type = kUnused;
    if (token_type == TokenType::kByte && byte_fallback && byte_of_name(name)) type = kByte;
    const bool usable =
        vocab_.find(name) == id && !name.empty() && is_valid_utf8(name) && name.find('\0') == std::string::npos;
    if (id == unknown_) type = kUnknown;
    if ((type == kNormal || type == kUnused) && usable) inner_->add_piece(name);
    // U+E000 is a private character: such names cannot collide with a token of any sane file, and a collision is an
    // Error.
    add(usable ? name : "\xee\x80\x80#" + std::to_string(id), score, usable || type == kUnknown ? type : kControl);
  }
  if (!unknown_) add("\xee\x80\x80unknown", 0, kUnknown);  // has id V, which encode_part drops

  ProtoWriter trainer, normalizer;
  trainer.number(3, 2);                       // model_type: BPE
  trainer.number(35, byte_fallback ? 1 : 0);  // byte_fallback
  normalizer.text(1, "identity");
  normalizer.number(3, 0);  // add_dummy_prefix: encode() puts the space, so that a text can be cut
  normalizer.number(4, 0);  // remove_extra_whitespaces
  normalizer.number(5, 1);  // escape_whitespaces
  model.text(2, trainer.take());
  model.text(3, normalizer.take());
  return model.take();
}

// The library is handed a few hundred bytes at a time: its time grows a little faster than the length.
void SpmTokenizer::encode_run(std::string_view text, std::vector<int32_t>& ids) const {
  for (size_t done = 0; done < text.size();) {
    const size_t end = cut_after(text, done);
    encode_part(text.substr(done, end - done), ids);
    done = end;
  }
}

// First place at least 256 bytes behind `from` where no piece can span; the end of the text if there is none.
size_t SpmTokenizer::cut_after(std::string_view text, size_t from) const {
  constexpr size_t kPart = 256;
  const auto mark = [](std::string_view c) { return c == " " ? kSpaceMark : c; };
  if (text.size() - from <= kPart) return text.size();
  size_t i = from + kPart;
  while (i < text.size() && (static_cast<unsigned char>(text[i]) & 0xc0) == 0x80) ++i;
  while (i < text.size()) {
    const std::string_view left = text.substr(i, char_length(text, i));
    i += left.size();
    if (i < text.size() && !inner_->has(mark(left), mark(text.substr(i, char_length(text, i))))) break;
  }
  return i;
}

void SpmTokenizer::encode_part(std::string_view text, std::vector<int32_t>& ids) const {
  std::vector<int> part;
  if (processor_.Encode({text.data(), text.size()}, &part).ok()) {
    for (const int id : part)
      if (vocab_.contains(id)) ids.push_back(id);
    return;
  }
  for (const char c : text)  // no input is known that leads here
    if (const int32_t id = byte_ids_[static_cast<unsigned char>(c)]; id >= 0) ids.push_back(id);
}

std::string SpmTokenizer::bytes_of(int32_t id) const {
  const std::string_view name = vocab_.name(id);
  if (vocab_.type(id) == TokenType::kByte)
    if (const auto byte = byte_of_name(name)) return std::string(1, static_cast<char>(*byte));
  return with_spaces(name);
}

}  // namespace

std::unique_ptr<Tokenizer> make_spm_tokenizer(TokenizerSpec spec) { return std::make_unique<SpmTokenizer>(spec); }

}  // namespace cento
