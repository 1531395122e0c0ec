#include <algorithm>
#include <array>

#include "base/text.h"
#include "model/jinja_ast.h"

namespace cento::jinja {
namespace {

constexpr size_t kSourceMax = 256 * 1024;  // bytes; the largest template in use has 17 KB
constexpr int kDepthMax = 400;             // nested calls of the parser; a pair of brackets takes nine
constexpr int kHeightMax = 250;            // levels of an expression's tree, which is walked and freed recursively

struct Token {
  enum class Kind {
    kText,
    kVariableBegin,
    kVariableEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kString,
    kInteger,
    kOperator,
    kEnd
  };
  Kind kind;
  std::string text;
};
using TK = Token::Kind;

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_char(char c) { return is_digit(c) || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Cuts the source into text and the tokens inside of tags; applies white space control.
class Lexer {
 public:
  explicit Lexer(std::string_view source) {
    if (source.size() > kSourceMax) throw Failure{"the template is larger than 256 KiB"};
    for (size_t i = 0; i < source.size(); ++i) {  // line ends are made \n
      if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
      source_ += source[i] == '\r' ? '\n' : source[i];
    }
    if (!source_.empty() && source_.back() == '\n') source_.pop_back();  // a last line end is not part of a template
  }

  std::vector<Token> run() {
    while (pos_ < source_.size()) {
      size_t open = source_.find('{', pos_);
      while (open != std::string::npos && std::string_view("{%#").find(at(open + 1)) == std::string::npos)
        open = source_.find('{', open + 1);
      if (open == std::string::npos || open + 1 >= source_.size()) open = source_.size();
      text_before(open);
      if (open == source_.size()) break;
      const char kind = source_[open + 1];
      pos_ = open + 2;
      if (at(pos_) == '-' || at(pos_) == '+') ++pos_;
      if (kind == '#')
        comment();
      else
        tag(kind == '{');
    }
    tokens_.push_back({TK::kEnd, ""});
    return std::move(tokens_);
  }

 private:
  char at(size_t i) const { return i < source_.size() ? source_[i] : '\0'; }

  void text_before(size_t open) {
    std::string_view text = std::string_view(source_).substr(pos_, open - pos_);
    const char sign = at(open + 2);
    if (open < source_.size() && sign == '-') {
      while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
    } else if (open < source_.size() && source_[open + 1] != '{' && sign != '+') {  // lstrip_blocks
      const size_t line = text.rfind('\n') + 1;                                     // 0 if the text has no line end
      const bool whole_line = line > 0 || pos_ == 0 || source_[pos_ - 1] == '\n';
      if (whole_line && std::all_of(text.begin() + static_cast<ptrdiff_t>(line), text.end(), is_space))
        text = text.substr(0, line);
    }
    if (!text.empty()) tokens_.push_back({TK::kText, std::string(text)});
  }

  // Behind the end of a tag: "-" takes all white space, a block or comment one line end (trim_blocks) unless "+".
  void after_tag(char sign, bool variable) {
    if (sign == '-') {
      while (pos_ < source_.size() && is_space(source_[pos_])) ++pos_;
    } else if (!variable && sign != '+' && at(pos_) == '\n') {
      ++pos_;
    }
  }

  void comment() {
    const size_t end = source_.find("#}", pos_);
    if (end == std::string::npos) throw Failure{"a comment does not end"};
    const char sign = end > pos_ ? source_[end - 1] : ' ';
    pos_ = end + 2;
    after_tag(sign, false);
  }

  void tag(bool variable) {
    tokens_.push_back({variable ? TK::kVariableBegin : TK::kBlockBegin, ""});
    int open = 0;  // brackets: "}}" may end two dicts
    for (;;) {
      while (is_space(at(pos_))) ++pos_;
      if (pos_ >= source_.size()) throw Failure{"a tag does not end"};
      const size_t sign = at(pos_) == '-' || at(pos_) == '+' ? 1 : 0;
      if (open == 0 && source_.compare(pos_ + sign, 2, variable ? "}}" : "%}") == 0) {
        const char mark = sign ? at(pos_) : ' ';
        pos_ += sign + 2;
        tokens_.push_back({variable ? TK::kVariableEnd : TK::kBlockEnd, ""});
        after_tag(mark, variable);
        return;
      }
      token(open);
    }
  }

  void token(int& open) {
    const char c = at(pos_);
    if (c == '\'' || c == '"') {
      tokens_.push_back({TK::kString, string_literal(c)});
    } else if (is_digit(c)) {
      std::string digits;
      while (is_digit(at(pos_)) || at(pos_) == '_') {
        if (at(pos_) != '_') digits += at(pos_);
        ++pos_;
      }
      if (at(pos_) == '.' && is_digit(at(pos_ + 1))) throw Failure{"numbers with a point are not supported"};
      if (digits.size() > 15) throw Failure{"a number is too large"};
      tokens_.push_back({TK::kInteger, digits});
    } else if (is_name_char(c)) {
      std::string name;
      while (is_name_char(at(pos_))) name += source_[pos_++];
      tokens_.push_back({TK::kName, name});
    } else {
      tokens_.push_back({TK::kOperator, operator_at()});
      const std::string& op = tokens_.back().text;
      if (op == "(" || op == "[" || op == "{") ++open;
      if ((op == ")" || op == "]" || op == "}") && open > 0) --open;
    }
  }

  std::string operator_at() {
    for (const char* op : {"==", "!=", "<=", ">=", "//", "**"})
      if (source_.compare(pos_, 2, op) == 0) return pos_ += 2, op;
    if (std::string_view("+-*/%~<>=()[]{},.:|").find(at(pos_)) == std::string::npos)
      throw Failure{"unexpected character '" + printable(source_.substr(pos_, 1)) + "' in a tag"};
    return std::string(1, source_[pos_++]);
  }

  std::string string_literal(char quote) {
    std::string text;
    for (++pos_; at(pos_) != quote || pos_ >= source_.size(); ++pos_) {
      if (pos_ >= source_.size()) throw Failure{"a string does not end"};
      if (at(pos_) != '\\') {
        text += source_[pos_];
        continue;
      }
      const char c = at(++pos_);
      const std::string_view plain = "\\'\"ntrbf", meant = "\\'\"\n\t\r\b\f";
      if (const size_t i = plain.find(c); i != std::string_view::npos && c != '\0') {
        text += meant[i];
      } else if (c == 'u' || c == 'x') {
        const size_t n = c == 'u' ? 4 : 2;
        uint32_t code = 0;
        for (size_t k = 1; k <= n; ++k) {
          const size_t digit = std::string_view("0123456789abcdef0123456789ABCDEF").find(at(pos_ + k));
          if (digit == std::string_view::npos || at(pos_ + k) == '\0') throw Failure{"a bad escape in a string"};
          code = code * 16 + static_cast<uint32_t>(digit % 16);
        }
        if (code >= 0xd800 && code <= 0xdfff) throw Failure{"a bad escape in a string"};
        append_utf8(text, code);
        pos_ += n;
      } else if (c != '\n') {  // an escaped line end is nothing; an unknown escape stays as it is
        text += '\\';
        --pos_;
        if (c == '\0') throw Failure{"a string does not end"};
        text += source_[++pos_];
      }
    }
    ++pos_;
    return text;
  }

  std::string source_;
  size_t pos_ = 0;
  std::vector<Token> tokens_;
};

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  NodePtr run() {
    NodePtr root = body({});
    if (now().kind != TK::kEnd) throw Failure{"unexpected tag '" + now().text + "'"};
    return root;
  }

 private:
  struct Deeper {
    explicit Deeper(int& depth) : depth_(depth) {
      if (++depth_ > kDepthMax) throw Failure{"the template is nested too deeply"};
    }
    ~Deeper() { --depth_; }
    int& depth_;
  };

  const Token& now() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  bool is_name(std::string_view name) const { return now().kind == TK::kName && now().text == name; }
  bool is_operator(std::string_view op) const { return now().kind == TK::kOperator && now().text == op; }
  bool take_name(std::string_view name) { return is_name(name) ? (++at_, true) : false; }
  bool take_operator(std::string_view op) { return is_operator(op) ? (++at_, true) : false; }
  void want_operator(std::string_view op) {
    if (!take_operator(op)) throw Failure{"expected '" + std::string(op) + "' before '" + now().text + "'"};
  }
  std::string want_name() {
    if (now().kind != TK::kName) throw Failure{"expected a name before '" + now().text + "'"};
    return tokens_[at_++].text;
  }
  void want(TK kind) {
    if (now().kind != kind) throw Failure{"unexpected '" + now().text + "' in a tag"};
    ++at_;
  }
  static NodePtr make(Node::Kind kind, std::string text = {}) {
    auto node = std::make_unique<Node>();
    node->kind = kind, node->text = std::move(text);
    return node;
  }
  template <class... Kids>
  static NodePtr make_with(Node::Kind kind, std::string text, Kids... kids) {
    NodePtr node = make(kind, std::move(text));
    (node->kids.push_back(std::move(kids)), ...);
    return measured(std::move(node));
  }
  static NodePtr measured(NodePtr node) {
    for (const NodePtr& kid : node->kids)
      if (kid) node->height = std::max(node->height, kid->height + 1);
    if (node->height > kHeightMax) throw Failure{"an expression is nested too deeply"};
    return node;
  }

  // Up to a block whose name is one of `ends`; that block's begin and name are taken.
  NodePtr body(const std::vector<std::string>& ends) {
    const Deeper deeper(depth_);
    NodePtr out = make(Node::Kind::kBody);
    for (;;) {
      if (now().kind == TK::kText) {
        out->kids.push_back(make(Node::Kind::kText, tokens_[at_++].text));
      } else if (now().kind == TK::kVariableBegin) {
        ++at_;
        out->kids.push_back(make_with(Node::Kind::kPrint, "", expression()));
        want(TK::kVariableEnd);
      } else if (now().kind == TK::kBlockBegin) {
        ++at_;
        const std::string name = want_name();
        if (std::find(ends.begin(), ends.end(), name) != ends.end()) {
          end_name_ = name;
          return out;
        }
        out->kids.push_back(statement(name));
      } else if (now().kind == TK::kEnd && ends.empty()) {
        return out;
      } else {
        throw Failure{"a block does not end"};
      }
    }
  }

  NodePtr statement(const std::string& name) {
    if (name == "if") return if_statement();
    if (name == "for") return for_statement();
    if (name == "set") return set_statement();
    if (name == "macro") return macro_statement();
    if (name == "break" || name == "continue") {
      want(TK::kBlockEnd);
      return make(name == "break" ? Node::Kind::kBreak : Node::Kind::kContinue);
    }
    if (name == "generation") {  // marks what a model is trained on; nothing to print
      want(TK::kBlockEnd);
      NodePtr inner = body({"endgeneration"});
      want(TK::kBlockEnd);
      return inner;
    }
    throw Failure{"the tag '" + name + "' is not supported"};
  }

  NodePtr if_statement() {
    NodePtr node = make(Node::Kind::kIf);
    for (;;) {
      node->kids.push_back(expression());
      want(TK::kBlockEnd);
      node->kids.push_back(body({"elif", "else", "endif"}));
      if (end_name_ == "elif") continue;
      if (end_name_ == "else") {
        want(TK::kBlockEnd);
        node->kids.push_back(body({"endif"}));
      }
      want(TK::kBlockEnd);
      return node;
    }
  }

  std::vector<std::string> targets() {
    std::vector<std::string> names;
    const bool brackets = take_operator("(");
    do names.push_back(want_name());
    while (take_operator(","));
    if (brackets) want_operator(")");
    return names;
  }

  NodePtr for_statement() {
    NodePtr node = make(Node::Kind::kFor);
    node->names = targets();
    if (!take_name("in")) throw Failure{"a loop has no 'in'"};
    node->kids.resize(4);
    node->kids[0] = expression(false);
    if (take_name("if")) node->kids[2] = expression();
    want(TK::kBlockEnd);
    node->kids[1] = body({"else", "endfor"});
    if (end_name_ == "else") {
      want(TK::kBlockEnd);
      node->kids[3] = body({"endfor"});
    }
    want(TK::kBlockEnd);
    return node;
  }

  NodePtr set_statement() {
    NodePtr node = make(Node::Kind::kSet);
    node->names = targets();
    if (node->names.size() == 1 && take_operator(".")) node->text = want_name();
    if (take_operator("=")) {
      node->kids.push_back(expression_or_tuple());
    } else {
      node->kind = Node::Kind::kSetBlock;
      want(TK::kBlockEnd);
      node->kids.push_back(body({"endset"}));
    }
    want(TK::kBlockEnd);
    return node;
  }

  NodePtr macro_statement() {
    NodePtr node = make(Node::Kind::kMacro, want_name());
    want_operator("(");
    std::vector<NodePtr> defaults;
    while (!take_operator(")")) {
      node->names.push_back(want_name());
      defaults.push_back(take_operator("=") ? expression() : nullptr);
      if (!is_operator(")")) want_operator(",");
    }
    want(TK::kBlockEnd);
    node->kids.push_back(body({"endmacro"}));
    want(TK::kBlockEnd);
    for (NodePtr& value : defaults) node->kids.push_back(std::move(value));
    return node;
  }

  NodePtr expression_or_tuple() {
    NodePtr first = expression();
    if (!is_operator(",")) return first;
    NodePtr list = make_with(Node::Kind::kList, "", std::move(first));
    while (take_operator(",")) list->kids.push_back(expression());
    return measured(std::move(list));
  }

  NodePtr expression(bool with_condition = true) {
    const Deeper deeper(depth_);
    NodePtr left = binary(0);
    while (with_condition && take_name("if")) {
      NodePtr condition = binary(0);
      NodePtr other = take_name("else") ? expression() : nullptr;
      left = make_with(Node::Kind::kCondition, "", std::move(left), std::move(condition), std::move(other));
    }
    return left;
  }

  // Operators by binding, weakest first; "not" stands between "and" and the comparisons.
  NodePtr binary(size_t level) {
    static const std::vector<std::vector<std::string>> levels = {{"or"},
                                                                 {"and"},
                                                                 {"not"},
                                                                 {"==", "!=", "<", ">", "<=", ">=", "in", "not in"},
                                                                 {"+", "-"},
                                                                 {"~"},
                                                                 {"*", "/", "//", "%"}};
    if (level == levels.size()) return unary();
    const Deeper deeper(depth_);
    if (levels[level][0] == "not") {
      if (!take_name("not")) return binary(level + 1);
      return make_with(Node::Kind::kNot, "", binary(level));
    }
    NodePtr left = binary(level + 1);
    for (;;) {
      std::string op;
      for (const std::string& candidate : levels[level]) {
        const bool here = candidate == "not in"
                              ? is_name("not") && ahead().kind == TK::kName && ahead().text == "in"
                              : (now().kind == TK::kName || now().kind == TK::kOperator) && now().text == candidate;
        if (here) op = candidate;
      }
      if (op.empty()) return left;
      at_ += op == "not in" ? 2 : 1;
      left = make_with(Node::Kind::kBinary, op, std::move(left), binary(level + 1));
    }
  }

  NodePtr unary() {
    const Deeper deeper(depth_);
    if (take_operator("-")) return make_with(Node::Kind::kNegate, "", unary());
    if (take_operator("+")) return unary();
    NodePtr node = primary();
    for (;;) {
      if (take_operator(".")) {
        node = make_with(Node::Kind::kAttribute, want_name(), std::move(node));
      } else if (take_operator("[")) {
        node = subscript(std::move(node));
      } else if (take_operator("(")) {
        node = make_with(Node::Kind::kCall, "", std::move(node));
        arguments(*node);
        node = measured(std::move(node));
      } else if (take_operator("|")) {
        node = make_with(Node::Kind::kFilter, want_name(), std::move(node));
        node->names.emplace_back();
        if (take_operator("(")) arguments(*node);
        node = measured(std::move(node));
      } else if (take_name("is")) {
        node = test(std::move(node));
      } else {
        return node;
      }
    }
  }

  NodePtr subscript(NodePtr object) {
    std::array<NodePtr, 3> parts;
    size_t n = 0;
    bool slice = false;
    while (!is_operator("]")) {
      if (take_operator(":")) {
        slice = true;
        if (++n > 2) throw Failure{"a bad slice"};
      } else {
        if (parts[n]) throw Failure{"a bad index"};
        parts[n] = expression();
      }
    }
    want_operator("]");
    if (slice)
      return make_with(Node::Kind::kSlice, "", std::move(object), std::move(parts[0]), std::move(parts[1]),
                       std::move(parts[2]));
    if (!parts[0]) throw Failure{"an empty index"};
    return make_with(Node::Kind::kItem, "", std::move(object), std::move(parts[0]));
  }

  // Behind "("; appends values and their keywords to the node, whose kids[0] is the callee or the filtered value.
  void arguments(Node& node) {
    node.names.assign(1, "");
    while (!take_operator(")")) {
      std::string keyword;
      if (now().kind == TK::kName && ahead().kind == TK::kOperator && ahead().text == "=") {
        keyword = want_name();
        ++at_;
      }
      node.names.push_back(keyword);
      node.kids.push_back(expression());
      if (!is_operator(")")) want_operator(",");
    }
  }

  NodePtr test(NodePtr value) {
    const bool negated = take_name("not");
    NodePtr node = make_with(Node::Kind::kTest, want_name(), std::move(value));
    if (take_operator("(")) {
      arguments(*node);
    } else if (now().kind == TK::kString || now().kind == TK::kInteger ||
               (now().kind == TK::kName && !is_name("and") && !is_name("or") && !is_name("else") && !is_name("is") &&
                !is_name("if") && !is_name("not") && !is_name("in"))) {
      node->kids.push_back(primary());
    }
    node = measured(std::move(node));
    return negated ? make_with(Node::Kind::kNot, "", std::move(node)) : std::move(node);
  }

  NodePtr primary() {
    const Token token = now();
    if (token.kind == TK::kString) {
      NodePtr node = make(Node::Kind::kLiteral);
      while (now().kind == TK::kString) node->text += tokens_[at_++].text;
      return node;
    }
    if (token.kind == TK::kInteger) {
      NodePtr node = make(Node::Kind::kInteger);
      for (const char c : token.text) node->number = node->number * 10 + (c - '0');
      ++at_;
      return node;
    }
    if (token.kind == TK::kName) return ++at_, make(Node::Kind::kName, token.text);
    if (take_operator("(")) {
      NodePtr inner = is_operator(")") ? make(Node::Kind::kList) : expression_or_tuple();
      want_operator(")");
      return inner;
    }
    if (take_operator("[")) {
      NodePtr list = make(Node::Kind::kList);
      while (!take_operator("]")) {
        list->kids.push_back(expression());
        if (!is_operator("]")) want_operator(",");
      }
      return measured(std::move(list));
    }
    if (take_operator("{")) {
      NodePtr dict = make(Node::Kind::kDict);
      while (!take_operator("}")) {
        dict->kids.push_back(expression());
        want_operator(":");
        dict->kids.push_back(expression());
        if (!is_operator("}")) want_operator(",");
      }
      return measured(std::move(dict));
    }
    throw Failure{"unexpected '" + token.text + "' in an expression"};
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  std::string end_name_;  // of the block that ended the last body
};

}  // namespace

NodePtr parse_template(std::string_view source) { return Parser(Lexer(source).run()).run(); }

}  // namespace cento::jinja
