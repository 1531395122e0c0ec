// Inside of Answerer: what a prompt is made of and the steps from a question to its answer. Included by
// session/answer*.cc alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "blend/controller.h"
#include "engine/engine.h"
#include "session/answer.h"
#include "session/identify.h"
#include "session/model_record.h"
#include "session/prompt_layout.h"
#include "session/speed_record.h"

namespace cento {

// A chunk that was retrieved.
struct FoundChunk {
  Hash hash;  // of its text
  std::vector<int32_t> ids;
  std::vector<KvRow> kv;  // stored of it, newest first
};

struct PromptChunk {
  std::vector<int32_t> ids;
  ChunkReport report;
  std::unique_ptr<KvReader> kv;  // null: computed in place
  bool exact_behind_prefix = false;
  std::optional<Hash> keep_exact;  // computed right behind the fixed prefix: its KV is stored under this chunk's hash
  std::optional<Hash> copy_exact;  // reused now; computed there once the answer is out, and stored
  std::optional<std::pair<KvRow, Hash>> keep_remote;  // comes from the remote tier: stored here, under this chunk's
                                                      // hash, once the answer is out
};

// What a prompt is made of, and how far its KV is known.
struct Prompt {
  std::vector<int32_t> prefix;
  std::vector<PromptChunk> chunks;
  std::vector<int32_t> question;
  bool store_allowed = true;           // look up and keep the fixed prefix
  bool prefix_failed = false;          // its stored KV turned out damaged while it was loaded: not tried again
  std::optional<double> raised_ratio;  // the guard wants more rows recomputed
  bool distrusted = false;             // the guard wants everything computed

  size_t n_tokens() const {
    size_t n = prefix.size() + question.size();
    for (const PromptChunk& c : chunks) n += c.ids.size();
    return n;
  }
  size_t n_hits() const {
    return static_cast<size_t>(
        std::count_if(chunks.begin(), chunks.end(), [](const PromptChunk& c) { return c.kv != nullptr; }));
  }
};

inline Segment fresh_segment(const std::vector<int32_t>& ids, std::string label) {
  Segment s;
  s.ids = ids;
  s.label = std::move(label);
  return s;
}

// KV of rows that were computed in front of a prompt and are to be stored.
struct Capture {
  KvBlock block;
  bool prefix = false;  // from position 0 on, else behind the fixed prefix
  bool chunk = false;   // the leading chunk too
};

struct Answerer::Impl {
  Impl(LoadedModel& model_in, KvStore* store_in, DocStore* docs_in)
      : model(model_in), store(store_in), docs(docs_in), engine(model_in) {
    identify(model, catalogue());
    if (store == nullptr) return;
    speed = read_speed(engine, catalogue());
    record = read_record(engine, catalogue());
  }

  Answer ask(const std::string& question, const AskOptions& options, const AskHooks& hooks);
  Answer ask_prompt(const PromptFile& file, const AskOptions& options, const AskHooks& hooks);

 private:
  Catalogue* catalogue() const { return store == nullptr ? nullptr : &store->catalogue(); }
  bool may_write() const { return store != nullptr && !store->catalogue().db().read_only(); }

  // session/answer.cc: from a question to its prompt.
  void attach(const PromptLayout& layout, const std::string& path, Prompt& prompt, Answer& answer);
  std::vector<Hit> find_chunks(int64_t collection_id, const std::string& question, const AskOptions& options,
                               Answer& answer);
  FoundChunk find_kv(const PromptLayout& layout, const ChunkRow& row, bool wanted);
  bool exact_in_front(const std::vector<int32_t>& prefix, const FoundChunk& chunk) const;
  PromptChunk lookup(const std::vector<int32_t>& prefix, FoundChunk found, bool wanted, bool leads, bool few);
  bool fill_prompt_chunks(const PromptLayout& layout, const PromptFile& file, bool wanted, const AskHooks& hooks,
                          Prompt& prompt, Answer& answer);

  // session/answer_prefill.cc: how the prompt's KV is made.
  bool is_resident(const std::vector<int32_t>& prefix, const std::vector<int32_t>& chunk) const;
  void choose_mode(Prompt& prompt, const AskOptions& options, CacheReport& cache, BlendSettings& blend);
  void settle(const Prompt& prompt, const AskOptions& options, size_t n_chunk_rows, BlendSettings& blend) const;
  static void compute_chunks(Prompt& prompt, CacheReport& cache, const std::string& reason);
  bool guard_wants_more(const PromptPlan& plan, const PipelineReport& report, const AskOptions& options, Prompt& prompt,
                        CacheReport& cache) const;
  ReuseFacts facts_of(const Prompt& prompt) const;
  PromptPlan make_plan(Prompt& prompt, const CacheReport& cache);
  void take_back(PromptPlan& plan, Prompt& prompt);
  PipelineReport prefill(Prompt& prompt, const AskOptions& options, const AskHooks& hooks, size_t reserve,
                         std::optional<Capture>& captured, Answer& answer);
  void store_captured(const Prompt& prompt, const Capture& captured);
  void keep_fetched(const Prompt& prompt);
  void copy_leading_chunk(const Prompt& prompt, const CacheReport& cache, const AskHooks& hooks);

  // session/answer_decode.cc: from the prompt to the answer.
  void respond(Prompt& prompt, const std::optional<std::string>& given, const AskOptions& options,
               const AskHooks& hooks, const Stopwatch& since_question, double excluded_ms, Answer& answer);
  std::vector<int32_t> decode(std::vector<float> logits, const AskOptions& options, const AskHooks& hooks,
                              Answer& answer, const Stopwatch& since_question, double excluded_ms);
  void keep_row(std::span<const float> logits, const AskOptions& options, Answer& answer);
  void verify(const Prompt& prompt, const std::vector<int32_t>& answer_ids, Answer& answer);

  LoadedModel& model;
  KvStore* store;
  DocStore* docs;
  Engine engine;
  SpeedRecord speed;
  std::optional<ModelRecord> record;
};

}  // namespace cento
