#include "model/gguf_reader.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "base/error.h"
#include "model/fingerprint.h"
#include "model/model_config.h"
#include "model/weights.h"
#include "support/gguf_writer.h"
#include "support/shared_data.h"

namespace cento {
namespace {

using test::gguf_string;
using test::GgufWriter;
using test::le;

constexpr uint32_t kU8 = 0, kI8 = 1, kU16 = 2, kI16 = 3, kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7, kString = 8,
                   kArray = 9, kU64 = 10, kI64 = 11, kF64 = 12;

// Opens `bytes` as a file and returns the Error, or nullopt if it opens.
std::optional<Error> refusal(const std::string& bytes) {
  test::TempDir dir;
  test::write_all(dir / "m.gguf", bytes);
  try {
    const GgufFile file(dir / "m.gguf");
    return std::nullopt;
  } catch (const Error& e) {
    return e;
  }
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

GgufWriter sample() {
  GgufWriter w;
  w.put_text("general.architecture", "llama").put_u32("n", 7);
  w.add_tensor("a", {2, 3}, DType::kF32, {1, 2, 3, 4, 5, 6});
  w.add_tensor("b", {32}, DType::kQ8_0, std::vector<float>(32, 1.0f));
  return w;
}

TEST_CASE("gguf: reads keys and tensors of versions 2 and 3", "[model]") {
  test::TempDir dir;
  for (const uint32_t version : {2u, 3u}) {
    GgufWriter w = sample();
    w.version = version;
    w.write(dir / "m.gguf");
    const GgufFile file(dir / "m.gguf");
    CHECK(file.version() == version);
    CHECK(file.values().size() == 2);
    CHECK(file.text("general.architecture") == "llama");
    REQUIRE(file.tensors().size() == 2);
    CHECK(file.tensor_data_offset() % 32 == 0);
    const GgufTensor* a = file.find_tensor("a");
    REQUIRE(a != nullptr);
    CHECK(a == &file.tensors()[0]);
    CHECK(a->readable);
    CHECK(a->view.n_dims == 2);
    CHECK(a->view.shape[0] == 2);  // slowest axis first
    CHECK(a->view.shape[1] == 3);
    CHECK(a->view.rows() == 2);
    CHECK(a->view.n_bytes == 24);
    CHECK(shape_text(a->view) == "[2, 3]");
    float row1[3];
    std::memcpy(row1, a->view.data + 12, sizeof row1);
    CHECK(row1[0] == 4.0f);
    const GgufTensor* b = file.find_tensor("b");
    REQUIRE(b != nullptr);
    CHECK(b->view.dtype == DType::kQ8_0);
    CHECK(b->view.n_bytes == 34);
    CHECK(reinterpret_cast<uintptr_t>(b->view.data) % 32 == 0);
    CHECK(file.find_tensor("c") == nullptr);
  }
}

TEST_CASE("gguf: each type of value comes back through the getter that fits, and no other", "[model]") {
  GgufWriter w;
  w.put_raw("u8", kU8, "\xff").put_raw("i8", kI8, "\xff").put_raw("u16", kU16, le(65535, 2));
  w.put_raw("i16", kI16, le(0xfffe, 2)).put_u32("u32", 4000000000u).put_i32("i32", -5);
  w.put_u64("u64", std::numeric_limits<uint64_t>::max()).put_raw("i64", kI64, le(static_cast<uint64_t>(-9), 8));
  w.put_f32("f32", 1.5f).put_raw("f64", kF64, le(std::bit_cast<uint64_t>(0.1), 8));
  w.put_bool("yes", true).put_bool("no", false).put_text("text", std::string("a\0b", 3)).put_text("empty", "");
  w.put_texts("texts", {"x", "", "zz"}).put_floats("floats", {1, -2}).put_i32s("ints", {-1, 2});
  w.put_raw("bools", kArray, le(kBool, 4) + le(2, 8) + std::string("\1\0", 2));
  w.put_raw("doubles", kArray, le(kF64, 4) + le(1, 8) + le(std::bit_cast<uint64_t>(1e300), 8));
  w.put_raw("large", kArray, le(kU64, 4) + le(1, 8) + le(~0ull, 8));
  w.put_texts("none", {});
  test::TempDir dir;
  w.write(dir / "m.gguf");
  const GgufFile file(dir / "m.gguf");

  CHECK(file.integer("u8") == 255u);
  CHECK(file.integer("u16") == 65535u);
  CHECK(file.integer("u32") == 4000000000u);
  CHECK(file.integer("u64") == std::numeric_limits<uint64_t>::max());
  CHECK(file.number("i8") == -1.0);
  CHECK(file.number("i16") == -2.0);
  CHECK(file.number("i32") == -5.0);
  CHECK(file.number("i64") == -9.0);
  CHECK(file.number("f32") == 1.5);
  CHECK(file.number("f64") == 0.1);
  CHECK(file.number("u64") == 0x1p64);
  CHECK(file.boolean("yes") == true);
  CHECK(file.boolean("no") == false);
  CHECK(file.text("text") == std::string("a\0b", 3));
  CHECK(file.text("empty") == "");
  CHECK(file.texts("texts") == std::vector<std::string>{"x", "", "zz"});
  CHECK(file.texts("none") == std::vector<std::string>{});
  CHECK(file.floats("floats") == std::vector<float>{1, -2});
  CHECK(file.integers("ints") == std::vector<int64_t>{-1, 2});
  CHECK(file.integers("bools") == std::vector<int64_t>{1, 0});

  CHECK(file.has("u8"));
  CHECK_FALSE(file.has("u9"));
  CHECK_FALSE(file.text("absent"));
  CHECK_FALSE(file.integer("absent"));
  CHECK_FALSE(file.number("absent"));
  CHECK_FALSE(file.boolean("absent"));
  CHECK_FALSE(file.texts("absent"));
  CHECK_FALSE(file.floats("absent"));
  CHECK_FALSE(file.integers("absent"));

  CHECK_THROWS_AS(file.integer("i8"), Error);
  CHECK_THROWS_AS(file.integer("i64"), Error);
  CHECK_THROWS_AS(file.integer("f32"), Error);
  CHECK_THROWS_AS(file.integer("yes"), Error);
  CHECK_THROWS_AS(file.integer("ints"), Error);
  CHECK_THROWS_AS(file.integer("text"), Error);
  CHECK_THROWS_AS(file.number("yes"), Error);
  CHECK_THROWS_AS(file.number("text"), Error);
  CHECK_THROWS_AS(file.boolean("u8"), Error);
  CHECK_THROWS_AS(file.text("texts"), Error);
  CHECK_THROWS_AS(file.texts("text"), Error);
  CHECK_THROWS_AS(file.texts("ints"), Error);
  CHECK_THROWS_AS(file.floats("ints"), Error);
  CHECK_THROWS_AS(file.floats("f32"), Error);
  CHECK_THROWS_AS(file.floats("doubles"), Error);  // no float32 is that large
  CHECK_THROWS_AS(file.integers("floats"), Error);
  CHECK_THROWS_AS(file.integers("texts"), Error);
  CHECK_THROWS_AS(file.integers("large"), Error);
  try {
    (void)file.texts("ints");
    FAIL("no error");
  } catch (const Error& e) {
    CHECK(e.code() == Code::kInput);
    CHECK(e.message() == "ints should be an array of strings, but is array of int32");
    CHECK(contains(e.where(), "m.gguf, byte "));
  }
}

TEST_CASE("gguf: a moved file keeps its views", "[model]") {
  test::TempDir dir;
  sample().write(dir / "m.gguf");
  GgufFile first(dir / "m.gguf");
  const std::byte* const data = first.find_tensor("a")->view.data;
  const GgufFile second(std::move(first));
  CHECK(second.find_tensor("a")->view.data == data);
  CHECK(second.text("general.architecture") == "llama");
}

TEST_CASE("gguf: what is no little-endian GGUF 2 or 3 is refused by name", "[model]") {
  struct Row {
    std::string bytes;
    const char* says;
    const char* where;
  };
  const std::string rest(64, '\0');
  const Row rows[] = {
      {"GGUF" + le(1, 4) + rest, "GGUF version 1 is not supported", ", byte 4"},
      {"GGUF" + le(4, 4) + rest, "GGUF version 4 is not supported", ", byte 4"},
      {"GGUF" + le(0, 4) + rest, "GGUF version 0 is not supported", ", byte 4"},
      {"GGUF" + std::string("\0\0\0\3", 4) + rest, "big-endian GGUF", ", byte 4"},
      {"FUGG" + std::string("\0\0\0\3", 4) + rest, "big-endian GGUF", ", byte 0"},
      {"tjgg" + le(3, 4) + rest, "before GGUF", ", byte 0"},
      {"PK\3\4" + rest, "magic is 'PK\\x03\\x04'", ", byte 0"},
      {"GG", "the magic needs 4 bytes, but 2 are left", ", byte 0"},
      {"GGUF\3", "the version needs 4 bytes, but 1 are left", ", byte 4"},
      {"GGUF" + le(3, 4), "the number of tensors needs 8 bytes", ", byte 8"},
  };
  for (const Row& row : rows) {
    const auto e = refusal(row.bytes);
    REQUIRE(e);
    CAPTURE(e->what());
    CHECK(e->code() == Code::kInput);
    CHECK(contains(e->message(), row.says));
    CHECK(e->where().ends_with(row.where));
    CHECK_FALSE(e->hint().empty());
  }
  CHECK(refusal("")->code() == Code::kInput);
}

TEST_CASE("gguf: impossible counts and lengths fail at once, whatever they say", "[model]") {
  const auto start = std::chrono::steady_clock::now();
  for (const uint64_t n : {uint64_t{1} << 60, ~uint64_t{0}, uint64_t{1} << 32, uint64_t{100}}) {
    GgufWriter tensors = sample(), keys = sample();
    tensors.n_tensors = n;
    keys.n_keys = n;
    CHECK(contains(refusal(tensors.bytes())->message(), "the file says it has " + std::to_string(n) + " tensors"));
    CHECK(contains(refusal(keys.bytes())->message(), "the file says it has " + std::to_string(n) + " keys"));
    for (const uint32_t element : {kU8, kU64, kString, kBool}) {
      GgufWriter w;
      w.put_raw("list", kArray, le(element, 4) + le(n, 8));
      CHECK(contains(refusal(w.bytes())->message(), std::to_string(n) + " elements in key 'list'"));
    }
    GgufWriter text;
    text.put_raw("text", kString, le(n, 8) + "abc");
    CHECK(contains(refusal(text.header())->message(),
                   "key 'text' needs " + std::to_string(n) + " bytes, but 3 are left"));
    const std::string name = "GGUF" + le(3, 4) + le(0, 8) + le(1, 8) + le(n, 8) + std::string(32, 'x');
    CHECK(contains(refusal(name)->message(), "a key needs " + std::to_string(n) + " bytes"));
    GgufWriter shape;
    shape.add_raw("t", {n, 1ull << 40}, 0, "");
    CHECK(refusal(shape.bytes()));
  }
  // A file in which every count were believed would take minutes or all memory.
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
}

TEST_CASE("gguf: tables with more entries than any model has are refused", "[model]") {
  GgufWriter w;
  w.n_keys = 70000;
  const std::string bytes = w.header() + std::string(70000 * 16, '\0');
  CHECK(contains(refusal(bytes)->message(), "70000 keys, more than 65536"));
}

TEST_CASE("gguf: damaged tables are refused with the place and what was found", "[model]") {
  struct Row {
    const char* name;
    std::function<void(GgufWriter&)> damage;
    const char* says;
  };
  const Row rows[] = {
      {"key twice", [](GgufWriter& w) { w.put_u32("n", 8); }, "key 'n' is there twice"},
      {"key without name", [](GgufWriter& w) { w.put_u32("", 8); }, "a key has no name"},
      {"value type", [](GgufWriter& w) { w.put_raw("x", 13, "1234"); }, "key 'x' has the unknown type 13"},
      {"element type", [](GgufWriter& w) { w.put_raw("x", kArray, le(99, 4) + le(0, 8)); },
       "key 'x' has elements of the unknown type 99"},
      {"nested", [](GgufWriter& w) { w.put_raw("x", kArray, le(kArray, 4) + le(1, 8) + le(kU8, 4) + le(0, 8)); },
       "key 'x' is an array of arrays"},
      {"bool", [](GgufWriter& w) { w.put_raw("x", kBool, "\2"); }, "a bool that is neither 0 nor 1 but 2"},
      {"bools", [](GgufWriter& w) { w.put_raw("x", kArray, le(kBool, 4) + le(2, 8) + "\1\3"); },
       "neither 0 nor 1 but 3"},
      {"tensor twice", [](GgufWriter& w) { w.add_tensor("a", {1}, DType::kF32, {1}); }, "tensor 'a' is there twice"},
      {"tensor without name", [](GgufWriter& w) { w.add_tensor("", {1}, DType::kF32, {1}); }, "a tensor has no name"},
      {"no dimensions", [](GgufWriter& w) { w.add_raw("x", {}, 0, "1234"); }, "tensor 'x' has 0 dimensions"},
      {"five dimensions",
       [](GgufWriter& w) {
         w.add_raw("x", {1, 1, 1, 1, 1}, 0, "1234");
       },
       "tensor 'x' has 5 dimensions"},
      {"dimension 0",
       [](GgufWriter& w) {
         w.add_raw("x", {4, 0}, 0, "");
       },
       "impossible dimension 0"},
      {"product",
       [](GgufWriter& w) {
         w.add_raw("x", {1ull << 33, 1ull << 31}, 0, "");
       },
       "impossible dimension"},
      {"overflow", [](GgufWriter& w) { w.add_raw("x", {1ull << 60}, 0, ""); }, "beyond the end of the file"},
      {"half a block", [](GgufWriter& w) { w.add_raw("x", {33}, 8, std::string(70, '\0')); },
       "rows of 33 values, no multiple of the 32 of a Q8_0 block"},
      {"rows and blocks",
       [](GgufWriter& w) {
         w.add_raw("x", {2, 128}, 12, std::string(144, '\0'));
       },
       "rows of 128 values, no multiple of the 256 of a Q4_K block"},
      {"offset", [](GgufWriter& w) { w.find_tensor("b")->offset = 33; }, "offset 33, no multiple of the alignment 32"},
      {"offset outside", [](GgufWriter& w) { w.find_tensor("b")->offset = 1ull << 40; }, "beyond the end of the file"},
      {"offset wraps", [](GgufWriter& w) { w.find_tensor("b")->offset = ~31ull; }, "beyond the end of the file"},
      {"overlap", [](GgufWriter& w) { w.find_tensor("b")->offset = 0; }, "tensors 'a' and 'b' overlap"},
      {"alignment 0", [](GgufWriter& w) { w.put_u32("general.alignment", 0); }, "general.alignment is 0"},
      {"alignment 48", [](GgufWriter& w) { w.put_u32("general.alignment", 48); }, "general.alignment is 48"},
      {"alignment 4", [](GgufWriter& w) { w.put_u32("general.alignment", 4); }, "general.alignment is 4"},
      {"alignment huge", [](GgufWriter& w) { w.put_u64("general.alignment", 1ull << 63); },
       "beyond the end of the file"},
      {"alignment text", [](GgufWriter& w) { w.put_text("general.alignment", "32"); }, "should be an integer"},
  };
  for (const Row& row : rows) DYNAMIC_SECTION(row.name) {
      GgufWriter w = sample();
      REQUIRE_FALSE(refusal(w.bytes()));
      row.damage(w);
      const auto e = refusal(w.bytes());
      REQUIRE(e);
      CAPTURE(e->what());
      CHECK(contains(e->message(), row.says));
      CHECK(contains(e->where(), "m.gguf, byte "));
      CHECK(e->code() == Code::kInput);
    }
}

TEST_CASE("gguf: the byte named in an error is where the wrong number stands", "[model]") {
  GgufWriter w = sample();
  w.put_raw("x", 13, "1234");
  const size_t key_at = w.bytes().find(gguf_string("x"));
  CHECK(refusal(w.bytes())->where().ends_with(", byte " + std::to_string(key_at + 9)));
}

TEST_CASE("gguf: names with control characters are shown safely and cut short", "[model]") {
  GgufWriter w = sample();
  w.put_raw("\x1b[31m" + std::string(5000, 'k'), 13, "");
  const auto e = refusal(w.bytes());
  REQUIRE(e);
  CHECK(contains(e->message(), "\\x1b[31mkkk"));
  CHECK(e->message().size() < 300);
}

TEST_CASE("gguf: another alignment moves the tensor data", "[model]") {
  test::TempDir dir;
  for (const uint32_t alignment : {8u, 64u, 4096u}) {
    GgufWriter w = sample();
    w.put_u32("general.alignment", alignment);
    w.alignment = alignment;
    w.write(dir / "m.gguf");
    const GgufFile file(dir / "m.gguf");
    CHECK(file.tensor_data_offset() % alignment == 0);
    float first;
    std::memcpy(&first, file.find_tensor("a")->view.data, 4);
    CHECK(first == 1.0f);
  }
}

TEST_CASE("gguf: tensors of a type that is not read are listed without data", "[model]") {
  test::TempDir dir;
  GgufWriter w = sample();
  w.add_raw("odd", {4, 256}, 20, std::string(4 * 144, 'x'));
  w.write(dir / "m.gguf");
  const GgufFile file(dir / "m.gguf");
  const GgufTensor* t = file.find_tensor("odd");
  REQUIRE(t != nullptr);
  CHECK_FALSE(t->readable);
  CHECK(t->raw_type == 20);
  CHECK(t->view.data == nullptr);
  CHECK(t->view.n_bytes == 0);
  CHECK(shape_text(t->view) == "[4, 256]");
}

TEST_CASE("gguf: a file without tensors opens even without padding", "[model]") {
  GgufWriter w;
  w.put_text("general.architecture", "llama");
  CHECK_FALSE(refusal(w.header()));
  CHECK_FALSE(refusal(GgufWriter{}.header()));
}

// Opens the file and touches all that can be reached through it. True if it opened.
bool use_all(const std::string& path) {
  try {
    const GgufFile file(path);
    unsigned sum = 0;
    for (const auto& [key, value] : file.values()) {
      for (const std::byte b : value.bytes) sum += std::to_integer<unsigned>(b);
      const std::function<void()> getters[] = {[&] { (void)file.text(key); },   [&] { (void)file.integer(key); },
                                               [&] { (void)file.number(key); }, [&] { (void)file.texts(key); },
                                               [&] { (void)file.floats(key); }, [&] { (void)file.integers(key); },
                                               [&] { (void)file.boolean(key); }};
      for (const auto& get : getters) {
        try {
          get();
        } catch (const Error& e) {
          CHECK(e.code() == Code::kInput);
        }
      }
    }
    for (const GgufTensor& t : file.tensors()) {
      for (uint64_t i = 0; i < t.view.n_bytes; ++i) sum += std::to_integer<unsigned>(t.view.data[i]);
    }
    const std::string reason = unsupported_reason(file);
    if (reason.empty()) {
      const ModelConfig config = read_model_config(file);
      CHECK(find_weights(file, config).layers.size() == config.n_layers);
      (void)model_fingerprint(file, config);
    }
    return true;
  } catch (const Error& e) {
    CHECK(e.code() == Code::kInput);
    return false;
  }
}

GgufWriter small_gemma() {
  test::TinyModelSpec spec;
  spec.architecture = "gemma3";
  spec.layers = 1;
  spec.heads = 2;
  spec.kv_heads = 1;
  spec.width = 32;
  spec.ffn = 32;
  spec.type = DType::kQ8_0;
  spec.head_dim = 16;
  test::TinyVocab vocab;
  vocab.tokens = {"<unk>", "a", "b"};
  vocab.types = {2, 1, 1};
  vocab.scores = {0, -1, -2};
  spec.vocab = vocab;
  return test::tiny_model(spec);
}

TEST_CASE("gguf: a file cut at any byte of its header, or in its data, is refused", "[model]") {
  test::TempDir dir;
  const GgufWriter w = small_gemma();
  const std::string whole = w.bytes();
  test::write_all(dir / "m.gguf", whole);
  REQUIRE(use_all(dir / "m.gguf"));
  const size_t header = w.header().size();
  for (size_t n = 1; n < whole.size(); n += n < header + 64 ? 1 : 997) {
    test::write_all(dir / "m.gguf", whole.substr(0, n));
    CAPTURE(n);
    REQUIRE_FALSE(use_all(dir / "m.gguf"));
  }
}

TEST_CASE("gguf: with any byte of the header changed a file is refused or usable", "[model]") {
  test::TempDir dir;
  const GgufWriter w = small_gemma();
  const std::string whole = w.bytes();
  const size_t header = w.header().size();
  size_t refused = 0;
  for (size_t i = 0; i < header; ++i) {
    for (const int mask : {0xff, 0x01, 0x80}) {
      std::string bytes = whole;
      bytes[i] = static_cast<char>(bytes[i] ^ mask);
      test::write_all(dir / "m.gguf", bytes);
      CAPTURE(i, mask);
      refused += use_all(dir / "m.gguf") ? 0 : 1;
    }
  }
  CHECK(refused > header);  // most of the header is lengths, types and offsets
}

TEST_CASE("gguf: vocabulary files open but are no models", "[model]") {
  const auto path = test::shared_path("data/tokenizers/ggml-vocab-llama-spm.gguf");
  if (!path) return;
  const GgufFile file(*path);
  CHECK(file.tensors().empty());
  CHECK(file.texts("tokenizer.ggml.tokens")->size() == 32000);
  CHECK(contains(unsupported_reason(file), "vocabulary only"));
  CHECK_THROWS_AS(find_weights(file, ModelConfig{}), Error);
}

TEST_CASE("gguf: a folder, a missing file and an empty file are refused", "[model]") {
  test::TempDir dir;
  CHECK_THROWS_AS(GgufFile(dir.path()), Error);
  CHECK_THROWS_AS(GgufFile(dir / "none.gguf"), Error);
}

}  // namespace
}  // namespace cento
