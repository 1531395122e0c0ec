// The rules about the source tree itself: what STYLE says about layout, and what documents say about the program.
#include <catch2/catch.hpp>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "app/command_doc.h"
#include "app/options.h"
#include "base/text.h"
#include "support/shared_data.h"

namespace cento {
namespace {

namespace fs = std::filesystem;
const std::string kRoot = CENTO_SOURCE_DIR;

// Paths below the root of files of the source tree, without build folders and what git keeps.
std::vector<std::string> files_below(const std::string& folder, const std::set<std::string>& extensions) {
  std::vector<std::string> out;
  const fs::path top = fs::path(kRoot) / folder;
  if (!fs::exists(top)) return out;
  for (fs::recursive_directory_iterator it(top), end; it != end; ++it) {
    const std::string name = it->path().filename().string();
    if (it->is_directory() && (name.starts_with("build") || (name.starts_with(".") && name != ".ci"))) {
      it.disable_recursion_pending();
    } else if (it->is_regular_file() && (extensions.empty() || extensions.contains(it->path().extension().string()))) {
      out.push_back(fs::relative(it->path(), kRoot).string());
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::string text_of(const std::string& below_root) { return test::read_all(kRoot + "/" + below_root); }

std::string first_part(const std::string& path) { return path.substr(0, path.find('/')); }

// Levels and what they may include besides themselves (STYLE 1). Kernels are the insides of compute.
const std::map<std::string, std::set<std::string>> kLevels = {
    {"base", {}},
    {"model", {"base"}},
    {"compute", {"base", "kernels"}},
    {"kernels", {"base", "compute"}},
    {"kv", {"base", "model", "compute"}},
    {"blend", {"base", "model", "compute", "kv"}},
    {"engine", {"base", "model", "compute", "kv", "blend"}},
    {"docs", {"base", "model", "kv"}},
    {"session", {"base", "model", "compute", "kv", "blend", "engine", "docs"}},
    {"eval", {"base", "model", "compute", "kv", "blend", "engine", "docs", "session"}},
    {"app", {"base", "model", "compute", "kv", "blend", "engine", "docs", "session", "eval"}},
};

// Third-party headers and the files at which they stop (third_party/*.cmake says why).
const std::vector<std::pair<std::string, std::vector<std::string>>> kHeaderStops = {
    {"CLI/", {"src/app/"}},
    {"sqlite3.h", {"src/kv/sqlite.cc"}},
    {"zstd.h", {"src/kv/"}},
    {"sodium.h", {"src/base/hash.cc", "src/kv/cipher.cc"}},
    {"sentencepiece_processor.h", {"src/model/tokenizer_spm"}},
    {"gumbo.h", {"src/docs/reader_html.cc"}},
    {"hiredis/", {"src/kv/redis_line.cc"}},
    {"openssl/", {"src/kv/tls_stream.cc"}},
};

struct Include {
  std::string file, name;
  bool quoted;
  size_t line;
};

std::vector<Include> includes_of(const std::string& file) {
  std::vector<Include> out;
  size_t n = 0;
  const std::string text = text_of(file);
  for (const auto raw : split_lines(text)) {
    ++n;
    const std::string_view line = trim(raw);
    if (!line.starts_with("#include ") || line.size() < 12) continue;
    const char open = line[9];
    const size_t close = line.find(open == '<' ? '>' : '"', 10);
    if ((open == '<' || open == '"') && close != std::string_view::npos) {
      out.push_back({file, std::string(line.substr(10, close - 10)), open == '"', n});
    }
  }
  return out;
}

std::vector<Include> all_includes() {
  std::vector<Include> out;
  for (const char* folder : {"src", "kernels"}) {
    for (const auto& file : files_below(folder, {".h", ".cc", ".cu", ".cuh"})) {
      const auto here = includes_of(file);
      out.insert(out.end(), here.begin(), here.end());
    }
  }
  return out;
}

std::string place(const Include& i) { return i.file + ":" + std::to_string(i.line) + " includes " + i.name; }

TEST_CASE("tidy: a level includes itself and the levels it uses, by their path", "[tidy]") {
  const auto all = all_includes();
  CHECK(all.size() > 100);  // the rule below was not met by reading nothing
  for (const Include& i : all) {
    const bool kernel = first_part(i.file) == "kernels";
    const std::string level = kernel ? "kernels" : first_part(i.file.substr(4));
    const std::string used = first_part(i.name);
    INFO(place(i));
    REQUIRE(kLevels.contains(level));
    if (!i.quoted) {
      CHECK_FALSE(kLevels.contains(used));  // our own headers are written in quotes
      continue;
    }
    CHECK(kLevels.contains(used));
    CHECK((used == level || kLevels.at(level).contains(used)));
    CHECK(fs::exists(kRoot + (used == "kernels" ? "/" : "/src/") + i.name));
  }
}

TEST_CASE("tidy: third-party headers stop where the build says they stop", "[tidy]") {
  for (const Include& i : all_includes()) {
    INFO(place(i));
    CHECK_FALSE(i.name.starts_with("catch2/"));
    if (i.name.starts_with("hwy/"))
      CHECK((i.file.starts_with("kernels/simd/") || i.file == "src/compute/ops_registry.cc"));
    for (const auto& [header, stops] : kHeaderStops) {
      if (!i.name.starts_with(header)) continue;
      CHECK(std::any_of(stops.begin(), stops.end(), [&](const std::string& stop) { return i.file.starts_with(stop); }));
    }
  }
}

TEST_CASE("tidy: every test file is built", "[tidy]") {
  const std::string commands = test::read_all(CENTO_BUILD_DIR "/compile_commands.json");
  const auto files = files_below("tests", {".cc"});
  CHECK(files.size() > 20);
  for (const auto& file : files) {
    if (!file.ends_with("_test.cc")) continue;
    INFO(file);
    CHECK(commands.find("/" + file + "\"") != std::string::npos);
  }
}

TEST_CASE("tidy: no mark of unfinished work", "[tidy]") {
  const std::string self = "tests/tidy_test.cc";
  const std::regex mark(R"(\b(TODO|FIXME|XXX|HACK|WIP)\b|[Nn]ot (yet )?implemented)");
  size_t n_files = 0;
  for (const char* folder : {"src", "kernels", "tests", "man", "samples", "third_party", "docs", ".ci"}) {
    for (const auto& file : files_below(folder, {})) {
      if (file == self || file.starts_with("tests/data/")) continue;
      size_t n = 0;
      const std::string text = text_of(file);
      for (const auto line : split_lines(text)) {
        ++n;
        // std::regex recurses: very long lines are data
        if (line.size() < 2000 && std::regex_search(std::string(line), mark))
          FAIL_CHECK(file << ":" << n << ": " << line);
      }
      n_files += 1;
    }
  }
  CHECK(n_files > 100);  // the folders were found
}

void for_each_command(const CommandDoc& command, const std::function<void(const CommandDoc&)>& visit) {
  visit(command);
  for (const auto& s : command.subcommands) for_each_command(s, visit);
}

std::set<std::string> long_flags(const std::string& text) {
  std::set<std::string> out;
  static const std::regex flag(R"(--[a-z][a-z0-9-]*)");
  for (std::sregex_iterator it(text.begin(), text.end(), flag), end; it != end; ++it) out.insert(it->str());
  return out;
}

// Flags that a page documents: those of its .It lines.
std::set<std::string> flags_of_page(const std::string& page) {
  std::set<std::string> out;
  for (const auto line : split_lines(page)) {
    if (!line.starts_with(".It ")) continue;
    static const std::regex macro(R"((Fl|,) (-[a-z0-9-]+)|Fl ([a-z0-9]) , (-[a-z0-9-]+))");
    const std::string text(line);
    for (std::sregex_iterator it(text.begin(), text.end(), macro), end; it != end; ++it) {
      const std::string name = (*it)[2].matched ? (*it)[2].str() : (*it)[4].str();
      out.insert("-" + name);
    }
  }
  return out;
}

TEST_CASE("tidy: each long flag of --help is in the manual page, and the other way round", "[tidy]") {
  const CommandDoc program = describe_program();
  std::set<std::string> common;
  for (const auto& option : program.options) {
    for (const auto& name : option.names) {
      if (name.starts_with("--")) common.insert(name);
    }
  }
  CHECK(flags_of_page(text_of("man/cento.1")) == common);
  for (const auto& command : program.subcommands) {
    const std::string file = "man/cento-" + command.path.back() + ".1";
    INFO(file);
    REQUIRE(fs::exists(kRoot + "/" + file));
    std::set<std::string> in_help;
    for_each_command(command, [&](const CommandDoc& c) {
      for (const auto& option : c.options) {
        for (const auto& name : option.names) {
          if (name.starts_with("--")) in_help.insert(name);
        }
      }
      // What --help really prints is these and the common ones (its examples use no others).
      std::set<std::string> printed = long_flags(help_text(c, program.options));
      for (const auto& flag : printed) {
        INFO(flag);
        const bool known =
            common.contains(flag) || std::any_of(c.options.begin(), c.options.end(), [&](const OptionDoc& o) {
              return std::find(o.names.begin(), o.names.end(), flag) != o.names.end();
            });
        const bool of_subcommand = !c.subcommands.empty();  // examples of a group show flags of its members
        const bool other = c.path.back() == "query" && flag == "--prompt";  // "with --prompt"
        CHECK((known || of_subcommand || other));
      }
    });
    CHECK(flags_of_page(text_of(file)) == in_help);
  }
  for (const auto& file : files_below("man", {".1"})) {
    const std::string name = fs::path(file).stem().string();
    INFO(file);
    CHECK((name == "cento" || find_command(program, {name.substr(6)}) != nullptr));
  }
}

// Command lines of ours in a text: "cento WORD" at the beginning of a line of code, in back-quotes, or behind a pipe.
std::vector<std::vector<std::string>> command_lines(const std::string& text) {
  static const std::regex call(
      R"((^|\n|`|\$ |\| )\s*(\./build/|build/)?cento ((--?[a-z][^ \n`]* )*)([a-z]+)( ([a-z]+))?)");
  std::vector<std::vector<std::string>> out;
  for (std::sregex_iterator it(text.begin(), text.end(), call), end; it != end; ++it) {
    out.push_back({(*it)[5].str()});
    if ((*it)[7].matched) out.back().push_back((*it)[7].str());
  }
  return out;
}

// Code of a Markdown file: fenced and indented blocks, and what stands in back-quotes.
std::string code_of_markdown(const std::string& text) {
  std::string out;
  bool fenced = false;
  for (const auto line : split_lines(text)) {
    if (trim(line).starts_with("```")) {
      fenced = !fenced;
      continue;
    }
    if (fenced || line.starts_with("    ")) {
      out += std::string(line) + "\n";
      continue;
    }
    bool quoted = false;
    std::string piece;
    for (const char c : line) {
      if (c == '`') {
        if (quoted) out += piece + "\n";
        piece.clear();
        quoted = !quoted;
      } else if (quoted) {
        piece += c;
      }
    }
  }
  return out;
}

// Code of a manual page: literal blocks.
std::string code_of_page(const std::string& text) {
  std::string out;
  bool literal = false;
  for (const auto line : split_lines(text)) {
    if (line.starts_with(".Bd")) literal = true;
    if (line.starts_with(".Ed")) literal = false;
    if (literal && !line.starts_with(".")) out += std::string(line) + "\n";
  }
  return out;
}

TEST_CASE("tidy: documents mention only subcommands and flags that exist", "[tidy]") {
  const CommandDoc program = describe_program();
  std::set<std::string> flags;
  for_each_command(program, [&](const CommandDoc& c) {
    for (const auto& option : c.options) flags.insert(option.names.begin(), option.names.end());
  });
  std::vector<std::pair<std::string, std::string>> texts;
  for (const auto& file : files_below("man", {".1"})) texts.emplace_back(file, code_of_page(text_of(file)));
  for (const auto& file : files_below("docs", {".md"})) texts.emplace_back(file, code_of_markdown(text_of(file)));
  if (fs::exists(kRoot + "/README.md")) texts.emplace_back("README.md", code_of_markdown(text_of("README.md")));
  size_t seen = 0;
  for (const auto& [file, code] : texts) {
    for (const auto& words : command_lines(code)) {
      INFO(file << ": cento " << words[0]);
      ++seen;
      const CommandDoc* command = find_command(program, {words[0]});
      CHECK(command != nullptr);
      if (command != nullptr && !command->subcommands.empty() && words.size() > 1) {
        INFO(words[1]);
        CHECK(find_command(*command, {words[1]}) != nullptr);
      }
    }
    for (const auto line : split_lines(code)) {
      if (trim(line).find("cento ") != 0) continue;
      const std::string text(line.substr(0, line.find(" | ")));
      for (const auto& flag : long_flags(text)) {
        INFO(file << ": " << line);
        CHECK(flags.contains(flag));
      }
    }
  }
  CHECK(seen > 20);
}

TEST_CASE("tidy: every dependency's package is installed by install-deps.sh", "[tidy]") {
  const std::string script = text_of("third_party/install-deps.sh");
  const std::regex package(R"(Debian 12: ([a-z0-9.+-]+))");
  size_t n = 0;
  for (const auto& file : files_below("third_party", {".cmake"})) {
    const std::string text = text_of(file);
    for (std::sregex_iterator it(text.begin(), text.end(), package), end; it != end; ++it, ++n) {
      INFO(file << ": " << (*it)[1].str());
      CHECK(std::regex_search(
          script,
          std::regex("[ (]" + std::regex_replace((*it)[1].str(), std::regex(R"([.+])"), "\\$&") + R"([ )\n])")));
    }
  }
  CHECK(n >= 9);
}

}  // namespace
}  // namespace cento
