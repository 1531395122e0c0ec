// Is this well-formed XML? Enough of it for what we write: elements, attributes, text, the five names of references
// and numbers; no comments, no CDATA. A document type line and XML's own first line may stand in front.
#pragma once

#include <cctype>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace cento::test {

inline size_t count_of(std::string_view text, std::string_view what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, at + what.size())) ++n;
  return n;
}

class XmlChecker {
 public:
  explicit XmlChecker(std::string_view text) : text_(text) {}

  // "" or what is wrong first, and where.
  std::string check() {
    if (!is_valid_utf8(text_)) return "not UTF-8";
    for (const char c : text_) {
      if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' && c != '\r') return "a control character";
    }
    if (text_.starts_with("<!DOCTYPE html>")) at_ = 15;
    while (fault_.empty() && at_ < text_.size()) step();
    if (fault_.empty() && !open_.empty()) fail("not closed: " + open_.back());
    if (fault_.empty() && n_roots_ != 1) fail("not one root");
    return fault_;
  }

 private:
  void fail(const std::string& what) {
    if (fault_.empty()) fault_ = what + " at byte " + std::to_string(at_) + ": " + std::string(text_.substr(at_, 60));
  }
  bool eat(std::string_view what) {
    if (!text_.substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }
  void skip_space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  std::string name() {
    const size_t from = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '-'))
      ++at_;
    if (from == at_ || std::isalpha(static_cast<unsigned char>(text_[from])) == 0) fail("no name");
    return std::string(text_.substr(from, at_ - from));
  }
  void reference() {
    for (const char* known : {"&amp;", "&lt;", "&gt;", "&quot;", "&apos;", "&#39;"}) {
      if (eat(known)) return;
    }
    fail("not a reference");
  }
  void attribute(std::set<std::string>& seen) {
    const std::string attribute_name = name();
    if (!seen.insert(attribute_name).second) fail("attribute twice: " + attribute_name);
    if (!eat("=\"")) return fail("no value");
    const size_t from = at_;
    while (fault_.empty() && at_ < text_.size() && text_[at_] != '"') {
      if (text_[at_] == '<') return fail("< in a value");
      if (text_[at_] == '&') {
        reference();
      } else {
        ++at_;
      }
    }
    if (attribute_name == "id" && !ids_.insert(std::string(text_.substr(from, at_ - from))).second) fail("id twice");
    if (!eat("\"")) fail("value not closed");
  }
  void step() {
    if (text_[at_] == '&') return reference();
    if (text_[at_] != '<') {
      if (open_.empty() && std::isspace(static_cast<unsigned char>(text_[at_])) == 0) fail("text outside");
      if (text_.substr(at_).starts_with("]]>")) fail("]]> in text");
      ++at_;
      return;
    }
    if (eat("</")) {
      const std::string closed = name();
      if (open_.empty() || open_.back() != closed) return fail("closes what is not open: " + closed);
      open_.pop_back();
      if (!eat(">")) fail("end tag not closed");
      return;
    }
    ++at_;
    n_roots_ += open_.empty();
    open_.push_back(name());
    std::set<std::string> seen;
    while (fault_.empty()) {
      const size_t before = at_;
      skip_space();
      if (eat(">")) return;
      if (eat("/>")) return open_.pop_back();
      if (at_ == before || at_ >= text_.size()) return fail("tag not closed");
      attribute(seen);
    }
  }

  std::string_view text_;
  size_t at_ = 0, n_roots_ = 0;
  std::vector<std::string> open_;
  std::set<std::string> ids_;  // unique in a document
  std::string fault_;
};

inline std::string xml_fault(std::string_view text) { return XmlChecker(text).check(); }

}  // namespace cento::test
