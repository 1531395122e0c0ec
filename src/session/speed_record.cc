#include "session/speed_record.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/log.h"

namespace cento {
namespace {

constexpr double kKeep = 0.9;    // weight of what was known when something is observed
constexpr double kRowsMin = 16;  // fewer rows say more about overhead than about speed
constexpr double kBytesMin = 1 << 16;

}  // namespace

void SpeedRecord::observe_compute(double n_rows, double n_row_keys, double ms) {
  if (!(n_rows >= kRowsMin) || !(ms > 0) || !std::isfinite(ms) || !std::isfinite(n_row_keys)) return;
  const double r = n_rows / ms, k = n_row_keys / ms;
  for (double* sum : {&rr_, &rk_, &kk_, &r1_, &k1_}) *sum *= kKeep;
  rr_ += r * r;
  rk_ += r * k;
  kk_ += k * k;
  r1_ += r;
  k1_ += k;
}

void SpeedRecord::observe_load(double n_bytes, double ms) {
  if (!(n_bytes >= kBytesMin) || !(ms >= 0) || !std::isfinite(ms)) return;
  bytes_ = kKeep * bytes_ + n_bytes;
  load_ms_ = kKeep * load_ms_ + ms;
}

void SpeedRecord::observe(const PipelineReport& report, const KvShape& shape) {
  if (report.stopped) return;
  observe_compute(report.rows_computed, report.row_keys, report.probe_ms + report.compute_ms);
  // KV that was in memory already says nothing about the disk.
  const uint64_t rows = report.bytes_loaded > 0 ? report.n_reused + report.n_recomputed : 0;
  observe_load(static_cast<double>(2 * shape.n_layers * shape.side_bytes(rows)), report.load_ms);
}

std::optional<CostModel> SpeedRecord::cost() const {
  if (!(rr_ > 0)) return std::nullopt;
  CostModel cost;
  const double determinant = rr_ * kk_ - rk_ * rk_;
  // Prompts of about one length cannot tell rows from keys: then rows count, as they do in prompts of that length.
  if (determinant > 1e-3 * rr_ * kk_) {
    cost.row_ms = (r1_ * kk_ - k1_ * rk_) / determinant;
    cost.row_key_ms = (k1_ * rr_ - r1_ * rk_) / determinant;
  }
  if (!(cost.row_ms > 0) || !(cost.row_key_ms >= 0)) {
    cost.row_ms = r1_ / rr_;
    cost.row_key_ms = 0;
  }
  if (bytes_ > 0) cost.load_ms_per_byte = load_ms_ / bytes_;
  return cost;
}

std::string SpeedRecord::text() const {
  char out[256];
  std::snprintf(out, sizeof out, "%.9g %.9g %.9g %.9g %.9g %.9g %.9g", rr_, rk_, kk_, r1_, k1_, bytes_, load_ms_);
  return out;
}

std::optional<SpeedRecord> SpeedRecord::from_text(const std::string& text) {
  SpeedRecord r;
  double* const fields[] = {&r.rr_, &r.rk_, &r.kk_, &r.r1_, &r.k1_, &r.bytes_, &r.load_ms_};
  const char* at = text.c_str();
  for (double* field : fields) {
    char* end = nullptr;
    *field = std::strtod(at, &end);
    if (end == at || !std::isfinite(*field) || *field < 0) return std::nullopt;
    at = end;
  }
  return *at == '\0' ? std::optional(r) : std::nullopt;
}

std::string speed_key(Engine& engine) {
  return "speed/1/" + engine.model().fingerprint().short_hex() + "/" + engine.model().layout().short_hex() + "/" +
         engine.model().ops().name + "/" + std::to_string(engine.model().pool().size());
}

SpeedRecord read_speed(Engine& engine, Catalogue* catalogue) {
  if (catalogue == nullptr) return {};
  const auto text = catalogue->setting(speed_key(engine));
  return text ? SpeedRecord::from_text(*text).value_or(SpeedRecord{}) : SpeedRecord{};
}

void write_speed(Engine& engine, Catalogue* catalogue, const SpeedRecord& record) {
  if (catalogue == nullptr || catalogue->db().read_only()) return;
  try {
    catalogue->note_setting(speed_key(engine), record.text());
  } catch (const Error& error) {  // busy, or the disk is full: the answer does not depend on it
    log_debug("the speed that was measured is not kept: " + error.message());
  }
}

}  // namespace cento
