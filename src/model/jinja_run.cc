#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <utility>

#include "base/text.h"
#include "model/jinja.h"
#include "model/jinja_ast.h"

namespace cento {
namespace jinja {
namespace {

constexpr int kStepsMax = 200'000;              // nodes evaluated; the largest template in use takes 2,000
constexpr int kDepthMax = 400;                  // nested calls of the interpreter, macros included
constexpr size_t kBytesMax = 64 * 1024 * 1024;  // of all values ever made
constexpr size_t kNamespacesMax = 64;           // these can be changed, so values inside of values without end
constexpr int kNestingMax = 32;                 // lists inside of lists
constexpr size_t kTextMax = 1024 * 1024;        // bytes of any text
constexpr size_t kListMax = 10'000;

struct Value;
using List = std::vector<Value>;
using Dict = std::vector<std::pair<std::string, Value>>;  // in order of insertion

struct Value {
  enum class Kind { kUndefined, kNone, kBool, kInteger, kText, kList, kDict, kMacro };
  Kind kind = Kind::kUndefined;
  int64_t number = 0;  // also of a bool
  std::string text;    // of kUndefined: the name that is not defined
  std::shared_ptr<List> list;
  std::shared_ptr<Dict> dict;
  const Node* macro = nullptr;
  int nesting = 0;  // of lists and dicts

  static Value none() { return of(Kind::kNone); }
  static Value boolean(bool b) { return of(Kind::kBool, b); }
  static Value integer(int64_t i) { return of(Kind::kInteger, i); }
  static Value string(std::string s) {
    if (s.size() > kTextMax) throw Failure{"a text grows too large"};
    Value v = of(Kind::kText);
    v.text = std::move(s);
    return v;
  }
  static Value of_list(List items) {
    if (items.size() > kListMax) throw Failure{"a list grows too large"};
    Value v = of(Kind::kList);
    for (const Value& item : items) v.contain(item);
    v.list = std::make_shared<List>(std::move(items));
    return v;
  }
  static Value of_dict(Dict items) {
    if (items.size() > kListMax) throw Failure{"a dict grows too large"};
    Value v = of(Kind::kDict);
    for (const auto& item : items) v.contain(item.second);
    v.dict = std::make_shared<Dict>(std::move(items));
    return v;
  }
  static Value of(Kind kind, int64_t number = 0) {
    Value v;
    v.kind = kind, v.number = number;
    return v;
  }
  void contain(const Value& other) {
    nesting = std::max(nesting, other.nesting + 1);
    if (nesting > kNestingMax) throw Failure{"values are nested too deeply"};
  }
  size_t bytes() const {
    return text.size() + sizeof(Value) * (1 + (list ? list->size() : 0) + (dict ? dict->size() : 0));
  }
  bool is(Kind k) const { return kind == k; }
  bool is_number() const { return kind == Kind::kBool || kind == Kind::kInteger; }
};
using VK = Value::Kind;

bool truth(const Value& v) {
  switch (v.kind) {
    case VK::kUndefined:
    case VK::kNone:
      return false;
    case VK::kBool:
    case VK::kInteger:
      return v.number != 0;
    case VK::kText:
      return !v.text.empty();
    case VK::kList:
      return !v.list->empty();
    case VK::kDict:
      return !v.dict->empty();
    case VK::kMacro:
      return true;
  }
  return false;
}

const Value* member(const Value& v, std::string_view key) {
  if (v.is(VK::kDict))
    for (const auto& [name, value] : *v.dict)
      if (name == key) return &value;
  return nullptr;
}

bool equal(const Value& a, const Value& b, int depth = 0) {
  if (depth > 20) throw Failure{"values are nested too deeply"};
  if (a.is_number() && b.is_number()) return a.number == b.number;
  if (a.kind != b.kind) return false;
  if (a.is(VK::kText)) return a.text == b.text;
  if (a.is(VK::kList))
    return std::equal(a.list->begin(), a.list->end(), b.list->begin(), b.list->end(),
                      [&](const Value& x, const Value& y) { return equal(x, y, depth + 1); });
  if (a.is(VK::kDict)) {
    if (a.dict->size() != b.dict->size()) return false;
    return std::all_of(a.dict->begin(), a.dict->end(), [&](const auto& item) {
      const Value* other = member(b, item.first);
      return other && equal(item.second, *other, depth + 1);
    });
  }
  return a.macro == b.macro;
}

void append_json(std::string& out, const Value& v, int depth = 0) {
  if (depth > 20) throw Failure{"values are nested too deeply"};
  switch (v.kind) {
    case VK::kNone:
      out += "null";
      return;
    case VK::kBool:
      out += v.number ? "true" : "false";
      return;
    case VK::kInteger:
      out += std::to_string(v.number);
      return;
    case VK::kText:
      out += '"';
      for (const char c : v.text) {
        const size_t i = std::string_view("\"\\\n\t\r\b\f").find(c);
        if (i != std::string_view::npos) {
          out += '\\', out += "\"\\ntrbf"[i];
        } else if (static_cast<unsigned char>(c) < 0x20) {
          std::array<char, 8> escape;
          std::snprintf(escape.data(), escape.size(), "\\u%04x", static_cast<unsigned>(c));
          out += escape.data();
        } else {
          out += c;
        }
      }
      out += '"';
      return;
    case VK::kList:
      out += '[';
      for (size_t i = 0; i < v.list->size(); ++i) out += i ? ", " : "", append_json(out, (*v.list)[i], depth + 1);
      out += ']';
      return;
    case VK::kDict:
      out += '{';
      for (size_t i = 0; i < v.dict->size(); ++i) {
        out += i ? ", " : "";
        append_json(out, Value::string((*v.dict)[i].first), depth + 1);
        out += ": ";
        append_json(out, (*v.dict)[i].second, depth + 1);
      }
      out += '}';
      return;
    default:
      throw Failure{"a value has no JSON"};
  }
}

std::string shown(const Value& v) {  // as {{ v }} prints it
  switch (v.kind) {
    case VK::kUndefined:
      return "";
    case VK::kNone:
      return "None";
    case VK::kBool:
      return v.number ? "True" : "False";
    case VK::kInteger:
      return std::to_string(v.number);
    case VK::kText:
      return v.text;
    default:
      throw Failure{"a list, dict or macro is printed"};
  }
}

List items_of(const Value& v) {  // what a loop runs over
  if (v.is(VK::kUndefined)) return {};
  if (v.is(VK::kList)) return *v.list;
  List items;
  if (v.is(VK::kDict)) {
    for (const auto& item : *v.dict) items.push_back(Value::string(item.first));
    return items;
  }
  throw Failure{"a loop runs over something that is no list"};
}

size_t count_chars(std::string_view s) {
  return static_cast<size_t>(std::count_if(s.begin(), s.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string replaced(const std::string& text, const std::string& from, const std::string& to) {
  if (from.empty()) throw Failure{"an empty text is replaced"};
  std::string out;
  size_t done = 0;
  for (size_t at; (at = text.find(from, done)) != std::string::npos; done = at + from.size()) {
    out.append(text, done, at - done) += to;
    if (out.size() > kTextMax) throw Failure{"a text grows too large"};
  }
  return out.append(text, done, std::string::npos);
}

std::string mapped(std::string text, char first, char last, int shift) {
  for (char& c : text)
    if (c >= first && c <= last) c = static_cast<char>(c + shift);
  return text;
}

struct Arguments {
  List values;  // positional
  std::map<std::string, Value> named;
  const Value* get(size_t i, const char* name) const {
    if (i < values.size()) return &values[i];
    const auto it = named.find(name);
    return it == named.end() ? nullptr : &it->second;
  }
  std::string text(size_t i, const char* name) const {
    const Value* v = get(i, name);
    if (!v || !v->is(VK::kText)) throw Failure{"a function got no text where it needs one"};
    return v->text;
  }
};

class Runner {
 public:
  Runner(const JinjaTemplate::Input& input, std::set<std::string>& looked_for)
      : input_(input), looked_for_(looked_for) {
    List messages;
    for (const auto& turn : input.messages)
      messages.push_back(
          Value::of_dict({{"role", Value::string(turn.role)}, {"content", Value::string(turn.content)}}));
    scopes_.resize(1);
    scopes_[0] = {{"messages", Value::of_list(std::move(messages))},
                  {"add_generation_prompt", Value::boolean(input.add_generation_prompt)},
                  {"bos_token", Value::string(input.bos_token)},
                  {"eos_token", Value::string(input.eos_token)},
                  {"tools", Value::none()},
                  {"documents", Value::none()}};
  }

  ~Runner() {
    for (const auto& dict : namespaces_) dict->clear();  // two may hold each other
  }
  Runner(const Runner&) = delete;

  std::string run(const Node& root) {
    execute(root);
    return std::move(out_);
  }

 private:
  enum class Flow { kOn, kBreak, kContinue };
  using Scope = std::map<std::string, Value, std::less<>>;

  struct Deeper {
    explicit Deeper(Runner& runner) : runner_(runner) {
      if (++runner_.depth_ > kDepthMax) throw Failure{"the template calls itself without end"};
      if (++runner_.steps_ > kStepsMax) throw Failure{"the template does not come to an end"};
    }
    ~Deeper() { --runner_.depth_; }
    Runner& runner_;
  };
  void print(const std::string& text) {
    if (out_.size() + text.size() > kTextMax) throw Failure{"the rendering grows too large"};
    out_ += text;
  }

  Flow execute(const Node& node) {
    const Deeper deeper(*this);
    switch (node.kind) {
      case Node::Kind::kBody:
        for (const NodePtr& kid : node.kids)
          if (const Flow flow = execute(*kid); flow != Flow::kOn) return flow;
        return Flow::kOn;
      case Node::Kind::kText:
        print(node.text);
        return Flow::kOn;
      case Node::Kind::kPrint:
        print(shown(value(*node.kids[0])));
        return Flow::kOn;
      case Node::Kind::kIf:
        return execute_if(node);
      case Node::Kind::kFor:
        return execute_for(node);
      case Node::Kind::kSet:
        assign(node, value(*node.kids[0]));
        return Flow::kOn;
      case Node::Kind::kSetBlock:
        assign(node, Value::string(captured(*node.kids[0])));
        return Flow::kOn;
      case Node::Kind::kMacro: {
        Value macro = Value::of(VK::kMacro);
        macro.macro = &node;
        scopes_.back()[node.text] = macro;
        return Flow::kOn;
      }
      case Node::Kind::kBreak:
        return Flow::kBreak;
      case Node::Kind::kContinue:
        return Flow::kContinue;
      default:
        throw Failure{"an expression stands where a statement should"};
    }
  }

  Flow execute_if(const Node& node) {
    size_t i = 0;
    for (; i + 1 < node.kids.size(); i += 2)
      if (truth(value(*node.kids[i]))) return execute(*node.kids[i + 1]);
    return i < node.kids.size() ? execute(*node.kids[i]) : Flow::kOn;
  }

  Flow execute_for(const Node& node) {
    List items = items_of(value(*node.kids[0]));
    if (node.kids[2]) {
      List kept;
      for (const Value& item : items) {
        scopes_.emplace_back();
        unpack(node, item);
        if (truth(value(*node.kids[2]))) kept.push_back(item);
        scopes_.pop_back();
      }
      items = std::move(kept);
    }
    if (items.empty() && node.kids[3]) return execute(*node.kids[3]);
    const auto n = static_cast<int64_t>(items.size());
    for (int64_t i = 0; i < n; ++i) {
      scopes_.emplace_back();
      unpack(node, items[static_cast<size_t>(i)]);
      Dict loop = {{"index", Value::integer(i + 1)},    {"index0", Value::integer(i)},
                   {"revindex", Value::integer(n - i)}, {"revindex0", Value::integer(n - i - 1)},
                   {"first", Value::boolean(i == 0)},   {"last", Value::boolean(i == n - 1)},
                   {"length", Value::integer(n)}};
      if (i > 0) loop.emplace_back("previtem", items[static_cast<size_t>(i - 1)]);
      if (i + 1 < n) loop.emplace_back("nextitem", items[static_cast<size_t>(i + 1)]);
      scopes_.back()["loop"] = Value::of_dict(std::move(loop));
      const Flow flow = execute(*node.kids[1]);
      scopes_.pop_back();
      if (flow == Flow::kBreak) break;
    }
    return Flow::kOn;
  }

  void unpack(const Node& node, const Value& item) {
    if (node.names.size() == 1) {
      scopes_.back()[node.names[0]] = item;
      return;
    }
    if (!item.is(VK::kList) || item.list->size() != node.names.size())
      throw Failure{"values and names differ in number"};
    for (size_t i = 0; i < node.names.size(); ++i) scopes_.back()[node.names[i]] = (*item.list)[i];
  }

  void assign(const Node& node, const Value& v) {
    if (node.text.empty()) return unpack(node, v);
    Value* target = find(node.names[0]);
    if (!target || std::find(namespaces_.begin(), namespaces_.end(), target->dict) == namespaces_.end() ||
        !target->dict)
      throw Failure{"'" + node.names[0] + "' is no namespace"};
    if (target->dict->size() > kListMax) throw Failure{"a namespace grows too large"};
    for (auto& [name, old] : *target->dict)
      if (name == node.text) {
        old = v;
        return;
      }
    target->dict->emplace_back(node.text, v);
  }

  std::string captured(const Node& body) {
    std::string before = std::exchange(out_, {});
    execute(body);
    return std::exchange(out_, std::move(before));
  }

  Value* find(std::string_view name) {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
      if (const auto it = scope->find(name); it != scope->end()) return &it->second;
    return nullptr;
  }

  Value value(const Node& node) {
    const Deeper deeper(*this);
    Value v = evaluated(node);
    bytes_ += v.bytes();  // bounds memory, and the time of whatever is done with the value
    if (bytes_ > kBytesMax) throw Failure{"the template takes too much memory"};
    return v;
  }

  Value evaluated(const Node& node) {
    switch (node.kind) {
      case Node::Kind::kLiteral:
        return Value::string(node.text);
      case Node::Kind::kInteger:
        return Value::integer(node.number);
      case Node::Kind::kName:
        return named(node.text);
      case Node::Kind::kList: {
        List items;
        for (const NodePtr& kid : node.kids) items.push_back(value(*kid));
        return Value::of_list(std::move(items));
      }
      case Node::Kind::kDict: {
        Dict items;
        for (size_t i = 0; i < node.kids.size(); i += 2)
          items.emplace_back(shown(value(*node.kids[i])), value(*node.kids[i + 1]));
        return Value::of_dict(std::move(items));
      }
      case Node::Kind::kAttribute:
        return attribute(value(*node.kids[0]), node.text);
      case Node::Kind::kItem:
        return item(value(*node.kids[0]), value(*node.kids[1]));
      case Node::Kind::kSlice:
        return slice(node);
      case Node::Kind::kCall:
        return call(node);
      case Node::Kind::kFilter: {
        const Value v = value(*node.kids[0]);
        return filter(node.text, v, arguments(node));
      }
      case Node::Kind::kTest:
        return Value::boolean(test(node));
      case Node::Kind::kNot:
        return Value::boolean(!truth(value(*node.kids[0])));
      case Node::Kind::kNegate: {
        const Value v = value(*node.kids[0]);
        if (!v.is_number()) throw Failure{"something that is no number is negated"};
        return Value::integer(-v.number);
      }
      case Node::Kind::kBinary:
        return binary(node);
      case Node::Kind::kCondition:
        if (truth(value(*node.kids[1]))) return value(*node.kids[0]);
        return node.kids[2] ? value(*node.kids[2]) : Value();
      default:
        throw Failure{"a statement stands where an expression should"};
    }
  }

  Value named(const std::string& name) {
    if (const Value* v = find(name)) return *v;
    if (name == "true" || name == "True") return Value::boolean(true);
    if (name == "false" || name == "False") return Value::boolean(false);
    if (name == "none" || name == "None") return Value::none();
    Value undefined;
    undefined.text = name;
    return undefined;
  }

  static Value attribute(const Value& object, const std::string& name) {
    if (object.is(VK::kUndefined)) throw Failure{"'" + object.text + "' is not defined"};
    if (const Value* v = member(object, name)) return *v;
    Value undefined;
    undefined.text = name;
    return undefined;
  }

  static Value item(const Value& object, const Value& index) {
    if (object.is(VK::kUndefined)) throw Failure{"'" + object.text + "' is not defined"};
    if (index.is(VK::kText)) return attribute(object, index.text);
    if (object.is(VK::kList) && index.is_number()) {
      const auto n = static_cast<int64_t>(object.list->size());
      const int64_t i = index.number < 0 ? index.number + n : index.number;
      if (i >= 0 && i < n) return (*object.list)[static_cast<size_t>(i)];
    } else if (object.is(VK::kText)) {
      throw Failure{"a text is indexed by place"};
    }
    return {};
  }

  Value slice(const Node& node) {
    const Value object = value(*node.kids[0]);
    const auto bound = [&](size_t kid, int64_t otherwise) {
      if (!node.kids[kid]) return otherwise;
      const Value v = value(*node.kids[kid]);
      if (!v.is_number()) throw Failure{"a slice by something that is no number"};
      return v.number;
    };
    if (object.is(VK::kText) && count_chars(object.text) != object.text.size()) throw Failure{"a text is cut by place"};
    if (!object.is(VK::kText) && !object.is(VK::kList)) throw Failure{"something that is no list is cut"};
    const auto n = static_cast<int64_t>(object.is(VK::kText) ? object.text.size() : object.list->size());
    const int64_t step_size = bound(3, 1);
    if (step_size != 1 && step_size != -1) throw Failure{"a slice with another step than 1 or -1"};
    const bool back = step_size < 0;
    const auto place = [&](int64_t i) {
      return std::clamp<int64_t>(i < 0 ? i + n : i, back ? -1 : 0, back ? n - 1 : n);
    };
    const int64_t from = node.kids[1] ? place(bound(1, 0)) : back ? n - 1 : 0;
    const int64_t to = node.kids[2] ? place(bound(2, 0)) : back ? -1 : n;
    Value out = object.is(VK::kText) ? Value::string("") : Value::of_list({});
    for (int64_t i = from; back ? i > to : i < to; i += step_size) {
      if (object.is(VK::kText))
        out.text += object.text[static_cast<size_t>(i)];
      else
        out.list->push_back((*object.list)[static_cast<size_t>(i)]);
    }
    return out;
  }

  Arguments arguments(const Node& node) {
    Arguments out;
    for (size_t i = 1; i < node.kids.size(); ++i) {
      Value v = value(*node.kids[i]);
      if (i < node.names.size() && !node.names[i].empty())
        out.named[node.names[i]] = std::move(v);
      else
        out.values.push_back(std::move(v));
    }
    return out;
  }

  Value call(const Node& node) {
    const Node& callee = *node.kids[0];
    if (callee.kind == Node::Kind::kAttribute) {
      const Value object = value(*callee.kids[0]);
      const Arguments args = arguments(node);
      if (object.is(VK::kText)) return text_method(object.text, callee.text, args);
      if (object.is(VK::kDict) && !member(object, callee.text)) return dict_method(object, callee.text, args);
      return call_value(attribute(object, callee.text), callee.text, args);
    }
    const Arguments args = arguments(node);
    if (callee.kind == Node::Kind::kName && !find(callee.text)) return function(callee.text, args);
    return call_value(value(callee), callee.text, args);
  }

  Value call_value(const Value& callee, const std::string& name, const Arguments& args) {
    if (!callee.is(VK::kMacro)) throw Failure{"'" + name + "' is no function"};
    const Node& macro = *callee.macro;
    Scope scope;
    for (size_t i = 0; i < macro.names.size(); ++i) {
      const Value* given = args.get(i, macro.names[i].c_str());
      const NodePtr& otherwise = macro.kids[i + 1];
      scope[macro.names[i]] = given ? *given : otherwise ? value(*otherwise) : Value();
    }
    std::vector<Scope> inner(2);  // a macro sees the outermost names and its own
    std::swap(inner[0], scopes_[0]);
    inner[1] = std::move(scope);
    std::swap(scopes_, inner);
    std::string text = captured(*macro.kids[0]);
    std::swap(scopes_, inner);
    std::swap(inner[0], scopes_[0]);
    return Value::string(std::move(text));
  }

  Value function(const std::string& name, const Arguments& args) {
    if (name == "raise_exception") {
      const Value* why = args.get(0, "message");
      throw Failure{why && why->is(VK::kText) ? why->text : "no reason given", true};
    }
    if (name == "namespace" || name == "dict") {
      Dict items;
      if (const Value* first = args.get(0, ""); first && first->is(VK::kDict)) items = *first->dict;
      for (const auto& [key, v] : args.named) items.emplace_back(key, v);
      Value made = Value::of_dict(std::move(items));
      if (name == "namespace") {
        if (namespaces_.size() >= kNamespacesMax) throw Failure{"too many namespaces"};
        namespaces_.push_back(made.dict);
      }
      return made;
    }
    if (name == "range") {
      const auto number = [&](size_t i) {
        if (!args.values[i].is_number()) throw Failure{"a range of something that is no number"};
        return args.values[i].number;
      };
      const size_t n = args.values.size();
      if (n < 1 || n > 3) throw Failure{"a range of something that is no number"};
      const int64_t from = n == 1 ? 0 : number(0), to = number(n == 1 ? 0 : 1), by = n == 3 ? number(2) : 1;
      constexpr int64_t kLimit = int64_t{1} << 30;
      if (by == 0 || std::max({from, to, by}) > kLimit || std::min({from, to, by}) < -kLimit)
        throw Failure{"a bad range"};
      List items;
      for (int64_t i = from; (by > 0 ? i < to : i > to) && items.size() <= kListMax; i += by)
        items.push_back(Value::integer(i));
      return Value::of_list(std::move(items));
    }
    throw Failure{"the function '" + name + "' is not supported"};
  }

  void look_for(const std::string& content, const std::string& text) {
    if (!input_.marker.empty() && content.find(input_.marker) != std::string::npos) looked_for_.insert(text);
  }

  Value text_method(const std::string& text, const std::string& name, const Arguments& args) {
    if (name == "strip" || name == "lstrip" || name == "rstrip") {
      const bool left = name != "rstrip", right = name != "lstrip";
      if (!args.get(0, "chars")) return Value::string(std::string(strip_space(text, left, right)));
      const std::string chars = args.text(0, "chars");
      size_t from = 0, to = text.size();
      while (left && from < to && chars.find(text[from]) != std::string::npos) ++from;
      while (right && to > from && chars.find(text[to - 1]) != std::string::npos) --to;
      return Value::string(text.substr(from, to - from));
    }
    if (name == "startswith" || name == "endswith") {
      const std::string part = args.text(0, "prefix");
      look_for(text, part);
      const bool fits = text.size() >= part.size();
      return Value::boolean(fits &&
                            text.compare(name == "startswith" ? 0 : text.size() - part.size(), part.size(), part) == 0);
    }
    if (name == "split") {
      const std::string by = args.text(0, "sep");
      if (by.empty()) throw Failure{"a text is split by nothing"};
      look_for(text, by);
      const Value* times = args.get(1, "maxsplit");
      List parts;
      size_t done = 0;
      for (size_t at; (at = text.find(by, done)) != std::string::npos; done = at + by.size()) {
        if (times && (!times->is_number() || static_cast<int64_t>(parts.size()) >= times->number)) break;
        parts.push_back(Value::string(text.substr(done, at - done)));
        if (parts.size() > kListMax) throw Failure{"a list grows too large"};
      }
      parts.push_back(Value::string(text.substr(done)));
      return Value::of_list(std::move(parts));
    }
    if (name == "replace") {
      look_for(text, args.text(0, "old"));
      return Value::string(replaced(text, args.text(0, "old"), args.text(1, "new")));
    }
    if (name == "upper") return Value::string(mapped(text, 'a', 'z', 'A' - 'a'));
    if (name == "lower") return Value::string(mapped(text, 'A', 'Z', 'a' - 'A'));
    if (name == "title" || name == "capitalize") {
      std::string out = mapped(text, 'A', 'Z', 'a' - 'A');
      for (size_t i = 0; i < out.size(); ++i)
        if ((i == 0 || (name == "title" && out[i - 1] == ' ')) && out[i] >= 'a' && out[i] <= 'z')
          out[i] = static_cast<char>(out[i] - 'a' + 'A');
      return Value::string(std::move(out));
    }
    if (name == "join") return join(args.values.empty() ? Value() : args.values[0], text);
    throw Failure{"the method '" + name + "' of a text is not supported"};
  }

  static Value dict_method(const Value& dict, const std::string& name, const Arguments& args) {
    if (name == "get") {
      const Value* v = member(dict, args.text(0, "key"));
      const Value* otherwise = args.get(1, "default");
      return v ? *v : otherwise ? *otherwise : Value::none();
    }
    List out;
    for (const auto& [key, v] : *dict.dict) {
      if (name == "items") out.push_back(Value::of_list({Value::string(key), v}));
      if (name == "keys") out.push_back(Value::string(key));
      if (name == "values") out.push_back(v);
    }
    if (name != "items" && name != "keys" && name != "values")
      throw Failure{"the method '" + name + "' is not supported"};
    return Value::of_list(std::move(out));
  }

  static Value join(const Value& list, const std::string& by) {
    std::string out;
    const List items = items_of(list);
    for (size_t i = 0; i < items.size(); ++i) {
      out += (i ? by : "") + shown(items[i]);
      if (out.size() > kTextMax) throw Failure{"a text grows too large"};
    }
    return Value::string(std::move(out));
  }

  Value filter(const std::string& name, const Value& v, const Arguments& args) {
    if (name == "default" || name == "d") {
      const Value* otherwise = args.get(0, "default_value");
      const Value* also_false = args.get(1, "boolean");
      const bool use = v.is(VK::kUndefined) || (also_false && truth(*also_false) && !truth(v));
      return !use ? v : otherwise ? *otherwise : Value::string("");
    }
    if (name == "length" || name == "count") {
      if (v.is(VK::kText)) return Value::integer(static_cast<int64_t>(count_chars(v.text)));
      return Value::integer(v.is(VK::kDict) ? static_cast<int64_t>(v.dict->size())
                                            : static_cast<int64_t>(items_of(v).size()));
    }
    if (name == "tojson") {
      std::string out;
      append_json(out, v);
      return Value::string(std::move(out));
    }
    if (name == "list") return Value::of_list(items_of(v));
    if (name == "items")
      return dict_method(v.is(VK::kDict) ? v : throw Failure{"something that is no dict has items"}, "items", args);
    if (name == "first" || name == "last") {
      const List items = items_of(v);
      return items.empty() ? Value() : name == "first" ? items.front() : items.back();
    }
    if (name == "join") return join(v, args.get(0, "d") ? args.text(0, "d") : "");
    if (name == "selectattr" || name == "rejectattr") return select(v, args, name == "selectattr");
    if (name == "map" && args.named.count("attribute")) {
      List out;
      for (const Value& x : items_of(v)) out.push_back(attribute(x, args.text(9, "attribute")));
      return Value::of_list(std::move(out));
    }
    if (name == "string" || name == "safe") return Value::string(shown(v));
    if (name == "int" && v.is_number()) return Value::integer(v.number);
    if (name == "trim") return text_method(shown(v), "strip", args);
    if (name == "upper" || name == "lower" || name == "title" || name == "capitalize" || name == "replace")
      return text_method(shown(v), name, args);
    throw Failure{"the filter '" + name + "' is not supported"};
  }

  static Value select(const Value& list, const Arguments& args, bool wanted) {
    const std::string key = args.text(0, "");
    const std::string how = args.values.size() > 1 ? args.text(1, "") : "";
    List out;
    for (const Value& x : items_of(list)) {
      const Value v = attribute(x, key);
      bool fits = truth(v);
      if (how == "equalto" || how == "eq" || how == "==") {
        if (args.values.size() < 3) throw Failure{"a comparison with nothing"};
        fits = equal(v, args.values[2]);
      } else if (how == "defined") {
        fits = !v.is(VK::kUndefined);
      } else if (!how.empty()) {
        throw Failure{"selecting by '" + how + "' is not supported"};
      }
      if (fits == wanted) out.push_back(x);
    }
    return Value::of_list(std::move(out));
  }

  bool test(const Node& node) {
    const Value v = value(*node.kids[0]);
    const Arguments args = arguments(node);
    const std::string& name = node.text;
    if (name == "defined") return !v.is(VK::kUndefined);
    if (name == "undefined") return v.is(VK::kUndefined);
    if (name == "none") return v.is(VK::kNone);
    if (name == "string") return v.is(VK::kText);
    if (name == "mapping") return v.is(VK::kDict);
    if (name == "iterable" || name == "sequence") return v.is(VK::kText) || v.is(VK::kList) || v.is(VK::kDict);
    if (name == "number" || name == "integer") return v.is_number();
    if (name == "boolean") return v.is(VK::kBool);
    if (name == "true") return v.is(VK::kBool) && v.number;
    if (name == "false") return v.is(VK::kBool) && !v.number;
    if (name == "callable") return v.is(VK::kMacro);
    if ((name == "odd" || name == "even") && v.is_number()) return (v.number % 2 != 0) == (name == "odd");
    if ((name == "equalto" || name == "eq" || name == "sameas") && args.values.size() == 1)
      return equal(v, args.values[0]);
    if (name == "in" && args.values.size() == 1) return contains(args.values[0], v);
    throw Failure{"the test '" + name + "' is not supported"};
  }

  bool contains(const Value& whole, const Value& part) {
    if (whole.is(VK::kText)) {
      if (!part.is(VK::kText)) throw Failure{"something that is no text is looked for in a text"};
      look_for(whole.text, part.text);
      return whole.text.find(part.text) != std::string::npos;
    }
    if (whole.is(VK::kDict)) return part.is(VK::kText) && member(whole, part.text) != nullptr;
    const List items = items_of(whole);
    return std::any_of(items.begin(), items.end(), [&](const Value& x) { return equal(x, part); });
  }

  Value binary(const Node& node) {
    const std::string& op = node.text;
    Value left = value(*node.kids[0]);
    if (op == "and") return truth(left) ? value(*node.kids[1]) : left;
    if (op == "or") return truth(left) ? left : value(*node.kids[1]);
    const Value right = value(*node.kids[1]);
    if (op == "==" || op == "!=") {
      if (left.is(VK::kText) && right.is(VK::kText) && !right.text.empty()) look_for(left.text, right.text);
      return Value::boolean(equal(left, right) == (op == "=="));
    }
    if (op == "in") return Value::boolean(contains(right, left));
    if (op == "not in") return Value::boolean(!contains(right, left));
    if (op == "~") return Value::string(shown(left) + shown(right));
    if (op == "+" && left.is(VK::kText) && right.is(VK::kText)) return Value::string(left.text + right.text);
    if (op == "+" && left.is(VK::kList) && right.is(VK::kList)) {
      List items = *left.list;
      items.insert(items.end(), right.list->begin(), right.list->end());
      return Value::of_list(std::move(items));
    }
    if (!left.is_number() || !right.is_number()) throw Failure{"'" + op + "' between values that it does not fit"};
    return arithmetic(op, left.number, right.number);
  }

  static Value arithmetic(const std::string& op, int64_t a, int64_t b) {
    constexpr int64_t kLimit = int64_t{1} << 30;  // keeps every product inside of 64 bits
    if (a > kLimit || a < -kLimit || b > kLimit || b < -kLimit) throw Failure{"a number grows too large"};
    if (op == "<") return Value::boolean(a < b);
    if (op == ">") return Value::boolean(a > b);
    if (op == "<=") return Value::boolean(a <= b);
    if (op == ">=") return Value::boolean(a >= b);
    if (op == "+") return Value::integer(a + b);
    if (op == "-") return Value::integer(a - b);
    if (op == "*") return Value::integer(a * b);
    if ((op == "%" || op == "//") && b > 0) {  // rounds down, as Python does
      const int64_t rest = (a % b + b) % b;
      return Value::integer(op == "%" ? rest : (a - rest) / b);
    }
    throw Failure{"the operator '" + op + "' is not supported"};
  }

  const JinjaTemplate::Input& input_;
  std::set<std::string>& looked_for_;
  std::vector<Scope> scopes_;
  std::string out_;
  std::vector<std::shared_ptr<Dict>> namespaces_;
  size_t bytes_ = 0;
  int steps_ = 0, depth_ = 0;
};

}  // namespace
}  // namespace jinja

std::optional<JinjaTemplate> JinjaTemplate::parse(std::string_view source, std::string& why) {
  try {
    JinjaTemplate out;
    out.root_ = jinja::parse_template(source);
    return out;
  } catch (const jinja::Failure& failure) {
    why = failure.reason;
    return std::nullopt;
  }
}

JinjaTemplate::Output JinjaTemplate::render(const Input& input) const {
  Output out;
  try {
    out.text = jinja::Runner(input, out.looked_for).run(*root_);
    out.status = Output::Status::kText;
  } catch (const jinja::Failure& failure) {
    out.text = failure.reason;
    out.status = failure.raised_by_template ? Output::Status::kRefused : Output::Status::kFailed;
  }
  return out;
}

std::string_view strip_space(std::string_view s, bool left, bool right) {
  // Unicode's White_Space and the four separators U+001C..U+001F.
  static constexpr std::string_view kWide[] = {
      "\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\x80", "\xe2\x80\x81", "\xe2\x80\x82", "\xe2\x80\x83",
      "\xe2\x80\x84", "\xe2\x80\x85", "\xe2\x80\x86", "\xe2\x80\x87", "\xe2\x80\x88", "\xe2\x80\x89", "\xe2\x80\x8a",
      "\xe2\x80\xa8", "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80"};
  const auto narrow = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1c && c <= 0x1f); };
  const auto at_front = [&]() -> size_t {
    if (!s.empty() && narrow(s.front())) return 1;
    for (const std::string_view wide : kWide)
      if (s.substr(0, wide.size()) == wide) return wide.size();
    return 0;
  };
  const auto at_back = [&]() -> size_t {
    if (!s.empty() && narrow(s.back())) return 1;
    for (const std::string_view wide : kWide)
      if (s.size() >= wide.size() && s.substr(s.size() - wide.size()) == wide) return wide.size();
    return 0;
  };
  if (left)
    while (const size_t n = at_front()) s.remove_prefix(n);
  if (right)
    while (const size_t n = at_back()) s.remove_suffix(n);
  return s;
}

}  // namespace cento
