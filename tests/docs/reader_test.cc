#include "docs/reader.h"

#include <catch2/catch.hpp>

#include "base/text.h"

using namespace cento;

namespace {

// "H1 Title @1-1 | P text @3-3 | ...": kind, text with line ends as "/", lines.
std::string shape(const Document& document) {
  std::string out;
  for (const Block& b : document.blocks) {
    if (!out.empty()) out += " | ";
    switch (b.kind) {
      case BlockKind::kHeading:
        out += "H" + std::to_string(b.level);
        break;
      case BlockKind::kParagraph:
        out += "P";
        break;
      case BlockKind::kListItem:
        out += "L";
        break;
      case BlockKind::kCode:
        out += "C";
        break;
      case BlockKind::kTableRow:
        out += "R";
        break;
    }
    std::string text = b.text;
    for (char& c : text) c = c == '\n' ? '/' : c;
    out += " " + text + " @" + std::to_string(b.line_from) + "-" + std::to_string(b.line_to);
  }
  return out;
}

struct Row {
  const char* what;
  std::string text, title, shape;
};

}  // namespace

TEST_CASE("reader: Markdown gives headings, paragraphs, items, code and rows with their lines", "[docs]") {
  const Row rows[] = {
      {"nothing", "", "", ""},
      {"title and paragraph", "# Leave\n\nFive days\nmay be kept.\n", "Leave",
       "H1 Leave @1-1 | P Five days/may be kept. @3-4"},
      {"front matter", "---\ntitle: \"Zoo: x\"\ntags: [a]\n---\n\nText\n", "Zoo: x", "P Text @6-6"},
      {"front matter of TOML", "+++\ntitle = 'T'\n+++\nText", "T", "P Text @4-4"},
      {"front matter description", "---\ntitle: T\ndescription: What it is\n---\n# H\n", "T",
       "P What it is @3-3 | H1 H @5-5"},
      {"a rule is no front matter", "---\n\ntext\n", "", "P text @3-3"},
      {"setext", "Top\n===\n\nSub\n---\ntext\n", "Top", "H1 Top @1-2 | H2 Sub @4-5 | P text @6-6"},
      {"closing marks and anchors", "## Two ##\n### Three {#three}\n#No\n", "",
       "H2 Two @1-1 | H3 Three @2-2 | P #No @3-3"},
      {"markup in a heading", "# The `leave` **rule** [here](x.md)\n", "The leave rule here",
       "H1 The leave rule here @1-1"},
      {"no heading inside code", "```sh\n# not a heading\n```\nafter\n", "",
       "C ```sh/# not a heading/``` @1-3 | P after @4-4"},
      {"nested fences", "~~~\n``` inner\n# x\n~~~\nt", "", "C ~~~/``` inner/# x/~~~ @1-4 | P t @5-5"},
      {"a longer fence closes", "````\n```\n````\nt", "", "C ````/```/```` @1-3 | P t @4-4"},
      {"unclosed fence", "a\n\n```\ncode\n# code", "", "P a @1-1 | C ```/code/# code @3-5"},
      {"indented code", "a\n\n    # x\n\n    y\n\nb", "", "P a @1-1 | C     # x//    y @3-5 | P b @7-7"},
      {"list", "* a\n    * b\n        1. c\n- d\n  goes on\n", "",
       "L * a @1-1 | L     * b @2-2 | L         1. c @3-3 | L - d/  goes on @4-5"},
      {"fence in a list", "1. a\n\n    ```\n    # x\n    ```\n", "", "L 1. a @1-1 | C     ```/    # x/    ``` @3-5"},
      {"table", "| a | b |\n|---|:-:|\n| 1 | 2 |\n| 3 | 4 |\nafter", "",
       "R | 1 | 2 | @1-3 | R | 3 | 4 | @4-4 | P after @5-5"},
      {"header row alone", "a | b\n--|--\n\nt", "", "C a | b/--|-- @1-2 | P t @4-4"},
      {"pipes without a rule", "a | b\nc | d\n", "", "P a | b/c | d @1-2"},
      {"link definitions go, footnotes stay", "x\n\n[ref]: http://e.org \"T\"\n[^1]: note\n", "",
       "P x @1-1 | P [^1]: note @4-4"},
      {"comments go", "a\n\n<!-- x\ny -->\nb <!-- c\n", "", "P a @1-1 | P b <!-- c @5-5"},
      {"rule between paragraphs", "a\n\n---\n\nb\n\n* * *\nc", "", "P a @1-1 | P b @5-5 | P c @8-8"},
      {"quote", "> quote\n> more\n---\n", "", "P > quote/> more @1-2"},
      {"only a heading mark", "#\n##\ntext", "", "P text @3-3"},
  };
  for (const Row& row : rows) {
    INFO(row.what);
    const Document got = read_markdown(row.text);
    CHECK(got.title == row.title);
    CHECK(shape(got) == row.shape);
  }
  CHECK(read_markdown("| a |\n|---|\n| 1 |\n").tables.at(0).head == "| a |\n|---|");
}

TEST_CASE("reader: reStructuredText gives sections, definitions, directives' text and tables", "[docs]") {
  const Row rows[] = {
      {"nothing", "", "", ""},
      {"sections in the order of their marks", "Title\n=====\n\ntext\n\nSub\n---\n\nmore\n\nNext\n====\n", "Title",
       "H1 Title @1-2 | P text @4-4 | H2 Sub @6-7 | P more @9-9 | H1 Next @11-12"},
      {"overline", "=====\nTitle\n=====\n\nSub\n====\nx", "Title", "H1 Title @1-3 | H2 Sub @5-6 | P x @7-7"},
      {"a note", ".. note:: Mind the tide\n   and the wind\n\nafter\n", "",
       "P note: Mind the tide/and the wind @1-2 | P after @4-4"},
      {"a note with its text below", ".. warning::\n\n   Do not.\n", "", "P warning @1-1 | P Do not. @3-3"},
      {"code directive", "See:\n\n.. code-block:: python\n   :linenos:\n\n   def f():\n       return 1\n\nb", "",
       "P See: @1-1 | C def f():/    return 1 @6-7 | P b @9-9"},
      {"literal block", "Like this::\n\n    a = 1\n\n    b\n\nend", "",
       "P Like this:: @1-1 | C a = 1//b @3-5 | P end @7-7"},
      {"comment and target", ".. a comment\n   goes on\n\n.. _name: x\n\ntext", "", "P text @6-6"},
      {"toctree", "T\n=\n\nT\n==\n\n.. toctree::\n   :maxdepth: 2\n\n   a\n   b\n\nx", "",
       "P T/= @1-2 | P T/== @4-5 | P x @13-13"},
      {"definition", "Top\n===\n\n.. py:data:: SECRET\n\n   Default: ``None``\n\nback\n", "Top",
       "H1 Top @1-2 | H2 SECRET @4-4 | P Default: ``None`` @6-6 | H2  @8-8 | P back @8-8"},
      {"simple table", "=====  =====\nA      B\n=====  =====\n1      2\n3      4\n=====  =====\n\nx", "",
       "R 1      2 @1-4 | R 3      4 @5-5 | P x @8-8"},
      {"grid table", "+---+---+\n| A | B |\n+===+===+\n| 1 | 2 |\n+---+---+\n", "", "R | 1 | 2 | @1-4"},
      {"list", "- a\n  more\n- b\n\n#. c\n", "", "L - a/  more @1-2 | L - b @3-3 | L #. c @5-5"},
      {"docinfo and transition", ":orphan:\n\ntext\n\n----\n\nmore", "", "P text @3-3 | P more @7-7"},
      {"footnote", ".. [1] The note\n", "", "P .. [1] The note @1-1"},
      {"substitution", ".. |x| replace:: y\n\nz", "", "P z @3-3"},
  };
  for (const Row& row : rows) {
    INFO(row.what);
    const Document got = read_rst(row.text);
    CHECK(got.title == row.title);
    CHECK(shape(got) == row.shape);
  }
  CHECK(read_rst("====  ====\nA     B\n====  ====\n1     2\n====  ====\n").tables.at(0).head == "A     B");
}

TEST_CASE("reader: HTML gives what a reader of the page sees", "[docs]") {
  const Row rows[] = {
      {"nothing", "", "", ""},
      {"title, heading, paragraph",
       "<!DOCTYPE html>\n<title>Tides · Site</title>\n<h1>Tides</h1>\n<p>High\nwater <b>now</b>.", "Tides",
       "H1 Tides @3-3 | P High water now. @4-5"},
      {"scripts, styles, comments, templates, attributes",
       "<body onload=\"x('secret')\"><script>a<b</script><style>b{}</style><!-- c -->"
       "<template>tpl</template><noscript>no</noscript><p title=secret>text<img alt=secret>",
       "", "P text @1-1"},
      {"navigation",
       "<nav><a>Home</a></nav><div role=navigation>menu</div><p hidden>h</p><p aria-hidden=true>i</p><main>text</main>",
       "", "P text @1-1"},
      {"a page of nothing but navigation", "<nav><a>Home</a></nav>", "", "P Home @1-1"},
      {"entities", "<p>Caf&eacute; &amp; &lt;tag&gt;&nbsp;x &#x202e;y", "", "P Caf\u00e9 & <tag> x y @1-1"},
      {"list", "<ul>\n<li>a</li>\n<li><p>b</p></li>\n<li>\n</ul>", "", "L - a @2-2 | L - b @3-3"},
      {"pre", "<pre>  keep\n   this</pre><p>x", "", "C   keep/   this @1-2 | P x @2-2"},
      {"table of data", "<table>\n<tr><th>A<th>B</tr>\n<tr><td>1<td>2</tr>\n<tr><td>3<td><b>4</b></tr></table>", "",
       "R 1 | 2 @2-3 | R 3 | 4 @4-4"},
      {"table without a header", "<table><tr><td>1<td>2</table>", "", "R 1 | 2 @1-1"},
      {"header row alone", "<table><tr><th>1<th>2</table>", "", "R 1 | 2 @1-1"},
      {"table for the layout", "<table><tr><td><h2>H</h2><p>text</td></tr></table>", "H", "H2 H @1-1 | P text @1-1"},
      {"line break", "<p>a<br>b", "", "P a/b @1-1"},
      {"script never closed", "<p>text<script>secret", "", "P text @1-1"},
      {"no tags at all", "just text", "", "P just text @1-1"},
      {"heading with an anchor sign", "<h2>Leave<a href=#x>\u00b6</a></h2><p>t", "Leave", "H2 Leave @1-1 | P t @1-1"},
      {"inline svg", "<p>a<svg><title>icon</title><text>svg</text></svg>b", "", "P ab @1-1"},
  };
  for (const Row& row : rows) {
    INFO(row.what);
    const Document got = read_html(row.text);
    CHECK(got.title == row.title);
    CHECK(shape(got) == row.shape);
  }
  CHECK(read_html("<table><tr><th>A<th>B</tr><tr><td>1<td>2</table>").tables.at(0).head == "A | B");
}

TEST_CASE("reader: HTML that is nested absurdly deep, or misnested, neither overflows nor explodes", "[docs]") {
  const auto repeat = [](const std::string& s, size_t n) {
    std::string out;
    for (size_t i = 0; i < n; ++i) out += s;
    return out;
  };
  std::string fonts;
  for (int i = 0; i < 390; ++i) fonts += "<font size=" + std::to_string(i) + ">";
  const std::string pages[] = {
      repeat("<div>", 20000) + "needle" + repeat("</div>", 20000),
      repeat("<div>", 200000) + "needle",
      repeat("<b><i>", 5000) + "needle",
      repeat("<p>", 20000) + "needle",
      repeat("<table><tr><td>", 3000) + "needle",
      repeat("<ul><li>", 3000) + "needle",
      fonts + repeat("<p>x", 20000) + "needle",
      repeat("<svg>", 10000) + "<p>needle",
      repeat("<select>", 10000) + "</select><p>needle",
  };
  for (const std::string& page : pages) {
    INFO(page.substr(0, 40));
    const Document got = read_html(page);
    std::string all;
    for (const Block& block : got.blocks) all += block.text + "\n";
    CHECK(all.find("needle") != std::string::npos);
    CHECK(all.find('<') == std::string::npos);
  }
  // The stripper drops what gumbo would.
  const Document stripped = read_html(
      repeat("<div>", 500) +
      "<title>T</title><script>secret</script><!-- secret --><p a=\"secret>\">x &amp; y&#233;</p><style>secret");
  CHECK(stripped.title == "T");
  CHECK(shape(stripped) == "P x & y\u00e9 @1-1");
}

TEST_CASE("reader: plain text, code and separated values keep their structure", "[docs]") {
  CHECK(shape(read_plain("Kitchen rota\n\nMonday is mine.\nTuesday too.\n")) ==
        "H1 Kitchen rota @1-1 | P Monday is mine./Tuesday too. @3-4");
  CHECK(read_plain("Kitchen rota\n\nMonday is mine.\n").title == "Kitchen rota");
  CHECK(read_plain("A sentence.\n\nMore.\n").title.empty());
  CHECK(shape(read_plain("Top\n===\ntext\nSub\n---\nmore")) == "H1 Top @1-2 | P text @3-3 | H2 Sub @4-5 | P more @6-6");
  CHECK(shape(read_plain("a\n---------------------------------\nb")) == "P a/---------------------------------/b @1-3");
  CHECK(shape(read_code("a\n  b\n\n\nc\n")) == "C a/  b @1-2 | C c @5-5");
  CHECK(shape(read_csv("name,x\n\"a\nb\",1\nc,2\n")) == "R \"a/b\",1 @1-3 | R c,2 @4-4");
  CHECK(read_csv("name,x\nc,2\n").tables.at(0).head == "name,x");
  CHECK(shape(read_csv("1,2\n3,4\n")) == "R 1,2 @1-1 | R 3,4 @2-2");
  CHECK(shape(read_csv("a,b\n")) == "R a,b @1-1");
  CHECK(shape(read_csv("a,b\n\"open,1\nc,2\n")) == "R \"open,1 @1-2 | R c,2 @3-3");
}

TEST_CASE("reader: a notebook gives its cells and text outputs, not its pictures", "[docs]") {
  const Document got = read_notebook(R"json({"cells":[{"cell_type":"markdown","source":["# Tide\n","Word\n"]},
    {"cell_type":"code","source":"print(1)","outputs":[{"text":["hi\n"]},{"data":{"image/png":"AAAA","text/plain":["<Figure>"]}}]},
    {"source":3},7,{"cell_type":"raw"}],"nbformat":4})json");
  CHECK(got.title == "Tide");
  CHECK(shape(got) == "H1 Tide @1-3 | P Word @1-3 | C print(1) @1-3 | C hi @1-3 | C <Figure> @1-3");
  CHECK(shape(read_notebook("{\"cells\": [")) == "C {\"cells\": [ @1-1");
  CHECK(shape(read_notebook("[1]")) == "C [1] @1-1");
  CHECK(read_notebook("{\"cells\":{}}").blocks.empty());
}

TEST_CASE("reader: the name says which reader, in any case", "[docs]") {
  const std::pair<const char*, const char*> rows[] = {{"a.md", "markdown"},
                                                      {"A.MD", "markdown"},
                                                      {"x/b.MarkDown", "markdown"},
                                                      {"a.rst", "rst"},
                                                      {"a.HTM", "html"},
                                                      {"a.ipynb", "notebook"},
                                                      {"a.csv", "csv"},
                                                      {"a.py", "code"},
                                                      {"dir.md/Makefile", "code"},
                                                      {"CMakeLists.txt", "code"},
                                                      {"README", "text"},
                                                      {"a.txt", "text"},
                                                      {"a.unknown", "text"},
                                                      {".md", "text"},
                                                      {"a.", "text"},
                                                      {"", "text"},
                                                      {"a. md", "text"},
                                                      {"NOTES.PDF", ""},
                                                      {"a.docx", ""},
                                                      {"a.odt", ""}};
  for (const auto& [name, format] : rows) {
    INFO(name);
    CHECK(format_of_name(name).format == format);
  }
  CHECK(format_of_name("NOTES.PDF").extension == "pdf");
  CHECK(format_of_converted("<!DOCTYPE html><p>x") == "html");
  CHECK(format_of_converted("x\n## Heading\ny") == "markdown");
  CHECK(format_of_converted("#no\nplain") == "text");
}

TEST_CASE("reader: a file without text is refused with the reason", "[docs]") {
  const std::pair<std::string, std::string> rows[] = {
      {"", "empty file"}, {" \n\t\n", "no text in it"}, {"%PDF-1.4", "a PDF document"}};
  for (const auto& [bytes, reason] : rows) {
    const auto got = read_document(bytes, "markdown");
    REQUIRE(!got.ok());
    CHECK(got.error().message() == reason);
  }
  CHECK(read_document("#!/bin/sh\n# x\n", "text")->format == "code");
  CHECK(read_document("<script>x</script>", "html").ok() == false);
}
