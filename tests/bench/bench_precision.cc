// bench_precision MODEL.gguf GOLDEN.json [--rows N] [--out FILE] [--tokens-max N]
//
// How far fast mode is from float32 mode: mean, median and largest KL divergence over the positions of each golden
// prompt (shared/data/golden), in nats, and how often the first choice is the same. With --out it also writes, for N
// positions spread evenly over each prompt, what precision_peer.py needs to measure llama.cpp in the same way: one
// JSON line {"ids", "kl"} and a float32 row of the reference's log-probabilities [V] behind it.
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "bench/bench.h"
#include "engine/engine.h"

namespace cento::bench {
namespace {

constexpr size_t kPiece = 64;  // rows whose logits are alive at once

struct Options {
  std::string model, golden, out;
  size_t rows = 16, tokens_max = SIZE_MAX;
};

std::vector<double> log_probabilities(std::span<const float> logits) {
  const double top = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0;
  for (const float l : logits) sum += std::exp(static_cast<double>(l) - top);
  std::vector<double> out;
  out.reserve(logits.size());
  for (const float l : logits) out.push_back(static_cast<double>(l) - top - std::log(sum));
  return out;
}

double kl_divergence(const std::vector<double>& p, const std::vector<double>& q) {
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) sum += std::exp(p[i]) * (p[i] - q[i]);
  return sum;
}

void write_row(std::ofstream& out, std::span<const int32_t> ids, double kl, const std::vector<double>& reference) {
  out << nlohmann::json{{"ids", std::vector<int32_t>(ids.begin(), ids.end())}, {"kl", kl}}.dump() << "\n";
  const std::vector<float> row(reference.begin(), reference.end());
  out.write(reinterpret_cast<const char*>(row.data()), static_cast<std::streamsize>(row.size() * sizeof(float)));
}

// KL of each position.
std::vector<double> measure_prompt(Engine& f32, Engine& fast, std::span<const int32_t> ids, const Options& options,
                                   std::ofstream& out) {
  std::set<size_t> wanted;
  for (size_t i = 1; i <= options.rows; ++i) wanted.insert(ids.size() * i / options.rows - 1);
  f32.truncate(0);
  fast.truncate(0);
  const size_t vocab = f32.model().config().vocab;
  std::vector<double> kls;
  size_t same = 0;
  for (size_t from = 0; from < ids.size(); from += kPiece) {
    const auto piece = ids.subspan(from, std::min(kPiece, ids.size() - from));
    const std::vector<float> a = f32.extend(piece, true), b = fast.extend(piece, true);
    for (size_t i = 0; i < piece.size(); ++i) {
      const auto p = log_probabilities(std::span(a).subspan(i * vocab, vocab)),
                 q = log_probabilities(std::span(b).subspan(i * vocab, vocab));
      kls.push_back(kl_divergence(p, q));
      same += std::max_element(p.begin(), p.end()) - p.begin() == std::max_element(q.begin(), q.end()) - q.begin();
      if (out.is_open() && wanted.count(from + i) > 0) write_row(out, ids.first(from + i + 1), kls.back(), p);
    }
  }
  std::vector<double> sorted = kls;
  std::sort(sorted.begin(), sorted.end());
  double sum = 0;
  for (const double kl : kls) sum += kl;
  std::printf("%5zu tokens: KL mean %.2e, median %.2e, largest %.2e; same first choice %.1f %%\n", ids.size(),
              sum / static_cast<double>(kls.size()), sorted[sorted.size() / 2], sorted.back(),
              100.0 * static_cast<double>(same) / static_cast<double>(kls.size()));
  std::fflush(stdout);
  return kls;
}

int run(const Options& options) {
  std::ifstream file(options.golden);
  const auto golden = nlohmann::json::parse(file);
  LoadedModel exact({options.model, Precision::kF32, "auto", nullptr, 0, ""}),
      quick({options.model, Precision::kFast, "auto", nullptr, 0, ""});
  Engine f32(exact), fast(quick);
  std::ofstream out;
  if (!options.out.empty()) out.open(options.out, std::ios::binary);
  print_machine(quick.pool().size());
  std::printf("%s, target %s; fast against float32, nats\n", quick.name().c_str(), quick.ops().name);
  double sum = 0;
  size_t n = 0;
  for (const auto& run : golden["runs"]) {
    auto ids = run["ids"].get<std::vector<int32_t>>();
    ids.resize(std::min(ids.size(), options.tokens_max));
    for (const double kl : measure_prompt(f32, fast, ids, options, out)) {
      sum += kl;
      ++n;
    }
  }
  std::printf("all: KL mean %.2e over %zu positions\n", sum / static_cast<double>(n), n);
  return 0;
}

}  // namespace
}  // namespace cento::bench

int main(int argc, char** argv) {
  cento::bench::Options options;
  bool good = argc >= 3 && argc % 2 == 1;
  for (int i = 3; good && i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    if (flag == "--out")
      options.out = argv[i + 1];
    else if (flag == "--rows")
      options.rows = std::strtoul(argv[i + 1], nullptr, 10);
    else if (flag == "--tokens-max")
      options.tokens_max = std::strtoul(argv[i + 1], nullptr, 10);
    else
      good = false;
  }
  if (good && options.rows > 0 && options.tokens_max > 0) {
    options.model = argv[1];
    options.golden = argv[2];
    return cento::bench::run(options);
  }
  std::fprintf(stderr, "usage: bench_precision MODEL.gguf GOLDEN.json [--rows N] [--out FILE] [--tokens-max N]\n");
  return 2;
}
