#include <filesystem>

#include "app/cache_actions.h"
#include "app/interrupt.h"
#include "app/json.h"
#include "app/store_options.h"
#include "base/text.h"

namespace cento {
namespace {

KvStore::Hooks hooks_of(Run& run, const char* what) {
  KvStore::Hooks hooks;
  hooks.stop = interrupt_requested;
  hooks.progress = [&run, what](uint64_t done, uint64_t total) { run.terminal.progress(what, done, total, "bytes"); };
  return hooks;
}

std::string absolute(const std::string& path) {
  std::error_code error;
  const auto whole = std::filesystem::weakly_canonical(std::filesystem::absolute(path, error), error);
  if (error) throw Error{Code::kInput, "no such folder can be made: " + error.message(), path, "check the path"};
  return whole.string();
}

// A key of its own in a new file that nobody else may read.
void make_key_file(const std::string& path) {
  FileSystem& fs = FileSystem::real();
  std::string text = random_hex(SecretKey::kBytes) + "\n";
  atomic_write(fs, path, std::as_bytes(std::span(text))).or_throw();
  std::fill(text.begin(), text.end(), '\0');
}

}  // namespace

int cache_verify(Run& run, bool repair) {
  const auto store = open_store(run.common(), repair ? StoreUse::kWrite : StoreUse::kRead);
  const KvStore::Verified verified = store->kv.verify(repair, hooks_of(run, "verify"));
  run.terminal.end_progress();
  Json out;
  out["blobs"] = verified.blobs;
  out["bytes"] = verified.bytes;
  out["bad"] = Json::array();
  for (const auto& [key, reason] : verified.bad) {
    out["bad"].push_back({{"id", key.hex()}, {"reason", json_text(reason)}});
    run.terminal.warning(key.short_hex() + ": " + reason);
  }
  if (repair) out["repaired"] = verified.repaired;
  const std::string text =
      std::to_string(verified.blobs) + " pieces read, " + std::to_string(verified.bad.size()) + " damaged" +
      (repair && !verified.bad.empty() ? ", " + std::to_string(verified.repaired) + " taken out of the store" : "") +
      "\n";
  run.terminal.out(run.common().json ? json_line(out) : text);
  if (!verified.bad.empty()) {
    run.terminal.note(repair ? "the next `cento precompute` computes them again; `cento cache gc` frees their space"
                             : "damaged pieces are never used; `cento cache verify --repair` takes them out, the next "
                               "`cento precompute` computes them again");
  }
  if (verified.stopped) {
    run.terminal.note("stopped; the rest was not read");
    return kInterruptedStatus;
  }
  return verified.bad.empty() ? 0 : exit_status(Code::kInput);
}

int cache_gc(Run& run) {
  const auto store = open_store(run.common(), StoreUse::kWrite);
  const KvStore::Leftovers removed = store->kv.gc();
  const Json out = {{"files", removed.files}, {"rows", removed.rows}, {"bytes", removed.bytes}};
  run.terminal.out(run.common().json ? json_line(out)
                                     : std::to_string(removed.files) + " files and " + std::to_string(removed.rows) +
                                           " rows removed, " + size_text(removed.bytes) + " freed\n");
  return 0;
}

int cache_trim(Run& run, uint64_t max_bytes) {
  const auto store = open_store(run.common(), StoreUse::kWrite);
  const KvStore::Evicted gone = store->kv.trim(max_bytes);
  const uint64_t left = store->catalogue.kv_bytes_total();
  const Json out = {{"removed", gone.blobs}, {"freed", gone.bytes}, {"bytes", left}};
  run.terminal.out(run.common().json ? json_line(out)
                                     : std::to_string(gone.blobs) + " pieces removed, " + size_text(gone.bytes) +
                                           " freed; " + size_text(left) + " stored\n");
  return 0;
}

int cache_folder(Run& run, const CacheCommand& command) {
  const auto store = open_store(run.common(), command.remove_folder ? StoreUse::kWrite : StoreUse::kCreate);
  const std::string path = absolute(command.folder);
  Json out;
  put_path(out, "folder", path);
  std::string text;
  if (command.remove_folder) {
    const uint64_t moved = store->kv.remove_folder(path, hooks_of(run, "move"));
    run.terminal.end_progress();
    out["moved"] = moved;
    if (interrupt_requested()) {
      run.terminal.note("stopped; the same command goes on from here");
      return kInterruptedStatus;
    }
    text = size_text(moved) + " moved; " + printable(path) + " is no folder of the store any more\n";
  } else {
    store->kv.add_folder(path, command.max_bytes);
    out["max_bytes"] = command.max_bytes;
    text = "stored KV may lie in " + printable(path) +
           (command.max_bytes > 0 ? ", up to " + size_text(command.max_bytes) : std::string()) + "\n";
  }
  run.terminal.out(run.common().json ? json_line(out) : text);
  return 0;
}

int cache_rekey(Run& run, const CacheCommand& command) {
  const auto from = store_cipher(run.common());
  const auto store = open_locked_store(run.common(), StoreUse::kWrite);
  std::shared_ptr<const StoreCipher> to;
  if (!command.decrypt) {
    if (!FileSystem::real().exists(command.new_key_file)) {
      make_key_file(command.new_key_file);
      run.terminal.note("a new key is in " + printable(command.new_key_file) +
                        ": keep a copy, nothing can be read without it");
    }
    to = cipher_of_file(command.new_key_file);
  }
  const KvStore::Rekeyed done = store->kv.rekey(from, to, hooks_of(run, "rekey"));
  run.terminal.end_progress();
  const Json out = {
      {"blobs", done.blobs}, {"bytes", done.bytes}, {"damaged", done.damaged}, {"encrypted", to != nullptr}};
  run.terminal.out(
      run.common().json
          ? json_line(out)
          : std::to_string(done.blobs) + " pieces, " + size_text(done.bytes) +
                (to ? ", encrypted" : ", no longer encrypted") +
                (done.damaged > 0 ? "; " + std::to_string(done.damaged) + " damaged ones removed" : std::string()) +
                "\n");
  if (done.stopped) {
    run.terminal.note(
        "stopped; nothing can be used until the same command, with the same keys, has gone on to its end");
    return kInterruptedStatus;
  }
  if (to) run.terminal.note("the text of documents in the catalogue is not encrypted");
  return done.damaged > 0 ? kPartlyDoneStatus : 0;
}

}  // namespace cento
