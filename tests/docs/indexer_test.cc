#include "docs/indexer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>

#include "base/error.h"
#include "docs/converter.h"
#include "docs/retriever.h"
#include "support/fake_tokenizer.h"
#include "support/shared_data.h"

using namespace cento;
namespace fs = std::filesystem;

namespace {

struct Fixture {
  test::TempDir dir;
  std::string root = (fs::create_directories(dir / "docs"), fs::canonical(dir / "docs").string());
  Catalogue catalogue{dir / "store", Db::Mode::kReadWrite};
  DocStore store{catalogue};
  test::FakeTokenizer tokenizer;
  IndexOptions options = [this] {
    IndexOptions o;
    o.paths = {root};
    return o;
  }();

  // Written long ago: so recent a file that it may still change is read twice on purpose.
  void write(const std::string& name, const std::string& text, int64_t seconds_ago = 3600) {
    test::write_all(root + "/" + name, text);
    age(name, seconds_ago);
  }
  void age(const std::string& name, int64_t seconds_ago) {
    const timespec when{::time(nullptr) - seconds_ago, 0};
    const timespec times[2] = {when, when};
    REQUIRE(::utimensat(AT_FDCWD, (root + "/" + name).c_str(), times, AT_SYMLINK_NOFOLLOW) == 0);
  }
  IndexReport index(const IndexHooks& hooks = {}) { return index_documents(store, &tokenizer, options, hooks); }

  static std::string summary(const IndexReport& r) {
    return "seen " + std::to_string(r.seen) + " new " + std::to_string(r.added) + " changed " +
           std::to_string(r.changed) + " renamed " + std::to_string(r.renamed) + " unchanged " +
           std::to_string(r.unchanged) + " removed " + std::to_string(r.removed) + " skipped " +
           std::to_string(r.skipped.size()) + " read " + std::to_string(r.files_read);
  }
  int64_t number(const std::string& sql) {
    Stmt q = catalogue.db().prepare(sql);
    q.step();
    return q.integer(0);
  }
  int64_t id() { return store.find_collection("default")->id; }
  std::string paths() {
    std::string out;
    for (const SourceRow& s : store.sources(id())) out += s.path.substr(root.size() + 1) + " ";
    return out;
  }
  bool finds(const std::string& word) {
    Stmt q = catalogue.db().prepare("SELECT count(*) FROM chunk_words WHERE chunk_words MATCH ?1");
    q.bind_text(1, "\"" + word + "\"");
    q.step();
    return q.integer(0) > 0;
  }
  void check_text_indexes() {
    catalogue.db().exec("INSERT INTO chunk_words(chunk_words, rank) VALUES ('integrity-check', 1)");
    catalogue.db().exec("INSERT INTO chunk_trigrams(chunk_trigrams, rank) VALUES ('integrity-check', 1)");
  }
};

std::string page(const std::string& word) { return "# Page of " + word + "\n\nThe word is " + word + ".\n"; }

}  // namespace

TEST_CASE_METHOD(Fixture, "indexer: new, unchanged, changed, touched, renamed, removed", "[docs]") {
  write("a.md", page("anvil"));
  write("sub/b.md", page("beacon"));
  write("c.md", page("cistern"));
  CHECK(summary(index()) == "seen 3 new 3 changed 0 renamed 0 unchanged 0 removed 0 skipped 0 read 3");
  CHECK(paths() == "a.md c.md sub/b.md ");
  CHECK(store.sources(id())[0].title == "Page of anvil");
  // Nothing changed: nothing is read, nothing is written.
  const int64_t writes = number("SELECT total_changes()");
  CHECK(summary(index()) == "seen 3 new 0 changed 0 renamed 0 unchanged 3 removed 0 skipped 0 read 0");
  CHECK(number("SELECT total_changes()") - writes <= 2);  // the folder's options, an empty list of skipped files

  const int64_t anvil_chunk = store.chunks_in_order(id())[0].chunk_id;
  age("a.md", 1800);  // touched
  write("c.md", page("dormouse"));
  const IndexReport second = index();
  CHECK(summary(second) == "seen 3 new 0 changed 1 renamed 0 unchanged 2 removed 0 skipped 0 read 2");
  CHECK(second.chunks_new == 1);
  CHECK(second.chunks_removed == 1);
  CHECK(store.chunks_in_order(id())[0].chunk_id == anvil_chunk);
  CHECK(!finds("cistern"));
  CHECK(summary(index()) == "seen 3 new 0 changed 0 renamed 0 unchanged 3 removed 0 skipped 0 read 0");

  fs::rename(root + "/a.md", root + "/sub/renamed.md");  // the inode says it
  fs::copy_file(root + "/c.md", root + "/copied.md");    // the content says it
  fs::remove(root + "/c.md");
  age("copied.md", 1000);
  fs::remove(root + "/sub/b.md");
  const IndexReport third = index();
  CHECK(summary(third) == "seen 2 new 0 changed 0 renamed 2 unchanged 0 removed 1 skipped 0 read 1");
  CHECK(third.chunks_new == 0);
  CHECK(third.chunks_removed == 1);
  CHECK(store.chunks_in_order(id())[1].chunk_id == anvil_chunk);
  CHECK(paths() == "copied.md sub/renamed.md ");
  CHECK(!finds("beacon"));

  fs::remove_all(root + "/sub");
  fs::remove(root + "/copied.md");
  CHECK(summary(index()) == "seen 0 new 0 changed 0 renamed 0 unchanged 0 removed 2 skipped 0 read 0");
  CHECK(number("SELECT count(*) FROM chunks") == 0);
  CHECK(number("SELECT count(*) FROM source_chunks") == 0);
  CHECK(!finds("anvil"));
  check_text_indexes();
}

TEST_CASE_METHOD(Fixture, "indexer: an edit replaces only the chunks it touches", "[docs]") {
  std::string text = "# Book\n\n";
  for (int i = 0; i < 20; ++i)
    text += "## Part " + std::to_string(i) + "\n\nThis part tells of thing " + std::to_string(i) +
            " at length, with a few words more.\n\n";
  options.chunk_tokens = 64;
  write("book.md", text);
  CHECK(index().chunks_total == 20);
  text.replace(text.find("thing 7"), 7, "matter 7");
  write("book.md", text, 100);
  const IndexReport report = index();
  CHECK(report.chunks_new == 1);
  CHECK(report.chunks_removed == 1);
  CHECK(report.chunks_total == 20);
}

TEST_CASE_METHOD(Fixture, "indexer: files that are no text are skipped with a reason, and not read again", "[docs]") {
  write("ok.md", page("ember"));
  write("empty.md", "");
  write("blank.txt", " \n\t\n");
  write("pic.md", "\x89PNG\r\n\x1a\n.....");
  write("report.docx", "PK\x03\x04");
  const IndexReport first = index();
  CHECK(summary(first) == "seen 5 new 1 changed 0 renamed 0 unchanged 0 removed 0 skipped 4 read 4");
  CHECK(first.skipped[0] == std::pair<std::string, std::string>{root + "/blank.txt", "no text in it"});
  CHECK(first.skipped[1].second == "empty file");
  CHECK(first.skipped[2].second == "a PNG picture");
  CHECK(first.skipped[3].second == "format .docx is not read yet; give --converter docx=COMMAND");
  const IndexReport second = index();
  CHECK(second.files_read == 0);
  CHECK(second.skipped == first.skipped);
  CHECK(store.skipped(id()) == first.skipped);
  // A text that becomes a picture takes its chunks along, and the other way round.
  write("ok.md", "\x89PNG\r\n\x1a\n....", 50);
  write("pic.md", page("ferry"), 50);
  CHECK(summary(index()) == "seen 5 new 1 changed 0 renamed 0 unchanged 0 removed 1 skipped 4 read 2");
  CHECK(!finds("ember"));
  CHECK(finds("ferry"));
}

TEST_CASE_METHOD(Fixture, "indexer: equal text under two names is one chunk in two places", "[docs]") {
  write("one.md", page("gantry"));
  write("two.md", page("gantry"));
  CHECK(index().chunks_new == 1);
  const int64_t chunk = store.chunks_in_order(id()).at(0).chunk_id;
  CHECK(store.places(id(), chunk).size() == 2);
  fs::remove(root + "/one.md");
  CHECK(summary(index()) == "seen 1 new 0 changed 0 renamed 0 unchanged 1 removed 1 skipped 0 read 0");
  CHECK(store.places(id(), chunk).size() == 1);
}

TEST_CASE_METHOD(Fixture, "indexer: a dry run says the same and writes nothing", "[docs]") {
  write("a.md", page("harrow"));
  options.dry_run = true;
  const IndexReport dry = index();
  CHECK(summary(dry) == "seen 1 new 1 changed 0 renamed 0 unchanged 0 removed 0 skipped 0 read 1");
  CHECK(dry.chunks_new == 1);
  CHECK(!store.find_collection("default"));
  options.dry_run = false;
  index();
  write("b.md", page("inkwell"));
  write("a.md", page("jetty"), 10);
  options.dry_run = true;
  const int64_t writes = number("SELECT total_changes()");
  CHECK(summary(index()) == "seen 2 new 1 changed 1 renamed 0 unchanged 0 removed 0 skipped 0 read 2");
  fs::remove(root + "/a.md");
  CHECK(summary(index()) == "seen 1 new 1 changed 0 renamed 0 unchanged 0 removed 1 skipped 0 read 1");
  CHECK(number("SELECT total_changes()") == writes);
}

TEST_CASE_METHOD(Fixture, "indexer: stopped in the middle, the work so far is kept and the rest is done later",
                 "[docs]") {
  for (int i = 0; i < 10; ++i) write("f" + std::to_string(i) + ".md", page("kiln" + std::to_string(i)));
  int polls = 0;
  IndexHooks hooks;
  hooks.stop = [&] { return ++polls > 5; };
  const IndexReport first = index(hooks);
  CHECK(first.stopped);
  CHECK(first.added > 0);
  CHECK(first.added < 10);
  CHECK(store.sources(id()).size() == first.added);
  std::vector<std::string> told;
  hooks.stop = nullptr;
  hooks.progress = [&](uint64_t done, uint64_t total, const std::string&) {
    CHECK(done <= total);
    told.push_back(std::to_string(done));
  };
  const IndexReport second = index(hooks);
  CHECK(second.added == 10 - first.added);
  CHECK(second.files_read == 10 - first.added);
  CHECK(told.size() == 11);
}

TEST_CASE_METHOD(Fixture, "indexer: without a path the folders are read again with their options", "[docs]") {
  options.paths = {};
  CHECK_THROWS_AS(index(), Error);
  write("a.md", page("lantern"));
  write("b.txt", "The other word is anvil.\n");
  options.paths = {root};
  options.include = {"*.md"};
  index();
  CHECK(paths() == "a.md ");
  write("c.md", page("beacon"));
  options.paths = {};
  options.include = {};
  CHECK(summary(index()) == "seen 2 new 1 changed 0 renamed 0 unchanged 1 removed 0 skipped 0 read 1");
  CHECK(paths() == "a.md c.md ");
  // A folder that is away today loses nothing; a path that is named must be there.
  fs::rename(root, root + ".away");
  const IndexReport away = index();
  CHECK(away.removed == 0);
  REQUIRE(away.skipped.size() == 1);
  CHECK(away.skipped[0].second.find("not there now") == 0);
  options.paths = {root};
  CHECK_THROWS_AS(index(), Error);
  fs::rename(root + ".away", root);
  options.paths = {};
  CHECK(index().unchanged == 2);
}

TEST_CASE_METHOD(Fixture, "indexer: pruning takes what is below the given folders only", "[docs]") {
  write("x/a.md", page("cistern"));
  write("y/b.md", page("dormouse"));
  options.paths = {root + "/x", root + "/y"};
  index();
  fs::remove(root + "/x/a.md");
  fs::remove(root + "/y/b.md");
  options.paths = {root + "/y"};
  options.prune = false;
  CHECK(index().removed == 0);
  options.prune = true;
  CHECK(index().removed == 1);
  CHECK(paths() == "x/a.md ");
  options.paths = {};
  CHECK(index().removed == 1);
  // A hidden folder that was named is not lost when the folder above is indexed.
  write("x/.notes/n.md", page("ember"));
  options.paths = {root + "/x/.notes"};
  index();
  options.paths = {root};
  CHECK(index().removed == 0);
  CHECK(finds("ember"));
  fs::remove(root + "/x/.notes/n.md");
  CHECK(index().removed == 1);
}

TEST_CASE_METHOD(Fixture, "indexer: a single file can be a root, and goes when it is deleted", "[docs]") {
  write("one.md", page("ferry"));
  write("two.md", page("gantry"));
  options.paths = {root + "/one.md"};
  index();
  CHECK(paths() == "one.md ");
  fs::remove(root + "/one.md");
  options.paths = {};
  CHECK(index().removed == 1);
}

TEST_CASE_METHOD(Fixture, "indexer: other chunk sizes read everything again, once", "[docs]") {
  write("a.md", "# T\n\n" + std::string(100, 'x') + " end. " + std::string(100, 'y') + " end. " +
                    std::string(100, 'z') + " end.\n");
  index();
  const uint64_t before = store.chunk_count(id());
  options.chunk_tokens = 80;
  const IndexReport report = index();
  CHECK(report.files_read == 1);
  CHECK(report.unchanged == 1);
  CHECK(report.chunks_total > before);
  CHECK(index().files_read == 0);
  options.chunk_tokens = 0;  // as it is
  CHECK(index().files_read == 0);
  CHECK(store.find_collection("default")->chunk_tokens == 80);
  // Stopped right after the change was noted, the next run still does it.
  options.chunk_tokens = 64;
  IndexHooks hooks;
  int polls = 0;
  hooks.stop = [&] { return ++polls > 1; };
  CHECK(index(hooks).stopped);
  CHECK(index().files_read == 1);
}

TEST_CASE_METHOD(Fixture, "indexer: a file written a moment ago is looked at once more", "[docs]") {
  write("a.md", page("harrow"), 0);
  const timespec now[2] = {{0, UTIME_NOW}, {0, UTIME_NOW}};
  ::utimensat(AT_FDCWD, (root + "/a.md").c_str(), now, 0);
  // The same size within the same tick of the clock: the stamp alone would not tell.
  index();
  const FileStamp stored = store.sources(id())[0].stamp;
  struct ::stat status {};
  ::stat((root + "/a.md").c_str(), &status);
  const int64_t mtime = static_cast<int64_t>(status.st_mtim.tv_sec) * 1'000'000'000 + status.st_mtim.tv_nsec;
  const bool was_quick = stored.mtime_ns != mtime;
  CHECK((was_quick ? index().files_read == 1 : index().files_read == 0));
  ::usleep(40'000);
  index();
  CHECK(index().files_read == 0);
}

TEST_CASE_METHOD(Fixture, "indexer: a file that vanishes or turns into something else is no trouble", "[docs]") {
  for (const char* name : {"a.md", "b.md", "c.md", "d.md"}) write(name, page(name));
  IndexHooks hooks;
  hooks.progress = [&](uint64_t, uint64_t, const std::string& path) {
    if (!path.ends_with("a.md")) return;
    fs::remove(root + "/b.md");
    fs::remove(root + "/c.md");
    ::mkfifo((root + "/c.md").c_str(), 0600);
    fs::remove(root + "/d.md");
    fs::create_symlink("/etc/passwd", root + "/d.md");
  };
  const IndexReport report = index(hooks);
  CHECK(report.added == 1);
  REQUIRE(report.skipped.size() == 3);
  CHECK(report.skipped[0].second == "gone while it was about to be read");
  CHECK(report.skipped[1].second == "not a regular file any more");
}

TEST_CASE_METHOD(Fixture, "indexer: a collection does not see another's files", "[docs]") {
  write("a.md", page("inkwell"));
  index();
  options.collection = "other";
  CHECK(index().added == 1);
  CHECK(number("SELECT count(*) FROM chunks") == 1);
  CHECK(store.collections().size() == 2);
}

TEST_CASE_METHOD(Fixture, "indexer: two thousand small files take seconds", "[docs]") {
  for (int i = 0; i < 2000; ++i)
    write("w/" + std::to_string(i) + ".md",
          "# Item " + std::to_string(i) + "\n\nItem number " + std::to_string(i) + " weighs grams.\n");
  const IndexReport report = index();
  CHECK(report.added == 2000);
  CHECK(report.seconds < 30);  // about 1 s alone; the bound only catches one commit a file
  CHECK(index().files_read == 0);
}

TEST_CASE_METHOD(Fixture, "indexer: a converter reads what we do not", "[docs]") {
  write("a b.xyz", "raw");
  write("n.DOCX", "PK\x03\x04");
  options.converters["docx"] = "sh -c 'echo \"# Converted\"; echo; echo \"text of $1\"' sh {}";
  const IndexReport report = index();
  CHECK(report.added == 2);
  REQUIRE(store.sources(id()).size() == 2);
  CHECK(store.sources(id())[1].format == "converted docx");
  CHECK(store.sources(id())[1].title == "Converted");
  CHECK(finds("docx"));
  CHECK(index().files_read == 0);
  options.converters["docx"] = "false";
  write("n.DOCX",
        "PK\x03\x04"
        "2",
        10);
  const IndexReport failed = index();
  CHECK(failed.removed == 1);
  REQUIRE(failed.skipped.size() == 1);
  CHECK(failed.skipped[0].second == "converter \"false\" ended with status 1");
}

TEST_CASE("converter: words, limits and failures", "[docs]") {
  const auto words = split_command("a  b'c d'\"e \\\" f\" \\ g ''");
  REQUIRE(words.ok());
  CHECK(*words == std::vector<std::string>{"a", "bc de \" f", " g", ""});
  CHECK(!split_command("a 'b").ok());
  CHECK(!split_command("  ").ok());
  ConverterLimits limits;
  limits.time_ms = 2000;
  limits.output_bytes = 1000;
  const auto run = [&](const std::string& command, const std::string& path = "/x y;$(id)") {
    auto got = convert_file(command, path, limits);
    return got ? *got : "! " + got.error().message();
  };
  CHECK(run("printf %s {}") == "/x y;$(id)");
  CHECK(run("printf %s") == "/x y;$(id)");                // added at the end
  CHECK(run("printf %s <{}>,{}", "p{}") == "<p{}>,p{}");  // not replaced in what was put in
  CHECK(run("sh -c 'cat; echo done'") == "done\n");       // standard input is empty
  CHECK(run("no-such-command-here") ==
        "! converter \"no-such-command-here\" cannot be started: No such file or directory");
  CHECK(run("sh -c 'echo bad >&2; exit 3'") == "! converter \"sh -c 'echo bad >&2; exit 3'\" ended with status 3: bad");
  CHECK(run("sh -c 'kill -9 $$'").find("was ended by signal 9") != std::string::npos);
  CHECK(run("yes").find("printed more than 1000") != std::string::npos);
  CHECK(run("sh -c 'sleep 60 & sleep 60'").find("took more than 2 s") != std::string::npos);
  CHECK(run("sh -c 'exec >&- 2>&-; sleep 60'").find("was ended by signal 9") != std::string::npos);
}
