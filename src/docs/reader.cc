#include "docs/reader.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/text.h"
#include "docs/encoding.h"

namespace cento {
namespace {

bool one_of(std::string_view word, std::string_view list) {  // `list` has a space before and after each word
  return list.find(" " + std::string(word) + " ") != std::string_view::npos;
}

constexpr std::string_view kMarkdown = " md markdown mdown mkd mkdn mdx qmd rmd ";
constexpr std::string_view kRst = " rst rest ";
constexpr std::string_view kHtml = " html htm xhtml xht shtml ";
constexpr std::string_view kCsv = " csv tsv tab ";
constexpr std::string_view kCode =
    " c cc cpp cxx c++ h hh hpp hxx inl ipp cu cuh m mm py pyi pyx rb rs go js mjs cjs jsx ts tsx java kt kts scala "
    "groovy "
    "gradle swift cs fs vb php pl pm lua r jl hs lhs ml mli clj cljs ex exs erl hrl elm nim zig d v sv vhd vhdl sh "
    "bash zsh "
    "fish ksh csh ps1 psm1 bat cmd awk sed sql patch diff json json5 jsonl ndjson jsonc yaml yml toml ini cfg conf "
    "config "
    "properties env log css scss sass less vue svelte xml xsd xsl xslt svg proto thrift graphql gql cmake mk mak make "
    "tf hcl "
    "dockerfile srt vtt sub asm s lisp el scm rkt vim tcl f f90 f95 for pas ada adb ads cob bib lock gitignore ";
constexpr std::string_view kCodeNames =
    " makefile gnumakefile dockerfile cmakelists.txt rakefile gemfile vagrantfile jenkinsfile ";
constexpr std::string_view kNoReader =
    " pdf docx docm dotx doc odt ott fodt rtf epub mobi azw azw3 pptx pptm ppt odp xlsx xlsm xls ods pages numbers key "
    "djvu "
    "ps eps chm msg eml mht mhtml wpd lit fb2 xps ";

}  // namespace

FormatOfName format_of_name(std::string_view path) {
  const size_t slash = path.rfind('/');
  const std::string name = to_lower_ascii(slash == std::string_view::npos ? path : path.substr(slash + 1));
  const size_t dot = name.rfind('.');
  const std::string ext = dot == std::string::npos || dot == 0 ? "" : name.substr(dot + 1);
  if (ext.find(' ') != std::string::npos) return {"text", ext};
  if (one_of(name, kCodeNames)) return {"code", ext};
  if (ext.empty()) return {"text", ext};
  if (one_of(ext, kMarkdown)) return {"markdown", ext};
  if (one_of(ext, kRst)) return {"rst", ext};
  if (one_of(ext, kHtml)) return {"html", ext};
  if (ext == "ipynb") return {"notebook", ext};
  if (one_of(ext, kCsv)) return {"csv", ext};
  if (one_of(ext, kCode)) return {"code", ext};
  if (one_of(ext, kNoReader)) return {"", ext};
  return {"text", ext};
}

std::string format_of_converted(std::string_view text) {
  const std::string start = to_lower_ascii(trim(text.substr(0, 1024)));
  if (start.rfind("<!doctype html", 0) == 0 || start.rfind("<html", 0) == 0) return "html";
  size_t n = 0;
  for (const std::string_view line : lines_of(text.substr(0, 64 << 10))) {
    const size_t marks = line.find_first_not_of('#');
    if (marks != std::string_view::npos && marks >= 1 && marks <= 6 && line[marks] == ' ') return "markdown";
    if (++n == 400) break;
  }
  return "text";
}

Result<Document> read_document(std::string_view bytes, const std::string& format) {
  if (bytes.empty()) return Error{Code::kInput, "empty file"};
  Result<DecodedText> decoded = decode_text(bytes);
  if (!decoded) return decoded.error();
  const std::string text = without_data_urls(std::move(decoded->text));
  Document document = format == "markdown"                           ? read_markdown(text)
                      : format == "rst"                              ? read_rst(text)
                      : format == "html"                             ? read_html(text)
                      : format == "notebook"                         ? read_notebook(text)
                      : format == "csv"                              ? read_csv(text)
                      : format == "code" || text.rfind("#!", 0) == 0 ? read_code(text)
                                                                     : read_plain(text);
  const bool has_text = !document.title.empty() || std::any_of(document.blocks.begin(), document.blocks.end(),
                                                               [](const Block& b) { return !is_blank(b.text); });
  if (!has_text) return Error{Code::kInput, "no text in it"};
  return document;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return lines;
}

size_t indent_of(std::string_view line) {
  size_t column = 0;
  for (const char c : line) {
    if (c == ' ') {
      ++column;
    } else if (c == '\t') {
      column += 8 - column % 8;
    } else {
      break;
    }
  }
  return column;
}

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\n\r") == std::string_view::npos; }

std::string plain_heading(std::string_view text) {
  std::string s(trim(text));
  // A trailing {#anchor}, as several site generators write it.
  if (!s.empty() && s.back() == '}') {
    const size_t open = s.rfind("{#");
    if (open != std::string::npos && open > 0) s.resize(open);
  }
  std::string out;
  for (size_t i = 0; i < s.size(); ++i) {
    const char c = s[i];
    if (c == '`' || c == '*') continue;
    if (c == '\\' && i + 1 < s.size() && std::strchr("\\`*_{}[]()#+-.!<>|~&\"'", s[i + 1]) != nullptr) {
      out += s[++i];
      continue;
    }
    if (c == '!' && i + 1 < s.size() && s[i + 1] == '[') continue;
    if (c == '[') continue;
    if (c == ']') {
      if (i + 1 < s.size() && s[i + 1] == '(') {
        const size_t close = s.find(')', i);
        if (close != std::string::npos) i = close;
      }
      continue;
    }
    const bool space = c == ' ' || c == '\t' || c == '\n';
    if (space && (out.empty() || out.back() == ' ')) continue;
    out += space ? ' ' : c;
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

}  // namespace cento
