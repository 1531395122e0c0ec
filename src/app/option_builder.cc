#include "app/option_builder.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/check.h"
#include "base/text.h"

namespace cento {
namespace {

constexpr size_t kSubcommandsMax = 32;  // reserved, so that references into the description stay good

std::vector<std::string> split_names(const std::string& names) {
  std::vector<std::string> out;
  for (size_t i = 0; i <= names.size();) {
    const size_t end = std::min(names.find(',', i), names.size());
    out.push_back(names.substr(i, end - i));
    i = end + 1;
  }
  return out;
}

std::string key_of(const std::vector<std::string>& names) {
  for (const auto& n : names) {
    if (n.starts_with("--")) return n.substr(2);
  }
  return {};
}

double real_of(const std::string& text, double min, double max) {
  double v = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (error != std::errc() || end != text.data() + text.size() || !(v >= min && v <= max)) {
    std::string range = "a number";
    char buffer[96];
    if (std::isfinite(max)) {
      std::snprintf(buffer, sizeof buffer, "a number from %g to %g", min, max);
      range = buffer;
    } else {
      std::snprintf(buffer, sizeof buffer, "a number of at least %g", min);
      range = buffer;
    }
    throw BadValue{"\"" + text + "\" is not " + range};
  }
  return v;
}

uint64_t size_of(const std::string& text) {
  const auto bytes = parse_size(text);
  if (!bytes) throw BadValue{"\"" + text + "\" is not a size such as 512MiB, 2GB or 1.5GiB"};
  return *bytes;
}

}  // namespace

void CommandBuilder::add(CLI::Option* option, OptionDoc doc, FlagSpec spec) {
  spec.option = option;
  spec.app = app_;
  spec.scope = scope_;
  spec.value_name = doc.value;
  spec.default_text = doc.default_text;
  spec.repeated = doc.repeated;
  specs_->push_back(std::move(spec));
  doc_->options.push_back(std::move(doc));
}

void CommandBuilder::value(const std::string& names, const std::string& value_name, const std::string& help,
                           const std::string& default_text, SetValues set) {
  OptionDoc doc{.names = split_names(names), .value = value_name, .help = help, .default_text = default_text};
  FlagSpec spec;
  spec.key = key_of(doc.names);
  spec.takes_value = true;
  spec.set = std::move(set);
  CLI::Option* option = app_->add_option(names, CLI::callback_t{}, help);
  option->type_name(value_name)->type_size(1)->expected(1)->take_last();
  add(option, std::move(doc), std::move(spec));
}

void CommandBuilder::optional_value(const std::string& names, const std::string& value_name, const std::string& help,
                                    SetValues set) {
  value(names, value_name, help, "", std::move(set));
  specs_->back().option->expected(0, 1);  // CLI11 gives "" for one that stands alone
}

void CommandBuilder::list(const std::string& names, const std::string& value_name, const std::string& help,
                          std::vector<std::string>& out) {
  value(names, value_name, help, "", to_texts(out));
  specs_->back().repeated = doc_->options.back().repeated = true;
  specs_->back().option->take_all();
}

void CommandBuilder::flag(const std::string& names, const std::string& help, bool& out) {
  OptionDoc doc{.names = split_names(names), .help = help};
  FlagSpec spec;
  spec.key = key_of(doc.names);
  spec.set = [&out](const std::vector<std::string>& v) { out = bool_of(v.back()); };
  add(app_->add_flag(names, help), std::move(doc), std::move(spec));
  specs_->back().default_text = out ? "true" : "false";
}

void CommandBuilder::inverse(const std::string& names, const std::string& help, bool& out) {
  flag(names, help, out);
  specs_->back().set = [&out](const std::vector<std::string>& v) { out = !bool_of(v.back()); };
  specs_->back().default_text = out ? "false" : "true";
}

void CommandBuilder::toggle(const std::string& name, const std::string& help, bool& out) {
  CHECK(name.starts_with("--"));
  const std::string no = "--no-" + name.substr(2);
  OptionDoc doc{.names = {name, no}, .help = help};
  FlagSpec spec;
  spec.key = name.substr(2);
  spec.set = [&out](const std::vector<std::string>& v) { out = bool_of(v.back()); };
  add(app_->add_flag(name + ",!" + no, help), std::move(doc), std::move(spec));
  specs_->back().default_text = out ? "true" : "false";
}

void CommandBuilder::positional(const std::string& name, const std::string& help, bool required, SetValues set,
                                bool repeated) {
  OptionDoc doc{.names = {name}, .help = help, .positional = true, .required = required, .repeated = repeated};
  FlagSpec spec;
  spec.takes_value = true;
  spec.set = std::move(set);
  CLI::Option* option = app_->add_option(name, CLI::callback_t{}, help);
  // Any number of words is written as an unreachable minimum: CLI11's own "unlimited" reads "[a,b]" as two values, and
  // that is a legal file name.
  constexpr int kManyWords = 1 << 20;
  option->type_name(name)->type_size(1)->expected(repeated ? kManyWords : 1)->take_all();
  add(option, std::move(doc), std::move(spec));
}

CommandBuilder CommandBuilder::subcommand(const std::string& name, const std::string& what, const std::string& more,
                                          const std::string& examples) {
  if (doc_->subcommands.capacity() < kSubcommandsMax) doc_->subcommands.reserve(kSubcommandsMax);
  CHECK(doc_->subcommands.size() < kSubcommandsMax);
  CommandDoc doc;
  doc.path = doc_->path;
  doc.path.push_back(name);
  doc.what = what;
  doc.more = more;
  doc.examples = examples;
  doc_->subcommands.push_back(std::move(doc));
  CLI::App* sub = app_->add_subcommand(name, what);
  sub->fallthrough();
  return {*sub, doc_->subcommands.back(), *specs_, scope_.empty() ? name : scope_ + "." + name};
}

SetValues to_text(std::string& out) {
  return [&out](const std::vector<std::string>& v) { out = v.back(); };
}
SetValues to_texts(std::vector<std::string>& out) {
  return [&out](const std::vector<std::string>& v) { out = v; };
}
SetValues to_size(uint64_t& out) {
  return [&out](const std::vector<std::string>& v) { out = size_of(v.back()); };
}
SetValues to_duration_ms(int64_t& out) {
  return [&out](const std::vector<std::string>& v) {
    const auto ms = parse_duration_ms(v.back());
    if (!ms || *ms < 0) throw BadValue{"\"" + v.back() + "\" is not a time such as 30s, 10m or 7d"};
    out = *ms;
  };
}

SetValues to_optional_size(std::optional<uint64_t>& out) {
  return [&out](const std::vector<std::string>& v) { out = size_of(v.back()); };
}
SetValues to_real(double& out, double min, double max) {
  return [&out, min, max](const std::vector<std::string>& v) { out = real_of(v.back(), min, max); };
}
SetValues to_optional_real(std::optional<double>& out, double min, double max) {
  return [&out, min, max](const std::vector<std::string>& v) { out = real_of(v.back(), min, max); };
}
SetValues to_number_or(size_t& out, uint64_t min, uint64_t max, size_t if_bare) {
  return [&out, min, max, if_bare](const std::vector<std::string>& v) {
    if (v.back().empty() || v.back() == "true" || v.back() == "false") {
      out = v.back() == "false" ? 0 : if_bare;
    } else {
      out = static_cast<size_t>(whole_number(v.back(), min, max));
    }
  };
}
SetValues to_choice(std::vector<std::string> choices, std::function<void(const std::string&)> take) {
  return [choices = std::move(choices), take = std::move(take)](const std::vector<std::string>& v) {
    if (std::find(choices.begin(), choices.end(), v.back()) == choices.end()) {
      throw BadValue{"\"" + v.back() + "\" is not " + one_of(choices)};
    }
    take(v.back());
  };
}

uint64_t whole_number(const std::string& text, uint64_t min, uint64_t max) {
  uint64_t v = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (error != std::errc() || end != text.data() + text.size() || v < min || v > max) {
    throw BadValue{"\"" + text + "\" is not a whole number from " + std::to_string(min) + " to " + std::to_string(max)};
  }
  return v;
}

bool bool_of(const std::string& text) {
  const std::string t = to_lower_ascii(text);
  if (t == "true" || t == "yes" || t == "on" || t == "1") return true;
  if (t == "false" || t == "no" || t == "off" || t == "0") return false;
  throw BadValue{"\"" + text + "\" is not true or false"};
}

std::string one_of(const std::vector<std::string>& words) {
  std::string out;
  for (size_t i = 0; i < words.size(); ++i) {
    out += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  }
  return out;
}

std::string nearest_word(const std::string& typed, const std::vector<std::string>& words) {
  std::string best;
  size_t best_distance = std::max<size_t>(1, (typed.size() + 1) / 3) + 1;  // farther than this is no slip of the finger
  for (const auto& word : words) {
    // Edit distance, one row at a time.
    std::vector<size_t> row(word.size() + 1);
    for (size_t j = 0; j <= word.size(); ++j) row[j] = j;
    for (size_t i = 1; i <= typed.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j <= word.size(); ++j) {
        const size_t substituted = diagonal + (typed[i - 1] == word[j - 1] ? 0 : 1);
        diagonal = row[j];
        row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
      }
    }
    if (row.back() < best_distance) {
      best_distance = row.back();
      best = word;
    }
  }
  return best;
}

}  // namespace cento
