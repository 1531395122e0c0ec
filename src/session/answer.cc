#include "session/answer.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "blend/controller.h"
#include "blend/stand_in.h"
#include "docs/attach.h"
#include "engine/engine.h"
#include "engine/metrics.h"
#include "kv/memory_kv.h"
#include "session/chunk_kv.h"
#include "session/gate.h"
#include "session/identify.h"
#include "session/model_record.h"
#include "session/prompt_layout.h"
#include "session/speed_record.h"

namespace cento {
namespace {

constexpr std::pair<PrefillMode, const char*> kModes[] = {{PrefillMode::kAuto, "auto"},
                                                          {PrefillMode::kFull, "full"},
                                                          {PrefillMode::kPrefix, "prefix"},
                                                          {PrefillMode::kReuse, "reuse"},
                                                          {PrefillMode::kBlend, "blend"}};

constexpr uint32_t kAttachedChunkTokens = 256;
constexpr size_t kFewChunks = 2;
constexpr double kRaisedRatioMax = 0.5;  // beyond it computing everything costs little more
constexpr size_t kVerifyRows = 16;       // logits of so many rows are alive at once while an answer is verified

struct PromptChunk {
  std::vector<int32_t> ids;
  ChunkReport report;
  std::unique_ptr<KvReader> kv;  // null: computed in place
  bool exact_behind_prefix = false;
  std::optional<Hash> keep_exact;  // computed right behind the fixed prefix: its KV is stored under this chunk's hash
  std::optional<Hash> copy_exact;  // reused now; computed there once the answer is out, and stored
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

Segment fresh_segment(const std::vector<int32_t>& ids, std::string label) {
  Segment s;
  s.ids = ids;
  s.label = std::move(label);
  return s;
}

}  // namespace

std::optional<PrefillMode> find_prefill_mode(std::string_view name) {
  for (const auto& [mode, text] : kModes) {
    if (name == text) return mode;
  }
  return std::nullopt;
}

const char* prefill_mode_name(PrefillMode mode) {
  for (const auto& [m, text] : kModes) {
    if (mode == m) return text;
  }
  return "?";
}

const std::string& default_system_text() {
  static const std::string text =
      "You answer questions from the passages that the user gives. Be brief and use the words and figures of the "
      "passages. "
      "If the passages do not hold the answer, say that they do not.";
  return text;
}

PromptFile parse_prompt_file(const std::string& json) {
  const auto wrong = [](const std::string& what) {
    throw Error{Code::kUsage, "prompt file: " + what, "",
                R"(give {"system": TEXT, "chunks": [TEXT, ...], "question": TEXT, "answer"?: TEXT})"};
  };
  const nlohmann::json j = nlohmann::json::parse(json, nullptr, false);
  if (j.is_discarded() || !j.is_object()) wrong("not a JSON object");
  const auto text = [&](const char* name, bool required) -> std::string {
    if (!j.contains(name) || j[name].is_null()) {
      if (required) wrong(std::string("\"") + name + "\" is missing");
      return {};
    }
    if (!j[name].is_string()) wrong(std::string("\"") + name + "\" is not a text");
    return j[name].get<std::string>();
  };
  const auto texts = [&](const char* name) {
    std::vector<std::string> out;
    if (!j.contains(name) || j[name].is_null()) return out;
    if (!j[name].is_array()) wrong(std::string("\"") + name + "\" is not a list");
    for (const auto& item : j[name]) {
      if (!item.is_string()) wrong(std::string("\"") + name + "\" holds something that is not a text");
      out.push_back(item.get<std::string>());
    }
    return out;
  };
  for (const auto& [key, value] : j.items()) {
    static constexpr const char* kKnown[] = {"system", "chunks", "question", "answer", "stand_in"};
    if (std::none_of(std::begin(kKnown), std::end(kKnown), [&](const char* k) { return key == k; }))
      wrong("unknown field \"" + key + "\"");
  }
  PromptFile p;
  p.system = text("system", false);
  p.chunks = texts("chunks");
  p.question = text("question", true);
  if (trim(p.question).empty()) wrong("\"question\" is empty");
  if (j.contains("answer") && !j["answer"].is_null()) p.answer = text("answer", true);
  p.stand_in = texts("stand_in");
  return p;
}

// KV of rows that were computed in front of a prompt and are to be stored.
struct Capture {
  KvBlock block;
  bool prefix = false;  // from position 0 on, else behind the fixed prefix
  bool chunk = false;   // the leading chunk too
};

// What runs that were not kept have cost.
struct Spent {
  double charged = 0, load_wait_ms = 0, probe_ms = 0, select_ms = 0, compute_ms = 0, reserve_ms = 0, load_ms = 0;
  uint64_t bytes_loaded = 0;

  void add(const PipelineReport& r) {
    charged += r.charged;
    load_wait_ms += r.load_wait_ms;
    probe_ms += r.probe_ms;
    select_ms += r.select_ms;
    compute_ms += r.compute_ms + r.logits_ms;
    reserve_ms += r.reserve_ms;
    load_ms += r.load_ms;
    bytes_loaded += r.bytes_loaded;
  }
  void add_to(PipelineReport& r) const {
    r.charged += charged;
    r.load_wait_ms += load_wait_ms;
    r.probe_ms += probe_ms;
    r.select_ms += select_ms;
    r.compute_ms += compute_ms;
    r.reserve_ms += reserve_ms;
    r.load_ms += load_ms;
    r.bytes_loaded += bytes_loaded;
  }
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
  void attach(const PromptLayout& layout, const std::string& path, Prompt& prompt, Answer& answer);
  std::vector<Hit> find_chunks(int64_t collection_id, const std::string& question, const AskOptions& options,
                               Answer& answer);
  bool exact_in_front(const PromptLayout& layout, const ChunkRow& row);
  bool is_resident(const std::vector<int32_t>& prefix, const std::vector<int32_t>& chunk) const;
  PromptChunk lookup(const PromptLayout& layout, const ChunkRow& row, bool wanted, bool leads, bool few);
  bool fill_prompt_chunks(const PromptLayout& layout, const PromptFile& file, bool wanted, const AskHooks& hooks,
                          Prompt& prompt, Answer& answer);
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
  void respond(Prompt& prompt, const std::optional<std::string>& given, const AskOptions& options,
               const AskHooks& hooks, const Stopwatch& since_question, double excluded_ms, Answer& answer);
  std::vector<int32_t> decode(std::vector<float> logits, const AskOptions& options, const AskHooks& hooks,
                              Answer& answer, const Stopwatch& since_question, double excluded_ms);
  void keep_row(std::span<const float> logits, const AskOptions& options, Answer& answer);
  void verify(const Prompt& prompt, const std::vector<int32_t>& answer_ids, Answer& answer);
  void store_captured(const Prompt& prompt, const Capture& captured);
  void copy_leading_chunk(const Prompt& prompt, const CacheReport& cache, const AskHooks& hooks);

  LoadedModel& model;
  KvStore* store;
  DocStore* docs;
  Engine engine;
  SpeedRecord speed;
  std::optional<ModelRecord> record;
};

Answerer::Answerer(LoadedModel& model, KvStore* store, DocStore* docs)
    : impl_(std::make_unique<Impl>(model, store, docs)) {}
Answerer::~Answerer() = default;
Answer Answerer::ask(const std::string& question, const AskOptions& options, const AskHooks& hooks) {
  return impl_->ask(question, options, hooks);
}
Answer Answerer::ask_prompt(const PromptFile& prompt, const AskOptions& options, const AskHooks& hooks) {
  return impl_->ask_prompt(prompt, options, hooks);
}

Answer Answerer::Impl::ask(const std::string& question, const AskOptions& options, const AskHooks& hooks) {
  CHECK(docs != nullptr);
  validate(options.sampler);
  const Stopwatch watch;
  if (trim(question).empty()) throw Error{Code::kUsage, "the question is empty"};
  const auto collection = docs->find_collection(options.collection);
  if (!collection && options.files.empty()) {
    throw Error{Code::kInput, "no collection named '" + options.collection + "'", docs->catalogue().db().path(),
                "run `cento index FOLDER` first"};
  }
  Answer answer;
  answer.timings.load_model_ms = model.load_ms();
  std::vector<Hit> hits;
  if (collection) hits = find_chunks(collection->id, question, options, answer);
  answer.timings.retrieve_ms = watch.ms();
  if (hits.empty() && options.files.empty()) {
    answer.not_found = true;
    answer.finish_reason = "not_found";
    return answer;
  }
  const PromptLayout layout(model, options.system.empty() ? default_system_text() : options.system);
  Prompt prompt;
  prompt.prefix = layout.prefix();
  prompt.question = layout.question(question);
  const bool wanted = options.prefill != PrefillMode::kFull && options.prefill != PrefillMode::kPrefix;
  std::vector<ChunkRow> rows;
  std::vector<ChunkToOrder> to_order;
  for (const Hit& hit : hits) {
    auto row = docs->chunk(hit.chunk_id);
    if (!row) continue;  // removed by another process since it was found
    const std::vector<ChunkPlace> places = docs->places(collection->id, hit.chunk_id);
    if (places.empty()) continue;
    answer.citations.push_back({answer.citations.size() + 1, places[0].path, places[0].line_from, places[0].line_to,
                                row->hash.short_hex(), hit.score, row->body});
    to_order.push_back({places[0].source_id, places[0].seq, wanted && exact_in_front(layout, *row)});
    rows.push_back(std::move(*row));
  }
  const bool few = rows.size() <= kFewChunks && options.prefill != PrefillMode::kReuse;
  for (const size_t i : chunk_order(to_order, options.order)) {  // the list of sources stays in the order of rank
    PromptChunk chunk = lookup(layout, rows[i], wanted, prompt.chunks.empty(), few);
    chunk.report.source = answer.citations[i].source;
    prompt.chunks.push_back(std::move(chunk));
  }
  for (const std::string& path : options.files) attach(layout, path, prompt, answer);
  respond(prompt, std::nullopt, options, hooks, watch, 0, answer);
  return answer;
}

void Answerer::Impl::attach(const PromptLayout& layout, const std::string& path, Prompt& prompt, Answer& answer) {
  for (const NewChunk& piece : chunks_of_file(path, model.tokenizer(), kAttachedChunkTokens)) {
    ChunkRow row;
    row.header = piece.header;
    row.body = piece.body;
    PromptChunk chunk;
    chunk.ids = layout.chunk(row.prompt_text());
    const std::string id = chunk_text_hash(piece.header, piece.body).short_hex();
    chunk.report = {id, path, chunk.ids.size(), "computed", "attached"};
    answer.citations.push_back({answer.citations.size() + 1, path, piece.line_from, piece.line_to, id, 0, piece.body});
    prompt.chunks.push_back(std::move(chunk));
  }
}

std::vector<Hit> Answerer::Impl::find_chunks(int64_t collection_id, const std::string& question,
                                             const AskOptions& options, Answer& answer) {
  if (options.chunks.empty()) {
    Retrieved found = retrieve(*docs, collection_id, question, options.top_k);
    if (found.hits.empty()) answer.cache.why = found.why;
    return std::move(found.hits);
  }
  std::vector<Hit> hits;
  for (const std::string& id : options.chunks) {
    const auto row = docs->chunk_by_prefix(id);
    if (!row)
      throw Error{Code::kUsage, "no chunk, or more than one, begins with '" + id + "'", "",
                  "take an id from `cento query --json`"};
    hits.push_back({row->id, 0, 0});
  }
  return hits;
}

// Whether KV of the chunk right behind the fixed prefix is in memory or stored.
bool Answerer::Impl::exact_in_front(const PromptLayout& layout, const ChunkRow& row) {
  const std::vector<int32_t> ids = layout.chunk(row.prompt_text());
  if (is_resident(layout.prefix(), ids)) return true;
  if (store == nullptr) return false;
  const KvIdentity any = identity_of(engine, KvKind::kChunkPrefix, layout.prefix(), {}, ids);
  const std::vector<KvRow> known =
      store->catalogue().find_kv(any.fingerprint, any.layout, kv_ids_hash(layout.prefix()), kv_ids_hash(ids));
  return std::any_of(known.begin(), known.end(), [](const KvRow& r) { return r.kind == KvKind::kChunkPrefix; });
}

// Whether prefix and chunk are the leading rows of the live KV, as full prefill computes them.
bool Answerer::Impl::is_resident(const std::vector<int32_t>& prefix, const std::vector<int32_t>& chunk) const {
  std::vector<int32_t> ids = prefix;
  ids.insert(ids.end(), chunk.begin(), chunk.end());
  return !chunk.empty() && engine.resident_prefix(ids) == ids.size();
}

// Stored KV of a chunk. The one that `leads` stands right behind the fixed prefix: KV that was computed there is exact,
// while KV computed behind a stand-in context is further off than anywhere else. Of few chunks the leading one is so
// large a part that it is computed rather than taken from behind a stand-in context.
PromptChunk Answerer::Impl::lookup(const PromptLayout& layout, const ChunkRow& row, bool wanted, bool leads, bool few) {
  PromptChunk chunk;
  chunk.ids = layout.chunk(row.prompt_text());
  chunk.report = {row.hash.short_hex(), "", chunk.ids.size(), "computed", ""};
  if (store == nullptr || !wanted) {
    chunk.report.reason = store == nullptr ? "no store" : "not asked for";
    return chunk;
  }
  const KvIdentity any = identity_of(engine, KvKind::kChunkStandIn, layout.prefix(), {}, chunk.ids);
  std::vector<KvRow> rows =
      store->catalogue().find_kv(any.fingerprint, any.layout, kv_ids_hash(layout.prefix()), kv_ids_hash(chunk.ids));
  std::stable_partition(rows.begin(), rows.end(),
                        [&](const KvRow& r) { return (r.kind == KvKind::kChunkPrefix) == leads; });
  chunk.report.reason = "not stored";
  for (const KvRow& kv_row : rows) {  // the wanted kind, newest first; a damaged one gives way to an older one
    if (leads && few && kv_row.kind != KvKind::kChunkPrefix) {
      chunk.report.reason = "stands first";
      if (may_write()) chunk.keep_exact = row.hash;
      break;
    }
    // One that was used before and stands first now may do so again: worth an exact copy, made behind the answer.
    if (leads && kv_row.kind != KvKind::kChunkPrefix && kv_row.hits > 0 && may_write()) chunk.copy_exact = row.hash;
    KvIdentity wanted_identity = any;
    wanted_identity.kind = kv_row.kind;
    auto reader = store->open_row(kv_row, wanted_identity);
    if (!reader.ok()) {
      chunk.report.reason = reader.error().message();
      continue;
    }
    chunk.kv = std::move(reader).value();
    chunk.exact_behind_prefix = kv_row.kind == KvKind::kChunkPrefix;
    chunk.report.from = "disk";
    chunk.report.reason.clear();
    break;
  }
  return chunk;
}

Answer Answerer::Impl::ask_prompt(const PromptFile& file, const AskOptions& options, const AskHooks& hooks) {
  validate(options.sampler);
  const Stopwatch watch;
  Answer answer;
  answer.timings.load_model_ms = model.load_ms();
  const PromptLayout layout(model, !file.system.empty()     ? file.system
                                   : options.system.empty() ? default_system_text()
                                                            : options.system);
  Prompt prompt;
  prompt.prefix = layout.prefix();
  prompt.question = layout.question(file.question);
  prompt.store_allowed = file.keep;
  const bool wanted = options.prefill == PrefillMode::kReuse || options.prefill == PrefillMode::kBlend ||
                      options.prefill == PrefillMode::kAuto;
  if (!fill_prompt_chunks(layout, file, wanted, hooks, prompt, answer)) {
    answer.finish_reason = "interrupted";
    return answer;
  }
  const double excluded_ms = answer.timings.precompute_ms;
  respond(prompt, file.answer, options, hooks, watch, excluded_ms, answer);
  return answer;
}

// False: stopped while KV was computed.
bool Answerer::Impl::fill_prompt_chunks(const PromptLayout& layout, const PromptFile& file, bool wanted,
                                        const AskHooks& hooks, Prompt& prompt, Answer& answer) {
  std::vector<std::vector<int32_t>> passages;
  for (const std::string& text : file.stand_in) passages.push_back(layout.chunk(text));
  std::vector<int32_t> context = layout.prefix();
  const std::vector<int32_t> stand_in = passages.empty() ? std::vector<int32_t>{} : stand_in_context({}, passages);
  context.insert(context.end(), stand_in.begin(), stand_in.end());
  const KvKind kind = stand_in.empty() ? KvKind::kChunkPrefix : KvKind::kChunkStandIn;
  for (const std::string& text : file.chunks) {
    PromptChunk chunk;
    chunk.ids = layout.chunk(text);
    chunk.report = {kv_ids_hash(chunk.ids).short_hex(), "", chunk.ids.size(), "computed", "not asked for"};
    if (wanted && !chunk.ids.empty()) {
      const KvIdentity identity = identity_of(engine, kind, layout.prefix(), context, chunk.ids);
      chunk.exact_behind_prefix = kind == KvKind::kChunkPrefix;
      if (file.keep && store != nullptr) {
        if (auto reader = store->open(identity); reader.ok()) chunk.kv = std::move(reader).value();
      }
      if (chunk.kv == nullptr) {
        const Stopwatch watch;
        auto computed = compute_kv(engine, context, chunk.ids, hooks.stop);
        if (!computed) return false;
        if (file.keep && may_write()) {
          std::move(store->put(identity, computed->block, KvCodec::kLossless, std::nullopt)).or_throw();
          if (auto reader = store->open(identity); reader.ok()) chunk.kv = std::move(reader).value();
        } else {
          chunk.kv = std::make_unique<MemoryKv>(std::move(computed->block), kv_key(identity));
        }
        answer.timings.precompute_ms += watch.ms();
      }
      chunk.report.from = dynamic_cast<MemoryKv*>(chunk.kv.get()) != nullptr ? "ram" : "disk";
      chunk.report.reason.clear();
    }
    prompt.chunks.push_back(std::move(chunk));
  }
  engine.truncate(0);  // what precomputing left there is no part of the measured prefill
  return true;
}

// `blend` gets the ratio that was chosen, if nobody has set one.
void Answerer::Impl::choose_mode(Prompt& prompt, const AskOptions& options, CacheReport& cache, BlendSettings& blend) {
  cache.mode = options.prefill;
  cache.why = "asked for";
  if (options.prefill == PrefillMode::kFull || options.prefill == PrefillMode::kPrefix) return;
  if (options.prefill == PrefillMode::kAuto) {
    if (prompt.n_tokens() < kMinBlendTokens) {
      cache.mode = PrefillMode::kFull;
      cache.why = "the prompt is shorter than " + std::to_string(kMinBlendTokens) + " tokens";
      return;
    }
    cache.mode = PrefillMode::kBlend;
    cache.why =
        "stored KV of " + std::to_string(prompt.n_hits()) + " of " + std::to_string(prompt.chunks.size()) + " chunks";
  }
  if (prompt.n_hits() == 0) {
    cache.mode = PrefillMode::kPrefix;
    cache.why = prompt.chunks.empty() ? "the prompt has no chunks"
                                      : "no chunk's KV is usable: " + prompt.chunks[0].report.reason;
    return;
  }
  if (const GateResult g = gate(engine, catalogue()); !g.passed) {
    cache.mode = PrefillMode::kFull;
    cache.why = g.why;
    return;
  }
  if (prompt.distrusted) {
    compute_chunks(prompt, cache, "the guard does not trust a blend");
    cache.why = "the guard does not trust a blend of this prompt";
    return;
  }
  const ReuseFacts facts = facts_of(prompt);
  settle(prompt, options, facts.n_chunk, blend);
  const auto cost = speed.cost();
  if (options.prefill != PrefillMode::kAuto || !cost) return;
  const size_t rows_min = row_budget(blend, facts.n_chunk);
  const BlendChoice choice = choose_blend(*cost, facts, options.blend.policy, rows_min);
  const auto about = [](double ms) { return std::to_string(std::llround(std::max(ms, 1.0))) + " ms"; };
  cache.why += "; about " + about(choice.blend_ms) + " against " + about(choice.full_ms) + " to compute everything";
  if (!choice.blend && facts.n_chunk > 0) {
    compute_chunks(prompt, cache, "computing is faster");
    return;
  }
  if (choice.blend && choice.n_rows > rows_min && !options.blend.ratio && !prompt.raised_ratio)
    blend.ratio = static_cast<double>(choice.n_rows) / static_cast<double>(facts.n_chunk);
}

void Answerer::Impl::compute_chunks(Prompt& prompt, CacheReport& cache, const std::string& reason) {
  cache.mode = PrefillMode::kPrefix;
  for (PromptChunk& chunk : prompt.chunks) {
    if (chunk.kv == nullptr) continue;
    chunk.kv = nullptr;
    chunk.report.from = "computed";
    chunk.report.reason = reason;
  }
}

// What nobody has set comes from the model's record, and from the guard.
void Answerer::Impl::settle(const Prompt& prompt, const AskOptions& options, size_t n_chunk_rows,
                            BlendSettings& blend) const {
  if (options.repair) blend.repair = *options.repair;
  if (blend.policy == PolicyKind::kQuery && record) {
    if (!options.repair) blend.repair = record->repair;
    if (!blend.ratio && blend.layer_ratios.empty()) blend.ratio = ratio_for(*record, n_chunk_rows);
  }
  if (prompt.raised_ratio) blend.ratio = prompt.raised_ratio;
}

// Whether the run is to be done again: with a raised ratio at first, then without stored KV.
bool Answerer::Impl::guard_wants_more(const PromptPlan& plan, const PipelineReport& report, const AskOptions& options,
                                      Prompt& prompt, CacheReport& cache) const {
  if (cache.mode != PrefillMode::kBlend || !record || !record->guard || !options.guard) return false;
  const auto residual = residual_of(plan, report);
  if (!residual) return false;
  const GuardReport earlier = cache.guard.value_or(GuardReport{});
  cache.guard = GuardReport{record->guard->probability(*residual), record->guard->limit, earlier.action};
  if (options.prefill != PrefillMode::kAuto || !(cache.guard->chance > cache.guard->limit)) return false;
  const size_t n_chunk_rows = report.n_reused + report.n_recomputed;
  const double ratio = static_cast<double>(report.n_recomputed) / static_cast<double>(n_chunk_rows);
  if (!prompt.raised_ratio && ratio < kRaisedRatioMax) {
    prompt.raised_ratio = std::min(2 * ratio, kRaisedRatioMax);
    cache.guard->action = "ratio";
  } else {
    prompt.distrusted = true;
    cache.guard->action = "full";
  }
  return true;
}

ReuseFacts Answerer::Impl::facts_of(const Prompt& prompt) const {
  ReuseFacts facts;
  facts.n_exact = prompt.prefix.size();
  facts.n_fresh = prompt.question.size();
  for (const PromptChunk& chunk : prompt.chunks) {
    if (chunk.kv == nullptr) {
      facts.n_fresh += chunk.ids.size();
    } else if (&chunk == &prompt.chunks.front() &&
               (chunk.exact_behind_prefix || is_resident(prompt.prefix, chunk.ids))) {
      facts.n_exact += chunk.ids.size();
    } else {
      facts.n_chunk += chunk.ids.size();
    }
  }
  const KvShape shape = engine.shape();
  facts.n_layers = shape.n_layers;
  facts.n_bytes = 2 * shape.n_layers * shape.side_bytes(facts.n_chunk);
  return facts;
}

PromptPlan Answerer::Impl::make_plan(Prompt& prompt, const CacheReport& cache) {
  PromptPlan plan;
  if (cache.mode == PrefillMode::kFull) {
    engine.truncate(0);
    plan.segments.push_back(fresh_segment(prompt.prefix, "prefix"));
  } else {
    plan.segments =
        prefix_segments(engine, prompt.store_allowed && !prompt.prefix_failed ? store : nullptr, prompt.prefix);
  }
  const bool may_reuse = cache.mode == PrefillMode::kReuse || cache.mode == PrefillMode::kBlend;
  for (PromptChunk& chunk : prompt.chunks) {
    Segment s = fresh_segment(chunk.ids, chunk.report.id);
    // Right behind the fixed prefix a chunk that was computed there is no guess but the thing itself.
    const bool first = &chunk == &prompt.chunks.front();
    if (first && plan.segments[0].from == SegmentFrom::kResident && is_resident(prompt.prefix, chunk.ids)) {
      s.from = SegmentFrom::kResident;  // an earlier prompt began with it too
      chunk.report.from = "ram";
      chunk.report.reason.clear();
      chunk.keep_exact.reset();
    } else if (chunk.kv != nullptr && may_reuse) {
      s.from = first && chunk.exact_behind_prefix ? SegmentFrom::kExact : SegmentFrom::kChunk;
      s.kv = std::move(chunk.kv);
    }
    plan.segments.push_back(std::move(s));
  }
  plan.segments.push_back(fresh_segment(prompt.question, "question"));
  return plan;
}

// Readers go back to their chunks when a plan has to be made anew.
void Answerer::Impl::take_back(PromptPlan& plan, Prompt& prompt) {
  const size_t first = plan.segments.size() - 1 - prompt.chunks.size();
  for (size_t i = 0; i < prompt.chunks.size(); ++i) {
    if (plan.segments[first + i].kv != nullptr) prompt.chunks[i].kv = std::move(plan.segments[first + i].kv);
  }
}

// `captured` takes the KV of the fixed prefix and of a leading chunk if they were computed here and are to be stored.
PipelineReport Answerer::Impl::prefill(Prompt& prompt, const AskOptions& options, const AskHooks& hooks, size_t reserve,
                                       std::optional<Capture>& captured, Answer& answer) {
  Spent spent;
  for (;;) {
    const Stopwatch prepare_watch;
    PipelineOptions run;
    run.blend = options.blend;
    run.want_residual = record && record->guard && options.guard;
    choose_mode(prompt, options, answer.cache, run.blend);
    PromptPlan plan = make_plan(prompt, answer.cache);
    if (answer.cache.mode != PrefillMode::kBlend) run.blend.policy = PolicyKind::kNone;
    run.stop = hooks.stop;
    captured.reset();
    if (answer.cache.mode != PrefillMode::kFull && prompt.store_allowed && may_write()) {
      const bool prefix = plan.segments[0].from == SegmentFrom::kFresh;
      const bool chunk = !prompt.chunks.empty() && prompt.chunks[0].keep_exact && !prompt.chunks[0].ids.empty();
      if (prefix || chunk) {
        const size_t rows = (prefix ? prompt.prefix.size() : 0) + (chunk ? prompt.chunks[0].ids.size() : 0);
        captured.emplace(Capture{KvBlock(engine.shape(), rows), prefix, chunk});
        run.capture = &captured->block;
        run.capture_from = prefix ? 0 : prompt.prefix.size();
      }
    }
    answer.timings.prepare_ms += prepare_watch.ms();
    const Stopwatch run_watch;
    auto outcome = engine.prefill(plan, run, reserve);
    if (auto* failure = std::get_if<SegmentFailure>(&outcome)) {
      answer.timings.load_wait_ms += run_watch.ms();  // for nothing
      const Segment& failed = plan.segments[failure->segment];
      const std::string reason = failure->error.message();
      log_warning("stored KV of " + failed.label + " is not used: " + reason);
      if (store != nullptr) store->set_aside(failed.kv->key(), reason);
      const size_t segment = failure->segment;
      take_back(plan, prompt);
      const size_t first = plan.segments.size() - 1 - prompt.chunks.size();
      if (segment >= first) {
        PromptChunk& chunk = prompt.chunks[segment - first];
        chunk.kv = nullptr;
        chunk.report.from = "computed";
        chunk.report.reason = reason;
      } else {
        prompt.prefix_failed = true;
      }
      continue;
    }
    PipelineReport report = std::get<PipelineReport>(std::move(outcome));
    speed.observe(report, engine.shape());
    if (!report.stopped && guard_wants_more(plan, report, options, prompt, answer.cache)) {
      spent.add(report);
      take_back(plan, prompt);
      continue;
    }
    spent.add_to(report);
    if (answer.cache.guard && answer.cache.guard->action == "ratio" && answer.cache.mode != PrefillMode::kBlend)
      answer.cache.guard->action = "full";  // with more rows computing everything was faster
    return report;
  }
}

void Answerer::Impl::store_captured(const Prompt& prompt, const Capture& captured) {
  const auto put = [&](const KvIdentity& identity, const KvBlock& block, const std::optional<Hash>& chunk) {
    if (auto stored = store->put(identity, block, KvCodec::kLossless, chunk); !stored.ok())
      log_warning("KV that was computed is not stored: " +
                  stored.error().message());  // the answer does not depend on it
  };
  const size_t n_prefix = captured.prefix ? prompt.prefix.size() : 0;
  if (captured.prefix)
    put(identity_of(engine, KvKind::kPrefix, prompt.prefix, {}, prompt.prefix), rows_of(captured.block, 0, n_prefix),
        {});
  if (!captured.chunk) return;
  const PromptChunk& chunk = prompt.chunks[0];
  put(identity_of(engine, KvKind::kChunkPrefix, prompt.prefix, prompt.prefix, chunk.ids),
      rows_of(captured.block, n_prefix, chunk.ids.size()), chunk.keep_exact);
}

// The leading chunk once more, where it is exact: the next prompt that begins with it needs no guess.
void Answerer::Impl::copy_leading_chunk(const Prompt& prompt, const CacheReport& cache, const AskHooks& hooks) {
  if (cache.mode != PrefillMode::kBlend || prompt.chunks.empty() || !prompt.chunks[0].copy_exact) return;
  const PromptChunk& chunk = prompt.chunks[0];
  const auto computed = compute_kv(engine, prompt.prefix, chunk.ids, hooks.stop);
  if (!computed) return;
  const KvIdentity identity = identity_of(engine, KvKind::kChunkPrefix, prompt.prefix, prompt.prefix, chunk.ids);
  if (auto stored = store->put(identity, computed->block, KvCodec::kLossless, chunk.copy_exact); !stored.ok())
    log_warning("an exact copy is not stored: " + stored.error().message());
}

void Answerer::Impl::respond(Prompt& prompt, const std::optional<std::string>& given, const AskOptions& options,
                             const AskHooks& hooks, const Stopwatch& since_question, double excluded_ms,
                             Answer& answer) {
  std::vector<int32_t> given_ids;
  if (given) given_ids = model.tokenizer().encode(*given, false);
  Timings& t = answer.timings;
  t.prepare_ms = std::max(0.0, since_question.ms() - excluded_ms - t.retrieve_ms);
  const Stopwatch prefill_watch;
  std::optional<Capture> captured;
  PipelineReport report =
      prefill(prompt, options, hooks, given ? given_ids.size() : options.max_tokens, captured, answer);
  t.prefill_ms = prefill_watch.ms();
  const double prefilled_ms = since_question.ms() - excluded_ms;
  answer.prompt_tokens = prompt.n_tokens();
  CacheReport& cache = answer.cache;
  cache.total = report.n_total;
  cache.exact = report.n_exact;
  cache.reused = report.n_reused;
  cache.recomputed = report.n_recomputed;
  cache.fresh = report.n_fresh;
  cache.charged = report.charged;
  cache.bytes_loaded = report.bytes_loaded;
  if (cache.mode == PrefillMode::kBlend) {
    cache.policy = policy_name(options.blend.policy);
    const size_t rankable = report.n_reused + report.n_recomputed;
    cache.ratio = rankable == 0 ? 0 : static_cast<double>(report.n_recomputed) / static_cast<double>(rankable);
  }
  for (const PromptChunk& chunk : prompt.chunks) cache.chunks.push_back(chunk.report);
  t.prepare_ms += report.reserve_ms;
  t.kv_load_ms = report.load_ms;
  t.kv_read_ms = report.read_ms;
  t.kv_unpack_ms = report.unpack_ms;
  t.kv_place_ms = report.place_ms;
  t.load_wait_ms += report.load_wait_ms;
  t.probe_ms = report.probe_ms;
  t.select_ms = report.select_ms;
  t.recompute_ms = report.compute_ms;
  if (report.stopped) {
    answer.finish_reason = "interrupted";
    return;
  }
  std::vector<int32_t> ids;
  if (given) {
    answer.timings.ttft_ms = since_question.ms() - excluded_ms;
    keep_row(report.logits, options, answer);
    for (const int32_t id : given_ids) keep_row(engine.extend(std::span(&id, 1)), options, answer);
    answer.text = *given;
    answer.finish_reason = "given";
    ids = given_ids;
    if (hooks.on_text) hooks.on_text(*given);
  } else {
    ids = decode(std::move(report.logits), options, hooks, answer, since_question, excluded_ms);
  }
  t.first_token_ms = report.logits_ms + std::max(0.0, t.ttft_ms - prefilled_ms);
  answer.completion_tokens = ids.size();
  if (hooks.on_answered) hooks.on_answered(answer);
  // Behind the answer, which needs not wait for the disk.
  if (may_write()) write_speed(engine, catalogue(), speed);
  if (captured) store_captured(prompt, *captured);
  if (options.verify && answer.logits_rows > 0 && answer.finish_reason != "interrupted") verify(prompt, ids, answer);
  if (answer.finish_reason != "interrupted") copy_leading_chunk(prompt, answer.cache, hooks);
  if (!options.want_logits) {
    answer.logits.clear();
    answer.logits_rows = 0;
  }
}

void Answerer::Impl::keep_row(std::span<const float> logits, const AskOptions& options, Answer& answer) {
  if (!options.verify && !options.want_logits) return;
  answer.logits.insert(answer.logits.end(), logits.begin(), logits.end());
  ++answer.logits_rows;
}

// The ids of the answer, without the one that ended it.
std::vector<int32_t> Answerer::Impl::decode(std::vector<float> logits, const AskOptions& options, const AskHooks& hooks,
                                            Answer& answer, const Stopwatch& since_question, double excluded_ms) {
  Sampler sampler(options.sampler);
  StreamDecoder text_decoder(model.tokenizer());
  std::vector<std::string> stops = options.stop;
  for (std::string& s : model.chat().stop_texts()) stops.push_back(std::move(s));
  StopFilter filter(std::move(stops));
  const auto show = [&](std::string piece) {
    if (answer.text.empty())
      piece.erase(0, std::min(piece.find_first_not_of(" \n"), piece.size()));  // an answer starts with its first word
    if (piece.empty()) return;
    answer.text += piece;
    if (hooks.on_text) hooks.on_text(piece);
  };
  const std::vector<int32_t>& ends = model.tokenizer().end_of_turn;
  std::vector<int32_t> ids;
  answer.finish_reason = "length";
  Stopwatch decode_watch;
  while (ids.size() < options.max_tokens) {
    keep_row(logits, options, answer);
    const int32_t id = sampler.next(logits, ids);
    if (ids.empty()) {
      answer.timings.ttft_ms = since_question.ms() - excluded_ms;
      decode_watch.restart();
    }
    if (std::find(ends.begin(), ends.end(), id) != ends.end()) {
      answer.finish_reason = "stop";
      break;
    }
    ids.push_back(id);
    show(filter.push(text_decoder.push(id)));
    if (filter.stopped()) {
      answer.finish_reason = "stop";
      break;
    }
    if (hooks.stop && hooks.stop()) {
      answer.finish_reason = "interrupted";
      break;
    }
    if (ids.size() < options.max_tokens) logits = engine.extend(std::span(&id, 1));
  }
  show(filter.push(text_decoder.finish()));
  show(filter.finish());
  answer.timings.decode_tokens = ids.size();
  // The first token came with the prefill; what is timed is the steps after it.
  if (ids.size() > 1)
    answer.timings.decode_tokens_per_second =
        static_cast<double>(ids.size() - 1) * 1000 / std::max(decode_watch.ms(), 1e-3);
  return ids;
}

void Answerer::Impl::verify(const Prompt& prompt, const std::vector<int32_t>& answer_ids, Answer& answer) {
  engine.truncate(0);
  PromptPlan plan;
  plan.segments.push_back(fresh_segment(prompt.prefix, "prefix"));
  for (const PromptChunk& chunk : prompt.chunks) plan.segments.push_back(fresh_segment(chunk.ids, chunk.report.id));
  plan.segments.push_back(fresh_segment(prompt.question, "question"));
  const size_t rows = answer.logits_rows, vocab = answer.logits.size() / rows;
  PipelineOptions options;
  options.blend.policy = PolicyKind::kNone;
  auto outcome = engine.prefill(plan, options, answer_ids.size());
  VerifyReport result;
  size_t row = 0, agree = 0;
  const auto compare = [&](std::span<const float> full) {
    const std::span<const float> answered = std::span(answer.logits).subspan(row * vocab, vocab);
    const double kl = kl_divergence(full, answered);
    result.kl_mean += kl;
    result.kl_max = std::max(result.kl_max, kl);
    agree += argmax(full) == argmax(answered) ? 1 : 0;
    ++row;
  };
  compare(std::get<PipelineReport>(outcome).logits);
  while (row < rows) {
    const size_t n = std::min(kVerifyRows, rows - row);
    const std::vector<float> full = engine.extend(std::span(answer_ids).subspan(row - 1, n), true);
    for (size_t i = 0; i < n; ++i) compare(std::span(full).subspan(i * vocab, vocab));
  }
  result.kl_mean /= static_cast<double>(rows);
  result.top1_agreement = static_cast<double>(agree) / static_cast<double>(rows);
  // Greedy choices that agree on every row of this answer make the same answer.
  result.same_answer = agree == rows;
  answer.verify = result;
}

}  // namespace cento
