// HTML: decoding, reader and chunker.
#include "fuzz/docs_invariants.h"
#include "fuzz/fuzz_main.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes) {
  cento::test::check_document({reinterpret_cast<const char*>(data), n_bytes}, "html");
  return 0;
}

std::vector<std::string> cento::test::builtin_seeds() {
  return {
      "<!DOCTYPE html><title>T</title><nav>n</nav><h1>H</h1><p>a &amp; "
      "b<br>c<ul><li>x<li><p>y</ul><table><tr><th>A<th>B<tr><td>1<td>2</table><pre> k\n</pre><script>s</script>",
      "<table><tr><td><h2>H</h2><table><tr><td>i</table></table><svg><title>t</title></svg><select><option>o</"
      "select><template>u</template><div hidden>h<div role=menu>m"};
}
