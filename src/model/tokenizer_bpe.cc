#include "model/tokenizer_bpe.h"

#include <algorithm>
#include <array>
#include <queue>
#include <unordered_map>

#include "base/error.h"
#include "base/text.h"
#include "model/pre_tokenizer.h"
#include "model/vocab.h"

namespace cento {
namespace {

// GPT-2 names its tokens in printable characters, one for each byte: bytes that are printable in Latin-1 stand for
// themselves, the others for U+0100 and up in order.
struct ByteNames {
  std::array<std::string, 256> of_byte;
  std::array<int16_t, 324> byte_of;  // code point -> byte, -1 where none
  ByteNames() {
    byte_of.fill(-1);
    uint32_t next = 256;
    for (uint32_t b = 0; b < 256; ++b) {
      const bool printable_byte = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
      const uint32_t c = printable_byte ? b : next++;
      append_utf8(of_byte[b], c);
      byte_of[c] = static_cast<int16_t>(b);
    }
  }
};

const ByteNames& byte_names() {
  static const ByteNames names;
  return names;
}

// Calls f(code point, its UTF-8) for each character; a byte that is no UTF-8 is passed as itself with code point ~0.
template <class F>
void for_each_char(std::string_view s, F f) {
  for (size_t i = 0; i < s.size();) {
    const auto b = static_cast<unsigned char>(s[i]);
    const size_t n = b < 0x80 ? 1 : b < 0xc2 ? 0 : b < 0xe0 ? 2 : b < 0xf0 ? 3 : b < 0xf5 ? 4 : 0;
    if (n == 0 || i + n > s.size() || !is_valid_utf8(s.substr(i, n))) {
      f(UINT32_MAX, s.substr(i, 1));
      ++i;
      continue;
    }
    uint32_t c = n == 1 ? b : b & (0x7fu >> n);
    for (size_t k = 1; k < n; ++k) c = c << 6 | (static_cast<unsigned char>(s[i + k]) & 0x3f);
    f(c, s.substr(i, n));
    i += n;
  }
}

// (left, right) -> rank and result of a merge; open addressing, built once.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank, result;
  };
  explicit MergeTable(size_t n) {
    size_t n_slots = 16;
    while (n_slots < 2 * n) n_slots *= 2;
    keys_.assign(n_slots, kFree);
    merges_.resize(n_slots);
  }
  void add(uint32_t left, uint32_t right, Merge merge) {  // the first of two equal pairs stays: it has the better rank
    const size_t slot = slot_of(left, right);
    if (keys_[slot] != kFree) return;
    keys_[slot] = key_of(left, right);
    merges_[slot] = merge;
  }
  const Merge* find(uint32_t left, uint32_t right) const {
    const size_t slot = slot_of(left, right);
    return keys_[slot] == kFree ? nullptr : &merges_[slot];
  }

 private:
  static constexpr uint64_t kFree = UINT64_MAX;  // no symbol has number 2^32 - 1
  static uint64_t key_of(uint32_t left, uint32_t right) { return static_cast<uint64_t>(left) << 32 | right; }
  size_t slot_of(uint32_t left, uint32_t right) const {
    const uint64_t key = key_of(left, right);
    size_t slot = (key * 0x9e3779b97f4a7c15ull >> 20) & (keys_.size() - 1);
    while (keys_[slot] != kFree && keys_[slot] != key) slot = (slot + 1) & (keys_.size() - 1);
    return slot;
  }
  std::vector<uint64_t> keys_;
  std::vector<Merge> merges_;
};

class BpeTokenizer final : public VocabTokenizer {
 public:
  BpeTokenizer(const TokenizerSpec& spec, PreTokenizer pre);
  bool has_dummy_prefix() const override { return false; }

 protected:
  void encode_run(std::string_view text, std::vector<int32_t>& ids) const override;
  std::string bytes_of(int32_t id) const override;
  std::string plain_name(int32_t id) const override { return std::string(vocab_.name(id)); }

 private:
  // A symbol is a token's id, or, for a text that merges go through but that is no token, a number from V on.
  using Symbols = std::vector<uint32_t>;

  uint32_t symbol_of(const std::string& name);
  std::optional<int32_t> mergeable(std::string_view name) const;
  void encode_word(std::string_view word, Symbols& symbols, std::vector<int32_t>& ids) const;
  void merge_short(Symbols& symbols) const;
  void merge_long(Symbols& symbols) const;
  void emit(uint32_t symbol, std::vector<int32_t>& ids) const;

  PreTokenizer pre_;
  std::unordered_map<std::string, uint32_t> extra_;  // name -> symbol from V on
  std::vector<std::string> extra_names_;
  std::array<uint32_t, 256> byte_symbols_{};
  MergeTable merges_;
};

BpeTokenizer::BpeTokenizer(const TokenizerSpec& spec, PreTokenizer pre)
    : VocabTokenizer(spec), pre_(std::move(pre)), merges_(spec.merges.size()) {
  for (size_t b = 0; b < 256; ++b) byte_symbols_[b] = symbol_of(byte_names().of_byte[b]);
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const std::string& line = spec.merges[rank];
    const size_t space = line.find(' ', 1);
    if (space == std::string::npos || space + 1 == line.size())
      throw Error(Code::kInput, "merge " + std::to_string(rank) + " is no pair: '" + printable(line) + "'", spec.where,
                  "the file is damaged; fetch or convert it again");
    const std::string left = line.substr(0, space), right = line.substr(space + 1);
    const uint32_t l = symbol_of(left), r = symbol_of(right);
    merges_.add(l, r, {static_cast<uint32_t>(rank), symbol_of(left + right)});
  }
  add_bos = spec.add_bos.value_or(pre_.adds_bos()) && bos.has_value();
  kind = "bpe/" + spec.pre;
  build_matchers();
}

// Control tokens are out of reach of plain text even if a merge spells their name.
std::optional<int32_t> BpeTokenizer::mergeable(std::string_view name) const {
  const auto id = vocab_.find(name);
  if (!id || is_control(*id) || vocab_.type(*id) == TokenType::kUnknown) return std::nullopt;
  return id;
}

uint32_t BpeTokenizer::symbol_of(const std::string& name) {
  if (const auto id = mergeable(name)) return static_cast<uint32_t>(*id);
  const auto [it, fresh] =
      extra_.try_emplace(name, static_cast<uint32_t>(vocab_.size()) + static_cast<uint32_t>(extra_names_.size()));
  if (fresh) extra_names_.push_back(name);
  return it->second;
}

void BpeTokenizer::encode_run(std::string_view text, std::vector<int32_t>& ids) const {
  Symbols symbols;
  pre_.split(text, [&](std::string_view word) { encode_word(word, symbols, ids); });
}

void BpeTokenizer::encode_word(std::string_view word, Symbols& symbols, std::vector<int32_t>& ids) const {
  if (pre_.whole_word_first() && word.size() <= NameMatcher::kMaxName) {
    std::string name;
    for (const char c : word) name += byte_names().of_byte[static_cast<unsigned char>(c)];
    if (const auto id = mergeable(name)) {
      ids.push_back(*id);
      return;
    }
  }
  symbols.clear();
  for (const char c : word) symbols.push_back(byte_symbols_[static_cast<unsigned char>(c)]);
  constexpr size_t kShort = 48;  // below it scanning all pairs again is cheaper than a heap
  if (symbols.size() <= kShort)
    merge_short(symbols);
  else
    merge_long(symbols);
  for (const uint32_t symbol : symbols) emit(symbol, ids);
}

// Best rank first, the leftmost of equal ones; the ranks of the pairs are kept beside the symbols.
void BpeTokenizer::merge_short(Symbols& symbols) const {
  constexpr uint32_t kNone = UINT32_MAX;
  std::array<MergeTable::Merge, 48> pairs;  // of symbols i and i + 1
  size_t n = symbols.size();
  const auto look_up = [&](size_t i) {
    const MergeTable::Merge* merge = merges_.find(symbols[i], symbols[i + 1]);
    pairs[i] = merge ? *merge : MergeTable::Merge{kNone, 0};
  };
  for (size_t i = 0; i + 1 < n; ++i) look_up(i);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i)
      if (pairs[i].rank < pairs[best].rank) best = i;
    if (pairs[best].rank == kNone) break;
    symbols[best] = pairs[best].result;
    for (size_t i = best + 1; i + 1 < n; ++i) {
      symbols[i] = symbols[i + 1];
      pairs[i] = pairs[i + 1 < n - 1 ? i + 1 : i];
    }
    --n;
    if (best > 0) look_up(best - 1);
    if (best + 1 < n) look_up(best);
  }
  symbols.resize(n);
}

// The same with a heap over a linked list: n log n, for words of any length.
void BpeTokenizer::merge_long(Symbols& symbols) const {
  struct Candidate {
    uint32_t rank;
    uint32_t left, right;  // places in `symbols`
    uint32_t left_symbol, right_symbol, result;
    bool operator<(const Candidate& o) const { return rank != o.rank ? rank > o.rank : left > o.left; }
  };
  constexpr uint32_t kNone = UINT32_MAX;
  const auto n = static_cast<uint32_t>(symbols.size());
  std::vector<uint32_t> next(n), previous(n);
  std::priority_queue<Candidate> heap;
  const auto propose = [&](uint32_t left, uint32_t right) {
    if (left == kNone || right == kNone) return;
    if (const MergeTable::Merge* merge = merges_.find(symbols[left], symbols[right]))
      heap.push({merge->rank, left, right, symbols[left], symbols[right], merge->result});
  };
  for (uint32_t i = 0; i < n; ++i) {
    previous[i] = i == 0 ? kNone : i - 1;
    next[i] = i + 1 == n ? kNone : i + 1;
  }
  for (uint32_t i = 0; i + 1 < n; ++i) propose(i, i + 1);
  while (!heap.empty()) {
    const Candidate c = heap.top();
    heap.pop();
    // Outdated if either side was merged since; a place that was merged away holds kNone, which is no symbol.
    if (symbols[c.left] != c.left_symbol || next[c.left] != c.right || symbols[c.right] != c.right_symbol) continue;
    symbols[c.left] = c.result;
    symbols[c.right] = kNone;
    next[c.left] = next[c.right];
    if (next[c.right] != kNone) previous[next[c.right]] = c.left;
    propose(previous[c.left], c.left);
    propose(c.left, next[c.left]);
  }
  symbols.erase(std::remove(symbols.begin(), symbols.end(), kNone), symbols.end());
}

// A text that is no token goes out byte by byte; a byte without a token is left out, as llama.cpp does (SmolLM2 has
// none for six C0 controls and for bytes that only start unassigned characters; its unknown token is <|endoftext|>, a
// control token).
void BpeTokenizer::emit(uint32_t symbol, std::vector<int32_t>& ids) const {
  if (symbol < static_cast<uint32_t>(vocab_.size())) {
    ids.push_back(static_cast<int32_t>(symbol));
    return;
  }
  for_each_char(extra_names_[symbol - static_cast<uint32_t>(vocab_.size())], [&](uint32_t, std::string_view name) {
    if (const auto id = mergeable(name)) ids.push_back(*id);
  });
}

std::string BpeTokenizer::bytes_of(int32_t id) const {
  const std::string_view name = vocab_.name(id);
  if (vocab_.type(id) == TokenType::kUserDefined) return std::string(name);
  std::string bytes;
  for_each_char(name, [&](uint32_t c, std::string_view raw) {
    const int byte = c < byte_names().byte_of.size() ? byte_names().byte_of[c] : -1;
    if (byte >= 0)
      bytes += static_cast<char>(byte);
    else
      bytes += raw;  // a name outside of the alphabet, as some added tokens have
  });
  return bytes;
}

}  // namespace

std::unique_ptr<Tokenizer> make_bpe_tokenizer(TokenizerSpec spec) {
  // Files of before May 2024 name no pre-tokeniser. GPT-2's own is certain for a GPT-2 model; for any other the ids
  // would be subtly wrong, and an answer that is quietly worse is not worth having.
  if ((spec.pre.empty() || spec.pre == "default") && spec.architecture == "gpt2") spec.pre = "gpt-2";
  const auto pre = PreTokenizer::of(spec.pre);
  if (!pre) {
    const bool missing = spec.pre.empty() || spec.pre == "default";
    throw Error(
        Code::kInput,
        missing ? "the file does not say how its tokenizer splits words (tokenizer.ggml.pre)"
                : "pre-tokeniser '" + printable(spec.pre) + "' is not supported",
        spec.where,
        missing ? "convert the model again with a converter of today" : "supported are " + PreTokenizer::known_names());
  }
  if (spec.merges.empty())
    throw Error(Code::kInput, "the tokenizer has no merges (tokenizer.ggml.merges)", spec.where,
                "the file is damaged; fetch or convert it again");
  return std::make_unique<BpeTokenizer>(spec, *pre);
}

std::vector<std::string> pre_tokenize(std::string_view pre, std::string_view text) {
  const auto splitter = PreTokenizer::of(pre);
  if (!splitter)
    throw Error(Code::kInput, "pre-tokeniser '" + printable(pre) + "' is not supported", "",
                "supported are " + PreTokenizer::known_names());
  std::vector<std::string> words;
  splitter->split(text, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

}  // namespace cento
