// Patterns as in .gitignore (git 2.x, gitignore(5)): negation, anchoring, **, classes, trailing slash.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cento {

// The patterns of one file or list. Paths are relative to the folder the list belongs to, with '/', without a leading
// one.
class IgnoreList {
 public:
  IgnoreList() = default;
  explicit IgnoreList(std::string_view file_text);  // lines; blank ones and # comments are no patterns
  void add(std::string_view line);
  bool empty() const { return patterns_.empty(); }

  // What the last matching pattern says: true ignored, false taken back in by "!", nullopt no pattern matches. Only the
  // path itself is looked at: a walk does not enter an ignored folder in the first place.
  std::optional<bool> match(std::string_view path, bool is_folder) const;

  // Whether the path or one of the folders above it matches; for include and exclude globs.
  bool covers(std::string_view path) const;

 private:
  struct Token {
    enum Kind : uint8_t { kChar, kAny, kStar, kStarStar, kSet } kind;
    char c = 0;
    uint32_t set = 0;  // index into sets_
  };
  struct Pattern {
    std::vector<Token> tokens;
    std::string literal;  // the whole pattern if it has no wildcard
    bool negated = false, folders_only = false, anchored = false, is_literal = true;
  };
  struct Set {
    uint64_t bits[4] = {0, 0, 0, 0};
  };

  bool compile(std::string_view text, Pattern& pattern);
  bool matches(const Pattern& pattern, std::string_view path, std::string_view name) const;
  bool run(const std::vector<Token>& tokens, std::string_view text) const;

  std::vector<Pattern> patterns_;
  std::vector<Set> sets_;
};

}  // namespace cento
