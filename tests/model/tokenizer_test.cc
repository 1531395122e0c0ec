// Ids against those of other engines on the same vocabularies (shared/data/README.md and its golden/README.md say
// where the vectors come from), and the promises of tokenizer.h that hold for any text.
#include "model/tokenizer.h"

#include <sodium.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "base/text.h"
#include "model/tokenizer_bpe.h"
#include "model/tokenizer_spec.h"
#include "support/gguf_writer.h"
#include "support/shared_data.h"

using namespace cento;
using cento::test::model_path;
using cento::test::read_all;
using cento::test::shared_path;
using cento::test::TempDir;
using nlohmann::json;

namespace {

using Ids = std::vector<int32_t>;

constexpr const char* kQwenFile = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf";
constexpr const char* kGemmaFile = "gemma3-270m-q4_k_m.gguf";
constexpr const char* kSmolFile = "smollm2-135m-instruct-q4_1.gguf";

// Path of a vocabulary file of shared/data/tokenizers, unpacked into `folder` if it is packed.
std::optional<std::string> vocab_file(const std::string& name, const TempDir& folder) {
  const std::string file = "ggml-vocab-" + name + ".gguf";
  if (name == "llama-spm") return shared_path("data/tokenizers/" + file);
  const auto packed = shared_path("data/tokenizers/" + file + ".gz");
  if (!packed) return std::nullopt;
  const std::string path = folder / file;
  const std::string command = "gzip -dc '" + *packed + "' > '" + path + "'";
  FILE* pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  REQUIRE(::pclose(pipe) == 0);
  return path;
}

// A vocabulary by the name the vectors use, or by a model file's name. Kept for all tests of the run: Gemma's list
// takes a second to read. Null where the file is not there.
const Tokenizer* tokenizer_named(const std::string& name) {
  static std::map<std::string, std::unique_ptr<Tokenizer>> known;
  const auto it = known.find(name);
  if (it != known.end()) return it->second.get();
  const TempDir folder;
  const auto path = name.find(".gguf") != std::string::npos ? model_path(name) : vocab_file(name, folder);
  return (known[name] = path ? make_tokenizer(GgufFile(*path)) : nullptr).get();
}

// Every vocabulary at hand, by name.
std::vector<std::pair<std::string, const Tokenizer*>> all_tokenizers() {
  std::vector<std::pair<std::string, const Tokenizer*>> all;
  for (const char* name : {"llama-spm", "phi-3", "gpt-2", "deepseek-coder", kQwenFile, kGemmaFile, kSmolFile})
    if (const Tokenizer* tokenizer = tokenizer_named(name)) all.emplace_back(name, tokenizer);
  return all;
}

std::vector<std::string> inputs_of(const std::string& path) {
  const std::string all = read_all(path), mark = "\n__ggml_vocab_test__\n";
  std::vector<std::string> inputs;
  size_t from = 0;
  for (size_t at; (at = all.find(mark, from)) != std::string::npos; from = at + mark.size())
    inputs.push_back(all.substr(from, at - from));
  return inputs;  // the file ends with the mark
}

std::vector<Ids> ids_of(const std::string& path) {
  std::ifstream in(path);
  std::vector<Ids> out;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    Ids ids;
    for (int32_t id; words >> id;) ids.push_back(id);
    out.push_back(ids);
  }
  return out;
}

std::vector<json> json_lines(const std::string& path) {
  std::ifstream in(path);
  std::vector<json> out;
  for (std::string line; std::getline(in, line);) out.push_back(json::parse(line));
  return out;
}

std::string sha256_of(const Ids& ids) {  // first 16 hex digits over little-endian uint32
  std::array<unsigned char, crypto_hash_sha256_BYTES> sum;
  crypto_hash_sha256(sum.data(), reinterpret_cast<const unsigned char*>(ids.data()), ids.size() * 4);
  std::array<char, 17> hex{};
  for (size_t i = 0; i < 8; ++i) std::snprintf(&hex[2 * i], 3, "%02x", sum[i]);
  return hex.data();
}

std::vector<std::string> documents() {  // absolute paths, sorted
  std::vector<std::string> paths;
  if (const auto root = shared_path("data/docs"))
    for (const auto& entry : std::filesystem::recursive_directory_iterator(*root))
      if (entry.is_regular_file()) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::string token_name_of_byte(unsigned byte) {  // GPT-2's alphabet, written down a second time to check the first
  std::string name;
  if ((byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae)
    append_utf8(name, byte);
  else
    append_utf8(name, byte <= 0x20 ? 0x100 + byte : byte <= 0xa0 ? 0x121 + byte - 0x7f : 0x143);
  return name;
}

// A small BPE vocabulary: all bytes, then the results of `merges`, then `special` control tokens.
TokenizerSpec small_bpe(const std::vector<std::string>& merges, const std::string& pre = "gpt-2",
                        const std::vector<std::string>& special = {"<|endoftext|>"}) {
  TokenizerSpec spec;
  spec.model = "gpt2";
  spec.pre = pre;
  for (unsigned b = 0; b < 256; ++b) spec.tokens.push_back(token_name_of_byte(b));
  for (const std::string& merge : merges) {
    const size_t space = merge.find(' ', 1);
    spec.tokens.push_back(merge.substr(0, space) + merge.substr(space + 1));
  }
  spec.merges = merges;
  spec.types.assign(spec.tokens.size(), 1);
  for (const std::string& name : special) spec.tokens.push_back(name), spec.types.push_back(3);
  spec.eos = static_cast<int64_t>(spec.tokens.size()) - 1;
  return spec;
}

TokenizerSpec small_spm() {
  TokenizerSpec spec;
  spec.model = "llama";
  const auto add = [&](const std::string& name, float score, int64_t type) {
    spec.tokens.push_back(name), spec.scores.push_back(score), spec.types.push_back(type);
  };
  add("<unk>", 0, 2), add("<s>", 0, 3), add("</s>", 0, 3);
  for (unsigned b = 0; b < 256; ++b) {
    std::array<char, 8> name;
    std::snprintf(name.data(), name.size(), "<0x%02X>", b);
    add(name.data(), 0, 6);
  }
  float score = 0;
  for (const char* piece : {"▁", "a", "b", "c", "▁a", "ab", "▁ab", "▁▁", "▁▁▁▁", "é"}) add(piece, --score, 1);
  spec.bos = 1, spec.eos = 2, spec.unknown = 0;
  return spec;
}

const std::vector<std::string> kMerges = {"Ġ t", "h e", "Ġt he", "a a", "aa aa", "i n", "Ġ a", "n d", "Ġa nd", "r e"};

}  // namespace

TEST_CASE("tokenizer: ids are those of the llama.cpp vocabulary tests", "[model][tokenizer]") {
  const auto check = [](const std::string& vocab, const std::string& vectors, size_t n_wanted) {
    const Tokenizer* tokenizer = tokenizer_named(vocab);
    const auto inp = shared_path("data/tokenizers/ggml-vocab-" + vectors + ".gguf.inp");
    const auto out = shared_path("data/tokenizers/ggml-vocab-" + vectors + ".gguf.out");
    if (!tokenizer || !inp || !out) return;
    const auto inputs = inputs_of(*inp);
    const auto wanted = ids_of(*out);
    REQUIRE(inputs.size() == wanted.size());
    CHECK(inputs.size() == n_wanted);
    for (size_t i = 0; i < inputs.size(); ++i) {
      CAPTURE(vocab, i, inputs[i]);
      CHECK(tokenizer->encode(inputs[i]) == wanted[i]);
      CHECK(tokenizer->decode(wanted[i]) == inputs[i]);
    }
  };
  check("llama-spm", "llama-spm", 46);
  check("phi-3", "phi-3", 46);
  check("gpt-2", "gpt-2", 46);
  check("deepseek-coder", "deepseek-coder", 46);
  check(kQwenFile, "qwen2", 46);
}

TEST_CASE("tokenizer: llama-bpe cuts words so that every word is a whole number of tokens of its vectors",
          "[model][tokenizer]") {
  // No vocabulary with these ids is at hand, so the ids themselves cannot be compared. What can be: the ids of equal
  // words must be equal, whatever stands around them. Inputs of one word give that word's ids; in every other input
  // these ids must stand where the word does. Words of unknown ids may have any length of at least one token.
  const auto inp = shared_path("data/tokenizers/ggml-vocab-llama-bpe.gguf.inp");
  const auto out = shared_path("data/tokenizers/ggml-vocab-llama-bpe.gguf.out");
  if (!inp || !out) return;
  const auto inputs = inputs_of(*inp);
  const auto wanted = ids_of(*out);
  REQUIRE(inputs.size() == wanted.size());
  std::map<std::string, Ids> known;
  size_t compared = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto words = pre_tokenize("llama-bpe", inputs[i]);
    std::string joined;
    for (const auto& word : words) joined += word;
    CHECK(joined == inputs[i]);
    CHECK(words.size() <= wanted[i].size());
    if (words.size() == 1) known[words[0]] = wanted[i];
    if (words.size() == wanted[i].size())
      for (size_t k = 0; k < words.size(); ++k) {
        const auto [it, fresh] = known.try_emplace(words[k], Ids{wanted[i][k]});
        CAPTURE(i, words[k]);
        CHECK(it->second == Ids{wanted[i][k]});
        compared += fresh ? 0 : 1;
      }
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    size_t at = 0;
    for (const auto& word : pre_tokenize("llama-bpe", inputs[i])) {
      const auto it = known.find(word);
      if (it == known.end()) break;  // from here on the place is not known
      CAPTURE(i, word);
      REQUIRE(at + it->second.size() <= wanted[i].size());
      CHECK(Ids(wanted[i].begin() + at, wanted[i].begin() + at + it->second.size()) == it->second);
      at += it->second.size();
      ++compared;
    }
  }
  CHECK(compared > 100);
  CHECK(pre_tokenize("llama-bpe", "3333333 it'S\n\n x  y") ==
        std::vector<std::string>{"333", "333", "3", " it", "'S", "\n\n", " x", " ", " y"});
}

TEST_CASE("tokenizer: whole documents have the recorded ids", "[model][tokenizer]") {
  const auto sums = shared_path("data/tokenizers/docs-token-sums.jsonl");
  if (!sums) return;
  size_t compared = 0;
  for (const json& line : json_lines(*sums)) {
    const std::string text = read_all(*shared_path("data/docs/" + line["file"].get<std::string>()));
    for (const auto& [key, vocab] :
         std::map<std::string, std::string>{{"llama-spm", "llama-spm"}, {"gpt-2", "gpt-2"}, {"qwen2", kQwenFile}}) {
      const Tokenizer* tokenizer = tokenizer_named(vocab);
      if (!tokenizer) continue;
      const Ids ids = tokenizer->encode(text);
      CAPTURE(line["file"], key);
      CHECK(ids.size() == line[key]["n"].get<size_t>());
      CHECK(Ids(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(std::min<size_t>(8, ids.size()))) ==
            line[key]["head"].get<Ids>());
      CHECK(sha256_of(ids) == line[key]["sha256"].get<std::string>());
      ++compared;
    }
  }
  CHECK(compared >= 273);
}

TEST_CASE("tokenizer: the real models' ids are the golden ones", "[model][tokenizer]") {
  for (const auto& [name, file] :
       std::map<std::string, std::string>{{"smollm2", kSmolFile}, {"gemma3", kGemmaFile}, {"qwen2", kQwenFile}}) {
    const Tokenizer* tokenizer = tokenizer_named(file);
    const auto golden = shared_path("data/golden/tokens-" + name + ".jsonl");
    if (!tokenizer || !golden) continue;
    size_t n = 0;
    for (const json& line : json_lines(*golden)) {
      CAPTURE(name, line["name"], line["text"]);
      CHECK(tokenizer->encode(line["text"].get<std::string>()) == line["ids"].get<Ids>());
      ++n;
    }
    CHECK(n == 54);
  }
}

TEST_CASE("tokenizer: every document comes back from its ids", "[model][tokenizer]") {
  for (const auto& [name, tokenizer] : all_tokenizers())
    for (const std::string& path : documents()) {
      const std::string text = read_all(path);
      if (!is_valid_utf8(text)) continue;
      CAPTURE(name, path);
      const Ids ids = tokenizer->encode(text);
      CHECK((tokenizer->decode(ids) == text));
      CHECK(std::none_of(ids.begin(), ids.end(), [&t = *tokenizer](int32_t id) { return t.is_control(id); }));
    }
}

TEST_CASE("tokenizer: a stream of ids gives whole characters that join to the text", "[model][tokenizer]") {
  const std::string text =
      "Streaming 🦙🧑‍🚀👩‍👩‍👧 日本語 한국어 Ω ½ नमस्ते é̈ — done";
  for (const auto& [name, tokenizer] : all_tokenizers()) {
    CAPTURE(name);
    const Ids ids = tokenizer->encode(text, false);
    CHECK(ids.size() < text.size());
    StreamDecoder decoder(*tokenizer);
    std::string joined;
    for (const int32_t id : ids) {
      const std::string part = decoder.push(id);
      CHECK(is_valid_utf8(part));
      CHECK(part.find("\xef\xbf\xbd") == std::string::npos);
      joined += part;
    }
    joined += decoder.finish();
    CHECK(joined == text);
  }
}

TEST_CASE("tokenizer: a stream cut inside a character ends with one U+FFFD", "[model][tokenizer]") {
  const auto tokenizer = make_tokenizer(small_spm());
  StreamDecoder decoder(*tokenizer);
  std::string text;
  for (const unsigned byte : {0xf0u, 0x9fu, 0xa6u}) text += decoder.push(static_cast<int32_t>(3 + byte));
  CHECK(text.empty());  // three bytes of four
  CHECK(decoder.finish() == "\xef\xbf\xbd");
  CHECK(decoder.finish().empty());
  for (const unsigned byte : {0xf0u, 0x9fu, 0xa6u, 0x99u}) text += decoder.push(static_cast<int32_t>(3 + byte));
  CHECK(text == "🦙");
  CHECK(decoder.push(*tokenizer->eos).empty());
  CHECK(decoder.push(-1).empty());
  CHECK(decoder.push(1 << 30).empty());
}

TEST_CASE("tokenizer: plain text never gives a control token", "[model][tokenizer]") {
  for (const auto& [name, tokenizer] : all_tokenizers()) {
    CAPTURE(name);
    for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) {
      if (!tokenizer->is_control(id) || (id > 300 && id % 37 != 0 && id < tokenizer->vocab_size() - 300)) continue;
      const std::string text = tokenizer->piece(id, true);
      for (const std::string& plain : {text, "a " + text + " b", text + text}) {
        const Ids ids = tokenizer->encode(plain);
        CHECK(std::none_of(ids.begin(), ids.end(), [&t = *tokenizer](int32_t k) { return t.is_control(k); }));
        CHECK(tokenizer->decode(ids) == plain);
      }
      const Ids with = tokenizer->encode_with_specials(text);
      CHECK(with == Ids{id});
    }
  }
  const auto spm = make_tokenizer(small_spm());
  CHECK(spm->encode("<s>").size() > 1);
  CHECK(spm->encode_with_specials("<s>a</s>") == Ids{1, *spm->find("▁a"), 2});
}

TEST_CASE("tokenizer: what ends a turn, starts a prompt and joins at the front", "[model][tokenizer]") {
  const auto names = [](const Tokenizer& t) {
    std::vector<std::string> out;
    for (const int32_t id : t.end_of_turn) out.push_back(t.piece(id, true));
    std::sort(out.begin(), out.end());
    return out;
  };
  using Names = std::vector<std::string>;
  if (const Tokenizer* t = tokenizer_named(kSmolFile)) {
    CHECK(names(*t) == Names{"<|endoftext|>", "<|im_end|>"});
    CHECK_FALSE(t->add_bos);
    CHECK(t->kind == "bpe/smollm");
  }
  if (const Tokenizer* t = tokenizer_named(kQwenFile)) {
    CHECK(names(*t) == Names{"<|endoftext|>", "<|im_end|>"});
    CHECK(t->end_of_turn.front() == t->eos);
    CHECK_FALSE(t->add_bos);
    CHECK(t->piece(*t->find("<tool_call>")) == "<tool_call>");  // user-defined: text, not control
    CHECK(t->encode("x<tool_call>y").size() == 3);
  }
  if (const Tokenizer* t = tokenizer_named(kGemmaFile)) {
    CHECK(names(*t) == Names{"<end_of_turn>", "<eos>"});
    CHECK(t->add_bos);
    CHECK_FALSE(t->has_dummy_prefix());
    CHECK(t->encode("Hello") == t->encode("Hello", false));
  }
  if (const Tokenizer* t = tokenizer_named("phi-3")) {
    CHECK(names(*t) == Names{"</s>", "<|endoftext|>", "<|end|>"});  // "</s>" is user-defined in this file
    CHECK(t->encode("a</s>b").size() > 3);
    // Phi-3's special tokens take the white space behind them.
    CHECK(t->encode_with_specials("<|user|>\nHello<|end|>\n<|assistant|>\n") ==
          Ids{32010, *t->find("▁Hello"), 32007, 32001});
  }
  if (const Tokenizer* t = tokenizer_named("llama-spm")) {
    CHECK(t->has_dummy_prefix());
    CHECK(t->encode("Hello") == Ids{15043});
    CHECK(t->encode("Hello", false) == Ids{10994});
    CHECK(t->decode(Ids{1, 15043}) == "Hello");
    CHECK(t->decode(Ids{15043}, false, false) == " Hello");
    CHECK(t->decode(Ids{1, 15043}, true) == "<s>Hello");
  }
}

namespace {

// Texts of n bytes in which nothing, or too much, invites a cut. Quadratic work on a megabyte would take hours.
void check_long_texts(size_t n, double seconds_max) {
  std::mt19937 random(7);
  std::map<std::string, std::string> texts = {{"same", std::string(std::min<size_t>(n, 200'000), 'a')},
                                              {"spaces", std::string(n, ' ')},
                                              {"digits", std::string(n, '7')}};
  for (size_t i = 0; i < n; ++i) texts["letters"] += static_cast<char>('a' + random() % 26);
  for (size_t i = 0; i < n; ++i) texts["marks"] += "!-<|>_ \n"[random() % 8];
  for (size_t i = 0; i < n / 4; ++i) texts["emoji"] += "🦙";
  for (const auto& [name, tokenizer] : all_tokenizers())
    for (const auto& [what, text] : texts) {
      Ids ids;
      const double seconds = seconds_of([&ids, &t = *tokenizer, &x = text] { ids = t.encode(x); });
      CAPTURE(name, what, seconds);
      CHECK(seconds < seconds_max);
      CHECK((tokenizer->decode(ids) == text));
    }
}

}  // namespace

// Measured: at most 0.3 s and 1.7 s for one text; the bounds leave room for a machine under load and sanitizers.
TEST_CASE("tokenizer: long texts without a place to cut take seconds at most", "[model][tokenizer]") {
  check_long_texts(200'000, 10);
}
TEST_CASE("tokenizer: a megabyte without a place to cut takes seconds at most", "[model][tokenizer][.slow]") {
  check_long_texts(1 << 20, 20);
}

TEST_CASE("tokenizer: any bytes are accepted and come back with bad parts as U+FFFD", "[model][tokenizer]") {
  std::mt19937 random(11);
  const auto check = [&](const Tokenizer& tokenizer, const std::string& bytes) {
    std::string wanted = to_valid_utf8(bytes);
    // SmolLM2 has no token for six control characters; they are left out, as llama.cpp does.
    if (tokenizer.kind == "bpe/smollm")
      wanted.erase(std::remove_if(wanted.begin(), wanted.end(),
                                  [](char c) {
                                    return std::string_view("\x04\x06\x13\x14\x16\x1d").find(c) != std::string::npos;
                                  }),
                   wanted.end());
    if (wanted.find("\xe2\x96\x81") != std::string::npos) return;  // U+2581 is a space in SentencePiece
    CHECK(tokenizer.decode(tokenizer.encode(bytes)) == wanted);
  };
  std::vector<std::unique_ptr<Tokenizer>> small;
  small.push_back(make_tokenizer(small_bpe(kMerges)));
  small.push_back(make_tokenizer(small_bpe(kMerges, "deepseek-coder")));
  small.push_back(make_tokenizer(small_spm()));
  std::vector<const Tokenizer*> all;
  for (const auto& tokenizer : small) all.push_back(tokenizer.get());
  for (const auto& [name, tokenizer] : all_tokenizers()) all.push_back(tokenizer);
  for (size_t round = 0; round < 200; ++round) {
    std::string bytes;
    for (size_t n = random() % 40; n > 0; --n) switch (random() % 4) {
        case 0:
          bytes += static_cast<char>(random());
          break;
        case 1:
          bytes += "a \n'"[random() % 4];
          break;
        case 2:
          append_utf8(bytes, random() % 0x800);
          break;
        default:
          append_utf8(bytes, 0x1f300 + random() % 0x100);
      }
    CAPTURE(round, printable(bytes));
    for (const Tokenizer* tokenizer : all) check(*tokenizer, bytes);
  }
  for (const Tokenizer* tokenizer : all) {
    CHECK(tokenizer->encode("").empty());
    check(*tokenizer, std::string("\0a\0", 3));
    check(*tokenizer, "\xff\xfe");
  }
}

TEST_CASE("bpe: merging is that of the definition, for short words and for long ones", "[model][tokenizer]") {
  const TokenizerSpec spec = small_bpe({"a b", "b a", "ab a", "a a", "aba ab", "b b", "ba ba", "aa aa", "bb a"});
  const auto tokenizer = make_tokenizer(spec);
  // The definition: of all neighbouring pairs that are a merge take the one of the best rank, the leftmost of equals.
  const auto by_definition = [&](const std::string& word) {
    std::vector<std::string> parts;
    for (const char c : word) parts.emplace_back(1, c);
    for (;;) {
      size_t best = spec.merges.size(), at = 0;
      for (size_t i = 0; i + 1 < parts.size(); ++i) {
        const auto it = std::find(spec.merges.begin(), spec.merges.end(), parts[i] + " " + parts[i + 1]);
        const auto rank = static_cast<size_t>(it - spec.merges.begin());
        if (rank < best) best = rank, at = i;
      }
      if (best == spec.merges.size()) break;
      parts[at] += parts[at + 1];
      parts.erase(parts.begin() + static_cast<ptrdiff_t>(at) + 1);
    }
    Ids ids;
    for (const auto& part : parts) ids.push_back(*tokenizer->find(part));
    return ids;
  };
  std::mt19937 random(3);
  for (const size_t n : {1, 2, 3, 7, 47, 48, 49, 50, 97, 400})
    for (size_t round = 0; round < 20; ++round) {
      std::string word;
      for (size_t i = 0; i < n; ++i) word += "ab"[random() % 2];
      CAPTURE(n, word);
      CHECK(tokenizer->encode(word) == by_definition(word));
    }
}

TEST_CASE("bpe: merges through texts that are no tokens fall back to bytes; control tokens stay out of reach",
          "[model][tokenizer]") {
  TokenizerSpec spec = small_bpe({"a b", "ab c"}, "llama-bpe", {"abd", "<|end_of_text|>"});
  spec.merges.push_back("ab d");   // would spell the control token "abd"
  spec.tokens[256] = "unrelated";  // "ab" is no token any more, but the way to "abc"
  const auto tokenizer = make_tokenizer(spec);
  CHECK(tokenizer->encode("abc") == Ids{*tokenizer->find("abc")});
  CHECK(tokenizer->encode("ab") == Ids{'a', 'b'});
  CHECK(tokenizer->encode("abd") == Ids{'a', 'b', 'd'});
  CHECK(tokenizer->encode("unrelated") == Ids{256});  // llama-bpe: a word that is a token is taken whole
  CHECK_FALSE(tokenizer->add_bos);                    // there is no bos to add
}

TEST_CASE("bpe: user-defined tokens are matched in plain text, the leftmost and longest first", "[model][tokenizer]") {
  TokenizerSpec spec = small_bpe(kMerges);
  for (const char* name : {"<x>", "<x>y", "é"}) spec.tokens.push_back(name), spec.types.push_back(4);
  const auto tokenizer = make_tokenizer(spec);
  const int32_t x = *tokenizer->find("<x>"), xy = *tokenizer->find("<x>y"), e = *tokenizer->find("é");
  CHECK(tokenizer->encode("a<x>yé<x>") == Ids{'a', xy, e, x});
  CHECK(tokenizer->decode(Ids{x, xy, e}) == "<x><x>yé");
  CHECK_FALSE(tokenizer->is_control(x));
}

TEST_CASE("pre-tokenisers: where words end", "[model][tokenizer]") {
  using Words = std::vector<std::string>;
  CHECK(pre_tokenize("gpt-2", "I'm  here,\n\n2024!") == Words{"I", "'m", " ", " here", ",", "\n", "\n", "2024", "!"});
  CHECK(pre_tokenize("smollm", "a  12 b") == Words{"a", "  ", "1", "2", " b"});
  CHECK(pre_tokenize("qwen2", "I'M x\n  12é") == Words{"I", "'M", " x", "\n", " ", " ", "1", "2", "é"});
  CHECK(pre_tokenize("deepseek-coder", "a\n b12,c一二") == Words{"a", "\n", " b", "1", "2", ",", "c", "一二"});
  CHECK(pre_tokenize("gpt-2", "a\u00a0\u180eb") == Words{"a", "\u00a0", "\u180e", "b"});  // U+180E is no white space
  CHECK(pre_tokenize("gpt-2", "").empty());
  CHECK_THROWS_WITH(pre_tokenize("nonsense", "x"), Catch::Contains("'nonsense'"));
}

TEST_CASE("tokenizer: what is not supported or damaged is refused with a reason", "[model][tokenizer]") {
  const auto refusal = [](TokenizerSpec spec) {
    try {
      make_tokenizer(std::move(spec));
    } catch (const Error& error) {
      CHECK(error.code() == Code::kInput);
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const auto bpe = [](auto change) {
    TokenizerSpec spec = small_bpe(kMerges);
    change(spec);
    return spec;
  };
  const auto spm = [](auto change) {
    TokenizerSpec spec = small_spm();
    change(spec);
    return spec;
  };
  using Catch::Contains;
  CHECK(refusal(small_bpe(kMerges)) == "accepted");
  CHECK(refusal(small_spm()) == "accepted");
  CHECK_THAT(refusal({}), Contains("no tokenizer"));
  CHECK_THAT(refusal(bpe([](auto& s) { s.model = "bert"; })), Contains("'bert'"));
  CHECK_THAT(refusal(bpe([](auto& s) { s.pre = "tekken"; })), Contains("'tekken'"));
  CHECK_THAT(refusal(bpe([](auto& s) { s.pre = ""; })), Contains("tokenizer.ggml.pre"));
  CHECK_THAT(refusal(bpe([](auto& s) { s.pre = "default"; })), Contains("tokenizer.ggml.pre"));
  CHECK(refusal(bpe([](auto& s) { s.pre = "", s.architecture = "gpt2"; })) == "accepted");
  CHECK_THAT(refusal(bpe([](auto& s) { s.merges.clear(); })), Contains("no merges"));
  CHECK_THAT(refusal(bpe([](auto& s) { s.merges[3] = "nopair"; })), Contains("merge 3"));
  CHECK_THAT(refusal(bpe([](auto& s) { s.merges[3] = "a "; })), Contains("merge 3"));
  CHECK_THAT(refusal(bpe([](auto& s) { s.types.pop_back(); })), Contains("types"));
  CHECK_THAT(refusal(bpe([](auto& s) { s.types[0] = 7; })), Contains("type 7"));
  CHECK_THAT(refusal(bpe([](auto& s) { s.types[0] = -1; })), Contains("type -1"));
  CHECK_THAT(refusal(bpe([](auto& s) { s.eos = 100000; })), Contains("eos_token_id is 100000"));
  CHECK_THAT(refusal(bpe([](auto& s) { s.bos = -5; })), Contains("bos_token_id is -5"));
  CHECK(refusal(bpe([](auto& s) { s.bos = 0xffffffff; })) == "accepted");  // "none" of old converters
  CHECK_THAT(refusal(spm([](auto& s) { s.scores.pop_back(); })), Contains("scores"));
  CHECK_THAT(refusal(spm([](auto& s) { s.scores[5] = std::nanf(""); })), Contains("token 5"));
  CHECK(refusal(spm([](auto& s) { s.types[0] = 3, s.unknown.reset(); })) == "accepted");
  // Odd lists that the library would refuse or trip over.
  const auto odd = make_tokenizer(spm([](auto& s) {
    for (const char* name : {"a", "", "<0x41>", "<0xZZ>", "\xff\xfe"})
      s.tokens.push_back(name), s.scores.push_back(-20), s.types.push_back(name[0] == '<' ? 6 : 1);
    s.tokens.push_back(std::string("x\0y", 3)), s.scores.push_back(-20), s.types.push_back(4);
    std::string chain;
    for (int i = 0; i < 200; ++i) {
      chain += "=";
      s.tokens.push_back(chain), s.scores.push_back(-20), s.types.push_back(4);
    }
  }));
  CHECK(odd->decode(odd->encode("aA==" + std::string(500, '='))) == "aA==" + std::string(500, '='));
}

TEST_CASE("tokenizer: a WordPiece vocabulary is refused by name", "[model][tokenizer]") {
  const TempDir folder;
  const auto path = vocab_file("bert-bge", folder);
  if (!path) return;
  const GgufFile file(*path);
  CHECK_THROWS_WITH(make_tokenizer(file), Catch::Contains("tokenizer 'bert' is not supported"));
}

TEST_CASE("tokenizer: bytes that stand for SentencePiece's pieces", "[model][tokenizer]") {
  const auto tokenizer = make_tokenizer(small_spm());
  CHECK(tokenizer->encode("ab é€") ==
        Ids{*tokenizer->find("▁ab"), *tokenizer->find("▁"), *tokenizer->find("é"), 3 + 0xe2, 3 + 0x82, 3 + 0xac});
  CHECK(tokenizer->encode("\n") == Ids{*tokenizer->find("▁"), 3 + '\n'});
  CHECK(tokenizer->encode("     b", false) ==
        Ids{*tokenizer->find("▁▁▁▁"), *tokenizer->find("▁"), *tokenizer->find("b")});
  CHECK(tokenizer->decode(tokenizer->encode("  ab")) == "  ab");
  // Cutting a long text for the library does not show: the ids are those of the words one by one.
  std::string text;
  Ids wanted;
  for (int i = 0; i < 2000; ++i) {
    text += " ab";
    wanted.push_back(*tokenizer->find("▁ab"));
  }
  CHECK(tokenizer->encode(text, false) == wanted);
}

TEST_CASE("tokenizer: speed over the documents", "[model][tokenizer][.slow]") {
  std::string all;
  for (const std::string& path : documents()) all += to_valid_utf8(read_all(path));
  if (all.empty()) return;
  for (const auto& [name, tokenizer] : all_tokenizers()) {
    std::vector<double> times;
    size_t n = 0;
    for (int round = 0; round < 5; ++round)
      times.push_back(seconds_of([&, t = tokenizer] { n = t->encode(all).size(); }));
    std::sort(times.begin(), times.end());
    std::printf("%-45s %-20s %.2f MB, %zu tokens, %.2f MB/s (median of 5, best %.2f)\n", name.c_str(),
                tokenizer->kind.c_str(), static_cast<double>(all.size()) / 1e6, n,
                static_cast<double>(all.size()) / 1e6 / times[2], static_cast<double>(all.size()) / 1e6 / times[0]);
    CHECK(n > 0);
  }
}
