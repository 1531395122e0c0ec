#include <algorithm>
#include <filesystem>

#include "app/commands.h"
#include "app/json.h"
#include "app/model_check.h"
#include "app/store_options.h"
#include "base/text.h"
#include "model/chat_template.h"

namespace cento {
namespace {

constexpr uint64_t kTextBytesMax = 256ull << 20;

std::string architecture_of(const GgufFile& file) {
  try {
    return file.text("general.architecture").value_or("");
  } catch (const Error&) {
    return {};
  }
}

std::string name_of(const GgufFile& file, const std::string& path) {
  try {
    if (auto name = file.text("general.name"); name && !name->empty()) return *name;
  } catch (const Error&) {  // damaged metadata: the file's name will do
  }
  return std::filesystem::path(path).stem().string();
}

int model_list(Run& run) {
  Json out;
  out["models"] = Json::array();
  std::string text;
  for (const auto& path : find_model_files()) {
    Json item;
    std::string reason;
    put_path(item, "file", path);
    try {
      const GgufFile file(path);
      item["name"] = json_text(name_of(file, path));
      item["architecture"] = json_text(architecture_of(file));
      item["bytes"] = file.file().bytes().size();
      reason = unsupported_reason(file);
      text += printable(path) + "  " + printable(architecture_of(file)) + "  " + size_text(file.file().bytes().size());
    } catch (const Error& e) {
      reason = e.message();
      text += printable(path);
    }
    item["supported"] = reason.empty();
    if (!reason.empty()) item["reason"] = json_text(reason);
    text += (reason.empty() ? "  supported" : "  not supported: " + printable(reason)) + "\n";
    out["models"].push_back(std::move(item));
  }
  out["folders"] = Json::array();
  for (const auto& folder : model_folders()) out["folders"].push_back(json_text(folder));
  if (text.empty()) {
    text = "no models found in:\n";
    for (const auto& folder : model_folders()) text += "  " + printable(folder) + "\n";
  }
  run.terminal.out(run.common().json ? json_line(out) : text);
  return out["models"].empty() ? kNothingFoundStatus : 0;
}

uint64_t parameter_count(const GgufFile& file) {
  uint64_t n = 0;
  for (const auto& t : file.tensors()) {
    if (t.readable) n += t.view.rows() * t.view.cols();
  }
  return n;
}

void describe_config(const ModelConfig& c, Json& out) {
  out["layers"] = c.n_layers;
  out["heads"] = c.n_heads;
  out["kv_heads"] = c.n_kv_heads;
  out["head_dim"] = c.head_dim;
  out["width"] = c.width;
  out["ffn_width"] = c.ffn_width;
  out["vocab"] = c.vocab;
  out["context"] = c.context_max;
  out["sliding_window"] = c.window;
  out["kv_bytes_per_token"] = c.kv_bytes_per_token();
}

// Template of the file, or why it has none that is known.
std::string template_text(const GgufFile& file) {
  try {
    return ChatTemplate::recognise(file).name();
  } catch (const Error& e) {
    return "unknown (--chat-template NAME)";
  }
}

// What is in a file, as far as it can be read; throws only if it is no GGUF file.
Json describe_model(const std::string& path) {
  const GgufFile file(path);
  Json out;
  put_path(out, "file", path);
  out["name"] = json_text(name_of(file, path));
  out["architecture"] = json_text(architecture_of(file));
  out["gguf_version"] = file.version();
  out["bytes"] = file.file().bytes().size();
  out["tensors"] = file.tensors().size();
  out["parameters"] = parameter_count(file);
  out["type"] = main_type_name(file);
  std::string reason = unsupported_reason(file);
  try {
    describe_config(read_model_config(file), out);
    const auto tokenizer = make_tokenizer(file);
    out["tokenizer"] = tokenizer->kind;
    out["chat_template"] = template_text(file);
  } catch (const Error& e) {
    if (reason.empty()) reason = e.message();
  }
  out["supported"] = reason.empty();
  if (!reason.empty()) out["reason"] = json_text(reason);
  return out;
}

std::string human(const std::string& key, const Json& value) {
  if (key == "bytes") return size_text(value.get<uint64_t>());
  if (key == "kv_bytes_per_token") return size_text(value.get<uint64_t>()) + " in memory";
  if (key == "supported") return value.get<bool>() ? "yes" : "no";
  if (key == "sliding_window" && value == 0) return "none";
  return value.is_string() ? printable(value.get<std::string>()) : value.dump();
}

int model_show(Run& run, const std::string& wanted) {
  const Json out = describe_model(resolve_model(wanted));
  if (run.common().json) {
    run.terminal.out(json_line(out));
    return 0;
  }
  std::string text;
  for (const auto& [key, value] : out.items()) {
    if (key.ends_with("_b64")) continue;
    std::string label = key;
    std::replace(label.begin(), label.end(), '_', ' ');
    label.resize(20, ' ');
    text += label + human(key, value) + "\n";
  }
  run.terminal.out(text);
  return 0;
}

int model_tokenize(Run& run, const ModelCommand& command) {
  const std::string text = command.text.empty() || command.text == "-" ? read_stdin(kTextBytesMax) : command.text;
  const GgufFile file(resolve_model(run.common().model));
  const auto tokenizer = make_tokenizer(file);
  const auto ids = command.specials ? tokenizer->encode_with_specials(text) : tokenizer->encode(text);
  Json out;
  out["ids"] = ids;
  out["pieces"] = Json::array();
  std::string lines;
  for (const int32_t id : ids) {
    const std::string piece = tokenizer->piece(id, true);
    out["pieces"].push_back(json_text(piece));
    lines += std::to_string(id) + "\t" + printable(piece) + "\n";
  }
  run.terminal.out(run.common().json ? json_line(out) : lines);
  return 0;
}

}  // namespace

int cmd_model(Run& run, const ModelCommand& command) {
  switch (command.action) {
    case ModelCommand::Action::kList:
      return model_list(run);
    case ModelCommand::Action::kShow:
      return model_show(run, command.file);
    case ModelCommand::Action::kTokenize:
      return model_tokenize(run, command);
    case ModelCommand::Action::kCheck:
      return model_check(run, command);
  }
  return exit_status(Code::kInternal);
}

}  // namespace cento
