// How well retrieval finds the evidence of questions: retrieval_docqa [CHUNK_TOKENS] [-v] [--tokenizer FILE.gguf]
// Indexes shared/data/docs into a fresh store and asks the questions of docqa; prints, for each kind of question, among
// the first 3, 4, 5, 6 and 8 passages: questions whose evidence file is there, and whose evidence text is in one
// passage. Then the handbook of samples/ with samples/questions.jsonl.
// Stop words, weights and the limit of "nothing fits" were chosen on these very questions: the figures flatter.
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/text.h"
#include "docs/doc_store.h"
#include "docs/indexer.h"
#include "docs/retriever.h"
#include "support/shared_data.h"

namespace {

using cento::DocStore;
using nlohmann::json;

constexpr size_t kDepths[] = {1, 3, 4, 5, 6, 8};

// White space folded; tags and what HTML writes for characters taken out, since the quote of an HTML page is its
// source.
std::string folded(std::string s, bool html) {
  std::string plain;
  bool in_tag = false;
  for (const char c : s) {
    if (html && c == '<') in_tag = true;
    if (!in_tag) plain += c;
    if (c == '>') in_tag = false;
  }
  std::string out;
  for (const char c : plain) {
    const bool space = c == ' ' || c == '\n' || c == '\t' || c == '\r';
    if (!space) {
      out += c;
    } else if (!out.empty() && out.back() != ' ') {
      out += ' ';
    }
  }
  return out;
}

struct Tally {
  size_t n = 0, nothing = 0;
  std::map<size_t, size_t> file, quote;
};

struct Asked {
  std::string question, file, quote;
};

void ask(DocStore& store, int64_t collection, const std::string& root, const Asked& asked, Tally& tally, bool verbose) {
  ++tally.n;
  const auto got = cento::retrieve(store, collection, asked.question, 8);
  tally.nothing += got.nothing_fits;
  size_t file_at = 99, quote_at = 99, n = 0;
  std::set<std::string> sources;
  const bool html = asked.file.ends_with(".html");
  const std::string quote = folded(asked.quote, html);
  for (const auto& hit : got.hits) {
    ++n;
    const auto places = store.places(collection, hit.chunk_id);
    bool here = false;
    for (const auto& place : places) {
      sources.insert(place.path);
      here = here || place.path == root + "/" + asked.file;
    }
    if (here && file_at == 99) file_at = sources.size();
    const auto chunk = store.chunk(hit.chunk_id);
    if (here && quote_at == 99 && !quote.empty() &&
        folded(chunk->prompt_text(), false).find(quote) != std::string::npos)
      quote_at = n;
  }
  for (const size_t k : kDepths) {
    tally.file[k] += file_at <= k;
    tally.quote[k] += quote_at <= k;
  }
  if (verbose) {
    std::printf("    file %2zu quote %2zu coverage %.2f score %.1f %s| %s\n", file_at, quote_at,
                got.hits.empty() ? 0 : got.hits[0].coverage, got.hits.empty() ? 0 : got.hits[0].score,
                got.nothing_fits ? "NOTHING " : "", (asked.question + "  [" + got.why + "]").c_str());
    if (got.nothing_fits) std::printf("        %s\n", got.why.c_str());
  }
}

void print(const char* kind, const Tally& t) {
  std::printf("  %-13s %3zu questions, nothing fits %zu; file in first", kind, t.n, t.nothing);
  for (const auto& [k, n] : t.file) std::printf(" %zu:%zu", k, n);
  std::printf("; text in first");
  for (const auto& [k, n] : t.quote) std::printf(" %zu:%zu", k, n);
  std::printf("\n");
}

void index_folder(DocStore& store, const std::string& name, const std::string& folder, uint32_t chunk_tokens,
                  const cento::Tokenizer* tokenizer) {
  cento::IndexOptions options;
  options.collection = name;
  options.paths = {folder};
  options.chunk_tokens = chunk_tokens;
  const std::clock_t before = std::clock();
  const auto report = cento::index_documents(store, tokenizer, options, {});
  const double cpu = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  std::printf(
      "%s: %llu files, %.2f MB, %llu chunks of at most %u tokens (%s), %zu skipped, %.2f s (%.2f s of one core), %.1f "
      "MB/s (of one core)\n",
      name.c_str(), static_cast<unsigned long long>(report.added), static_cast<double>(report.bytes_read) / 1e6,
      static_cast<unsigned long long>(report.chunks_total), chunk_tokens,
      tokenizer ? tokenizer->kind.c_str() : "estimated", report.skipped.size(), report.seconds, cpu,
      static_cast<double>(report.bytes_read) / 1e6 / cpu);
}

}  // namespace

int main(int argc, char** argv) {
  uint32_t chunk_tokens = 256;
  bool verbose = false;
  std::unique_ptr<cento::Tokenizer> tokenizer;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "-v")
      verbose = true;
    else if (std::string(argv[i]) == "--tokenizer" && i + 1 < argc)
      tokenizer = cento::make_tokenizer(cento::GgufFile(argv[++i]));
    else
      chunk_tokens = static_cast<uint32_t>(std::stoul(argv[i]));
  }
  const cento::test::TempDir dir;
  cento::Catalogue catalogue(dir / "store", cento::Db::Mode::kReadWrite);
  DocStore store(catalogue);
  const auto docs = cento::test::shared_path("data/docs"), items = cento::test::shared_path("data/docqa/docs.jsonl");
  if (docs && items) {
    const std::string root = std::filesystem::canonical(*docs).string();
    index_folder(store, "docs", root, chunk_tokens, tokenizer.get());
    const int64_t collection = store.find_collection("docs")->id;
    std::map<std::string, Tally> tallies;
    std::ifstream in(*items);
    size_t n = 0;
    const std::clock_t before = std::clock();
    for (std::string line; std::getline(in, line);) {
      const json item = json::parse(line);
      const std::string kind = item["kind"];
      for (size_t turn = 0; turn < item["turns"].size(); ++turn) {
        if (kind == "followup" && turn > 0) break;  // later turns need the earlier ones
        const json& t = item["turns"][turn];
        Asked asked{t["question"], "", ""};
        if (!t["evidence"].empty()) {
          asked.file = t["evidence"][0]["file"];
          asked.quote = t["evidence"][0]["quote"];
        }
        ask(store, collection, root, asked, tallies[kind], verbose);
        ++n;
      }
    }
    for (const auto& [kind, tally] : tallies) print(kind.c_str(), tally);
    std::printf("  %.1f ms of one core a question\n",
                static_cast<double>(std::clock() - before) * 1000 / CLOCKS_PER_SEC / static_cast<double>(n));
  }
  const std::string handbook = std::filesystem::canonical(CENTO_SOURCE_DIR "/samples/handbook").string();
  index_folder(store, "handbook", handbook, chunk_tokens, tokenizer.get());
  Tally tally;
  std::ifstream in(CENTO_SOURCE_DIR "/samples/questions.jsonl");
  for (std::string line; std::getline(in, line);) {
    const json item = json::parse(line);
    std::string file, quote;
    if (item.contains("file") && item["file"].is_string()) file = item["file"];
    if (item.contains("answers") && !item["answers"].empty() && item["answers"][0].is_array())
      quote = item["answers"][0][0];
    ask(store, store.find_collection("handbook")->id, handbook, {item["question"], file, quote}, tally, verbose);
  }
  print("handbook", tally);
  return 0;
}
