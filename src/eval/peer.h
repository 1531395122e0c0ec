// llama.cpp's llama-bench as the peer that speed is held against: found, run on the same file, understood.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/process.h"
#include "eval/spread.h"

namespace cento {

struct PeerRequest {
  std::string program;  // as find_peer gave it
  std::string model_file;
  size_t prompt_tokens = 512, decode_tokens = 64, threads = 1, repeat = 10;
};

// One test of one setting.
struct PeerFigure {
  Spread tokens_per_second;
  bool flash_attention = false;
};

struct PeerReport {
  std::string program, build, backends;             // build: commit; both as it says, "" if it does not
  PeerFigure prefill, decode;                       // each with the better flash-attention setting
  std::vector<PeerFigure> all_prefill, all_decode;  // both settings
};

// The file that `program` means: a path, or a name looked for in PATH. Throws Error(kInput) if there is none or if it
// may not be executed.
std::string find_peer(const std::string& program);

// What llama-bench printed (-o json) for both settings of -fa. Throws Error(kInput) naming what is wrong or missing;
// any bytes are safe. Tests of other sizes in the list are passed over.
PeerReport parse_peer_output(const std::string& output, const PeerRequest& request);

// Runs it once for both settings. nullopt: `stop` said so. Throws Error(kInput) for a program that does not start, ends
// badly, takes or prints too much, or says something else than llama-bench.
std::optional<PeerReport> run_peer(const PeerRequest& request, const ProcessLimits& limits,
                                   const std::function<bool()>& stop);

}  // namespace cento
