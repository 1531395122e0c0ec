#include "session/answer.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "blend/stand_in.h"
#include "docs/attach.h"
#include "kv/memory_kv.h"
#include "session/answer_impl.h"
#include "session/chunk_kv.h"

namespace cento {
namespace {

constexpr std::pair<PrefillMode, const char*> kModes[] = {{PrefillMode::kAuto, "auto"},
                                                          {PrefillMode::kFull, "full"},
                                                          {PrefillMode::kPrefix, "prefix"},
                                                          {PrefillMode::kReuse, "reuse"},
                                                          {PrefillMode::kBlend, "blend"}};

constexpr uint32_t kAttachedChunkTokens = 256;
constexpr size_t kFewChunks = 2;

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
  std::vector<FoundChunk> found;
  std::vector<ChunkToOrder> to_order;
  for (const Hit& hit : hits) {
    auto row = docs->chunk(hit.chunk_id);
    if (!row) continue;  // removed by another process since it was found
    const std::vector<ChunkPlace> places = docs->places(collection->id, hit.chunk_id);
    if (places.empty()) continue;
    answer.citations.push_back({answer.citations.size() + 1, places[0].path, places[0].line_from, places[0].line_to,
                                row->hash.short_hex(), hit.score, row->body});
    found.push_back(find_kv(layout, *row, wanted));
    to_order.push_back({places[0].source_id, places[0].seq, wanted && exact_in_front(prompt.prefix, found.back())});
  }
  const bool few = found.size() <= kFewChunks && options.prefill != PrefillMode::kReuse;
  for (const size_t i : chunk_order(to_order, options.order)) {  // the list of sources stays in the order of rank
    PromptChunk chunk = lookup(prompt.prefix, std::move(found[i]), wanted, prompt.chunks.empty(), few);
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

// Its token ids, and what is stored of it for this model behind this prefix; nothing of that unless `wanted`.
FoundChunk Answerer::Impl::find_kv(const PromptLayout& layout, const ChunkRow& row, bool wanted) {
  FoundChunk found;
  found.hash = row.hash;
  found.ids = layout.chunk(row.prompt_text());
  if (store == nullptr || !wanted) return found;
  found.kv = store->find(identity_of(engine, KvKind::kChunkPrefix, layout.prefix(), {}, found.ids));
  return found;
}

// Whether KV of the chunk right behind the fixed prefix is in memory or stored.
bool Answerer::Impl::exact_in_front(const std::vector<int32_t>& prefix, const FoundChunk& chunk) const {
  return is_resident(prefix, chunk.ids) ||
         std::any_of(chunk.kv.begin(), chunk.kv.end(), [](const KvRow& r) { return r.kind == KvKind::kChunkPrefix; });
}

// Stored KV of a chunk. The one that `leads` stands right behind the fixed prefix: KV that was computed there is exact,
// while KV computed behind a stand-in context is further off than anywhere else. Of few chunks the leading one is so
// large a part that it is computed rather than taken from behind a stand-in context.
PromptChunk Answerer::Impl::lookup(const std::vector<int32_t>& prefix, FoundChunk found, bool wanted, bool leads,
                                   bool few) {
  PromptChunk chunk;
  chunk.ids = std::move(found.ids);
  chunk.report = {found.hash.short_hex(), "", chunk.ids.size(), "computed", ""};
  if (store == nullptr || !wanted) {
    chunk.report.reason = store == nullptr ? "no store" : "not asked for";
    return chunk;
  }
  std::stable_partition(found.kv.begin(), found.kv.end(),
                        [&](const KvRow& r) { return (r.kind == KvKind::kChunkPrefix) == leads; });
  chunk.report.reason = "not stored";
  for (const KvRow& kv_row : found.kv) {  // the wanted kind, newest first; a damaged one gives way to an older one
    if (leads && few && kv_row.kind != KvKind::kChunkPrefix) {
      chunk.report.reason = "stands first";
      if (may_write()) chunk.keep_exact = found.hash;
      break;
    }
    // One that was used before and stands first now may do so again: worth an exact copy, made behind the answer.
    if (leads && kv_row.kind != KvKind::kChunkPrefix && kv_row.hits > 0 && may_write()) chunk.copy_exact = found.hash;
    auto reader = store->open_row(kv_row, identity_of(engine, kv_row.kind, prefix, {}, chunk.ids));
    if (!reader.ok()) {
      chunk.report.reason = reader.error().message();
      continue;
    }
    chunk.kv = std::move(reader).value();
    chunk.exact_behind_prefix = kv_row.kind == KvKind::kChunkPrefix && !chunk.kv->lossy();
    chunk.report.from = chunk.kv->from();
    if (kv_row.remote_name && may_write()) chunk.keep_remote = {kv_row, found.hash};
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
  const std::vector<int32_t> stand_in = passages.empty() ? std::vector<int32_t>{} : stand_in_context(passages);
  context.insert(context.end(), stand_in.begin(), stand_in.end());
  const KvKind kind = stand_in.empty() ? KvKind::kChunkPrefix : KvKind::kChunkStandIn;
  for (const std::string& text : file.chunks) {
    PromptChunk chunk;
    chunk.ids = layout.chunk(text);
    chunk.report = {kv_ids_hash(chunk.ids).short_hex(), "", chunk.ids.size(), "computed", "not asked for"};
    if (wanted && !chunk.ids.empty()) {
      const KvIdentity identity = identity_of(engine, kind, layout.prefix(), context, chunk.ids);
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
      chunk.exact_behind_prefix = kind == KvKind::kChunkPrefix && !chunk.kv->lossy();
      chunk.report.from = chunk.kv->from();
      chunk.report.reason.clear();
    }
    prompt.chunks.push_back(std::move(chunk));
  }
  engine.truncate(0);  // what precomputing left there is no part of the measured prefill
  return true;
}

}  // namespace cento
