#include <catch2/catch.hpp>

#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "cli/sandbox.h"
#include "kv/catalogue.h"

namespace cento::test {
namespace {

TEST_CASE("cli: no model ends with 3 and says how to get one", "[cli]") {
  const Sandbox box;
  box.add_documents();
  REQUIRE(box.run({"index", "docs"}).status == 0);  // documents can be indexed before there is a model
  for (const auto& args :
       std::vector<std::vector<std::string>>{{"query", "q"}, {"precompute"}, {"model", "tokenize", "x"}}) {
    const RunResult r = box.run(args);
    check_error(r, 3, "no model found");
    CHECK_THAT(r.err, Catch::Contains("samples/demo.sh --fetch") && Catch::Contains("--model FILE"));
  }
  check_error(box.run({"query", "q", "--model", "nothing"}), 3, "no model \"nothing\"");
  check_error(box.run({"query", "q", "--model", "no/such.gguf"}), 3, "no such model file");
  CHECK(box.json({"model", "list", "--json"}, 6)["models"].empty());
}

TEST_CASE("cli: several models have to be told apart", "[cli]") {
  const Sandbox box;
  box.add_documents();
  box.add_model("first-7b");
  box.add_model("second-7b");
  REQUIRE(box.run({"index", "docs"}).status == 0);
  const RunResult r = box.run({"query", "q"});
  check_error(r, 2, "several models found");
  CHECK_THAT(r.err, Catch::Contains("first-7b.gguf") && Catch::Contains("second-7b.gguf"));
  check_error(box.run({"model", "tokenize", "x", "--model", "nth"}), 3, "no model \"nth\"");
  CHECK(box.run({"model", "tokenize", "x", "--model", "second"}).status == 0);  // an unambiguous beginning
  CHECK(box.run({"model", "tokenize", "x", "--model", "first-7b.gguf"}).status == 0);
  CHECK(box.json({"model", "list", "--json"})["models"].size() == 2);
}

TEST_CASE("cli: a file that is no model, a cut one and one of another architecture end with 3", "[cli]") {
  const Sandbox box;
  box.add_documents();
  REQUIRE(box.run({"index", "docs"}).status == 0);
  write_all(box / "text.gguf", "This is a letter and no model at all.\n");
  check_error(box.run({"query", "q", "--model", "text.gguf"}), 3, "");
  write_all(box / "empty.gguf", "");
  check_error(box.run({"query", "q", "--model", "empty.gguf"}), 3, "");

  TinyModelSpec spec;
  write_tiny_model(box / "whole.gguf", spec);
  const std::string whole = read_all(box / "whole.gguf");
  for (const size_t keep : {size_t{3}, size_t{20}, size_t{300}, whole.size() / 2, whole.size() - 1}) {
    CAPTURE(keep);
    write_all(box / "cut.gguf", whole.substr(0, keep));
    check_error(box.run({"query", "q", "--model", "cut.gguf"}), 3, "");
    check_error(box.run({"model", "show", "cut.gguf"}), 3, "");
  }

  GgufWriter other = tiny_model(spec);
  other.remove("general.architecture").put_text("general.architecture", "mamba");
  other.write(box / "other.gguf");
  check_error(box.run({"query", "q", "--model", "other.gguf"}), 3, "mamba");
  const Json shown_model = box.json({"model", "show", "other.gguf", "--json"});  // looking at it is no error
  CHECK(shown_model["supported"] == false);
  CHECK_THAT(shown_model["reason"].get<std::string>(), Catch::Contains("mamba"));
}

TEST_CASE("cli: no store, a store of a newer version and one that is none end with 3", "[cli]") {
  const Sandbox box;
  box.add_model();
  box.add_documents();
  for (const auto& args :
       std::vector<std::vector<std::string>>{{"query", "q"}, {"precompute"}, {"cache", "status"}, {"cache", "gc"}}) {
    CAPTURE(args);
    check_error(box.run(args), 3, "there is no store");
  }
  CHECK_FALSE(std::filesystem::exists(box.store()));  // asking made none
  REQUIRE(box.run({"index", "docs"}).status == 0);
  check_error(box.run({"query", "q", "--collection", "other"}), 3, "other");
  {
    Catalogue catalogue(box.store(), Db::Mode::kReadWrite);
    catalogue.db().exec("PRAGMA user_version = 99");
  }
  for (const auto& args : std::vector<std::vector<std::string>>{{"query", "q"}, {"index", "docs"}, {"cache", "list"}}) {
    CAPTURE(args);
    check_error(box.run(args), 3, "newer");
  }
  write_all(box / "not-a-store/catalogue.sqlite", std::string(5000, 'x'));
  check_error(box.run({"cache", "status", "--store", "not-a-store"}), 3, "");
  check_error(box.run({"index", "docs", "--store", "not-a-store"}), 3, "");
}

TEST_CASE("cli: a store that cannot be written ends with 3", "[cli]") {
  const Sandbox box;
  box.add_documents();
  write_all(box / "file", "in the way");
  check_error(box.run({"index", "docs", "--store", "file/store"}), 3, "");
  if (::geteuid() == 0) {
    WARN("skipped: permissions do not bind root");
    return;
  }
  std::filesystem::create_directory(box / "locked");
  REQUIRE(::chmod((box / "locked").c_str(), 0500) == 0);
  check_error(box.run({"index", "docs", "--store", "locked/store"}), 3, "");
}

TEST_CASE("cli: documents that cannot be read are skipped, named, and end with 5", "[cli]") {
  const Sandbox box;
  box.add_documents();
  write_all(box / "docs/noise.md", std::string("\x00\x01\x02\xff\x00\x00\xfe", 7) + std::string(300, '\0'));
  write_all(box / "docs/caf\xE9.md", std::string(5000, 'a') + "\n");
  const Json j = box.json({"index", "docs", "--json", "--max-file-size", "1KiB"}, 5);
  CHECK(j["files"]["new"] == 3);
  REQUIRE(j["skipped"].size() == 2);
  CHECK(j["files"]["skipped"] == 2);
  for (const auto& s : j["skipped"]) CHECK_FALSE(s["reason"].get<std::string>().empty());
  const bool has_bytes = j["skipped"][0].contains("path_b64") || j["skipped"][1].contains("path_b64");
  CHECK(has_bytes);
  const RunResult text = box.run({"index", "docs", "--max-file-size", "1KiB", "-q"});
  INFO(shown(text));
  CHECK(text.status == 5);
  CHECK(text.out.empty());
  CHECK_THAT(text.err, Catch::Contains("skipped docs/noise.md: ") && Catch::Contains("caf\\xe9.md"));
  check_error(box.run({"index", "no-such-folder"}), 3, "");
}

TEST_CASE("cli: a full disk ends with 4, and the store is whole afterwards", "[cli]") {
  const Sandbox box;
  box.add_documents();
  std::filesystem::create_directory(box / "small");
  if (::mount("none", (box / "small").c_str(), "tmpfs", 0, "size=512k") != 0) {
    std::perror("skipped: no small file system can be mounted here");
    return;
  }
  for (int i = 0; i < 400; ++i) {
    std::string text = "# Part " + std::to_string(i) + "\n\n";
    for (int j = 0; j < 40; ++j)
      text += "Sentence " + std::to_string(i * 1000 + j) + " has words of its own, such as w" + std::to_string(i * j) +
              ".\n";
    write_all(box / ("docs/part" + std::to_string(i) + ".md"), text);
  }
  const RunResult r = box.run({"index", "docs", "--store", "small/store"});
  const RunResult after = box.run({"cache", "status", "--store", "small/store"});
  ::umount2((box / "small").c_str(), MNT_DETACH);
  check_error(r, 4, "");
  INFO(shown(after));
  CHECK(after.status == 0);
}

TEST_CASE("cli: a store that another process holds ends with 4, and works when it is free", "[cli]") {
  const Sandbox box;
  box.add_documents();
  REQUIRE(box.run({"index", "docs"}).status == 0);
  write_all(box / "docs/new.md", "# New\n\nSomething new.\n");
  {
    Catalogue catalogue(box.store(), Db::Mode::kReadWrite);
    Transaction held(catalogue.db());
    check_error(box.run({"index", "docs"}), 4, "");
    CHECK(box.run({"cache", "status"}).status == 0);  // readers are not kept out
  }
  CHECK(box.json({"index", "docs", "--json"})["files"]["new"] == 1);
}

TEST_CASE("cli: an output that cannot be written is an error, a reader that has gone is none", "[cli]") {
  const Sandbox box;
  RunSpec gone = box.spec({"query", "--help"});
  gone.close_stdout_after = 0;
  const RunResult r = box.run(gone);
  INFO(shown(r));
  CHECK(r.status == 0);
  CHECK(r.err.empty());
  const std::string command = std::string(CENTO_BINARY) + " --help > /dev/full 2> '" + box / "err" + "'";
  const int status = std::system(command.c_str());
  CHECK(WEXITSTATUS(status) == 4);
  CHECK_THAT(read_all(box / "err"), Catch::StartsWith("error: cannot write the answer"));
}

}  // namespace
}  // namespace cento::test
