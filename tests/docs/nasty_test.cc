// The awkward files of shared/data/nasty: each is indexed, or passed over with a reason, as its manifest says.
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/clock.h"
#include "base/text.h"
#include "docs/indexer.h"
#include "support/fake_tokenizer.h"
#include "support/shared_data.h"

using namespace cento;
using nlohmann::json;

namespace {

std::string folded(const std::string& s) {
  std::string out;
  for (const char c : s) {
    const bool space = c == ' ' || c == '\n' || c == '\t';
    if (!space) {
      out += c;
    } else if (!out.empty() && out.back() != ' ') {
      out += ' ';
    }
  }
  return out;
}

std::string from_base64(const std::string& s) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  unsigned bits = 0, n = 0;
  for (const char c : s) {
    const size_t value = digits.find(c);
    if (value == std::string::npos) break;
    bits = bits << 6 | static_cast<unsigned>(value);
    n += 6;
    if (n >= 8) out += static_cast<char>(bits >> (n -= 8) & 0xff);
  }
  return out;
}

struct NastyTree {
  test::TempDir dir;
  std::string out = dir / "nasty";
  ~NastyTree() {  // folders without permissions, and paths too long for the removal
    (void)!std::system(("chmod -R u+rwX '" + out + "' 2>/dev/null; rm -rf '" + out + "'").c_str());
  }
};

}  // namespace

TEST_CASE("nasty: every awkward file is indexed or skipped with a reason", "[docs]") {
  const auto maker = test::shared_path("data/nasty/make.py");
  if (!maker) return;
  NastyTree tree;
  if (std::system(("python3 '" + *maker + "' '" + tree.out + "' > /dev/null").c_str()) != 0) {
    WARN("skipped: python3 could not make the files");
    return;
  }
  const std::string root = std::filesystem::canonical(tree.out + "/root").string();
  const json manifest = json::parse(test::read_all(tree.out + "/manifest.json"));
  Catalogue catalogue(tree.dir / "store", Db::Mode::kReadWrite);
  DocStore store(catalogue);
  const test::FakeTokenizer tokenizer;
  IndexOptions options;
  options.paths = {root};
  const bool with_tokenizer = GENERATE(false, true);
  const Stopwatch watch;
  const IndexReport report = index_documents(store, with_tokenizer ? &tokenizer : nullptr, options, {});
  CHECK(watch.ms() < 120'000);
  const int64_t id = store.find_collection("default")->id;

  std::map<std::string, std::string> skipped(report.skipped.begin(), report.skipped.end()), text_of, raw_of;
  for (const auto& [path, reason] : skipped) CHECK(!reason.empty());
  for (const SourceRow& source : store.sources(id)) text_of[source.path];
  std::string everything;
  for (const auto& place : store.chunks_in_order(id)) {
    const ChunkRow chunk = *store.chunk(place.chunk_id);
    CHECK(is_valid_utf8(chunk.header));
    CHECK(is_valid_utf8(chunk.body));
    CHECK(chunk.n_tokens <= 256);
    everything += chunk.prompt_text();
    for (const ChunkPlace& p : store.places(id, chunk.id)) {
      CHECK(p.line_from >= 1);
      CHECK(p.line_from <= p.line_to);
    }
  }
  {
    // A long text's needle may stand across two chunks: the chunks in order, joined.
    Stmt q = catalogue.db().prepare(
        "SELECT s.path, c.header, c.body FROM sources s JOIN source_chunks p ON p.source_id = s.id JOIN chunks c ON "
        "c.id = p.chunk_id ORDER BY s.path, p.seq");
    while (q.step()) {
      const std::vector<std::byte> bytes = q.blob(0);
      std::string& text = raw_of[std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())];
      text += q.text(2) + " ";
      if (text_of[std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())].empty())
        text = q.text(1) + "\n" + text;
      text_of[std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())] = "x";
    }
  }
  for (auto& [path, text] : raw_of) text = folded(text);

  static const std::set<std::string> kLater = {"pdf", "docx", "odt", "epub", "rtf", "pptx", "xlsx", "eml"};
  size_t n_text = 0, n_skip = 0, n_later = 0;
  for (const json& entry : manifest["files"]) {
    const std::string name = entry.contains("path") ? entry["path"].get<std::string>() : from_base64(entry["path_b64"]);
    const std::string path = root + "/" + name, expect = entry["expect"];
    const std::string extension = to_lower_ascii(std::filesystem::path(name).extension().string());
    const bool later = !extension.empty() && kLater.count(extension.substr(1)) != 0;
    const bool indexed = raw_of.count(path) != 0;
    CAPTURE(printable(name), expect, entry["note"], skipped[path]);
    if (expect == "text" && !later) {
      ++n_text;
      CHECK(indexed);
    }
    if (later) {
      ++n_later;
      CHECK(skipped[path].find("is not read yet; give --converter") != std::string::npos);
    } else if (expect == "skip") {
      ++n_skip;
      CHECK(!indexed);
      const bool folder = std::filesystem::is_directory(std::filesystem::symlink_status(path));
      CHECK((folder || !skipped[path].empty()));
    }
    if (indexed && entry["needle"].is_string()) CHECK(raw_of[path].find(folded(entry["needle"])) != std::string::npos);
    for (const auto& absent : entry["absent"]) CHECK(everything.find(absent.get<std::string>()) == std::string::npos);
    if (!indexed && expect == "either" && entry["group"] != "names")
      CHECK((!skipped[path].empty() || name.find("path-max") != std::string::npos || name == "tree/closed/x.md" ||
             name.find("/chain") != std::string::npos));
  }
  CHECK(everything.find("forbidden-orchid") == std::string::npos);
  CHECK(everything.find('\x1b') == std::string::npos);
  CHECK(n_text > 2080);
  CHECK(n_skip > 15);
  CHECK(n_later > 15);

  const IndexReport again = index_documents(store, with_tokenizer ? &tokenizer : nullptr, options, {});
  CHECK(again.files_read == 0);
  CHECK(again.added + again.changed + again.renamed + again.removed == 0);
  catalogue.db().exec("INSERT INTO chunk_words(chunk_words, rank) VALUES ('integrity-check', 1)");

  // Links followed on purpose: still ends, what is outside is read, everything once.
  if (!with_tokenizer) {
    options.follow_links = true;
    const IndexReport followed = index_documents(store, nullptr, options, {});
    CHECK(followed.files_read < 10);
    Stmt q = catalogue.db().prepare("SELECT count(*) FROM chunks WHERE body LIKE '%forbidden-orchid%'");
    q.step();
    CHECK(q.integer(0) == 1);
  }
}
