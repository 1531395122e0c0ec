#include "eval/peer.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/text.h"

namespace cento {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kHint = "--against takes the llama-bench program of llama.cpp";

Error bad_peer(const PeerRequest& request, const std::string& what) {
  return Error{Code::kInput, "the peer " + what, request.program, kHint};
}

std::optional<uint64_t> count_of(const Json& run, const char* key) {
  const auto it = run.find(key);
  if (it == run.end() || !it->is_number_unsigned()) return std::nullopt;
  return it->get<uint64_t>();
}

// "flash_attn" has been a bool and a number, in the course of time; nullopt for "auto" (-1) and anything else.
std::optional<bool> flash_attention_of(const Json& run) {
  const auto it = run.find("flash_attn");
  if (it == run.end()) return std::nullopt;
  if (it->is_boolean()) return it->get<bool>();
  const auto number = count_of(run, "flash_attn");
  if (!number || *number > 1) return std::nullopt;
  return *number == 1;
}

std::string text_of(const Json& run, const char* key) {
  const auto it = run.find(key);
  return it != run.end() && it->is_string() ? it->get<std::string>() : "";
}

bool is_rate(const Json& value) {
  return value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() > 0;
}

// Tokens per second of the repetitions; of versions that do not list them, their average.
std::optional<std::vector<double>> samples_of(const Json& run) {
  const auto samples = run.find("samples_ts");
  if (samples == run.end()) {
    const auto average = run.find("avg_ts");
    if (average == run.end() || !is_rate(*average)) return std::nullopt;
    return std::vector<double>{average->get<double>()};
  }
  if (!samples->is_array() || samples->empty()) return std::nullopt;
  std::vector<double> out;
  for (const Json& sample : *samples) {
    if (!is_rate(sample)) return std::nullopt;
    out.push_back(sample.get<double>());
  }
  return out;
}

// The test of `prompt` and `decode` tokens with this setting of flash attention.
PeerFigure figure_of(const Json& runs, const PeerRequest& request, size_t prompt, size_t decode, bool flash) {
  const std::string which =
      (prompt > 0 ? "prompt test of " + std::to_string(prompt) : "decode test of " + std::to_string(decode)) +
      " tokens with flash attention " + (flash ? "on" : "off");
  for (const Json& run : runs) {
    if (!run.is_object()) throw bad_peer(request, "printed a list of something else than test results");
    if (count_of(run, "n_prompt") != prompt || count_of(run, "n_gen") != decode) continue;
    if (flash_attention_of(run) != flash || count_of(run, "n_depth").value_or(0) != 0) continue;
    if (const auto threads = count_of(run, "n_threads"); threads && *threads != request.threads) {
      throw bad_peer(request, "ran its " + which + " on " + std::to_string(*threads) + " threads, not on " +
                                  std::to_string(request.threads));
    }
    const auto samples = samples_of(run);
    if (!samples) throw bad_peer(request, "printed no usable speed for its " + which);
    return {spread_of(*samples), flash};
  }
  throw bad_peer(request, "printed no result of its " + which);
}

PeerFigure better(const std::vector<PeerFigure>& figures) {
  return *std::max_element(figures.begin(), figures.end(), [](const PeerFigure& a, const PeerFigure& b) {
    return a.tokens_per_second.median < b.tokens_per_second.median;
  });
}

std::vector<std::string> peer_command(const PeerRequest& r) {
  return {r.program,
          "-m",
          r.model_file,
          "-p",
          std::to_string(r.prompt_tokens),
          "-n",
          std::to_string(r.decode_tokens),
          "-t",
          std::to_string(r.threads),
          "-r",
          std::to_string(r.repeat),
          "-ngl",
          "0",
          "-fa",
          "0,1",
          "-o",
          "json"};
}

void require_program(const std::string& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) throw Error{Code::kInput, "there is no such program", path, kHint};
  if (!fs::is_regular_file(path, ignored) || ::access(path.c_str(), X_OK) != 0)
    throw Error{Code::kInput, "this is no program that may be executed", path, kHint};
}

}  // namespace

std::string find_peer(const std::string& program) {
  if (program.find('/') != std::string::npos) {
    require_program(program);
    return program;
  }
  const char* path = std::getenv("PATH");
  const std::string folders = path == nullptr ? "" : path;
  for (size_t i = 0; i <= folders.size();) {
    const size_t end = std::min(folders.find(':', i), folders.size());
    const std::string folder = end > i ? folders.substr(i, end - i) : ".";
    const std::string candidate = folder + "/" + program;
    std::error_code ignored;
    if (!program.empty() && fs::is_regular_file(candidate, ignored) && ::access(candidate.c_str(), X_OK) == 0)
      return candidate;
    i = end + 1;
  }
  throw Error{Code::kInput, "no program \"" + printable(program) + "\" in PATH", "--against",
              "give its path, as in --against ./llama-bench"};
}

PeerReport parse_peer_output(const std::string& output, const PeerRequest& request) {
  const Json runs = Json::parse(output, nullptr, false);
  if (runs.is_discarded() || !runs.is_array()) {
    const std::string_view said = trim(output);
    throw bad_peer(request, said.empty() ? "printed nothing"
                                         : "printed something else than llama-bench's JSON: \"" +
                                               printable(to_valid_utf8(said.substr(0, 60))) + "\"");
  }
  PeerReport report;
  report.program = request.program;
  for (const bool flash : {false, true}) {
    report.all_prefill.push_back(figure_of(runs, request, request.prompt_tokens, 0, flash));
    report.all_decode.push_back(figure_of(runs, request, 0, request.decode_tokens, flash));
  }
  report.prefill = better(report.all_prefill);
  report.decode = better(report.all_decode);
  report.build = text_of(runs[0], "build_commit");
  report.backends = text_of(runs[0], "backends");
  return report;
}

std::optional<PeerReport> run_peer(const PeerRequest& request, const ProcessLimits& limits,
                                   const std::function<bool()>& stop) {
  const ProcessEnd end = run_process(peer_command(request), limits, stop).or_throw();
  if (end.how == ProcessEnd::How::kStopped) return std::nullopt;
  if (!end.ok()) throw bad_peer(request, process_failure(end, limits));
  return parse_peer_output(end.out, request);
}

}  // namespace cento
