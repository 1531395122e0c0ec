#include "app/options.h"

#include <algorithm>
#include <map>
#include <memory>

#include "app/config_file.h"
#include "app/grammar.h"
#include "base/text.h"
#include "kv/remote_url.h"

namespace cento {
namespace {

std::string command_name(const CommandDoc& doc) {
  std::string out;
  for (const auto& p : doc.path) out += (out.empty() ? "" : " ") + p;
  return out;
}

// The names of the subcommands typed, outermost first.
std::vector<std::string> chosen(const CLI::App& app) {
  std::vector<std::string> out;
  for (const CLI::App* a = &app; !a->get_subcommands().empty();) {
    a = a->get_subcommands().front();
    out.push_back(a->get_name());
  }
  return out;
}

std::vector<std::string> subcommand_names(const CommandDoc& doc) {
  std::vector<std::string> out;
  for (const auto& s : doc.subcommands) out.push_back(s.path.back());
  return out;
}

[[noreturn]] void unknown_word(const Grammar& g, const CommandDoc& command, const std::string& word) {
  const std::string help = command_name(command) + " --help";
  const bool is_flag = word.size() > 1 && word[0] == '-';
  const bool wants_subcommand = !is_flag && !command.subcommands.empty();
  std::vector<std::string> known;
  if (wants_subcommand) {
    known = subcommand_names(command);
  } else if (is_flag) {
    for (const auto* doc : {&command, &g.doc}) {
      for (const auto& option : doc->options) known.insert(known.end(), option.names.begin(), option.names.end());
    }
  }
  const std::string typed = word.substr(0, word.find('='));
  const std::string near = nearest_word(typed, known);
  const std::string what = wants_subcommand ? "no subcommand \"" + word + "\""
                           : is_flag        ? "no flag " + typed
                                            : "one word too many: \"" + word + "\"";
  throw Error{Code::kUsage, what, command_name(command), near.empty() ? help : near + ", or see " + help};
}

void split_command_line(Grammar& g, const std::vector<std::string>& args) {
  std::vector<std::string> reversed(args.rbegin(), args.rend());  // as CLI11 wants it
  const auto here = [&]() -> const CommandDoc& { return *find_command(g.doc, chosen(g.app)); };
  try {
    g.app.parse(reversed);
  } catch (const CLI::ExtrasError&) {
    const auto rest = g.app.remaining(true);
    unknown_word(g, here(), rest.empty() ? "" : rest.front());
  } catch (const CLI::Success&) {
    throw;  // --help
  } catch (const CLI::ArgumentMismatch& e) {
    throw Error{Code::kUsage, std::string("a value is missing: ") + e.what(), command_name(here()),
                command_name(here()) + " --help"};
  } catch (const CLI::ParseError& e) {
    throw Error{Code::kUsage, e.what(), command_name(here()), command_name(here()) + " --help"};
  }
}

// ---- where values come from ----

std::string environment_name(const std::string& key) {
  std::string out = "CENTO_";
  for (const char c : key) out += c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return out;
}

std::string joined(const std::vector<std::string>& values) {
  std::string out;
  for (const auto& v : values) out += (out.empty() ? "" : ", ") + v;
  return out;
}

bool in_scope(const std::string& scope, const std::vector<std::string>& topic) {
  std::string here;
  if (scope.empty()) return true;
  for (const auto& t : topic) {
    here += (here.empty() ? "" : ".") + t;
    if (here == scope) return true;
  }
  return false;
}

class Resolver {
 public:
  Resolver(Grammar& g, const ParseEnvironment& environment) : g_(&g), environment_(&environment) {}

  // Which file, and what is in it. Flags and environment decide, so this comes before anything else.
  void read_config(Options& out) {
    bool named = true;
    FlagSpec& spec =
        *std::find_if(g_->specs.begin(), g_->specs.end(), [](const FlagSpec& s) { return s.key == "config"; });
    if (!spec.option->results().empty()) {
      out.config_file = spec.option->results().back();
    } else if (const auto v = variable("CENTO_CONFIG")) {
      out.config_file = *v;
    } else {
      named = false;
      out.config_file = default_path();
    }
    g_->config_path = out.config_file;
    if (out.config_file.empty()) return;
    const auto text = environment_->read_file(out.config_file);
    if (!text && named) {
      throw Error{Code::kUsage, "no such configuration file", out.config_file, "check --config and CENTO_CONFIG"};
    }
    if (!text) return;
    out.config_found = true;
    items_ = parse_config(*text, out.config_file);
    check_items(out.config_file);
  }

  void resolve(Options& out, const std::vector<std::string>& topic) {
    const bool all = topic == std::vector<std::string>{"config"} || topic == std::vector<std::string>{"doctor"};
    for (FlagSpec& spec : g_->specs) {
      if (!all && !in_scope(spec.scope, topic)) continue;
      if (spec.key == "version") continue;
      Setting setting = take(spec, out.config_file, topic);
      if (!spec.key.empty()) out.settings.push_back(std::move(setting));
    }
  }

 private:
  std::optional<std::string> variable(const std::string& name) const {
    auto v = environment_->variable(name);
    if (v && v->empty()) return std::nullopt;
    return v;
  }

  std::string default_path() const {
    if (const auto v = variable("XDG_CONFIG_HOME")) return *v + "/cento/config.toml";
    if (const auto v = variable("HOME")) return *v + "/.config/cento/config.toml";
    return {};
  }

  // A name that no flag has is a slip that would otherwise go unnoticed.
  void check_items(const std::string& file) const {
    for (const ConfigItem& item : items_) {
      std::vector<std::string> known;
      const FlagSpec* found = nullptr;
      bool section_known = item.section.empty();
      for (const FlagSpec& spec : g_->specs) {
        if (spec.key.empty() || spec.key == "config" || spec.key == "version") continue;
        section_known |= spec.scope == item.section || spec.scope.starts_with(item.section + ".");
        if (spec.scope != item.section && !spec.scope.empty()) continue;
        known.push_back(spec.key);
        if (spec.key == item.key) found = &spec;
      }
      const std::string where = file + ", line " + std::to_string(item.line);
      if (!section_known)
        throw Error{Code::kUsage, "no subcommand [" + item.section + "] with settings", where, "cento config"};
      if (found == nullptr) {
        const std::string near = nearest_word(item.key, known);
        throw Error{Code::kUsage,
                    "no setting \"" + item.key + "\"" + (item.section.empty() ? "" : " in [" + item.section + "]"),
                    where, near.empty() ? "cento config lists all of them" : near};
      }
      if (item.array && !found->repeated)
        throw Error{Code::kUsage, "\"" + item.key + "\" takes one value", where, "write it without [ ]"};
      if (item.values.empty() && !item.array) throw Error{Code::kUsage, "\"" + item.key + "\" has no value", where, ""};
    }
  }

  // Section of the subcommand first, then the top of the file. A common flag may stand in a subcommand's section.
  const ConfigItem* find_item(const FlagSpec& spec, const std::vector<std::string>& topic) const {
    const ConfigItem* top = nullptr;
    for (const ConfigItem& item : items_) {
      if (item.key != spec.key) continue;
      if (!spec.scope.empty() ? item.section == spec.scope : !item.section.empty() && in_scope(item.section, topic))
        return &item;
      if (spec.scope.empty() && item.section.empty()) top = &item;
    }
    return top;
  }

  // One name for all subcommands, so that the first to have a flag owns its variable: `bench --prompt` is a number
  // where `query --prompt` is a file.
  bool has_variable(const FlagSpec& spec) const {
    const auto first =
        std::find_if(g_->specs.begin(), g_->specs.end(), [&](const FlagSpec& s) { return s.key == spec.key; });
    return first->value_name == spec.value_name;
  }

  Setting take(FlagSpec& spec, const std::string& config_file, const std::vector<std::string>& topic) {
    Setting setting{.name = spec.scope.empty() ? spec.key : spec.scope + "." + spec.key, .value = spec.default_text};
    std::vector<std::string> values = spec.option->results();
    std::string shown = "--" + spec.key;
    if (spec.key.empty()) shown = spec.option->get_name(true);
    const ConfigItem* item = nullptr;
    if (!values.empty()) {
      setting.from = Setting::From::kFlag;
      setting.where = shown;
    } else if (spec.key.empty()) {
      return setting;
    } else if (const auto v = has_variable(spec) ? variable(environment_name(spec.key)) : std::nullopt) {
      values = {*v};
      setting.from = Setting::From::kEnvironment;
      setting.where = shown = environment_name(spec.key);
    } else if ((item = find_item(spec, topic)) != nullptr) {
      values = item->values;
      setting.from = Setting::From::kFile;
      setting.where = config_file + ", line " + std::to_string(item->line);
      shown = item->key;
    } else {
      return setting;
    }
    try {
      if (!values.empty()) spec.set(values);
    } catch (const BadValue& bad) {
      std::string topic_text = "cento";
      for (const auto& t : topic) topic_text += " " + t;
      throw Error{Code::kUsage, shown + ": " + bad.why, item != nullptr ? setting.where : topic_text,
                  topic_text + " --help"};
    }
    setting.value = joined(spec.repeated || values.empty() ? values : std::vector<std::string>{values.back()});
    if (spec.key == "remote") setting.value = without_password(setting.value);
    return setting;
  }

  Grammar* g_;
  const ParseEnvironment* environment_;
  std::vector<ConfigItem> items_;
};

// ---- the command itself ----

[[noreturn]] void misuse(const std::string& what, const std::string& command, const std::string& hint = {}) {
  throw Error{Code::kUsage, what, "cento " + command, hint.empty() ? "cento " + command + " --help" : hint};
}

IndexCommand finish_index(Grammar& g) {
  g.index.options.collection = g.common.collection;
  for (const auto& converter : g.converters) {
    const size_t eq = converter.find('=');
    if (eq == 0 || eq == std::string::npos || eq + 1 == converter.size()) {
      misuse("--converter: \"" + converter + "\" is not EXT=COMMAND", "index", "--converter docx='docx2txt {} -'");
    }
    std::string extension = to_lower_ascii(converter.substr(0, eq));
    if (extension.starts_with(".")) extension.erase(0, 1);
    g.index.options.converters[extension] = converter.substr(eq + 1);
  }
  return g.index;
}

QueryCommand finish_query(Grammar& g) {
  QueryCommand& q = g.query;
  q.ask.collection = g.common.collection;
  q.ask.want_logits = !q.logits_file.empty();
  if (q.prompt_file.empty()) {
    if (trim(q.question).empty())
      misuse("a question is needed", "query", "cento query \"QUESTION\", or - to read it from stdin");
    if (q.keep) misuse("--keep goes with --prompt only", "query");
  } else {
    if (!q.question.empty()) misuse("--prompt holds the question; another one was given as well", "query");
    if (!q.ask.files.empty()) misuse("--file does not go with --prompt, which holds its own chunks", "query");
    if (!q.ask.chunks.empty()) misuse("--chunk does not go with --prompt, which holds its own chunks", "query");
  }
  for (const auto& stop : q.ask.stop) {
    if (stop.empty()) misuse("--stop: an empty text would end every answer", "query");
  }
  return q;
}

bool is_default(const Options& out, const std::string& name) {
  const auto at =
      std::find_if(out.settings.begin(), out.settings.end(), [&](const Setting& s) { return s.name == name; });
  return at == out.settings.end() || at->from == Setting::From::kDefault;
}

EvalCommand finish_eval(Grammar& g, const Options& out) {
  EvalCommand& e = g.eval;
  e.eval.collection = g.common.collection;
  const bool own = e.eval.own_documents > 0;
  if (e.eval.data.empty() && !own)
    misuse("a file of items is needed", "eval", "cento eval DATA.jsonl, or cento eval --on-my-documents");
  if (own && e.eval.own_answer_tokens == 0)
    misuse("--on-my-documents compares answers, and --own-answer-tokens 0 makes none", "eval");
  // The program's own way of answering, unless another one is asked for.
  if (own && is_default(out, "eval.policy")) e.policies = {"query"};
  if (own && is_default(out, "eval.ratio")) e.ratios = {kDefaultRatio};
  return e;
}

void finish_command(Grammar& g, const std::vector<std::string>& topic, Options& out) {
  if (topic.empty()) {
    throw Error{Code::kUsage, "a subcommand is needed", "cento",
                "cento --help, or one of " + joined(subcommand_names(g.doc))};
  }
  const CommandDoc& doc = *find_command(g.doc, topic);
  if (!doc.subcommands.empty())
    misuse("a subcommand of " + topic.back() + " is needed", topic.back(), one_of(subcommand_names(doc)));
  if (topic[0] == "index") out.command = finish_index(g);
  if (topic[0] == "precompute") {
    g.precompute.options.collection = g.common.collection;
    out.command = g.precompute;
  }
  if (topic[0] == "query") out.command = finish_query(g);
  if (topic[0] == "cache") {
    using Action = CacheCommand::Action;
    const std::map<std::string, Action> actions = {
        {"status", Action::kStatus}, {"list", Action::kList},  {"verify", Action::kVerify}, {"gc", Action::kGc},
        {"rm", Action::kRemove},     {"trim", Action::kTrim},  {"export", Action::kExport}, {"import", Action::kImport},
        {"folder", Action::kFolder}, {"rekey", Action::kRekey}};
    g.cache.action = actions.at(topic[1]);
    if (topic[1] == "rm" && g.cache.ids.empty()) misuse("an ID is needed", "cache rm", "cento cache list shows them");
    if ((topic[1] == "export" || topic[1] == "import") && g.cache.file.empty())
      misuse("a FILE is needed", "cache " + topic[1]);
    if (topic[1] == "folder" && g.cache.folder.empty()) misuse("a DIR is needed", "cache folder");
    if (topic[1] == "rekey" && g.cache.new_key_file.empty() == !g.cache.decrypt)
      misuse("either --new-key-file FILE or --decrypt is needed", "cache rekey");
    if (topic[1] == "trim") {
      if (is_default(out, "cache.trim.max-bytes")) misuse("--max-bytes is needed", "cache trim");
    }
    out.command = g.cache;
  }
  if (topic[0] == "model") {
    using Action = ModelCommand::Action;
    const std::map<std::string, Action> actions = {
        {"list", Action::kList}, {"show", Action::kShow}, {"tokenize", Action::kTokenize}, {"check", Action::kCheck}};
    g.model.action = actions.at(topic[1]);
    if (topic[1] == "show" && g.model.file.empty())
      misuse("a FILE is needed", "model show", "cento model list shows them");
    out.command = g.model;
  }
  if (topic[0] == "bench") out.command = g.bench;
  if (topic[0] == "eval") out.command = finish_eval(g, out);
  if (topic[0] == "config") out.command = ConfigCommand{};
  if (topic[0] == "doctor") out.command = DoctorCommand{};
  if (topic[0] == "completion") {
    if (g.completion.shell.empty()) misuse("a shell is needed: bash, zsh or fish", "completion");
    out.command = g.completion;
  }
  if (topic[0] == "help") {
    const auto* found = find_command(g.doc, g.help.topic);
    if (found == nullptr)
      misuse("no subcommand \"" + joined(g.help.topic) + "\"", "help", one_of(subcommand_names(g.doc)));
    out.command = g.help;
  }
}

}  // namespace

const char* setting_from_name(Setting::From from) {
  switch (from) {
    case Setting::From::kFlag:
      return "flag";
    case Setting::From::kEnvironment:
      return "environment";
    case Setting::From::kFile:
      return "file";
    case Setting::From::kDefault:
      return "default";
  }
  return "default";
}

ParseOutcome parse_options(const std::vector<std::string>& args, const ParseEnvironment& environment) {
  const auto grammar = std::make_unique<Grammar>();
  Grammar& g = *grammar;
  ParseOutcome out;
  try {
    split_command_line(g, args);
  } catch (const CLI::Success&) {
    out.print = help_text(*find_command(g.doc, chosen(g.app)), g.doc.options);
    return out;
  }
  if (g.app.get_option("--version")->count() > 0) {
    out.print = "cento " CENTO_VERSION "\n";
    return out;
  }
  const auto topic = chosen(g.app);
  Resolver resolver(g, environment);
  // These must work with a broken configuration file: they help to mend it.
  const bool needs_config = topic.empty() || (topic[0] != "help" && topic[0] != "completion");
  if (needs_config) resolver.read_config(out.options);
  resolver.resolve(out.options, topic);
  finish_command(g, topic, out.options);
  if (g.common.quiet && g.common.verbose) {
    throw Error{Code::kUsage, "--quiet and --verbose contradict each other", "cento", "leave one of them out"};
  }
  out.options.common = g.common;
  return out;
}

CommandDoc describe_program() { return Grammar().doc; }

}  // namespace cento
