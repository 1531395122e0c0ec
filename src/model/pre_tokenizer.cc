#include "model/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <string>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"

namespace cento {
namespace {

template <auto Free>
struct FreeWith {
  template <class T>
  void operator()(T* p) const noexcept {
    Free(p);
  }
};
using Code8 = std::unique_ptr<pcre2_code, FreeWith<pcre2_code_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, FreeWith<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, FreeWith<pcre2_match_context_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, FreeWith<pcre2_jit_stack_free>>;

// Unicode's White_Space, as Rust's and Python's \s have it; PCRE2's \s takes U+180E as well, which is none since
// Unicode 6.3.
#define WS R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})"

// Patterns: the models' own tokenizer.json, in the form in which llama.cpp applies them: one after the other, each to
// the pieces the one before it left (matches and what lies between them alike).
constexpr const char* kGpt2 =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WS "\\p{L}\\p{N}]+|[" WS "]+(?![^" WS "])|[" WS "]+";
constexpr const char* kQwen2 =
    "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
    "| ?[^" WS "\\p{L}\\p{N}]+[\\r\\n]*|[" WS "]*[\\r\\n]+|[" WS "]+(?![^" WS "])|[" WS "]+";
constexpr const char* kLlama3 =
    "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"
    "| ?[^" WS "\\p{L}\\p{N}]+[\\r\\n]*|[" WS "]*[\\r\\n]+|[" WS "]+(?![^" WS "])|[" WS "]+";
constexpr const char* kDigit = "\\p{N}";
constexpr const char* kDeepseekLine = "[\\r\\n]";
constexpr const char* kDeepseekLetters = "[" WS "]?\\p{L}+";
constexpr const char* kDeepseekMarks = "[" WS "]?\\p{P}+";
constexpr const char* kDeepseekHan = "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+";

struct Kind {
  const char* name;
  std::vector<const char*> patterns;
  bool whole_word_first, adds_bos;
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = [] {
    const std::vector<const char*> gpt2 = {kGpt2}, smollm = {kDigit, kGpt2}, qwen2 = {kQwen2}, llama3 = {kLlama3};
    return std::vector<Kind>{
        {"gpt-2", gpt2, false, false},
        {"smollm", smollm, false, false},
        {"qwen2", qwen2, false, false},
        {"llama-bpe", llama3, true, true},
        {"llama3", llama3, true, true},
        {"llama-v3", llama3, true, true},
        {"deepseek-coder", {kDeepseekLine, kDeepseekLetters, kDeepseekMarks, kDeepseekHan, kDigit}, false, false},
        // Other names for the same patterns.
        {"phi-2", gpt2, false, false},
        {"olmo", gpt2, false, false},
        {"mpt", gpt2, false, false},
        {"starcoder", smollm, false, false},
        {"refact", smollm, false, false},
        {"command-r", smollm, false, false},
        {"stablelm2", qwen2, false, false},
        {"deepseek-r1-qwen", qwen2, false, false},
        {"falcon3", llama3, true, true},
        {"pixtral", llama3, true, true},
        {"lfm2", llama3, true, true},
    };
  }();
  return all;
}

Code8 compile(const char* pattern) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  Code8 code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern), PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &error,
                           &offset, nullptr));
  CHECK(code);                                              // the patterns are ours
  (void)pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);  // without a JIT pcre2_match interprets: slower, same result
  return code;
}

}  // namespace

struct PreTokenizer::Stages {
  std::vector<Code8> codes;
};

std::optional<PreTokenizer> PreTokenizer::of(std::string_view pre) {
  for (const Kind& kind : kinds()) {
    if (pre != kind.name) continue;
    auto stages = std::make_shared<Stages>();
    for (const char* pattern : kind.patterns) stages->codes.push_back(compile(pattern));
    PreTokenizer out;
    out.stages_ = std::move(stages);
    out.whole_word_first_ = kind.whole_word_first;
    out.adds_bos_ = kind.adds_bos;
    return out;
  }
  return std::nullopt;
}

std::string PreTokenizer::known_names() {
  std::string names;
  for (const Kind& kind : kinds()) names += (names.empty() ? "" : ", ") + std::string(kind.name);
  return names;
}

namespace {

// One split of one text: the scratch memory of PCRE2 and the walk over the stages.
class Splitter {
 public:
  Splitter(const std::vector<Code8>& codes, const std::function<void(std::string_view)>& word)
      : codes_(codes),
        word_(word),
        data_(pcre2_match_data_create(1, nullptr)),
        context_(pcre2_match_context_create(nullptr)),
        stack_(pcre2_jit_stack_create(32 * 1024, 1024 * 1024, nullptr)) {
    if (!data_ || !context_ || !stack_) throw Error(Code::kResource, "out of memory while splitting text into words");
    // The patterns repeat single characters only, so backtracking is bounded by the length of a match; the limits are
    // there so that a mistake in a pattern shows as a coarse word, never as a hang or a full stack.
    pcre2_set_match_limit(context_.get(), 100'000'000);
    pcre2_set_heap_limit(context_.get(), 64 * 1024);  // KiB
    pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
  }

  void split(std::string_view text, size_t stage) {
    if (text.empty()) return;
    if (stage == codes_.size()) {
      word_(text);
      return;
    }
    size_t done = 0;
    while (done < text.size()) {
      const int rc = pcre2_match(codes_[stage].get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), done,
                                 PCRE2_NO_UTF_CHECK, data_.get(), context_.get());
      const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data_.get());
      if (rc < 0 || ends[1] <= done) break;         // no match (or a limit): the rest is one piece
      const size_t begin = ends[0], end = ends[1];  // the next stage overwrites the vector
      split(text.substr(done, begin - done), stage + 1);
      split(text.substr(begin, end - begin), stage + 1);
      done = end;
    }
    split(text.substr(done), stage + 1);
  }

 private:
  const std::vector<Code8>& codes_;
  const std::function<void(std::string_view)>& word_;
  MatchData data_;
  MatchContext context_;
  JitStack stack_;
};

}  // namespace

void PreTokenizer::split(std::string_view text, const std::function<void(std::string_view)>& word) const {
  if (!text.empty()) Splitter(stages_->codes, word).split(text, 0);
}

}  // namespace cento
