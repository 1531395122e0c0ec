#include <catch2/catch.hpp>

#include "cli/sandbox.h"

namespace cento::test {
namespace {

TEST_CASE("cli: usage errors end with 2, three lines on stderr and nothing on stdout", "[cli]") {
  const Sandbox box;
  struct Row {
    std::vector<std::string> args;
    std::string said;
  };
  const std::vector<Row> rows = {{{}, "a subcommand is needed"},
                                 {{"frobnicate"}, "no subcommand \"frobnicate\""},
                                 {{"query"}, "a question is needed"},
                                 {{"--json", "query"}, "a question is needed"},
                                 {{"query", "q", "--nope"}, "no flag --nope"},
                                 {{"query", "q", "--ratio", "2"}, "--ratio"},
                                 {{"cache", "rm", "xyz"}, "is not an id"},
                                 {{"--config", "missing.toml", "doctor"}, "no such configuration file"},
                                 {{"index"}, "nothing has been indexed yet"}};
  for (const auto& [args, said] : rows) {
    CAPTURE(args);
    check_error(box.run(args), 2, said);
  }
  write_all(box / "bad.toml", "threads = \"several\"\n");
  check_error(box.run({"--config", "bad.toml", "doctor"}), 2, "several");
  write_all(box / "prompt.json", "{\"question\": 3}");
  check_error(box.run({"query", "--prompt", "prompt.json"}), 2, "\"question\" is not a text");
  write_all(box / "cut.json", "{\"question\": \"a");
  check_error(box.run({"query", "--prompt", "cut.json"}), 2, "not a JSON object");
}

TEST_CASE("cli: help and version work without a model, a store or a home", "[cli]") {
  const Sandbox box;
  RunSpec spec = box.spec({"--version"});
  spec.environment.erase("HOME");
  const RunResult version = box.run(spec);
  CHECK(version.status == 0);
  CHECK_THAT(version.out, Catch::StartsWith("cento "));
  const std::vector<std::vector<std::string>> topics = {{},         {"index"},       {"precompute"},    {"query"},
                                                        {"cache"},  {"cache", "rm"}, {"model", "show"}, {"bench"},
                                                        {"config"}, {"doctor"},      {"completion"},    {"help"}};
  for (auto args : topics) {
    args.push_back("--help");
    const RunResult r = box.run(args);
    INFO(shown(r));
    CHECK(r.status == 0);
    CHECK(r.err.empty());
    CHECK_THAT(r.out, Catch::StartsWith("usage: cento") && Catch::Contains("\nexamples:\n"));
  }
  CHECK_THAT(box.run({"completion", "bash"}).out, Catch::Contains("complete -o default -F _cento cento"));
}

TEST_CASE("cli: help of a subcommand is its manual page, or its flags where there is no man", "[cli]") {
  const Sandbox box;
  RunSpec spec = box.spec({"help", "query"});
  spec.environment["PATH"] = box / "empty";
  const RunResult r = box.run(spec);
  INFO(shown(r));
  CHECK(r.status == 0);
  CHECK_THAT(r.out, Catch::StartsWith("usage: cento query"));
}

TEST_CASE("cli: config tells each value and where it came from", "[cli]") {
  const Sandbox box;
  write_all(box / "c.toml", "threads = 3\n[query]\ntop-k = 4\n");
  RunSpec spec = box.spec({"config", "--json", "--config", "c.toml", "--collection", "notes"});
  spec.environment["CENTO_MODEL"] = "some.gguf";
  const RunResult r = box.run(spec);
  INFO(shown(r));
  REQUIRE(r.status == 0);
  const Json j = Json::parse(r.out);
  CHECK(j["file"] == "c.toml");
  CHECK(j["file_found"] == true);
  const auto setting = [&](const std::string& name) {
    for (const auto& s : j["settings"]) {
      if (s["name"] == name) return s;
    }
    FAIL("no setting " << name);
    return Json();
  };
  CHECK(setting("threads") == Json::parse(R"({"name":"threads","value":"3","from":"file","where":"c.toml, line 1"})"));
  CHECK(setting("model") ==
        Json::parse(R"({"name":"model","value":"some.gguf","from":"environment","where":"CENTO_MODEL"})"));
  CHECK(setting("collection")["from"] == "flag");
  CHECK(setting("query.top-k")["value"] == "4");
  CHECK(setting("index.chunk-tokens") ==
        Json::parse(R"({"name":"index.chunk-tokens","value":"256","from":"default"})"));
  CHECK_THAT(box.run({"config"}).out, Catch::Contains("threads = 0  (default)"));
}

TEST_CASE("cli: colour only where it is wanted", "[cli]") {
  const Sandbox box;
  const std::string red = "\x1b[1;31m";
  CHECK_THAT(box.run({"query", "q"}).err, !Catch::Contains("\x1b"));
  RunSpec terminal = box.spec({"query", "q"});
  terminal.terminal = true;
  CHECK_THAT(box.run(terminal).out, Catch::Contains(red));
  terminal.environment["NO_COLOR"] = "1";
  CHECK_THAT(box.run(terminal).out, !Catch::Contains(red));
  terminal.args.push_back("--color=always");
  CHECK_THAT(box.run(terminal).out, Catch::Contains(red));
  terminal.environment.erase("NO_COLOR");
  terminal.args.back() = "--color=never";
  CHECK_THAT(box.run(terminal).out, !Catch::Contains(red));
}

TEST_CASE("cli: doctor says what is wrong and what to do", "[cli]") {
  const Sandbox box;
  const Json bad = box.json({"doctor", "--json"}, 3);
  CHECK(bad["ok"] == false);
  std::vector<std::string> names;
  for (const auto& c : bad["checks"]) {
    names.push_back(c["name"]);
    CHECK(c["ok"] == (c["name"] != "model"));
    if (c["name"] == "model") CHECK_FALSE(c["hint"].get<std::string>().empty());
  }
  CHECK(names == std::vector<std::string>{"machine", "target", "config", "store", "remote", "model"});
  box.add_model();
  CHECK(box.json({"doctor", "--json"})["ok"] == true);
  CHECK_THAT(box.run({"doctor"}).out, Catch::Contains("ok   model"));
}

}  // namespace
}  // namespace cento::test
