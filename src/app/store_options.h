// Where the store and the models are, and opening them for a command.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/options.h"
#include "docs/doc_store.h"
#include "engine/loaded_model.h"
#include "kv/kv_store.h"

namespace cento {

std::optional<std::string> environment_variable(const std::string& name);  // nullopt also if it is empty

// --store, else $XDG_DATA_HOME/cento. Throws Error(kUsage) when there is no home folder either.
std::string store_folder(const CommonOptions& common);
bool store_exists(const std::string& folder);

// The store's parts over one connection.
struct Store {
  Store(const std::string& folder, Db::Mode mode) : catalogue(folder, mode), kv(catalogue), docs(catalogue) {}
  Catalogue catalogue;
  KvStore kv;
  DocStore docs;
};
enum class StoreUse {
  kCreate,      // made if it is not there
  kWrite,       // has to be there
  kWriteIfCan,  // has to be there; read-only where its folder may not be written to
  kRead,        // has to be there
};
// Throws Error(kInput) when there is no store and `use` needs one, ...
std::unique_ptr<Store> open_store(const CommonOptions& common, StoreUse use);
// The same without the remote tier.
std::unique_ptr<Store> open_local_store(const CommonOptions& common, StoreUse use);
// Without key and limits too: for `cento cache rekey`.
std::unique_ptr<Store> open_locked_store(const CommonOptions& common, StoreUse use);

// --remote, with the password of $CENTO_REMOTE_PASSWORD if the URL has none; null without one. Does not connect.
std::unique_ptr<RemoteTier> remote_tier(const CommonOptions& common);
// From --key-file, else from $CENTO_KEY; null if there is neither. Throws Error(kUsage, kInput).
std::shared_ptr<const StoreCipher> store_cipher(const CommonOptions& common);
std::shared_ptr<const StoreCipher> cipher_of_file(const std::string& path);

// A folder that goes when the object goes: for a store that is needed for one command only.
class ScratchFolder {
 public:
  ScratchFolder();  // throws Error
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Folders that are searched for models, in this order: $CENTO_MODELS (several, separated by ':'),
// $XDG_DATA_HOME/cento/models, $XDG_CACHE_HOME/cento/models, the current folder.
std::vector<std::string> model_folders();
// All *.gguf files in them, each file once, in the order of folders and names.
std::vector<std::string> find_model_files();

// The file that `wanted` (a path, a file name with or without ".gguf", or the beginning of one) means; "": the only
// supported model found. Throws Error(kInput) when there is none, Error(kUsage), listing them, when there are several.
std::string resolve_model(const std::string& wanted);

// Throws Error(kResource) for a device that this program has no code for.
std::unique_ptr<LoadedModel> load_model(const CommonOptions& common, const RunOptions& run);

// `path` as a person would type it here: relative if it lies below the current folder.
std::string path_from_here(const std::string& path);

}  // namespace cento
