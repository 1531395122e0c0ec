#include "docs/walk.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "docs/ignore.h"
#include "support/shared_data.h"

using namespace cento;
namespace fs = std::filesystem;

namespace {

std::string names(const Found& found, const std::string& root) {
  std::string out;
  for (const FoundFile& file : found.files) out += (out.empty() ? "" : " ") + file.path.substr(root.size() + 1);
  return out;
}

std::string reason(const Found& found, const std::string& path) {
  for (const auto& [where, why] : found.skipped) {
    if (where == path) return why;
  }
  return "";
}

Found walk_all(const std::string& root, const WalkOptions& options = {}) { return walk(root, options, {}); }

}  // namespace

TEST_CASE("ignore: patterns mean what gitignore(5) says", "[docs]") {
  struct Row {
    const char *patterns, *path;
    bool folder, ignored;
  };
  // Compared row by row with `git check-ignore` of git 2.39. It differs in two, "foo/*" on foo/a/b and "a/" on b/a/c,
  // where git also looks at the folders above: here the walk does that by not entering them.
  const Row rows[] = {
      {"foo", "foo", false, true},
      {"foo", "a/foo", false, true},
      {"foo", "foobar", false, false},
      {"/foo", "foo", false, true},
      {"/foo", "a/foo", false, false},
      {"foo/", "foo", true, true},
      {"foo/", "foo", false, false},
      {"foo/", "a/foo", true, true},
      {"a/b", "a/b", false, true},
      {"a/b", "x/a/b", false, false},
      {"*.o", "x.o", false, true},
      {"*.o", "a/x.o", false, true},
      {"*.o", ".o", false, true},
      {"a/*.o", "a/x.o", false, true},
      {"a/*.o", "a/b/x.o", false, false},
      {"*", "x", false, true},
      {"a*c", "abc", false, true},
      {"a*c", "ab/c", false, false},
      {"a?c", "abc", false, true},
      {"a?c", "ac", false, false},
      {"**/foo", "foo", false, true},
      {"**/foo", "a/b/foo", false, true},
      {"foo/**", "foo/a/b", false, true},
      {"foo/**", "foo", true, false},
      {"a/**/b", "a/b", false, true},
      {"a/**/b", "a/x/y/b", false, true},
      {"a/**/b", "a/xb", false, false},
      {"**", "x", false, true},
      {"a**b", "axxb", false, true},
      {"a**b", "a/b", false, false},
      {"[abc]x", "bx", false, true},
      {"[!abc]x", "bx", false, false},
      {"[^abc]x", "dx", false, true},
      {"[a-c]x", "bx", false, true},
      {"[a-c]x", "dx", false, false},
      {"[]x]y", "]y", false, true},
      {"[[:digit:]]", "5", false, true},
      {"[[:digit:]]", "a", false, false},
      {"[[:alpha:]_]z", "_z", false, true},
      {"a[/]b", "a/b", false, false},
      {"[abc", "[abc", false, false},
      {"\\*", "*", false, true},
      {"\\*", "x", false, false},
      {"\\#x", "#x", false, true},
      {"#x", "#x", false, false},
      {"\\!x", "!x", false, true},
      {"x \n", "x", false, true},
      {"x\\ ", "x ", false, true},
      {" x", " x", false, true},
      {"*.md\n!keep.md", "keep.md", false, false},
      {"*.md\n!keep.md", "x.md", false, true},
      {"!keep.md\n*.md", "keep.md", false, true},
      {"*.md\r\n", "x.md", false, true},
      {"", "x", false, false},
      {"/", "x", false, false},
      {"foo/*", "foo/a", false, true},
      {"foo/*", "foo/a/b", false, false},
      {"/*\n!/foo", "foo", true, false},
      {"/*\n!/foo", "bar", false, true},
      {"a/", "b/a/c", false, false},
      {"\xc3\xa9", "\xc3\xa9", false, true},
      {"x\\", "x", false, false},
      {"doc/*.txt", "doc/a.txt", false, true},
      {"[a\\]b]z", "]z", false, true},
      {"*foo", "/foo", false, true},
      {"abc/**/", "abc/x", true, true},
  };
  for (const Row& row : rows) {
    CAPTURE(row.patterns, row.path);
    CHECK(IgnoreList(row.patterns).match(row.path, row.folder).value_or(false) == row.ignored);
  }
  CHECK(!IgnoreList("x").match("y", false).has_value());
  CHECK(IgnoreList("!x").match("x", false) == std::optional(false));
  CHECK(IgnoreList("docs/\n*.md").covers("docs/a/b.txt"));
  CHECK(IgnoreList("docs/\n*.md").covers("a/b.md"));
  CHECK(!IgnoreList("docs/\n*.md").covers("a/b.txt"));
}

TEST_CASE("ignore: git agrees with the walk over a tree", "[docs]") {
  if (std::system("git --version >/dev/null 2>&1") != 0) {
    WARN("skipped: git is not there");
    return;
  }
  test::TempDir dir;
  const std::string root = fs::canonical(dir.path()).string();
  for (const char* path :
       {"a.md", "b.log", "keep.log", "sub/c.log", "sub/keep.log", "sub/d/e.txt", "sub/d/f.md", "build/x.md",
        "src/build/y.md", "deep/1/2/3/z.md", "deep/1/q.md", "only/this.md", "only/that.md", "odd[1].md", "o d d.md",
        "tail/x.md", "nest/a/x.md", "nest/b/x.md", "nest/b/y.txt"}) {
    test::write_all(root + "/" + path, "x");
  }
  test::write_all(root + "/.gitignore",
                  "*.log\n!keep.log\n/build/\ndeep/**/z.md\nonly/*\n!only/this.md\nodd\\[1\\].md\n");
  test::write_all(root + "/sub/.gitignore", "!c.log\nd/*.txt\n");
  test::write_all(root + "/tail/.gitignore", "*\n!.gitignore\n");
  test::write_all(root + "/nest/.gitignore", "/a\nb/y.*\n");
  REQUIRE(std::system(("cd '" + root +
                       "' && git init -q . && git -c core.excludesFile= ls-files -o -c --exclude-standard > /dev/null")
                          .c_str()) == 0);
  const std::string list = root + "/../" + fs::path(root).filename().string() + ".list";
  REQUIRE(std::system(("cd '" + root +
                       "' && git -c core.quotePath=false -c core.excludesFile= ls-files -o --exclude-standard | grep "
                       "-v gitignore | LC_ALL=C sort > '" +
                       list + "'")
                          .c_str()) == 0);
  std::string expected = test::read_all(list);
  fs::remove(list);
  std::string got;
  for (const FoundFile& file : walk_all(root).files) got += file.path.substr(root.size() + 1) + "\n";
  CHECK(got == expected);
}

TEST_CASE("ignore: a pattern made to blow up takes no time", "[docs]") {
  std::string pattern;
  for (int i = 0; i < 200; ++i) pattern += "*a";
  CHECK(!IgnoreList(pattern + "b").match(std::string(4000, 'a'), false).value_or(false));
  CHECK(!IgnoreList(std::string(5000, '*') + "b")
             .match(std::string(4000, 'a'), false)
             .has_value());  // too long a pattern is none
}

TEST_CASE("walk: what is found, hidden, ignored, included and excluded", "[docs]") {
  test::TempDir dir;
  const std::string root = fs::canonical(dir.path()).string();
  for (const char* path :
       {"b.md", "a.md", ".hidden.md", ".dir/x.md", "sub/c.md", "sub/d.txt", "sub/deep/.git/config", ".git/config",
        "x.md~", ".x.md.swp", "node_modules/p/r.md", "sub/ignored.md", "sub/back.md", "CVS/Root"}) {
    test::write_all(root + "/" + path, "x");
  }
  test::write_all(root + "/.gitignore", "ignored.md\nback.md\n");
  test::write_all(root + "/sub/.ignore", "!back.md\n");
  CHECK(names(walk_all(root), root) == "a.md b.md sub/back.md sub/c.md sub/d.txt");
  WalkOptions all;
  all.hidden = true;
  CHECK(names(walk_all(root, all), root) ==
        ".dir/x.md .gitignore .hidden.md a.md b.md sub/.ignore sub/back.md sub/c.md sub/d.txt");
  WalkOptions raw;
  raw.use_ignore_files = false;
  CHECK(names(walk_all(root, raw), root) ==
        "a.md b.md node_modules/p/r.md sub/back.md sub/c.md sub/d.txt sub/ignored.md x.md~");
  WalkOptions some;
  some.include.add("sub/");
  some.include.add("a.*");
  some.exclude.add("*.txt");
  CHECK(names(walk_all(root, some), root) == "a.md sub/back.md sub/c.md");
  CHECK(names(walk_all(root + "/sub"), root) ==
        "sub/back.md sub/c.md sub/d.txt");  // .gitignore of the repository's top holds
  // A file that is named is taken as it is.
  const Found one = walk_all(root + "/.hidden.md");
  REQUIRE(one.files.size() == 1);
  CHECK_THROWS_AS(walk_all(root + "/nowhere"), Error);
  const Found stopped = walk(root, {}, [] { return true; });
  CHECK(stopped.stopped);
}

TEST_CASE("walk: links are named and not followed, or followed once", "[docs]") {
  test::TempDir dir;
  const std::string base = fs::canonical(dir.path()).string(), root = base + "/root";
  test::write_all(root + "/sub/a.md", "a");
  test::write_all(base + "/outside/secret.md", "s");
  fs::create_symlink(".", root + "/self");
  fs::create_symlink("..", root + "/sub/up");
  fs::create_symlink("y", root + "/x");
  fs::create_symlink("x", root + "/y");
  fs::create_symlink("nowhere", root + "/dangling.md");
  fs::create_symlink("../outside", root + "/out");
  fs::create_symlink("sub/a.md", root + "/again.md");
  fs::create_symlink("/dev/zero", root + "/zero.txt");
  fs::create_hard_link(root + "/sub/a.md", root + "/sub/hard.md");
  const Found plain = walk_all(root);
  CHECK(names(plain, root) == "sub/a.md sub/hard.md");
  for (const char* link : {"/self", "/sub/up", "/x", "/y", "/dangling.md", "/out", "/again.md", "/zero.txt"}) {
    CHECK(reason(plain, root + link).find("symbolic link") == 0);
  }
  WalkOptions follow;
  follow.follow_links = true;
  const Found all = walk_all(root, follow);
  // Everything once: a.md and its hard link are one file, "up" and "self" lead to folders that were entered.
  std::string list;
  for (const FoundFile& f : all.files) list += fs::path(f.path).filename().string() + " ";
  CHECK((list == "secret.md a.md " || list == "secret.md hard.md "));
  CHECK(reason(all, root + "/dangling.md") == "symbolic link to nothing");
  CHECK(reason(all, root + "/x").find("symbolic link: ") == 0);
  CHECK(reason(all, root + "/zero.txt") == "device, not a file");
}

TEST_CASE("walk: special, large, unreadable and far away files end in a reason", "[docs]") {
  test::TempDir dir;
  const std::string root = fs::canonical(dir.path()).string();
  test::write_all(root + "/a.md", "a");
  REQUIRE(::mkfifo((root + "/pipe.md").c_str(), 0600) == 0);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  (root + "/s.md").copy(address.sun_path, sizeof address.sun_path - 1);
  REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  ::close(fd);
  test::write_all(root + "/sparse.txt", "");
  fs::resize_file(root + "/sparse.txt", 1ull << 30);
  // A path longer than the system opens at once, made step by step.
  const std::string segment(240, 'p');
  REQUIRE(::chdir(root.c_str()) == 0);
  for (int i = 0; i < 20; ++i) {
    REQUIRE(::mkdir(segment.c_str(), 0700) == 0);
    REQUIRE(::chdir(segment.c_str()) == 0);
  }
  REQUIRE(::chdir("/") == 0);
  const Found found = walk_all(root);
  CHECK(names(found, root) == "a.md");
  CHECK(reason(found, root + "/pipe.md") == "named pipe, not a file");
  CHECK(reason(found, root + "/s.md") == "socket, not a file");
  CHECK(reason(found, root + "/sparse.txt").find("GiB, more than 64") != std::string::npos);
  CHECK(std::any_of(found.skipped.begin(), found.skipped.end(),
                    [](const auto& s) { return s.second.find("path longer") == 0; }));
  CHECK(found.unread.size() == 1);
  if (::geteuid() != 0) {
    test::write_all(root + "/closed/x.md", "x");
    ::chmod((root + "/closed").c_str(), 0);
    const Found again = walk_all(root);
    CHECK(reason(again, root + "/closed").find("ermission") != std::string::npos);
    CHECK(again.unread.size() == 2);
    ::chmod((root + "/closed").c_str(), 0700);
  }
}
