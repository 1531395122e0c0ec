// A fresh home for the real program: nothing of the person's own, no network, a tiny model with random weights where
// one is needed.
#pragma once

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "support/gguf_writer.h"
#include "support/run_binary.h"
#include "support/shared_data.h"

namespace cento::test {

using Json = nlohmann::json;

class Sandbox {
 public:
  Sandbox() {
    write_all(folder_ / "home/.keep", "");
    write_all(folder_ / "work/.keep", "");
  }

  std::string operator/(const std::string& name) const { return folder_ / ("work/" + name); }
  std::string store() const { return folder_ / "home/.local/share/cento"; }

  RunSpec spec(const std::vector<std::string>& args) const {
    RunSpec out;
    out.args = args;
    out.folder = folder_ / "work";
    out.environment = {{"HOME", folder_ / "home"}, {"TMPDIR", folder_.path()}, {"TERM", "xterm"}};
    return out;
  }
  RunResult run(const std::vector<std::string>& args) const { return run(spec(args)); }
  RunResult run(const RunSpec& spec) const { return run_program(CENTO_BINARY, spec); }

  // stdout as one JSON object; the run has to end with `status`.
  Json json(const std::vector<std::string>& args, int status = 0) const;

  // A model that every command finds without being told: 2 layers, random weights, 256 byte tokens and some words.
  void add_model(const std::string& name = "tiny") const {
    TinyModelSpec spec;
    spec.context = 8192;
    write_tiny_model(folder_ / ("home/.cache/cento/models/" + name + ".gguf"), spec);
  }

  // Three short documents about three different things.
  void add_documents(const std::string& below = "docs") const {
    write_all(*this / (below + "/leave.md"),
              "# Leave\n\n## Carrying over\n\nUp to five days of annual leave may be carried over. They lapse on 31 "
              "March.\n\n"
              "## Illness\n\nCall the office before nine on the first day of an illness.\n");
    write_all(*this / (below + "/harbour.md"),
              "# Harbour\n\nThe crane at the eastern quay lifts twelve tonnes. Its key hangs in room K5.\n");
    write_all(*this / (below + "/tides.txt"),
              "Spring tides follow the full moon by two days. The gauge is read every ten minutes.\n");
  }

 private:
  TempDir folder_;
};

inline std::string shown(const RunResult& r) {
  return "status " + std::to_string(r.status) + (r.timed_out ? " (timed out)" : "") + "\n--- stdout\n" + r.out +
         "\n--- stderr\n" + r.err;
}

inline Json Sandbox::json(const std::vector<std::string>& args, int status) const {
  const RunResult r = run(args);
  INFO(shown(r));
  REQUIRE(r.status == status);
  REQUIRE(r.out.find('\n') == r.out.size() - 1);  // one line, one object
  return Json::parse(r.out);
}

// A model, and one document of many chunks, indexed.
inline void add_harbour(const Sandbox& box) {
  box.add_model();
  std::string text = "# Harbour\n\n";
  for (int i = 0; i < 160; ++i)
    text += "The boat with number " + std::to_string(i) + " lies at the quay and waits for the tide.\n\n";
  write_all(box / "docs/harbour.md", text);
  REQUIRE(box.run({"index", "-q", "docs"}).status == 0);
}

// A question that is answered from them by blending.
inline const std::vector<std::string> kAskHarbour = {
    "query", "boat number quay tide", "--json", "--max-tokens", "2", "--prefill", "blend"};

// The three lines of an error, and nothing on stdout.
inline void check_error(const RunResult& r, int status, const std::string& said) {
  INFO(shown(r));
  CHECK_FALSE(r.timed_out);
  CHECK(r.status == status);
  CHECK(r.out.empty());
  CHECK_THAT(r.err, Catch::StartsWith("error: ") && Catch::Contains(said));
  CHECK(r.err.find("\n  try: ") != std::string::npos);
  size_t lines = 0;
  for (const char c : r.err) lines += c == '\n';
  CHECK(lines <= 3);
}

}  // namespace cento::test
