#include "eval/synthetic.h"

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <set>

#include "base/file.h"
#include "base/text.h"
#include "eval/page_cache.h"
#include "support/gguf_writer.h"
#include "support/shared_data.h"

namespace cento {
namespace {

std::unique_ptr<Tokenizer> tokenizer_of(const test::TempDir& folder, const std::string& architecture) {
  test::TinyModelSpec spec;
  spec.architecture = architecture;
  test::write_tiny_model(folder / "m.gguf", spec);
  return make_tokenizer(GgufFile(folder / "m.gguf"));
}

TEST_CASE("synthetic: ids are text of the vocabulary, BOS apart, and the same for the same seed", "[eval]") {
  const test::TempDir folder;
  for (const char* architecture : {"llama", "qwen2"}) {
    CAPTURE(architecture);
    const auto tokenizer = tokenizer_of(folder, architecture);
    Rng rng(1), again(1), other(2);
    const auto ids = synthetic_ids(*tokenizer, 2000, rng);
    REQUIRE(ids.size() == 2000);
    CHECK(ids == synthetic_ids(*tokenizer, 2000, again));
    CHECK(ids != synthetic_ids(*tokenizer, 2000, other));
    const size_t first = tokenizer->add_bos ? 1 : 0;
    if (first == 1) CHECK(ids[0] == *tokenizer->bos);
    bool all_text = true;
    for (size_t i = first; i < ids.size(); ++i)
      all_text &= !tokenizer->is_control(ids[i]) && !tokenizer->piece(ids[i]).empty();
    CHECK(all_text);
    CHECK(std::set<int32_t>(ids.begin(), ids.end()).size() > 100);
    CHECK(synthetic_ids(*tokenizer, 0, rng).empty());
  }
}

TEST_CASE("synthetic: a text fills its tokens without going over them", "[eval]") {
  const test::TempDir folder;
  const auto tokenizer = tokenizer_of(folder, "llama");
  const auto words = vocabulary_words(*tokenizer);
  REQUIRE(words.size() >= 10);
  const auto count = [&](const std::string& text) { return tokenizer->encode(text).size(); };
  size_t longest = 0;
  for (const std::string& word : words) longest = std::max(longest, count(word + ".\n"));
  for (const size_t n : {1, 2, 16, 17, 100, 511}) {
    CAPTURE(n, longest);
    Rng rng(3), again(3);
    const std::string text = synthetic_text(words, n, count, rng);
    CHECK(text == synthetic_text(words, n, count, again));
    const size_t tokens = count(text);
    CHECK(tokens >= 1);
    if (n >= longest) CHECK(tokens <= n);
    CHECK(tokens + longest > n);  // one more word would not have fitted
  }
}

TEST_CASE("page cache: a file that is on the disk is cold after it was driven out, and warm once read", "[eval]") {
  const test::TempDir folder;
  const std::string path = folder / "file";
  test::write_all(path, std::string(1 << 20, 'x'));
  {
    const FileHandle file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    REQUIRE(::fsync(file.get()) == 0);
  }
  if (!evict_from_page_cache(path)) {
    WARN("pages cannot be driven out of the page cache here");
  } else {
    CHECK(test::read_all(path).size() == 1 << 20);
    CHECK(evict_from_page_cache(path));
  }
  // Pages that are mapped and touched stay, and that is noticed.
  const FileHandle file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  void* mapped = ::mmap(nullptr, 1 << 20, PROT_READ, MAP_SHARED | MAP_POPULATE, file.get(), 0);
  REQUIRE(mapped != MAP_FAILED);
  CHECK_FALSE(evict_from_page_cache(path));
  ::munmap(mapped, 1 << 20);
  CHECK_FALSE(evict_from_page_cache(folder / "none"));
  CHECK_FALSE(evict_from_page_cache(folder.path()));
  test::write_all(folder / "empty", "");
  CHECK(evict_from_page_cache(folder / "empty"));
}

}  // namespace
}  // namespace cento
