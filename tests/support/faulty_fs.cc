#include "support/faulty_fs.h"

#include <algorithm>
#include <cstring>

namespace cento::test {
namespace {

Error no_such(const std::string& path) { return {Code::kInput, "no such file", path}; }

}  // namespace

class FaultyFs::MemoryFile final : public File {
 public:
  MemoryFile(FaultyFs& fs, std::shared_ptr<Node> node) : fs_(&fs), node_(std::move(node)) {}

  Status write(std::span<const std::byte> bytes) override {
    const Status s = fs_->step(Op::kGrow);
    if (!s.ok() && !fs_->faults_->half_gets_through()) return s;
    if (!s.ok()) bytes = bytes.first(bytes.size() / 2);
    node_->bytes.insert(node_->bytes.end(), bytes.begin(), bytes.end());
    node_->modified_ms = fs_->clock_->unix_ms();
    return s;
  }
  Status read_at(uint64_t offset, std::span<std::byte> out) const override {
    if (auto s = fs_->step(Op::kLook); !s) return s;
    if (offset > node_->bytes.size() || out.size() > node_->bytes.size() - offset)
      return Error{Code::kInput, "file ends too early"};
    std::memcpy(out.data(), node_->bytes.data() + offset, out.size());
    return Status::done();
  }
  Result<uint64_t> size() const override {
    if (auto s = fs_->step(Op::kLook); !s) return s.error();
    return uint64_t{node_->bytes.size()};
  }
  Status sync() override {
    if (auto s = fs_->step(Op::kChange); !s) return s;
    node_->synced = node_->bytes;
    return Status::done();
  }

 private:
  FaultyFs* fs_;
  std::shared_ptr<Node> node_;
};

FaultyFs::FaultyFs(const Clock& clock, std::string root, Faults* faults)
    : clock_(&clock), root_(std::move(root)), faults_(faults == nullptr ? &own_ : faults) {
  const auto folder = std::make_shared<Node>();
  folder->is_folder = true;
  names_[root_] = synced_names_[root_] = folder;
}

Status FaultyFs::step(Op op) {
  if (!faults_->next_fails(op)) return Status::done();
  return Error{Code::kResource, "no space left (fault " + std::to_string(faults_->fail_at()) + ")"};
}

// A node that has two names, or a name now and another synced one, is one node in the copy too.
void FaultyFs::copy(const Names& from_names, const Names& from_synced, Names& names, Names& synced) {
  std::map<const Node*, std::shared_ptr<Node>> copies;
  const auto copied = [&](const Names& from) {
    Names out;
    for (const auto& [path, node] : from) {
      std::shared_ptr<Node>& copy = copies[node.get()];
      if (!copy) copy = std::make_shared<Node>(*node);
      out[path] = copy;
    }
    return out;
  };
  names = copied(from_names);
  synced = copied(from_synced);
}

FaultyFs::Saved FaultyFs::saved() const {
  Saved saved;
  copy(names_, synced_names_, saved.names_, saved.synced_names_);
  return saved;
}

void FaultyFs::restore(const Saved& saved) {
  copy(saved.names_, saved.synced_names_, names_, synced_names_);
  faults_->fail_at(0, Fault::kOnce);
}

const std::vector<std::byte>* FaultyFs::bytes(const std::string& path) const {
  const auto it = names_.find(path);
  return it == names_.end() || it->second->is_folder ? nullptr : &it->second->bytes;
}

void FaultyFs::set_bytes(const std::string& path, std::vector<std::byte> bytes) {
  std::shared_ptr<Node>& node = names_[path];
  if (!node) node = std::make_shared<Node>();
  node->bytes = node->synced = std::move(bytes);
  synced_names_[path] = node;
}

bool FaultyFs::is_child(const std::string& path, const std::string& folder) {
  return path.starts_with(folder + "/") && path.find('/', folder.size() + 1) == std::string::npos;
}

void FaultyFs::crash(AfterCrash after) {
  faults_->fail_at(0, Fault::kOnce);
  if (after == AfterCrash::kSyncedNames) names_ = synced_names_;
  names_[root_] = synced_names_[root_];
  // A synced name below a folder whose own name was not synced is lost with it. Parents come before their children.
  for (auto it = names_.begin(); it != names_.end();) {
    const bool below_root = it->first.starts_with(root_ + "/");
    const bool lost = below_root && !names_.contains(it->first.substr(0, it->first.find_last_of('/')));
    it = lost ? names_.erase(it) : std::next(it);
  }
  for (const auto& [path, node] : names_) node->bytes = node->synced;
  synced_names_ = names_;
}

std::vector<std::string> FaultyFs::files() const {
  std::vector<std::string> files;
  for (const auto& [path, node] : names_) {
    if (!node->is_folder) files.push_back(path);
  }
  return files;
}

Result<std::unique_ptr<File>> FaultyFs::create(const std::string& path) {
  if (auto s = step(Op::kGrow); !s) return s.error();
  if (!names_.contains(path.substr(0, path.find_last_of('/')))) return no_such(path);
  const auto [it, is_new] = names_.emplace(path, std::make_shared<Node>());
  if (!is_new) return Error{Code::kInput, "file exists", path};
  it->second->modified_ms = clock_->unix_ms();
  return std::unique_ptr<File>(std::make_unique<MemoryFile>(*this, it->second));
}

Result<std::unique_ptr<File>> FaultyFs::open_read(const std::string& path) {
  if (auto s = step(Op::kLook); !s) return s.error();
  const auto it = names_.find(path);
  if (it == names_.end() || it->second->is_folder) return no_such(path);
  return std::unique_ptr<File>(std::make_unique<MemoryFile>(*this, it->second));
}

Status FaultyFs::rename(const std::string& from, const std::string& to) {
  if (auto s = step(Op::kChange); !s) return s;
  const auto it = names_.find(from);
  if (it == names_.end()) return no_such(from);
  const auto node = it->second;
  names_.erase(it);
  names_[to] = node;
  return Status::done();
}

Status FaultyFs::remove(const std::string& path) {
  if (auto s = step(Op::kChange); !s) return s;
  names_.erase(path);
  return Status::done();
}

Status FaultyFs::sync_folder(const std::string& path) {
  if (auto s = step(Op::kChange); !s) return s;
  std::erase_if(synced_names_, [&](const auto& entry) { return is_child(entry.first, path); });
  for (const auto& [name, node] : names_) {
    if (is_child(name, path)) synced_names_[name] = node;
  }
  return Status::done();
}

Status FaultyFs::make_folders(const std::string& path) {
  if (auto s = step(Op::kGrow); !s) return s;
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const auto [it, is_new] = names_.emplace(path.substr(0, end), std::make_shared<Node>());
    if (is_new) it->second->is_folder = true;
    if (end == std::string::npos) return Status::done();
  }
}

Result<std::vector<std::string>> FaultyFs::list(const std::string& folder) {
  if (auto s = step(Op::kLook); !s) return s.error();
  const auto it = names_.find(folder);
  if (it == names_.end() || !it->second->is_folder) return no_such(folder);
  std::vector<std::string> names;
  for (const auto& [path, node] : names_) {
    if (is_child(path, folder)) names.push_back(path.substr(folder.size() + 1));
  }
  return names;
}

bool FaultyFs::exists(const std::string& path) { return names_.contains(path); }

Result<int64_t> FaultyFs::modified_ms(const std::string& path) {
  if (auto s = step(Op::kLook); !s) return s.error();
  const auto it = names_.find(path);
  if (it == names_.end()) return no_such(path);
  return it->second->modified_ms;
}

}  // namespace cento::test
