// Markdown: decoding, reader and chunker.
#include "fuzz/docs_invariants.h"
#include "fuzz/fuzz_main.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes) {
  cento::test::check_document({reinterpret_cast<const char*>(data), n_bytes}, "markdown");
  return 0;
}

std::vector<std::string> cento::test::builtin_seeds() {
  return {
      "---\ntitle: \"T\"\n---\n# A\n\ntext [x](y)\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```\ncode\n```\n- i\n  1. "
      "j\n\nSub\n---\n<!-- c -->\n[r]: http://x\n",
      "# \xe6\xbd\xae\n\n\xe6\xbd\xae\xe6\xb1\x90\xe3\x80\x82 e.g. that. Next one!\n\n~~~~\n```\n"};
}
