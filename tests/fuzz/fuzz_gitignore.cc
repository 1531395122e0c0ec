// Ignore patterns: the first line is a path, the rest a .gitignore. Any verdict is fine, but it must be the same for
// the same question, a negated list must give the opposite, and a literal name must match itself.
#include "docs/ignore.h"

#include <cstdlib>

#include "fuzz/fuzz_main.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes) {
  const std::string_view all(reinterpret_cast<const char*>(data), n_bytes);
  const size_t end = all.find('\n');
  if (end == std::string_view::npos || end > 4096) return 0;
  const std::string_view path = all.substr(0, end);
  const cento::IgnoreList list(all.substr(end + 1));
  for (const bool folder : {false, true}) {
    if (list.match(path, folder) != list.match(path, folder)) std::abort();
  }
  (void)list.covers(path);
  // The path itself as a pattern, every byte escaped, anchored.
  if (path.empty() || path.front() == '/' || path.back() == '/' || path.size() > 1000) return 0;
  std::string literal = "/";
  for (const char c : path) {
    if (c == '\r' || c == '\0') return 0;
    if (c != '/') literal += '\\';
    literal += c;
  }
  cento::IgnoreList own(literal);
  if (own.match(path, false) != true) std::abort();
  own.add("!" + literal);
  if (own.match(path, false) != false) std::abort();
  return 0;
}

std::vector<std::string> cento::test::builtin_seeds() {
  return {"a/b/c.md\n*.md\n!/a/**/c.md\nfoo/\n[a-c]x\n[[:digit:]]?\n\\#x\\ \n**/y/**\n", "x\n*a*b*c*d*\n[!\\]]\n"};
}
