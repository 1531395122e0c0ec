// One question answered: retrieval, plan, prefill, decode, report. What `query` does, and later serve and chat.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "blend/policy.h"
#include "docs/doc_store.h"
#include "docs/retriever.h"
#include "engine/loaded_model.h"
#include "engine/sampler.h"
#include "kv/kv_store.h"
#include "session/chunk_order.h"

namespace cento {

enum class PrefillMode { kAuto, kFull, kPrefix, kReuse, kBlend };
std::optional<PrefillMode> find_prefill_mode(std::string_view name);
const char* prefill_mode_name(PrefillMode mode);

struct AskOptions {
  std::string collection = "default";
  size_t top_k = 5;
  ChunkOrder order = ChunkOrder::kRank;
  std::vector<std::string> chunks;  // chunk ids (hex, or an unambiguous beginning) instead of retrieval
  std::vector<std::string> files;   // paths whose text is put into the prompt whole, behind what was found
  PrefillMode prefill = PrefillMode::kAuto;
  // Where it has no ratio of its own, the model's record says which (session/model_record.h); so too for `repair`.
  BlendSettings blend;
  std::optional<Repair> repair;
  bool guard = true;  // with kAuto: a blend that the model's guard does not trust is computed anew with more rows, then
                      // in full
  size_t max_tokens = 256;
  SamplerOptions sampler;
  std::vector<std::string> stop;
  std::string system;  // empty: default_system_text()
  bool verify = false;
  bool want_logits = false;  // fill Answer::logits
};
const std::string& default_system_text();
inline constexpr size_t kMinBlendTokens = 256;  // shorter prompts are prefilled in full (DESIGN 3)

// Explicit segments, no retrieval; nothing is stored unless keep.
struct PromptFile {
  std::string system;
  std::vector<std::string> chunks;
  std::string question;
  std::optional<std::string> answer;  // teacher-forced
  std::vector<std::string>
      stand_in;       // passages of the same set: chunks are computed behind them (DESIGN 2); may be empty
  bool keep = false;  // store the chunks' KV
};
// Throws Error(kUsage) naming what is wrong.
PromptFile parse_prompt_file(const std::string& json);

struct Citation {
  size_t n;            // from 1, as shown
  std::string source;  // path
  uint32_t line_from, line_to;
  std::string chunk;  // id
  double score;
  std::string text;  // the chunk's body, for --show-sources
};

struct ChunkReport {
  std::string id, source;
  size_t tokens;
  std::string from;    // "disk", "ram", "computed"
  std::string reason;  // why it was computed; empty otherwise
};

// What the model's guard said of a blend (session/model_record.h).
struct GuardReport {
  double chance = 0, limit = 0;  // of a KL above kGuardKl; the last of the tries
  std::string action = "none";   // "ratio": more rows were recomputed; "full": everything was computed in the end
};

struct CacheReport {
  PrefillMode mode = PrefillMode::kFull;  // never kAuto
  std::string policy;                     // "" unless blended
  double ratio = 0, charged = 1;
  std::string why;
  size_t total = 0, exact = 0, reused = 0, recomputed = 0, fresh = 0;  // rows
  std::vector<ChunkReport> chunks;
  uint64_t bytes_loaded = 0;
  std::optional<GuardReport> guard;  // where the model has one and it was asked
};

struct Timings {
  double load_model_ms = 0, retrieve_ms = 0, kv_load_ms = 0, prefill_ms = 0, ttft_ms = 0;
  size_t decode_tokens = 0;
  double decode_tokens_per_second = 0;
  double precompute_ms = 0;  // of ask_prompt: computing chunk KV that was not stored; not part of ttft_ms
  // Where ttft_ms went, one stage behind the other: with retrieve_ms they make it up, but for rounding.
  double prepare_ms = 0;    // tokenising, looking up and opening stored KV, room for it
  double load_wait_ms = 0;  // the loader was behind: what of loading was not hidden
  double probe_ms = 0, select_ms = 0;
  double recompute_ms = 0;    // selected and new rows through the layers; without stored KV all rows
  double first_token_ms = 0;  // logits and sampling
  // The loader's thread, beside them: waiting for the files, and processor time; all within kv_load_ms.
  double kv_read_ms = 0, kv_unpack_ms = 0, kv_place_ms = 0;
};

struct VerifyReport {
  double kl_mean = 0, kl_max = 0;  // nats: KL(full || answered), over the prompt's last row and each answer row
  double top1_agreement = 0;       // share of those rows
  bool same_answer = false;        // full prefill's greedy answer has the same tokens
};

struct Answer {
  std::string text;
  std::string finish_reason;  // "stop", "length", "not_found", "interrupted", "given" (teacher-forced)
  std::vector<Citation> citations;
  CacheReport cache;
  Timings timings;
  std::optional<VerifyReport> verify;
  size_t prompt_tokens = 0, completion_tokens = 0;
  std::vector<float> logits;  // [rows, V] if wanted: the last prompt row, then each answer row
  size_t logits_rows = 0;
  bool not_found = false;  // nothing in the documents fits: no model was asked
};

struct AskHooks {
  std::function<void(const std::string& piece)> on_text;  // streamed; valid UTF-8; may be empty
  std::function<void(const Answer& so_far)> on_answered;  // after decode, before verify; may be empty
  std::function<bool()> stop;                             // true: end now with finish_reason "interrupted"
};

// Keeps a live KV between questions. One thread.
class Answerer {
 public:
  // `store` may be null (then nothing is looked up or kept), as may `docs` (then only ask_prompt).
  Answerer(LoadedModel& model, KvStore* store, DocStore* docs);
  ~Answerer();

  // Throws Error(kUsage) for a prompt above the context (both counts in the message), an unknown collection's kInput,
  // ...
  Answer ask(const std::string& question, const AskOptions& options, const AskHooks& hooks);
  Answer ask_prompt(const PromptFile& prompt, const AskOptions& options, const AskHooks& hooks);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cento
