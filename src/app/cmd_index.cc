#include <algorithm>
#include <memory>

#include "app/commands.h"
#include "app/interrupt.h"
#include "app/json.h"
#include "app/store_options.h"
#include "base/text.h"

namespace cento {
namespace {

constexpr uint64_t kListBytesMax = 256ull << 20;  // of a list of paths on stdin

// Paths of the list, in front of which "-" stood.
std::vector<std::string> split_list(const std::string& text, char at) {
  std::vector<std::string> out;
  for (size_t i = 0; i < text.size();) {
    const size_t end = std::min(text.find(at, i), text.size());
    std::string path = text.substr(i, end - i);
    if (at == '\n' && path.ends_with('\r')) path.pop_back();
    if (!path.empty()) out.push_back(std::move(path));
    i = end + 1;
  }
  return out;
}

std::vector<std::string> wanted_paths(const IndexCommand& command) {
  std::vector<std::string> out;
  bool list_read = false;
  for (const auto& path : command.options.paths) {
    if (path != "-") {
      out.push_back(path);
    } else if (!list_read) {
      list_read = true;
      for (auto& p : split_list(read_stdin(kListBytesMax), command.nul_separated ? '\0' : '\n'))
        out.push_back(std::move(p));
    }
  }
  if (list_read && out.empty())
    throw Error{Code::kUsage, "the list of paths is empty", "stdin", "write one path a line"};
  return out;
}

// The model's tokenizer where a model is named or only one is there; chunks are measured by an estimate otherwise, and
// documents can be indexed before there is a model.
struct CountingTokenizer {
  std::unique_ptr<GgufFile> file;
  std::unique_ptr<Tokenizer> tokenizer;
};
CountingTokenizer counting_tokenizer(Run& run) {
  CountingTokenizer out;
  const bool named = !run.common().model.empty();
  try {
    out.file = std::make_unique<GgufFile>(resolve_model(run.common().model));
    out.tokenizer = make_tokenizer(*out.file);
  } catch (const Error& e) {
    if (named) throw;
    if (run.common().verbose) run.terminal.note("token counts are estimated: " + e.message());
    out = {};
  }
  return out;
}

Json report_json(const std::string& collection, const IndexReport& r) {
  Json out;
  out["collection"] = collection;
  out["files"] = {
      {"seen", r.seen},           {"new", r.added},       {"changed", r.changed},       {"renamed", r.renamed},
      {"unchanged", r.unchanged}, {"removed", r.removed}, {"skipped", r.skipped.size()}};
  out["chunks"] = {{"total", r.chunks_total}, {"new", r.chunks_new}, {"removed", r.chunks_removed}};
  out["skipped"] = skipped_list(r.skipped);
  out["embedded"] = 0;
  out["seconds"] = rounded(r.seconds, 3);
  return out;
}

std::string counted(uint64_t n, const char* one, const char* many) {
  return std::to_string(n) + " " + (n == 1 ? one : many);
}

std::string report_text(const IndexReport& r, bool dry_run) {
  std::string out = counted(r.seen, "file", "files");
  const std::pair<uint64_t, const char*> parts[] = {{r.added, "new"},       {r.changed, "changed"},
                                                    {r.renamed, "renamed"}, {r.unchanged, "unchanged"},
                                                    {r.removed, "removed"}, {r.skipped.size(), "skipped"}};
  const char* between = ": ";
  for (const auto& [n, word] : parts) {
    if (n == 0) continue;
    out += between + std::to_string(n) + " " + word;
    between = ", ";
  }
  out += "; " + counted(r.chunks_total, "chunk", "chunks");
  if (r.chunks_new > 0) out += ", " + std::to_string(r.chunks_new) + " new";
  if (r.chunks_removed > 0) out += ", " + std::to_string(r.chunks_removed) + " removed";
  if (r.added + r.changed + r.renamed + r.removed == 0) out += "; nothing to do";
  if (dry_run) out += " (dry run: nothing was changed)";
  return out + "\n";
}

}  // namespace

void name_skipped(Terminal& terminal, const std::vector<std::pair<std::string, std::string>>& items) {
  for (const auto& [path, reason] : items) terminal.warning("skipped " + path_from_here(path) + ": " + reason);
}

int cmd_index(Run& run, const IndexCommand& command) {
  IndexOptions options = command.options;
  options.paths = wanted_paths(command);
  const CountingTokenizer counting = counting_tokenizer(run);

  CommonOptions common = run.common();
  std::unique_ptr<ScratchFolder> dry;  // a dry run makes no store
  if (!store_exists(store_folder(common))) {
    if (options.paths.empty()) {
      throw Error{Code::kUsage, "nothing has been indexed yet", store_folder(common), "cento index FOLDER"};
    }
    if (options.dry_run) {
      dry = std::make_unique<ScratchFolder>();
      common.store = dry->path();
    }
  }
  const auto store = open_store(common, StoreUse::kCreate);

  IndexHooks hooks;
  hooks.progress = [&](uint64_t done, uint64_t total, const std::string&) {
    run.terminal.progress("index", done, total, "files");
  };
  hooks.stop = interrupt_requested;
  const IndexReport report = index_documents(store->docs, counting.tokenizer.get(), options, hooks);
  run.terminal.end_progress();

  name_skipped(run.terminal, report.skipped);
  if (run.common().json) {
    run.terminal.out(json_line(report_json(options.collection, report)));
  } else if (!run.common().quiet) {
    run.terminal.out(report_text(report, options.dry_run));
  }
  if (report.stopped) {
    run.terminal.note("stopped; the next `cento index` goes on from here");
    return kInterruptedStatus;
  }
  return report.skipped.empty() ? 0 : kPartlyDoneStatus;
}

}  // namespace cento
