// Syntax tree of a Jinja template; shared by jinja_parse.cc and jinja_run.cc only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace cento::jinja {

struct Failure {  // thrown inside of the interpreter, caught at its border
  std::string reason;
  bool raised_by_template = false;
};

struct Node {
  enum class Kind {
    // statements
    kBody,      // kids
    kText,      // text
    kPrint,     // [expression]
    kIf,        // [condition, body]..., [else body]
    kFor,       // names = targets; [iterable, body, condition or null, else body or null]
    kSet,       // names = targets, or one name and text = attribute; [value]
    kSetBlock,  // names; [body]
    kMacro,     // text = name, names = parameters; [body, default or null...]
    kBreak,
    kContinue,
    // expressions
    kLiteral,    // text
    kInteger,    // number
    kName,       // text
    kList,       // kids
    kDict,       // key, value, key, value...
    kAttribute,  // [object], text
    kItem,       // [object, index]
    kSlice,      // [object, from or null, to or null, step or null]
    kCall,       // [callee, arguments...]; names = keyword of the argument or ""
    kFilter,     // text = name, [value, arguments...]; names as in kCall
    kTest,       // text = name, [value, arguments...]
    kNot,        // [x]
    kNegate,     // [x]
    kBinary,     // text = operator, [left, right]
    kCondition,  // [then, if, else or null]
  };
  Kind kind;
  std::string text;
  int64_t number = 0;
  std::vector<std::string> names;
  std::vector<std::unique_ptr<Node>> kids;
  int height = 1;  // levels of an expression from here down, kept small by the parser
};
using NodePtr = std::unique_ptr<Node>;

NodePtr parse_template(std::string_view source);  // throws Failure

}  // namespace cento::jinja
