// `cento index` that stops anywhere (tests/kv/crash_suite.h).
#include <filesystem>
#include <map>

#include "docs/indexer.h"
#include "kv/crash_suite.h"

using namespace cento;
using namespace cento::test;

namespace {

std::string text_of(int n, const std::string& word) {
  return "# Part " + std::to_string(n) + "\n\nThe " + word + " with number " + std::to_string(n) +
         " stands at the quay.\n\n## More\n\nNobody has asked for " + word + " " + std::to_string(n) + " in years.\n";
}

std::string name_of(int n) { return "docs/part" + std::to_string(100 + n) + ".md"; }

void index_folder(CrashDisk& disk, const std::string& folder, const std::string& collection) {
  CrashStore s(disk);
  DocStore docs(s.catalogue);
  IndexOptions options;
  options.collection = collection;
  options.paths = {disk / folder};
  index_documents(docs, nullptr, options, {});
}

// Each source with its chunks, as one text.
std::map<std::string, std::string> sources_of(Catalogue& catalogue) {
  std::map<std::string, std::string> out;
  Stmt q = catalogue.db().prepare(
      "SELECT cast(s.path AS TEXT), s.collection_id || ' ' || hex(s.content_hash) || ' ' || s.title || ' ' || "
      "group_concat(p.seq || hex(c.hash) || p.line_from || '-' || p.line_to) FROM sources s "
      "JOIN source_chunks p ON p.source_id = s.id JOIN chunks c ON c.id = p.chunk_id GROUP BY s.id");
  while (q.step()) out[q.text(0)] = q.text(1);
  return out;
}

// Of `n` files one in four is edited, one in four removed, one renamed; as many new ones come, and one is no text.
void check_index(int n, const CrashKind& kind) {
  CrashDisk disk;
  for (int i = 0; i < n; ++i) write_all(disk / name_of(i), text_of(i, "crane"));
  write_all(disk / "other/tides.txt", "Spring tides follow the full moon by two days.\n");
  index_folder(disk, "other", "other");
  index_folder(disk, "docs", "default");
  std::map<std::string, std::string> before, after;
  {
    CrashStore s(disk);
    before = sources_of(s.catalogue);
  }
  disk.keep();
  for (int i = 0; i < n; i += 4) {
    write_all(disk / name_of(i), text_of(i, "lighthouse"));
    std::filesystem::remove(disk / name_of(i + 1));
    write_all(disk / name_of(n + i), text_of(n + i, "ferry"));
  }
  std::filesystem::rename(disk / name_of(2), disk / name_of(2 * n));
  write_all(disk / "docs/picture.md", std::string("\x89PNG\r\n\x1a\n\0\0\0\r", 13));
  const std::string old_name = disk / name_of(2), new_name = disk / name_of(2 * n);
  disk.go_back();
  index_folder(disk, "docs", "default");
  {
    CrashStore s(disk);
    after = sources_of(s.catalogue);
  }
  REQUIRE(after.size() == before.size());
  REQUIRE(after.contains(new_name));
  const CrashCommand command{
      "index", [](CrashDisk& d) { index_folder(d, "docs", "default"); },
      [&](Catalogue& catalogue) {
        const auto now = sources_of(catalogue);
        for (const auto& [path, text] : now) {
          const auto b = before.find(path), a = after.find(path);
          CHECK(((b != before.end() && b->second == text) || (a != after.end() && a->second == text)));
        }
        for (const auto& [path, text] : before) {
          if (after.contains(path)) CHECK(now.contains(path));
        }
        CHECK(now.contains(old_name) != now.contains(new_name));
      }};
  CHECK(survive(disk, command, kind) > 20);
}

}  // namespace

TEST_CASE("crash: an index run has each file as it was or as it is", "[docs][crash]") {
  check_index(8, GENERATE(from_range(kCrashKinds)));
}

TEST_CASE("crash: an index run of several transactions, by every kind of fault", "[docs][crash][.slow]") {
  check_index(80, GENERATE(from_range(kCrashKinds)));
}
