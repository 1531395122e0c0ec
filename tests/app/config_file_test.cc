#include "app/config_file.h"

#include <catch2/catch.hpp>

#include "base/error.h"
#include "base/rng.h"

namespace cento {
namespace {

using Values = std::vector<std::string>;

ConfigItem only(const std::string& text) {
  const auto items = parse_config(text, "config.toml");
  REQUIRE(items.size() == 1);
  return items[0];
}

TEST_CASE("config file: values of every kind are read as they are written", "[app]") {
  const auto& [text, values] = GENERATE(table<std::string, Values>({
      {"a = \"plain\"", {"plain"}},
      {"a = \"C# and \\\"quotes\\\" \\\\ \\u00e9\\n\"", {"C# and \"quotes\" \\ \xC3\xA9\n"}},
      {"a = 'C:\\temp # no comment'", {"C:\\temp # no comment"}},
      {"a = 4", {"4"}},
      {"a = 1_000_000", {"1000000"}},
      {"a = 0.15 # of the rows", {"0.15"}},
      {"a = -1e-3", {"-1e-3"}},
      {"a = true", {"true"}},
      {"a=false", {"false"}},
      {"a = []", {}},
      {"a = [\"x, y\", 'z', 3, true,]", {"x, y", "z", "3", "true"}},
      {"a = [\n  \"x\", # first\n\n  \"y\"\n]", {"x", "y"}},
      {"\xEF\xBB\xBF"
       "a = \"after a byte order mark\"",
       {"after a byte order mark"}},
      {"# only a comment\r\na = \"dos\"\r\n", {"dos"}},
      {"\"a\" = ''", {""}},
  }));
  CAPTURE(text);
  const ConfigItem item = only(text);
  CHECK(item.key == "a");
  CHECK(item.values == values);
}

TEST_CASE("config file: sections, dotted names and lines", "[app]") {
  const auto items =
      parse_config("threads = 2\n\n[query]\ntop-k = 8\n[ cache . trim ] # two levels\nmax-bytes = \"1GiB\"\n", "f");
  REQUIRE(items.size() == 3);
  CHECK((items[0].section == "" && items[0].key == "threads" && items[0].line == 1));
  CHECK((items[1].section == "query" && items[1].key == "top-k" && items[1].line == 4));
  CHECK((items[2].section == "cache.trim" && items[2].key == "max-bytes" && items[2].line == 6));
  const ConfigItem dotted = only("query.top-k = 8");
  CHECK((dotted.section == "query" && dotted.key == "top-k"));
  CHECK(parse_config("", "f").empty());
  CHECK(parse_config("\n \t\n# nothing", "f").empty());
}

TEST_CASE("config file: a slip is an error with its line, never another meaning", "[app]") {
  const std::string text = GENERATE(as<std::string>{}, "a", "a =", "= 3", "a = word", "a = \"open", "a = 'open",
                                    "a = \"x\" y", "a = [1", "a = [1 2]", "[query", "[]", "[[query]]", "a = 3\na = 4",
                                    "a = \"\\q\"", "a = \"\\ud800\"", "a = \"\\u12\"", "a = \"\"\"long\"\"\"",
                                    "a = {b = 1}", "a = \"\xff\"", "a = .", "a = -", "a b = 3", "a = \"x\ny\"");
  CAPTURE(text);
  try {
    parse_config("# first line\n" + text, "config.toml");
    FAIL("was read");
  } catch (const Error& e) {
    CHECK(e.code() == Code::kUsage);
    CHECK(e.where().starts_with("config.toml, line "));
    if (text != "a = \"\xff\"") CHECK(e.where() != "config.toml, line 1");
  }
}

TEST_CASE("config file: any bytes give items or an error", "[app]") {
  Rng rng(7);
  const std::string alphabet = "a=\"'[]#\n,. \\u1-_\r\t\x80";
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (uint64_t n = rng.below(24); n > 0; --n) text += alphabet[rng.below(alphabet.size())];
    CAPTURE(text);
    try {
      for (const auto& item : parse_config(text, "f")) REQUIRE(item.line >= 1);
    } catch (const Error& e) {
      REQUIRE(e.code() == Code::kUsage);
    }
  }
}

}  // namespace
}  // namespace cento
