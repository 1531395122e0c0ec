#include "app/options.h"

#include <catch2/catch.hpp>

#include <iterator>
#include <map>
#include <sstream>

#include "base/error.h"

namespace cento {
namespace {

struct World {
  std::map<std::string, std::string> variables;
  std::map<std::string, std::string> files;

  ParseOutcome parse(const std::vector<std::string>& args) const {
    return parse_options(args, {[this](const std::string& name) -> std::optional<std::string> {
                                  const auto it = variables.find(name);
                                  return it == variables.end() ? std::nullopt : std::optional(it->second);
                                },
                                [this](const std::string& path) -> std::optional<std::string> {
                                  const auto it = files.find(path);
                                  return it == files.end() ? std::nullopt : std::optional(it->second);
                                }});
  }
  template <class Command>
  Command command(const std::vector<std::string>& args) const {
    return std::get<Command>(parse(args).options.command);
  }
};

struct Row {
  std::vector<std::string> args;
  std::string text;
};

std::vector<std::string> words(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<std::string>(in), {}};
}

TEST_CASE("options: common flags stand before or after the subcommand", "[app]") {
  const World w;
  for (const std::vector<std::string>& args :
       std::vector<std::vector<std::string>>{{"--store", "/s", "--json", "--threads", "3", "cache", "list"},
                                             {"cache", "--store", "/s", "list", "--json", "--threads=3"},
                                             {"cache", "list", "--threads", "3", "--json", "--store=/s"}}) {
    const auto o = w.parse(args).options;
    CHECK(o.common.store == "/s");
    CHECK(o.common.json);
    CHECK(o.common.threads == 3);
    CHECK(std::get<CacheCommand>(o.command).action == CacheCommand::Action::kList);
  }
}

TEST_CASE("options: eval takes files, questions of its own, or both", "[app]") {
  const World w;
  const auto eval = [&](const std::string& line) { return w.command<EvalCommand>(words(line)); };
  using Names = std::vector<std::string>;
  using Ratios = std::vector<double>;
  EvalCommand c = eval("eval a.jsonl b.jsonl --collection c --top-k 7");
  CHECK((c.eval.own_documents == 0 && c.eval.data == Names{"a.jsonl", "b.jsonl"}));
  CHECK((c.eval.collection == "c" && c.eval.top_k == 7));
  CHECK((c.policies == Names{"query", "dev-kv"} && c.ratios == Ratios{0.05, 0.15}));
  for (const char* line : {"eval --on-my-documents", "eval --on-my-documents=30", "eval --on-my-documents 30",
                           "eval --on-my-documents --seed 1"}) {
    CAPTURE(line);
    c = eval(line);
    CHECK((c.eval.own_documents == 30 && c.eval.data.empty() && c.eval.collection == "default"));
    CHECK((c.policies == Names{"query"} && c.ratios == Ratios{kDefaultRatio}));
  }
  c = eval("eval a.jsonl --on-my-documents 4 --policy dev-kv");
  CHECK((c.eval.own_documents == 4 && c.eval.data == Names{"a.jsonl"}));
  CHECK((c.policies == Names{"dev-kv"} && c.ratios == Ratios{kDefaultRatio}));
  CHECK(eval("eval --on-my-documents --ratio .1").ratios == Ratios{0.1});
  World with_file = w;
  with_file.variables["CENTO_CONFIG"] = "/c.toml";
  with_file.files["/c.toml"] = "[eval]\non-my-documents = true\nratio = \"0.2\"\n";
  c = with_file.command<EvalCommand>({"eval"});
  CHECK((c.eval.own_documents == 30 && c.ratios == Ratios{0.2} && c.policies == Names{"query"}));
  with_file.files["/c.toml"] = "[eval]\non-my-documents = 5\n";
  CHECK(with_file.command<EvalCommand>({"eval"}).eval.own_documents == 5);
  with_file.files["/c.toml"] = "[eval]\non-my-documents = false\n";
  CHECK_THROWS_AS(with_file.command<EvalCommand>({"eval"}), Error);
  for (const char* line :
       {"eval", "eval --on-my-documents 0", "eval --on-my-documents -1", "eval --on-my-documents x",
        "eval --on-my-documents 10001", "eval --on-my-documents --own-answer-tokens 0", "eval a --top-k 0"}) {
    CAPTURE(line);
    CHECK_THROWS_AS(eval(line), Error);
  }
}

TEST_CASE("options: index", "[app]") {
  const World w;
  auto args = words(
      "index a --include *.md b --include *.txt --no-prune --chunk-tokens 128 --max-file-size 1.5MiB "
      "[x,y].md -0 --hidden --follow --no-ignore -- --odd");
  args.insert(args.begin() + 1, {"--converter", ".DOCX=docx2txt {} -"});
  const auto c = w.command<IndexCommand>(args);
  CHECK(c.options.paths == std::vector<std::string>{"a", "b", "[x,y].md", "--odd"});
  CHECK(c.options.include == std::vector<std::string>{"*.md", "*.txt"});
  CHECK_FALSE(c.options.prune);
  CHECK(c.options.chunk_tokens == 128);
  CHECK(c.options.max_file_bytes == 3 << 19);
  CHECK(c.options.converters == std::map<std::string, std::string>{{"docx", "docx2txt {} -"}});
  CHECK(c.nul_separated);
  CHECK((c.options.hidden && c.options.follow_links && !c.options.use_ignore_files));
  const auto plain = w.command<IndexCommand>({"index", "--collection", "notes"});
  CHECK(plain.options.collection == "notes");
  CHECK(plain.options.prune);
  CHECK(plain.options.use_ignore_files);
  CHECK(plain.options.paths.empty());
  CHECK(plain.options.chunk_tokens == 256);
}

TEST_CASE("options: precompute and query", "[app]") {
  const World w;
  const auto p = w.command<PrecomputeCommand>(words(
      "precompute --codec raw --context prefix --max-bytes 2GB --only *.md --precision f32 --chat-template chatml "
      "--target ref"));
  CHECK(p.options.codec == KvCodec::kRaw);
  CHECK(p.options.context == ContextKind::kPrefix);
  CHECK(p.options.max_bytes == 2'000'000'000u);
  CHECK(p.options.only_glob == "*.md");
  CHECK(p.run.precision == Precision::kF32);
  CHECK((p.run.chat_template == "chatml" && p.run.target == "ref"));
  CHECK_FALSE(w.command<PrecomputeCommand>({"precompute"}).options.max_bytes.has_value());

  const auto q = w.command<QueryCommand>(
      words("query index --top-k 7 --chunk ab --chunk cd --prefill blend --policy dev-kv --ratio 0.25 --max-tokens 9 "
            "--temperature 0.7 --top-p 0.9 --top-k-tokens 40 --min-p 0.05 --repetition-penalty 1.1 "
            "--seed 18446744073709551615 --stop END --verify --no-stream --show-sources --logits l.npy --file a.md "
            "--file b.md"));
  CHECK(q.question == "index");  // the name of a subcommand is a legal question
  CHECK(q.ask.top_k == 7);
  CHECK(q.ask.files == std::vector<std::string>{"a.md", "b.md"});
  CHECK(q.ask.chunks == std::vector<std::string>{"ab", "cd"});
  CHECK(q.ask.prefill == PrefillMode::kBlend);
  CHECK(q.ask.blend.policy == PolicyKind::kDevKv);
  CHECK(q.ask.blend.ratio == 0.25);
  CHECK(q.ask.max_tokens == 9);
  CHECK(q.ask.sampler.temperature == 0.7);
  CHECK(q.ask.sampler.top_p == 0.9);
  CHECK(q.ask.sampler.top_k == 40);
  CHECK(q.ask.sampler.min_p == 0.05);
  CHECK(q.ask.sampler.repetition_penalty == 1.1);
  CHECK(q.ask.sampler.seed == 18446744073709551615u);
  CHECK(q.ask.stop == std::vector<std::string>{"END"});
  CHECK((q.ask.verify && !q.stream && q.show_sources && q.ask.want_logits));
  CHECK(w.command<QueryCommand>({"query", "-5 degrees?"}).question == "-5 degrees?");
  CHECK(w.command<QueryCommand>({"query", "-"}).question == "-");
  CHECK(w.command<QueryCommand>({"query", "--", "--why?"}).question == "--why?");
  CHECK_FALSE(w.command<QueryCommand>({"query", "q"}).ask.blend.ratio.has_value());
  CHECK(w.command<QueryCommand>({"query", "--top-k", "3", "--top-k", "4", "q"}).ask.top_k == 4);  // the last one counts
}

TEST_CASE("options: the small subcommands", "[app]") {
  const World w;
  CHECK(w.command<CacheCommand>({"cache", "rm", "a1", "b2"}).ids == std::vector<std::string>{"a1", "b2"});
  CHECK(w.command<CacheCommand>({"cache", "trim", "--max-bytes", "1KiB"}).max_bytes == 1024);
  const auto m = w.command<ModelCommand>({"model", "tokenize", "--special", "two words"});
  CHECK((m.action == ModelCommand::Action::kTokenize && m.specials && m.text == "two words"));
  CHECK(w.command<ModelCommand>({"model", "show", "x.gguf"}).file == "x.gguf");
  const auto b =
      w.command<BenchCommand>(words("bench --prompt 1000 --decode 7 --repeat 3 --against lb --precision f32"));
  CHECK((b.speed.prompt_tokens == 1000 && b.speed.decode_tokens == 7 && b.speed.repeat == 3 && b.peer == "lb"));
  CHECK(b.run.precision == Precision::kF32);
  const auto d = w.command<BenchCommand>({"bench"});
  CHECK((d.speed.prompt_tokens == 512 && d.speed.decode_tokens == 64 && d.speed.repeat == 10 && d.peer.empty()));
  CHECK(w.command<CompletionCommand>({"completion", "fish"}).shell == "fish");
  CHECK(w.command<HelpCommand>({"help", "cache", "rm"}).topic == std::vector<std::string>{"cache", "rm"});
  CHECK(w.command<HelpCommand>({"help"}).topic.empty());
}

TEST_CASE("options: what cannot be understood is a usage error that names it", "[app]") {
  const World w;
  const std::vector<Row> rows = {
      {{}, "a subcommand is needed"},
      {{"indx"}, "no subcommand \"indx\""},
      {{"cache"}, "a subcommand of cache is needed"},
      {{"cache", "lst"}, "no subcommand \"lst\""},
      {{"query"}, "a question is needed"},
      {{"query", "  "}, "a question is needed"},
      {{"query", "a", "b"}, "one word too many: \"b\""},
      {{"query", "q", "--topk", "3"}, "no flag --topk"},
      {{"query", "q", "--top-k"}, "a value is missing"},
      {{"query", "q", "--top-k", "0"}, "--top-k: \"0\" is not a whole number"},
      {{"query", "q", "--top-k", "3x"}, "--top-k: \"3x\" is not a whole number"},
      {{"query", "q", "--top-k", "-1"}, "--top-k: \"-1\" is not a whole number"},
      {{"query", "q", "--top-k=99999999999999999999"}, "is not a whole number"},
      {{"query", "q", "--ratio", "1.5"}, "--ratio: \"1.5\" is not a number from 0 to 1"},
      {{"query", "q", "--ratio", "nan"}, "--ratio: \"nan\" is not"},
      {{"query", "q", "--temperature", "-0.1"}, "--temperature"},
      {{"query", "q", "--temperature", "inf"}, "--temperature"},
      {{"query", "q", "--repetition-penalty", "nan"}, "--repetition-penalty"},
      {{"query", "q", "--policy", "best"}, "--policy: \"best\" is not "},
      {{"query", "q", "--prefill", "FULL"}, "--prefill"},
      {{"query", "q", "--keep"}, "--keep goes with --prompt"},
      {{"query", "q", "--prompt", "f"}, "--prompt holds the question"},
      {{"query", "--prompt", "f", "--chunk", "ab"}, "--chunk does not go"},
      {{"query", "--prompt", "f", "--file", "a.md"}, "--file does not go"},
      {{"query", "q", "--stop", ""}, "--stop"},
      {{"index", "--max-file-size", "big"}, "--max-file-size: \"big\" is not a size"},
      {{"index", "--chunk-tokens", "1"}, "--chunk-tokens"},
      {{"index", "--converter", "docx"}, "--converter: \"docx\" is not EXT=COMMAND"},
      {{"precompute", "--codec", "int2"}, "--codec: \"int2\" is not lossless, int8, k8v4, int4 or raw"},
      {{"eval", "d", "--codec", "int2"}, "--codec: \"int2\" is not lossless, int8, k8v4 or int4"},
      {{"precompute", "extra"}, "one word too many"},
      {{"cache", "rm"}, "an ID is needed"},
      {{"cache", "trim"}, "--max-bytes is needed"},
      {{"model", "show"}, "a FILE is needed"},
      {{"bench", "--prompt", "0"}, "--prompt: \"0\" is not a whole number"},
      {{"bench", "--decode", "0"}, "--decode: \"0\" is not a whole number"},
      {{"bench", "--repeat", "1001"}, "--repeat"},
      {{"bench", "extra"}, "one word too many"},
      {{"completion"}, "a shell is needed"},
      {{"completion", "tcsh"}, "is not bash, zsh or fish"},
      {{"help", "nothing"}, "no subcommand \"nothing\""},
      {{"doctor", "--device", "tpu"}, "--device: \"tpu\" is not auto, cpu or cuda"},
      {{"doctor", "--color", "red"}, "--color"},
      {{"doctor", "--collection", " "}, "--collection"},
      {{"doctor", "-q", "-v"}, "contradict"},
  };
  for (const auto& [args, said] : rows) {
    CAPTURE(args);
    try {
      w.parse(args);
      FAIL_CHECK("was understood");
    } catch (const Error& e) {
      CHECK(e.code() == Code::kUsage);
      CHECK_THAT(e.message(), Catch::Contains(said));
      CHECK_FALSE(e.where().empty());
      CHECK_FALSE(e.hint().empty());
    }
  }
}

TEST_CASE("options: a slip of the finger gets a suggestion", "[app]") {
  const World w;
  const std::vector<Row> rows = {
      {{"qeury", "x"}, "query"},
      {{"query", "x", "--tempreature", "1"}, "--temperature"},
      {{"cache", "statsu"}, "status"},
      {{"query", "x", "--jsn"}, "--json"},
  };
  for (const auto& [args, hint] : rows) {
    CAPTURE(args);
    try {
      w.parse(args);
      FAIL_CHECK("was understood");
    } catch (const Error& e) {
      CHECK_THAT(e.hint(), Catch::StartsWith(hint + ","));
    }
  }
}

TEST_CASE("options: flag before environment before file before default", "[app]") {
  World w;
  const auto threads = [&](const std::vector<std::string>& args) { return w.parse(args).options.common.threads; };
  w.variables["HOME"] = "/h";
  CHECK(threads({"doctor"}) == 0);
  w.files["/h/.config/cento/config.toml"] = "threads = 2\n";
  CHECK(threads({"doctor"}) == 2);
  w.variables["XDG_CONFIG_HOME"] = "/x";
  CHECK(threads({"doctor"}) == 0);  // another file, and it is not there
  w.files["/x/cento/config.toml"] = "threads = 3\n";
  CHECK(threads({"doctor"}) == 3);
  w.files["/other.toml"] = "threads = 4\n";
  w.variables["CENTO_CONFIG"] = "/other.toml";
  CHECK(threads({"doctor"}) == 4);
  CHECK(threads({"--config", "/x/cento/config.toml", "doctor"}) == 3);
  w.variables["CENTO_THREADS"] = "5";
  CHECK(threads({"doctor"}) == 5);
  CHECK(threads({"doctor", "--threads", "6"}) == 6);
  w.variables["CENTO_THREADS"] = "";  // as good as not set
  CHECK(threads({"doctor"}) == 4);
}

TEST_CASE("options: a variable means the flag of the first subcommand that has it", "[app]") {
  World w;
  w.variables["CENTO_PROMPT"] = "prompt.json";  // a file for query; a number is what bench wants
  CHECK(w.command<QueryCommand>({"query"}).prompt_file == "prompt.json");
  CHECK(w.command<BenchCommand>({"bench"}).speed.prompt_tokens == 512);
  CHECK_NOTHROW(w.parse({"doctor"}));
  CHECK_NOTHROW(w.parse({"config"}));
}

TEST_CASE("options: a subcommand's section, lists and switches in the file", "[app]") {
  World w;
  w.variables["CENTO_CONFIG"] = "f";
  w.files["f"] =
      "json = true\ntop-k = 9\n"
      "[query]\ntop-k = 3\nstop = [\"A\", \"B\"]\nthreads = 7\nstream = false\n"
      "[index]\nno-ignore = true\nprune = false\n"
      "[cache.trim]\nmax-bytes = \"1MB\"\n";
  // Settings of one subcommand have their place in its section.
  CHECK_THROWS_WITH(w.parse({"doctor"}), Catch::Contains("no setting \"top-k\""));
  w.files["f"].replace(w.files["f"].find("top-k = 9\n"), 10, "");
  const auto o = w.parse({"query", "q"}).options;
  const auto& q = std::get<QueryCommand>(o.command);
  CHECK(o.common.json);
  CHECK(o.common.threads == 7);
  CHECK(q.ask.top_k == 3);
  CHECK(q.ask.stop == std::vector<std::string>{"A", "B"});
  CHECK_FALSE(q.stream);
  CHECK(w.command<QueryCommand>({"query", "q", "--stream"}).stream);
  CHECK(w.command<QueryCommand>({"query", "q", "--stop", "C"}).ask.stop == std::vector<std::string>{"C"});
  CHECK(w.parse({"doctor"}).options.common.threads == 0);
  const auto i = w.command<IndexCommand>({"index", "p"});
  CHECK_FALSE(i.options.use_ignore_files);
  CHECK_FALSE(i.options.prune);
  CHECK(w.command<CacheCommand>({"cache", "trim"}).max_bytes == 1000000);
  w.variables["CENTO_NO_IGNORE"] = "0";
  w.variables["CENTO_PRUNE"] = "yes";
  CHECK(w.command<IndexCommand>({"index", "p"}).options.use_ignore_files);
  CHECK(w.command<IndexCommand>({"index", "p"}).options.prune);
}

TEST_CASE("options: a wrong value is blamed on where it stands", "[app]") {
  World w;
  w.variables["CENTO_CONFIG"] = "f";
  w.files["f"] = "threads = 2\n[query]\ntop-k = \"many\"\n";
  try {
    w.parse({"query", "q"});
    FAIL("was understood");
  } catch (const Error& e) {
    CHECK_THAT(e.message(), Catch::Contains("top-k: \"many\""));
    CHECK(e.where() == "f, line 3");
  }
  w.files["f"] = "";
  w.variables["CENTO_THREADS"] = "lots";
  CHECK_THROWS_WITH(w.parse({"doctor"}), Catch::Contains("CENTO_THREADS: \"lots\""));
  CHECK_NOTHROW(w.parse({"doctor", "--threads", "1"}));
  const auto& [text, said] =
      GENERATE(table<std::string, std::string>({{"thread = 2", "no setting \"thread\""},
                                                {"[qurey]\ntop-k = 2", "no subcommand [qurey]"},
                                                {"threads = [1]", "takes one value"},
                                                {"config = \"x\"", "no setting \"config\""},
                                                {"[query]\nprune = true", "no setting \"prune\" in [query]"}}));
  World v;
  v.variables["CENTO_CONFIG"] = "f";
  v.files["f"] = text;
  CHECK_THROWS_WITH(v.parse({"doctor"}), Catch::Contains(said));
  CHECK_NOTHROW(v.parse({"help"}));  // these must work while the file is broken
  CHECK_NOTHROW(v.parse({"completion", "bash"}));
  CHECK(v.parse({"--help"}).print.has_value());
  v.files.clear();
  CHECK_THROWS_WITH(v.parse({"doctor"}), Catch::Contains("no such configuration file"));
}

TEST_CASE("options: each setting says where it came from", "[app]") {
  World w;
  w.variables = {{"HOME", "/h"}, {"CENTO_MODEL", "m.gguf"}};
  w.files["/h/.config/cento/config.toml"] = "\n[query]\ntop-k = 3\n";
  const auto o = w.parse({"config", "--threads", "2"}).options;
  std::map<std::string, Setting> by_name;
  for (const auto& s : o.settings) CHECK(by_name.emplace(s.name, s).second);
  CHECK(by_name.at("threads").from == Setting::From::kFlag);
  CHECK(by_name.at("threads").value == "2");
  CHECK(by_name.at("model").from == Setting::From::kEnvironment);
  CHECK(by_name.at("model").where == "CENTO_MODEL");
  CHECK(by_name.at("query.top-k").from == Setting::From::kFile);
  CHECK(by_name.at("query.top-k").where == "/h/.config/cento/config.toml, line 3");
  CHECK(by_name.at("index.chunk-tokens").from == Setting::From::kDefault);
  CHECK(by_name.at("index.chunk-tokens").value == "256");
  CHECK(by_name.at("index.prune").value == "true");
  CHECK(by_name.count("version") == 0);
}

TEST_CASE("options: help and version come before any other complaint", "[app]") {
  const World w;
  CHECK_THAT(*w.parse({"--help"}).print, Catch::Contains("usage: cento [flags] SUBCOMMAND"));
  CHECK_THAT(*w.parse({"query", "-h"}).print, Catch::Contains("usage: cento query [flags] [QUESTION]"));
  CHECK_THAT(*w.parse({"cache", "trim", "--help"}).print, Catch::Contains("usage: cento cache trim"));
  CHECK(*w.parse({"--version"}).print == "cento " CENTO_VERSION "\n");
  CHECK(*w.parse({"query", "--version"}).print == "cento " CENTO_VERSION "\n");
}

}  // namespace
}  // namespace cento
