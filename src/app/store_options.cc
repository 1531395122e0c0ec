#include "app/store_options.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "kv/remote.h"

namespace cento {
namespace {

namespace fs = std::filesystem;

// $VARIABLE, else $HOME/`below`; "" if there is neither.
std::string base_folder(const char* variable, const char* below) {
  if (const auto v = environment_variable(variable)) return *v;
  if (const auto home = environment_variable("HOME")) return *home + "/" + below;
  return {};
}

bool is_regular(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

std::string without_suffix(const std::string& name) {
  return to_lower_ascii(name).ends_with(".gguf") ? name.substr(0, name.size() - 5) : name;
}

std::string listing(const std::vector<std::string>& paths) {
  std::string out;
  for (const auto& p : paths) out += (out.empty() ? "" : ", ") + p;
  return out;
}

// Nothing is read but the metadata.
bool is_supported(const std::string& path) {
  try {
    return unsupported_reason(GgufFile(path)).empty();
  } catch (const Error&) {
    return false;
  }
}

Error no_model(const std::string& what) {
  return {Code::kInput, what, listing(model_folders()),
          "name a GGUF file with --model FILE, or set CENTO_MODELS to a folder of them; `samples/demo.sh --fetch` "
          "fetches a small one"};
}

std::string named_model(const std::string& wanted) {
  if (is_regular(wanted)) return wanted;
  if (wanted.find('/') != std::string::npos)
    throw Error{Code::kInput, "no such model file", wanted, "check the path, or see `cento model list`"};
  const std::string stem = without_suffix(wanted);
  std::vector<std::string> exact, begun;
  for (const auto& path : find_model_files()) {
    const std::string name = without_suffix(fs::path(path).filename().string());
    if (name == stem) exact.push_back(path);
    if (name.starts_with(stem)) begun.push_back(path);
  }
  if (!exact.empty()) return exact.front();  // the first folder wins, as with commands in PATH
  if (begun.size() == 1) return begun.front();
  if (begun.empty()) throw no_model("no model \"" + wanted + "\"");
  throw Error{Code::kUsage, "\"" + wanted + "\" fits several models", listing(begun), "write more of the name"};
}

}  // namespace

std::optional<std::string> environment_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::string store_folder(const CommonOptions& common) {
  if (!common.store.empty()) return common.store;
  const std::string data = base_folder("XDG_DATA_HOME", ".local/share");
  if (data.empty()) throw Error{Code::kUsage, "no folder for the store: HOME is not set", "", "--store DIR"};
  return data + "/cento";
}

bool store_exists(const std::string& folder) {
  std::error_code ignored;
  return fs::exists(fs::path(folder) / "catalogue.sqlite", ignored);
}

std::shared_ptr<const StoreCipher> cipher_of_file(const std::string& path) {
  constexpr uint64_t kKeyFileBytesMax = 4096;
  auto text = read_file(path, kKeyFileBytesMax);
  if (!text) throw text.error();
  struct stat st {};
  if (::stat(path.c_str(), &st) == 0 && (st.st_mode & 077) != 0)
    log_warning("the key file " + path + " can be read by others: chmod 600 keeps it yours");
  return std::make_shared<const StoreCipher>(parse_secret_key(*text, path));
}

std::shared_ptr<const StoreCipher> store_cipher(const CommonOptions& common) {
  if (!common.key_file.empty()) return cipher_of_file(common.key_file);
  auto text = environment_variable("CENTO_KEY");
  if (!text) return nullptr;
  return std::make_shared<const StoreCipher>(parse_secret_key(*text, "CENTO_KEY"));
}

std::unique_ptr<RemoteTier> remote_tier(const CommonOptions& common) {
  if (common.remote.empty()) return nullptr;
  return open_remote(common.remote, environment_variable("CENTO_REMOTE_PASSWORD").value_or(""));
}

std::unique_ptr<Store> open_local_store(const CommonOptions& common, StoreUse use) {
  const auto cipher = store_cipher(common);  // before anything is opened
  auto store = open_locked_store(common, use);
  store->kv.set_cipher(cipher);
  (void)store->kv.set_limits(common.limits);
  return store;
}

std::unique_ptr<Store> open_store(const CommonOptions& common, StoreUse use) {
  auto remote = remote_tier(common);
  auto store = open_local_store(common, use);
  store->kv.set_remote(std::move(remote));
  return store;
}

std::unique_ptr<Store> open_locked_store(const CommonOptions& common, StoreUse use) {
  const std::string folder = store_folder(common);
  if (use == StoreUse::kCreate) return std::make_unique<Store>(folder, Db::Mode::kReadWrite);
  // Opened for reading first: that says in the right words that there is none, and makes nothing.
  if (use == StoreUse::kRead || !store_exists(folder)) return std::make_unique<Store>(folder, Db::Mode::kReadOnly);
  if (use == StoreUse::kWriteIfCan) {
    const std::string file = folder + "/catalogue.sqlite";
    if (::access(folder.c_str(), W_OK) != 0 || ::access(file.c_str(), W_OK) != 0) {
      return std::make_unique<Store>(folder, Db::Mode::kReadOnly);
    }
  }
  return std::make_unique<Store>(folder, Db::Mode::kReadWrite);
}

ScratchFolder::ScratchFolder() {
  std::string name = (fs::temp_directory_path() / "cento-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw system_error("cannot make a folder", name, errno);
  path_ = name;
}
ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::vector<std::string> model_folders() {
  std::vector<std::string> out;
  if (const auto v = environment_variable("CENTO_MODELS")) {
    for (size_t i = 0; i <= v->size();) {
      const size_t end = std::min(v->find(':', i), v->size());
      if (end > i) out.push_back(v->substr(i, end - i));
      i = end + 1;
    }
  }
  const std::string data = base_folder("XDG_DATA_HOME", ".local/share");
  const std::string cache = base_folder("XDG_CACHE_HOME", ".cache");
  if (!data.empty()) out.push_back(data + "/cento/models");
  if (!cache.empty()) out.push_back(cache + "/cento/models");
  out.push_back(".");
  return out;
}

std::vector<std::string> find_model_files() {
  std::vector<std::string> out;
  std::set<std::string> seen;
  for (const auto& folder : model_folders()) {
    std::error_code error;
    std::vector<std::string> here;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      const std::string name = it->path().filename().string();
      if (to_lower_ascii(name).ends_with(".gguf") && is_regular(it->path())) here.push_back(it->path().string());
    }
    std::sort(here.begin(), here.end());
    for (auto& path : here) {
      const fs::path real = fs::canonical(path, error);
      if (seen.insert(error ? path : real.string()).second) out.push_back(folder == "." ? path.substr(2) : path);
    }
  }
  return out;
}

std::string resolve_model(const std::string& wanted) {
  if (!wanted.empty()) return named_model(wanted);
  std::vector<std::string> files = find_model_files();
  if (files.empty()) throw no_model("no model found");
  if (files.size() == 1) return files.front();  // if it cannot be run, loading it says why
  std::vector<std::string> usable;
  std::copy_if(files.begin(), files.end(), std::back_inserter(usable), is_supported);
  if (usable.size() == 1) return usable.front();
  if (usable.empty())
    throw Error{Code::kInput, "none of the models found is supported", listing(files), "`cento model list` says why"};
  throw Error{Code::kUsage, "several models found", listing(usable),
              "--model NAME, or a line `model = \"NAME\"` in the configuration file"};
}

std::unique_ptr<LoadedModel> load_model(const CommonOptions& common, const RunOptions& run) {
  if (common.device == "cuda") {
    throw Error{Code::kResource, "no CUDA: this cento computes on the CPU", "--device cuda", "--device auto"};
  }
  ModelOptions options;
  options.path = resolve_model(common.model);
  options.precision = run.precision;
  options.target = run.target;
  options.threads = common.threads;
  options.chat_template = run.chat_template;
  return std::make_unique<LoadedModel>(options);
}

std::string path_from_here(const std::string& path) {
  std::error_code error;
  const std::string here = fs::current_path(error).string();
  if (!error && here.size() > 1 && path.starts_with(here + "/")) return path.substr(here.size() + 1);
  return path;
}

}  // namespace cento
