#include "session/model_record.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace cento {
namespace {

constexpr double kRowsAtFullRatio = 4000;

std::string record_key(Engine& engine) {
  return "record/1/" + engine.model().fingerprint().short_hex() + "/" + engine.model().layout().short_hex() + "/" +
         engine.model().ops().name;
}

}  // namespace

double Guard::probability(const Residual& residual) const {
  const auto x = residual.features();
  double sum = bias;
  for (size_t i = 0; i < x.size(); ++i) sum += weights[i] * x[i];
  return 1 / (1 + std::exp(-sum));
}

double ratio_for(const ModelRecord& record, size_t n) {
  return record.ratio * std::min(1.0, kRowsAtFullRatio / static_cast<double>(std::max<size_t>(n, 1)));
}

std::string to_text(const ModelRecord& record) {
  nlohmann::json j = {{"ratio", record.ratio}, {"repair", repair_name(record.repair)},
                      {"kl", record.kl},       {"kl_worst", record.kl_worst},
                      {"top1", record.top1},   {"prompts", record.n_prompts}};
  if (record.guard)
    j["guard"] = {{"bias", record.guard->bias}, {"weights", record.guard->weights}, {"limit", record.guard->limit}};
  return j.dump();
}

std::optional<ModelRecord> record_from_text(const std::string& text) {
  try {
    const auto j = nlohmann::json::parse(text);
    ModelRecord r;
    r.ratio = j.at("ratio").get<double>();
    const auto repair = find_repair(j.at("repair").get<std::string>());
    if (!repair || !(r.ratio >= 0 && r.ratio <= 1)) return std::nullopt;
    r.repair = *repair;
    r.kl = j.at("kl").get<double>();
    r.kl_worst = j.at("kl_worst").get<double>();
    r.top1 = j.at("top1").get<double>();
    r.n_prompts = j.at("prompts").get<size_t>();
    if (j.contains("guard")) {
      const auto& g = j.at("guard");
      r.guard = Guard{g.at("bias").get<double>(), g.at("weights").get<std::array<double, Residual::kFeatures>>(),
                      g.at("limit").get<double>()};
    }
    return r;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

std::optional<ModelRecord> read_record(Engine& engine, Catalogue* catalogue) {
  const auto text = catalogue == nullptr ? std::nullopt : catalogue->setting(record_key(engine));
  return text ? record_from_text(*text) : std::nullopt;
}

void write_record(Engine& engine, Catalogue& catalogue, const ModelRecord& record) {
  catalogue.set_setting(record_key(engine), to_text(record));
}

}  // namespace cento
