// Computes and stores the KV of a collection's chunks ahead of time. Can be stopped and killed anywhere: what is stored
// stays.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "docs/doc_store.h"
#include "engine/loaded_model.h"
#include "kv/kv_store.h"

namespace cento {

// What a chunk's KV is computed behind. kBoth: behind the stand-in context and, in a second round, once more behind the
// fixed prefix, where it is exact for prompts that the chunk leads; each chunk counts twice then.
enum class ContextKind { kStandIn, kPrefix, kBoth };

struct PrecomputeOptions {
  std::string collection = "default";
  bool dry_run = false;
  // Chunks that are there with another codec are replaced; none: they count as present, and new ones get kDefaultCodec.
  std::optional<KvCodec> codec;
  ContextKind context = ContextKind::kStandIn;
  std::optional<uint64_t> max_bytes;  // of all stored KV; chunks that would go above it are skipped
  std::string only_glob;              // of source paths; empty: all
};

struct PrecomputeReport {
  std::string model;
  uint64_t wanted = 0, present = 0, made = 0, skipped = 0, evicted = 0;  // chunks
  uint64_t fetched = 0;  // of those present: taken from the remote tier now
  uint64_t recoded = 0;  // of those present: packed anew with the codec asked for
  uint64_t recoded_bytes = 0;
  uint64_t tokens = 0, bytes = 0;  // made now (or foretold by a dry run)
  double seconds = 0;
  std::vector<std::pair<std::string, std::string>> skipped_items;  // "path:lines", reason
  bool stopped = false;
};

struct PrecomputeHooks {
  std::function<void(uint64_t done, uint64_t total, uint64_t tokens, double seconds)> progress;  // may be empty
  std::function<bool()> stop;                                                                    // may be empty
};

PrecomputeReport precompute(LoadedModel& model, KvStore& store, DocStore& docs, const PrecomputeOptions& options,
                            const PrecomputeHooks& hooks);

}  // namespace cento
