// reStructuredText: decoding, reader and chunker.
#include "fuzz/docs_invariants.h"
#include "fuzz/fuzz_main.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes) {
  cento::test::check_document({reinterpret_cast<const char*>(data), n_bytes}, "rst");
  return 0;
}

std::vector<std::string> cento::test::builtin_seeds() {
  return {
      "T\n=\n\n.. note:: x\n   y\n\n.. code-block:: c\n   :name: z\n\n   int a;\n\nA::\n\n  lit\n\n=====  =====\nA     "
      " B\n=====  =====\n1      2\n=====  =====\n",
      "===\nTop\n===\n\n.. py:data:: X\n\n   Default\n\nback\n\n+---+\n| a |\n+===+\n| b |\n+---+\n\n.. [1] f\n.. |s| "
      "replace:: t\n"};
}
