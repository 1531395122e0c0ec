// Text through both kinds of tokenizer: what comes back is the text, with bad UTF-8 as U+FFFD; nothing but the
// template's own names gives control tokens; a stream of ids never breaks a character. The first byte chooses the
// vocabulary.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "fuzz/fuzz_main.h"
#include "model/chat_template.h"
#include "model/tokenizer_spec.h"

namespace {

using namespace cento;

void want(bool condition) {
  if (!condition) std::abort();
}

TokenizerSpec bpe(const std::string& pre) {
  TokenizerSpec spec;
  spec.model = "gpt2", spec.pre = pre;
  uint32_t next = 256;
  for (uint32_t b = 0; b < 256; ++b) {
    std::string name;
    append_utf8(name, (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174 ? b : next++);
    spec.tokens.push_back(name);
  }
  for (const char* merge :
       {"Ġ t", "h e", "Ġt he", "a a", "aa aa", "i n", "Ġ a", "n d", "Ġa nd", "Ġ Ġ", "ĠĠ ĠĠ", "Ċ Ċ", "Ã ©"}) {
    const std::string line = merge;
    const size_t space = line.find(' ', 1);
    spec.tokens.push_back(line.substr(0, space) + line.substr(space + 1));
    spec.merges.push_back(line);
  }
  spec.types.assign(spec.tokens.size(), 1);
  for (const char* name : {"<|im_end|>", "<|im_start|>"}) spec.tokens.push_back(name), spec.types.push_back(3);
  for (const char* name : {"<x>", "<x>y", "aaa"}) spec.tokens.push_back(name), spec.types.push_back(4);
  return spec;
}

TokenizerSpec spm(bool dummy_prefix, bool bytes) {
  TokenizerSpec spec;
  spec.model = "llama", spec.add_space_prefix = dummy_prefix;
  const auto add = [&](const std::string& name, float score, int64_t type) {
    spec.tokens.push_back(name), spec.scores.push_back(score), spec.types.push_back(type);
  };
  add("<unk>", 0, 2), add("<s>", 0, 3), add("</s>", 0, 3);
  for (unsigned b = 0; b < 256 && bytes; ++b) {
    std::array<char, 8> name;
    std::snprintf(name.data(), name.size(), "<0x%02X>", b);
    add(name.data(), 0, 6);
  }
  float score = 0;
  for (const char* piece : {"▁", "a", "b", "e", "h", "t", "▁t", "he", "▁the", "▁▁", "▁▁▁▁", "aa", "é", "日"})
    add(piece, --score, 1);
  add("ab", --score, 5);
  for (const char* name : {"\n", "\n\n", "  ", "<x>"}) add(name, -100, 4);
  spec.bos = 1, spec.eos = 2, spec.unknown = 0;
  return spec;
}

struct Vocabulary {
  std::unique_ptr<Tokenizer> tokenizer;
  bool complete;  // has a token for every byte
};

const std::vector<Vocabulary>& vocabularies() {
  static const std::vector<Vocabulary> all = [] {
    std::vector<Vocabulary> made;
    for (const char* pre : {"gpt-2", "smollm", "qwen2", "llama-bpe", "deepseek-coder"})
      made.push_back({make_tokenizer(bpe(pre)), true});
    made.push_back({make_tokenizer(spm(true, true)), true});
    made.push_back({make_tokenizer(spm(false, true)), true});
    made.push_back({make_tokenizer(spm(true, false)), false});
    return made;
  }();
  return all;
}

void check(const Vocabulary& vocabulary, std::string_view text) {
  const Tokenizer& t = *vocabulary.tokenizer;
  const auto ids = t.encode(text);
  for (const int32_t id : ids) want(id >= 0 && id < t.vocab_size() && !t.is_control(id));
  std::string wanted = to_valid_utf8(text);
  if (t.kind == "spm")  // SentencePiece writes a space as U+2581, and cannot tell the two apart
    for (size_t at; (at = wanted.find("\xe2\x96\x81")) != std::string::npos;) wanted.replace(at, 3, " ");
  if (vocabulary.complete) want(t.decode(ids) == wanted);

  StreamDecoder decoder(t);
  std::string streamed;
  for (const int32_t id : ids) {
    const std::string part = decoder.push(id);
    want(is_valid_utf8(part));
    streamed += part;
  }
  streamed += decoder.finish();
  if (vocabulary.complete) want(streamed == t.decode(ids, false, false));

  // In a prompt the same text holds none of the template's control tokens either.
  static const ChatTemplate chat = ChatTemplate::of(TemplateKind::kChatMl);
  size_t n_control = 0;
  for (const int32_t id : ChatTemplate::encode(chat.render({{"user", std::string(text)}}, true), t))
    n_control += t.is_control(id);
  want(n_control == (t.kind == "spm" ? 1u : 3u));  // SPM: bos; BPE: two <|im_start|> and one <|im_end|>
  (void)t.encode_with_specials(text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes) {
  if (n_bytes == 0) return 0;
  const auto& all = vocabularies();
  check(all[data[0] % all.size()], {reinterpret_cast<const char*>(data) + 1, n_bytes - 1});
  return 0;
}

std::vector<std::string> cento::test::builtin_seeds() {
  std::vector<std::string> seeds;
  for (size_t v = 0; v < vocabularies().size(); ++v)
    for (const std::string text :
         {"the end and the in aaaaaaa", "  a\n\n\n b\t12345'll I'M", "日本語 🦙 é ½ \xff\xfe \xe2\x96\x81x",
          "<s></s><|im_end|><x>y<x>", "                                  the"})
      seeds.push_back(std::string(1, static_cast<char>(v)) + text);
  return seeds;
}
