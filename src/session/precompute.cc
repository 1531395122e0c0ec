#include "session/precompute.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/clock.h"
#include "engine/engine.h"
#include "kv/blob_codec.h"
#include "kv/frame_codec.h"
#include "session/answer.h"
#include "session/chunk_kv.h"
#include "session/collection_contexts.h"
#include "session/gate.h"
#include "session/identify.h"
#include "session/prompt_layout.h"
#include "session/speed_record.h"

namespace cento {
namespace {

// What a dry run computes to learn what KV weighs: so many chunks, or fewer where that takes longer than this.
constexpr size_t kSamples = 4;
constexpr double kSampleMsMax = 15'000;

// What KV packed with one codec weighs, without what does not depend on its tokens.
struct Weight {
  bool known = false;  // asked for before
  uint64_t n_tokens = 0, n_bytes = 0;
};

class Precompute {
 public:
  Precompute(LoadedModel& model, KvStore& store, DocStore& docs, const PrecomputeOptions& options,
             const PrecomputeHooks& hooks)
      : engine_(model),
        store_(store),
        docs_(docs),
        options_(options),
        hooks_(hooks),
        layout_(model, default_system_text()) {}

  PrecomputeReport run() {
    const Stopwatch watch;
    const auto collection = docs_.find_collection(options_.collection);
    if (!collection) {
      throw Error{Code::kInput, "no collection named '" + options_.collection + "'", docs_.catalogue().db().path(),
                  "run `cento index FOLDER` first"};
    }
    collection_id_ = collection->id;
    report_.model = engine_.model().name();
    // A store that is full makes room from what was there before, not from what this run has made or found.
    store_.protect_since(store_.catalogue().clock().unix_ms());
    if (const std::string why = not_for_codec(codec(KvKind::kChunkStandIn), engine_.shape().type); !why.empty())
      throw Error{Code::kUsage, why, "--codec", "or leave out --precision f32"};
    identify(engine_.model(), &store_.catalogue(), NoteModel::kNow);
    speed_ = read_speed(engine_, &store_.catalogue());
    contexts_.emplace(docs_, collection_id_, layout_);
    if (!options_.dry_run) {
      if (const GateResult g = gate(engine_, &store_.catalogue()); !g.passed) {
        throw Error{Code::kInput, "KV of this model is not stored: " + g.why, engine_.model().file().file().path(),
                    "query works without stored KV"};
      }
    }
    if (options_.context != ContextKind::kPrefix) contexts_->choose_passages(!options_.dry_run);
    if (!options_.dry_run && !contexts_->order().empty()) store_prefix();
    const std::vector<DocStore::ChunkInOrder> wanted = wanted_chunks();
    // The copies last: a run that is stopped has what every prompt needs.
    std::vector<bool> rounds = {options_.context != ContextKind::kPrefix};
    if (options_.context == ContextKind::kBoth) rounds.push_back(false);
    report_.wanted = wanted.size() * rounds.size();
    size_t done = 0;
    for (const bool behind_stand_in : rounds) {
      for (const auto& place : wanted) {
        if (hooks_.stop && hooks_.stop()) report_.stopped = true;
        if (report_.stopped) break;
        one(place, behind_stand_in);
        ++done;
        if (hooks_.progress) hooks_.progress(done, report_.wanted, report_.tokens, watch.ms() / 1000);
      }
    }
    if (report_.made > 0) write_speed(engine_, &store_.catalogue(), speed_);
    report_.seconds = watch.ms() / 1000;
    return std::move(report_);
  }

 private:
  std::vector<DocStore::ChunkInOrder> wanted_chunks() {
    if (options_.only_glob.empty()) return contexts_->order();
    std::vector<DocStore::ChunkInOrder> wanted;
    for (const auto& c : contexts_->order()) {
      const std::vector<ChunkPlace> places = docs_.places(collection_id_, c.chunk_id);
      const bool fits = std::any_of(places.begin(), places.end(), [&](const ChunkPlace& p) {
        return ::fnmatch(options_.only_glob.c_str(), p.path.c_str(), 0) == 0 ||
               ::fnmatch(("*/" + options_.only_glob).c_str(), p.path.c_str(), 0) == 0;
      });
      if (fits) wanted.push_back(c);
    }
    return wanted;
  }

  void store_prefix() {
    const std::vector<int32_t>& prefix = layout_.prefix();
    const KvIdentity identity = identity_of(engine_, KvKind::kPrefix, prefix, {}, prefix);
    if (auto known = store_.open(identity); known.ok()) return;
    const auto computed = compute_kv(engine_, {}, prefix, {});
    // Small, in front of every prompt, and it holds the attention's sink: never lossy.
    std::move(store_.put(identity, computed->block, KvCodec::kLossless, std::nullopt)).or_throw();
  }

  // Prefix and, where there is enough of it, stand-in context.
  std::pair<KvKind, std::vector<int32_t>> context_of(const DocStore::ChunkInOrder& place, bool behind_stand_in) {
    std::pair<KvKind, std::vector<int32_t>> out{KvKind::kChunkPrefix, layout_.prefix()};
    if (!behind_stand_in) return out;
    const std::vector<int32_t> stand_in = contexts_->context_of(place);
    if (!stand_in.empty()) out.first = KvKind::kChunkStandIn;
    out.second.insert(out.second.end(), stand_in.begin(), stand_in.end());
    return out;
  }

  void one(const DocStore::ChunkInOrder& place, bool behind_stand_in) {
    const auto chunk = docs_.chunk(place.chunk_id);
    if (!chunk) return;  // gone since the list was made
    const std::vector<int32_t>& ids = contexts_->ids_of(place.chunk_id);
    const auto [kind, context] = context_of(place, behind_stand_in);
    const KvIdentity identity = identity_of(engine_, kind, layout_.prefix(), context, ids);
    const Hash key = kv_key(identity);
    if (auto known = store_.open(identity); known.ok()) {
      const auto row = store_.catalogue().kv(key);  // after the open, which corrects what it says of the codec
      if (row && (!options_.codec || row->codec == kv_codec_name(*options_.codec))) {
        if (!options_.dry_run) (void)store_.offer(key);
        ++report_.present;
        return;
      }
      // Without a row the remote tier has it: it is fetched below.
      if (row && !options_.dry_run && recode(**known, *row, identity)) return;
    }
    const uint64_t foretold = foretold_bytes(ids.size(), kind);
    if (options_.dry_run) {
      report_.tokens += ids.size();
      report_.bytes += foretold;
      return;
    }
    if (store_.fetch(identity, chunk->hash)) {
      ++report_.present;
      ++report_.fetched;
      return;
    }
    if (context.size() + ids.size() > engine_.model().config().context_max) {
      skip(place, "longer than the model's context with what stands in front of it");
      return;
    }
    if (options_.max_bytes && store_.catalogue().kv_bytes_total() + foretold > *options_.max_bytes) {
      skip(place, "above --max-bytes");
      return;
    }
    if (auto s = store_.fits(foretold); !s) {
      if (!KvStore::is_over_budget(s.error())) throw s.error();
      skip(place, s.error().message());
      return;
    }
    const Stopwatch watch;
    auto computed = compute_kv(engine_, context, ids, hooks_.stop);
    if (!computed) {
      report_.stopped = true;
      return;
    }
    const double n = static_cast<double>(computed->rows_computed),
                 end = static_cast<double>(context.size() + ids.size());
    speed_.observe_compute(n, n * (end - n / 2), watch.ms());
    const auto row = store_.put(identity, computed->block, codec(kind), chunk->hash, watch.ms());
    if (!row.ok()) {
      if (!KvStore::is_over_budget(row.error())) throw row.error();
      skip(place, row.error().message());
      return;
    }
    ++report_.made;
    report_.tokens += row->n_tokens;
    report_.bytes += row->n_bytes;
    weigh(row->n_tokens, row->n_bytes, weights_[codec(kind)]);
    drop_stale(identity, key, kind);
  }

  // Right behind the prefix KV is exact for a prompt that the chunk leads; it stays so unless a codec is named.
  KvCodec codec(KvKind kind) const {
    if (options_.codec) return *options_.codec;
    const bool lossy = kind == KvKind::kChunkStandIn && engine_.shape().type == KvType::kF16;
    return lossy ? kDefaultCodec : KvCodec::kLossless;
  }

  // Packs what is stored anew with the codec asked for. False: it is lossy, or damaged, and has to be computed.
  bool recode(KvReader& reader, const KvRow& row, const KvIdentity& identity) {
    const auto from = find_kv_codec(row.codec);
    if (!from || is_lossy(*from)) return false;
    KvBlock block(reader.shape(), reader.n_tokens());
    for (uint32_t layer = 0; layer < reader.shape().n_layers; ++layer) {
      if (auto s = reader.read_layer(layer, block.k(layer), block.v(layer)); !s) {
        if (s.error().code() == Code::kInput) store_.set_aside(row.key, s.error().message());
        return false;
      }
    }
    const KvRow written = std::move(store_.put(identity, block, codec(row.kind), row.chunk_hash)).or_throw();
    ++report_.present;
    ++report_.recoded;
    report_.recoded_bytes += written.n_bytes;
    return true;
  }

  // Older KV of the same chunk behind another context of the same kind: superseded.
  void drop_stale(const KvIdentity& identity, const Hash& key, KvKind kind) {
    for (const KvRow& row : store_.catalogue().find_kv(identity.fingerprint, identity.layout,
                                                       kv_ids_hash(identity.prefix_ids), kv_ids_hash(identity.ids))) {
      if (row.key == key || row.kind != kind) continue;
      if (store_.remove(row.key).ok()) ++report_.evicted;
    }
  }

  // From what this model's stored KV of this codec weighs so far; before there is any, a dry run computes a few chunks,
  // others go by what codecs do to the KV of other models (docs/STORE.md) until they have stored some.
  uint64_t foretold_bytes(size_t tokens, KvKind kind) {
    Weight& w = weights_[codec(kind)];
    if (!w.known) {
      w.known = true;
      weigh_stored(codec(kind), w);
      if (w.n_tokens == 0 && options_.dry_run) weigh_samples(kind, w);
    }
    const double raw = static_cast<double>(2 * engine_.shape().n_layers * engine_.shape().side_bytes(1));
    return bytes_for(tokens, w.n_tokens > 0 ? static_cast<double>(w.n_bytes) / static_cast<double>(w.n_tokens)
                                            : raw * kv_codec_share(codec(kind)));
  }

  uint64_t bytes_for(size_t tokens, double bytes_per_token) const {
    return overhead() + static_cast<uint64_t>(std::ceil(bytes_per_token * static_cast<double>(tokens)));
  }

  void weigh(uint64_t n_tokens, uint64_t n_bytes, Weight& w) const {
    w.n_tokens += n_tokens;
    w.n_bytes += n_bytes - std::min(n_bytes, overhead());
  }

  void weigh_stored(KvCodec codec, Weight& w) {
    for (const KvRow& row : store_.catalogue().all_kv()) {
      if (row.fingerprint == engine_.model().fingerprint() && row.kind != KvKind::kPrefix &&
          row.codec == kv_codec_name(codec))
        weigh(row.n_tokens, row.n_bytes, w);
    }
  }

  // Chunks from all over the collection, computed as they will be.
  void weigh_samples(KvKind kind, Weight& w) {
    const Stopwatch watch;
    const auto& order = contexts_->order();
    const size_t n_samples = std::min(order.size(), kSamples);
    for (size_t i = 0; i < n_samples && (i == 0 || watch.ms() < kSampleMsMax); ++i) {
      const auto& place = order[(2 * i + 1) * order.size() / (2 * n_samples)];
      const std::vector<int32_t>& ids = contexts_->ids_of(place.chunk_id);
      const auto [own_kind, context] = context_of(place, kind == KvKind::kChunkStandIn);
      if (ids.empty() || context.size() + ids.size() > engine_.model().config().context_max) continue;
      const auto computed = compute_kv(engine_, context, ids, hooks_.stop);
      if (!computed) break;
      const auto packed = store_.packed_bytes(identity_of(engine_, own_kind, layout_.prefix(), context, ids),
                                              computed->block, codec(kind));
      if (packed.ok()) weigh(ids.size(), *packed, w);
    }
  }

  // Bytes of a blob that do not depend on its tokens.
  uint64_t overhead() const { return blob_header_bytes(0, engine_.shape().n_layers); }

  void skip(const DocStore::ChunkInOrder& place, const std::string& reason) {
    ++report_.skipped;
    const std::vector<ChunkPlace> places = docs_.places(collection_id_, place.chunk_id);
    const std::string where = places.empty() ? "chunk " + std::to_string(place.chunk_id)
                                             : places[0].path + ":" + std::to_string(places[0].line_from) + "-" +
                                                   std::to_string(places[0].line_to);
    report_.skipped_items.emplace_back(where, reason);
  }

  Engine engine_;
  KvStore& store_;
  DocStore& docs_;
  const PrecomputeOptions& options_;
  const PrecomputeHooks& hooks_;
  PromptLayout layout_;
  int64_t collection_id_ = 0;
  std::optional<CollectionContexts> contexts_;
  std::map<KvCodec, Weight> weights_;
  SpeedRecord speed_;
  PrecomputeReport report_;
};

}  // namespace

PrecomputeReport precompute(LoadedModel& model, KvStore& store, DocStore& docs, const PrecomputeOptions& options,
                            const PrecomputeHooks& hooks) {
  return Precompute(model, store, docs, options, hooks).run();
}

}  // namespace cento
