#include "eval/dataset_item.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "session/answer.h"

namespace cento {
namespace {

using Json = nlohmann::json;

constexpr size_t kIdBytesMax = 1024;
constexpr std::array<std::string_view, 12> kKnownFields = {"id",       "kind",   "question",  "answers",
                                                           "passages", "query",  "summaries", "turns",
                                                           "system",   "chunks", "answer",    "stand_in"};

[[noreturn]] void refuse(const std::string& what, const std::string& hint = {}) {
  throw Error{Code::kInput, what, "", hint};
}

// Parses without keeping what is not known, so that a line's size bounds memory: strings take what they are long, and
// other values are counted. Throws Error.
Json parse_object(std::string_view text) {
  if (!is_valid_utf8(text)) refuse("not valid UTF-8", "save the file as UTF-8");
  size_t n_values = 0;
  const auto filter = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > DatasetReader::kDepthMax) refuse("lists and objects are nested too deep");
    if (event == Json::parse_event_t::key && depth == 1) {
      const auto& key = parsed.get_ref<const std::string&>();
      return std::find(kKnownFields.begin(), kKnownFields.end(), key) != kKnownFields.end();
    }
    const bool ends = event == Json::parse_event_t::object_end || event == Json::parse_event_t::array_end;
    if (!ends && ++n_values > DatasetReader::kValuesMax) refuse("too many values in one item");
    return true;
  };
  try {
    Json json = Json::parse(text.begin(), text.end(), filter);
    if (!json.is_object()) refuse("not a JSON object");
    return json;
  } catch (const Json::parse_error& e) {
    refuse("not JSON: wrong at byte " + std::to_string(e.byte) + (e.byte > text.size() ? ", where it ends" : ""));
  } catch (const Json::exception&) {
    refuse("not JSON: a number is out of range");
  }
}

std::string quoted(const std::string& name) { return "\"" + name + "\""; }

// A field that may be missing or null.
const Json* find(const Json& object, const char* name) {
  const auto it = object.find(name);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

// `path` is the place of `object` in the item, "" or like "passages[2].".
const Json& need(const Json& object, const char* name, const std::string& path = {}) {
  const Json* value = find(object, name);
  if (value == nullptr) refuse(quoted(path + name) + " is missing");
  return *value;
}

const std::string& text_of(const Json& value, const std::string& path) {
  if (!value.is_string()) refuse(quoted(path) + " is not a text");
  return value.get_ref<const std::string&>();
}

const std::string& words_of_field(const Json& value, const std::string& path) {
  const std::string& text = text_of(value, path);
  if (trim(text).empty()) refuse(quoted(path) + " is empty");
  return text;
}

const Json& list_of(const Json& value, const std::string& path) {
  if (!value.is_array()) refuse(quoted(path) + " is not a list");
  return value;
}

std::string at(const std::string& path, size_t i) { return path + "[" + std::to_string(i) + "]"; }

// Calls visit(element, its path) for each object of the list at `path`.
template <class Visit>
void each_object(const Json& value, const std::string& path, Visit visit) {
  const Json& list = list_of(value, path);
  for (size_t i = 0; i < list.size(); ++i) {
    if (!list[i].is_object()) refuse(quoted(at(path, i)) + " is not an object");
    visit(list[i], at(path, i) + ".");
  }
}

std::vector<std::string> texts_of(const Json& value, const std::string& path) {
  const Json& list = list_of(value, path);
  std::vector<std::string> out;
  for (size_t i = 0; i < list.size(); ++i) out.push_back(words_of_field(list[i], at(path, i)));
  return out;
}

std::vector<EvalChunk> passages_of(const Json& object) {
  std::vector<EvalChunk> chunks;
  each_object(need(object, "passages"), "passages", [&](const Json& passage, const std::string& path) {
    EvalChunk chunk;
    if (const Json* title = find(passage, "title")) chunk.title = text_of(*title, path + "title");
    chunk.text = words_of_field(need(passage, "text", path), path + "text");
    if (const Json* gold = find(passage, "gold")) {
      if (!gold->is_boolean()) refuse(quoted(path + "gold") + " is not true, false or null");
      chunk.gold = gold->get<bool>();
    }
    chunks.push_back(std::move(chunk));
  });
  if (chunks.empty()) refuse("\"passages\" is empty");
  return chunks;
}

std::string id_of(const Json& object, bool required) {
  const Json* value = required ? &need(object, "id") : find(object, "id");
  if (value == nullptr) return {};
  const std::string& id = words_of_field(*value, "id");
  if (id.size() > kIdBytesMax) refuse("\"id\" is longer than " + std::to_string(kIdBytesMax) + " bytes");
  return id;
}

void read_qa(const Json& object, EvalItem& item) {
  item.kind = EvalKind::kQa;
  item.question = words_of_field(need(object, "question"), "question");
  item.references = texts_of(need(object, "answers"), "answers");
  item.chunks = passages_of(object);
}

void read_summ(const Json& object, EvalItem& item) {
  item.kind = EvalKind::kSumm;
  const Json* query = find(object, "query");
  item.question = summary_instruction(query == nullptr ? "" : text_of(*query, "query"));
  item.references = texts_of(need(object, "summaries"), "summaries");
  item.chunks = passages_of(object);
}

void read_docqa(const Json& object, EvalItem& item) {
  item.kind = EvalKind::kDocqa;
  if (const Json* kind = find(object, "kind")) item.docqa_kind = text_of(*kind, "kind");
  each_object(need(object, "turns"), "turns", [&](const Json& json, const std::string& path) {
    if (find(json, "question") == nullptr && find(json, "role") != nullptr)
      refuse("a chat of roles and texts, not questions over documents", "give qa, summ, docqa or prompt items");
    EvalTurn turn;
    turn.question = words_of_field(need(json, "question", path), path + "question");
    const Json& groups = list_of(need(json, "answers", path), path + "answers");
    for (size_t i = 0; i < groups.size(); ++i) {
      turn.answer_groups.push_back(texts_of(groups[i], at(path + "answers", i)));
      if (turn.answer_groups.back().empty()) refuse(quoted(at(path + "answers", i)) + " is empty");
    }
    if (const Json* evidence = find(json, "evidence")) {
      each_object(*evidence, path + "evidence", [&](const Json& e, const std::string& place) {
        turn.evidence.push_back({words_of_field(need(e, "file", place), place + "file"),
                                 words_of_field(need(e, "quote", place), place + "quote")});
      });
    }
    item.turns.push_back(std::move(turn));
  });
  if (item.turns.empty()) refuse("\"turns\" is empty");
  item.question = item.turns.front().question;
}

// By the rules of `query --prompt`, but for fields that are not known and an empty list of chunks.
void read_prompt(Json object, EvalItem& item) {
  item.kind = EvalKind::kPrompt;
  Json prompt = Json::object();
  for (const char* name : {"system", "chunks", "question", "answer", "stand_in"}) {
    if (object.contains(name)) prompt[name] = std::move(object[name]);
  }
  object.clear();
  PromptFile file = parse_prompt_file(prompt.dump());
  for (size_t i = 0; i < file.chunks.size(); ++i) {
    if (trim(file.chunks[i]).empty()) refuse(quoted(at("chunks", i)) + " is empty");
    item.chunks.push_back({"", std::move(file.chunks[i]), std::nullopt});
  }
  if (item.chunks.empty()) refuse("\"chunks\" is empty");
  if (!file.system.empty()) item.system = std::move(file.system);
  item.question = std::move(file.question);
  item.given_answer = std::move(file.answer);
  item.stand_in = std::move(file.stand_in);
}

EvalItem read_item(Json object, bool must_be_prompt) {
  EvalItem item;
  const bool prompt = must_be_prompt || object.contains("chunks");
  item.id = id_of(object, !prompt);
  if (prompt) {
    need(object, "chunks");
    read_prompt(std::move(object), item);
  } else if (object.contains("summaries")) {
    read_summ(object, item);
  } else if (object.contains("turns")) {
    read_docqa(object, item);
  } else if (object.contains("passages")) {
    read_qa(object, item);
  } else {
    refuse("of no known kind: there is no \"passages\", \"summaries\", \"turns\" or \"chunks\"");
  }
  return item;
}

}  // namespace

const std::string& prompt_file_hint() {
  static const std::string hint = R"(give {"system": TEXT, "chunks": [TEXT, ...], "question": TEXT, "answer"?: TEXT})";
  return hint;
}

Result<EvalItem> parse_eval_item(std::string_view json, bool must_be_prompt) {
  try {
    return read_item(parse_object(json), must_be_prompt);
  } catch (const Error& e) {
    return Error{Code::kInput, e.message(), "", e.hint()};
  }
}

}  // namespace cento
