#include "docs/indexer.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "docs/chunker.h"
#include "docs/converter.h"
#include "docs/index_options.h"
#include "docs/reader.h"
#include "docs/source_file.h"
#include "docs/walk.h"

namespace cento {
namespace {

// Raised when readers or chunker give other chunks for the same file: every collection is then read again once.
constexpr const char* kReaderVersion = "1";

// A commit waits for the disk: this many files or this long share one. What is lost when we are killed is at most that.
constexpr size_t kBatchFiles = 64;
constexpr double kBatchMs = 1000;

// A file that was written this shortly before it was read may be written again within one tick of the file system's
// clock, and look unchanged. Its stamp is stored so that it does not match: the next run reads it once more.
constexpr int64_t kTickNs = 20'000'000;

struct FreeWithFree {
  void operator()(char* p) const noexcept { std::free(p); }
};

std::string absolute_path(const std::string& path) {
  std::unique_ptr<char, FreeWithFree> resolved(::realpath(path.c_str(), nullptr));
  if (!resolved) throw system_error("cannot read", path, errno);
  return resolved.get();
}

WalkOptions walk_options(const IndexOptions& options) {
  WalkOptions w;
  for (const std::string& glob : options.include) w.include.add(glob);
  for (const std::string& glob : options.exclude) w.exclude.add(glob);
  w.use_ignore_files = options.use_ignore_files;
  w.hidden = options.hidden;
  w.follow_links = options.follow_links;
  w.max_file_bytes = options.max_file_bytes;
  return w;
}

bool is_below(std::string_view path, std::string_view folder) {
  if (folder == "/") return true;
  return path.substr(0, folder.size()) == folder && (path.size() == folder.size() || path[folder.size()] == '/');
}

bool is_zero(const FileStamp& stamp) { return stamp == FileStamp{}; }

FileStamp stamp_to_store(FileStamp stamp, const Clock& clock) {
  const int64_t now_ns = clock.unix_ms() * 1'000'000;
  if (stamp.mtime_ns > now_ns - kTickNs && stamp.mtime_ns < now_ns + kTickNs) --stamp.mtime_ns;
  return stamp;
}

class Indexer {
 public:
  Indexer(DocStore& store, const Tokenizer* tokenizer, const IndexOptions& options, const IndexHooks& hooks)
      : store_(store), tokenizer_(tokenizer), counter_(tokenizer), options_(options), hooks_(hooks) {}

  IndexReport run() {
    const Stopwatch watch(store_.catalogue().clock());
    open_collection();
    choose_roots();
    for (const Root& root : roots_) walk_root(root);
    if (report_.stopped) return finish(watch);
    load_known();
    process_files();
    if (!report_.stopped && options_.prune) remove_gone();
    return finish(watch);
  }

 private:
  struct Root {
    std::string path;
    IndexOptions options;
  };
  struct Work {
    FoundFile file;
    size_t root;
  };

  void open_collection() {
    const std::string kind = tokenizer_ != nullptr ? tokenizer_->kind : "estimate";
    auto collection = store_.find_collection(options_.collection);
    chunk_tokens_ = options_.chunk_tokens != 0 ? options_.chunk_tokens
                    : collection               ? collection->chunk_tokens
                                               : IndexOptions{}.chunk_tokens;
    chunk_tokens_ = std::clamp(chunk_tokens_, kChunkTokensMin, kChunkTokensMax);
    if (!collection && !options_.dry_run) collection = store_.open_collection(options_.collection, chunk_tokens_, kind);
    if (!collection) return;
    collection_id_ = collection->id;
    const std::string key = "docs.reader." + std::to_string(collection_id_);
    const bool other_reader = store_.catalogue().setting(key).value_or("") != kReaderVersion;
    read_all_ = collection->chunk_tokens != chunk_tokens_ || other_reader;
    if (options_.dry_run || !read_all_) return;
    // First the stamps go, then the new settings hold: stopped in between, the next run still reads everything.
    store_.forget_stamps(collection_id_);
    store_.set_collection_tokens(collection_id_, chunk_tokens_, kind);
    store_.catalogue().set_setting(key, kReaderVersion);
  }

  void choose_roots() {
    if (!options_.paths.empty()) {
      for (const std::string& path : options_.paths) {
        Root root{absolute_path(path), options_};
        if (!options_.dry_run) store_.add_root(collection_id_, root.path, stored_options(options_));
        if (!has_root(root.path)) roots_.push_back(std::move(root));
      }
      for (std::string& path : collection_id_ == 0 ? std::vector<std::string>{} : store_.roots(collection_id_)) {
        if (!has_root(path)) other_roots_.push_back(std::move(path));
      }
      return;
    }
    if (collection_id_ == 0) {
      throw Error{Code::kInput, "collection \"" + printable(options_.collection) + "\" has no folders yet", "",
                  "name a folder: cento index FOLDER"};
    }
    for (const std::string& path : store_.roots(collection_id_)) {
      struct ::stat status {};
      if (::stat(path.c_str(), &status) == 0) {
        roots_.push_back({path, with_stored(options_, store_.root_options(collection_id_, path))});
      } else {
        missing_roots_.push_back(path);
      }
    }
    if (roots_.empty() && missing_roots_.empty()) {
      throw Error{Code::kInput, "collection \"" + printable(options_.collection) + "\" has no folders yet", "",
                  "name a folder: cento index FOLDER"};
    }
  }

  bool has_root(const std::string& path) const {
    return std::any_of(roots_.begin(), roots_.end(), [&](const Root& r) { return r.path == path; });
  }

  void walk_root(const Root& root) {
    if (report_.stopped) return;
    Found found = walk(root.path, walk_options(root.options), hooks_.stop);
    report_.stopped = found.stopped;
    report_.seen += found.skipped.size();
    for (auto& [path, reason] : found.skipped) skip(path, std::move(reason), {});
    for (std::string& path : found.unread) unread_.push_back(std::move(path));
    const auto index = static_cast<size_t>(&root - roots_.data());
    for (FoundFile& file : found.files) {
      if (seen_.insert(file.path).second) work_.push_back({std::move(file), index});
    }
  }

  void load_known() {
    if (collection_id_ == 0) return;
    for (SourceRow& source : store_.sources(collection_id_)) {
      by_path_.emplace(source.path, known_.size());
      by_content_.emplace(source.content_hash.hex(), known_.size());
      known_.push_back(std::move(source));
    }
    for (const std::string& path : missing_roots_) judge_missing_root(path);
    for (SkippedFile& file : store_.skipped_files(collection_id_)) known_skips_.emplace(file.path, std::move(file));
    moved_.assign(known_.size(), false);
  }

  // A file whose folder is there was deleted. A folder may be a drive that is not there today: what was read from it is
  // kept.
  void judge_missing_root(const std::string& path) {
    struct ::stat status {};
    const std::string parent = path.substr(0, std::max<size_t>(1, path.rfind('/')));
    if (by_path_.count(path) != 0 && ::stat(parent.c_str(), &status) == 0) return;
    skip(path, "not there now; what was indexed from it is kept", {});
    unread_.push_back(path);
  }

  void process_files() {
    std::unique_ptr<DocStore::Batch> batch;
    if (!options_.dry_run) batch = std::make_unique<DocStore::Batch>(store_);
    Stopwatch since_commit;
    size_t in_batch = 0;
    for (size_t i = 0; i < work_.size(); ++i) {
      if (hooks_.stop && hooks_.stop()) {
        report_.stopped = true;
        break;
      }
      if (hooks_.progress) hooks_.progress(i, work_.size(), work_[i].file.path);
      ++report_.seen;
      process(work_[i].file, roots_[work_[i].root].options);
      if (batch && (++in_batch >= kBatchFiles || since_commit.ms() > kBatchMs)) {
        batch->commit();
        in_batch = 0;
        since_commit.restart();
      }
    }
    if (batch) batch->commit();
    if (hooks_.progress && !report_.stopped) hooks_.progress(work_.size(), work_.size(), "");
  }

  void process(const FoundFile& file, const IndexOptions& options) {
    const FormatOfName named = format_of_name(file.path);
    const auto converter =
        named.extension.empty() ? options.converters.end() : options.converters.find(named.extension);
    const bool converted = converter != options.converters.end();
    const std::string format = converted ? "converted " + named.extension : named.format;
    const auto known = by_path_.find(file.path);
    SourceRow* old = known == by_path_.end() ? nullptr : &known_[known->second];
    if (format.empty()) {
      drop(old);
      return skip(file.path,
                  "format ." + named.extension + " is not read yet; give --converter " + named.extension + "=COMMAND",
                  {});
    }
    const bool same_format = old != nullptr && old->format == format;
    if (same_format && !read_all_ && old->stamp == file.stamp) {
      ++report_.unchanged;
      return;
    }
    if (old == nullptr && known_skip(file)) return;
    if (old == nullptr && renamed_by_stamp(file, format)) return;
    read_and_put(file, options, format, converted ? &converter->second : nullptr, old);
  }

  // A file that was no text the last time and has not changed.
  bool known_skip(const FoundFile& file) {
    const auto found = known_skips_.find(file.path);
    if (found == known_skips_.end() || read_all_ || is_zero(found->second.stamp) ||
        !(found->second.stamp == file.stamp))
      return false;
    skip(file.path, found->second.reason, file.stamp);
    return true;
  }

  // The same inode with the same size and time under a new name, the old name gone: moved, nothing to read.
  bool renamed_by_stamp(const FoundFile& file, const std::string& format) {
    if (read_all_) return false;
    if (by_stamp_.empty() && !known_.empty()) {
      for (size_t k = 0; k < known_.size(); ++k) {
        if (!is_zero(known_[k].stamp)) by_stamp_.emplace(known_[k].stamp.inode, k);
      }
    }
    const auto [begin, end] = by_stamp_.equal_range(file.stamp.inode);
    for (auto it = begin; it != end; ++it) {
      const SourceRow& source = known_[it->second];
      if (!(source.stamp == file.stamp) || source.format != format || !is_gone(it->second)) continue;
      rename(it->second, file.path, file.stamp);
      return true;
    }
    return false;
  }

  bool renamed_by_content(const std::string& path, const Hash& content, const FileStamp& stamp,
                          const std::string& format) {
    const auto [begin, end] = by_content_.equal_range(content.hex());
    for (auto it = begin; it != end; ++it) {
      if (known_[it->second].format != format || !is_gone(it->second) ||
          (read_all_ && is_zero(known_[it->second].stamp)))
        continue;
      rename(it->second, path, stamp);
      return true;
    }
    return false;
  }

  // Not met in this walk, not on the disk, and not renamed yet. A source of a folder that is not walked now may be
  // renamed too.
  bool is_gone(size_t known) const {
    if (moved_[known] || seen_.count(known_[known].path) != 0) return false;
    struct ::stat status {};
    return ::lstat(known_[known].path.c_str(), &status) != 0 && (errno == ENOENT || errno == ENOTDIR) &&
           !is_unread(known_[known].path);
  }

  void rename(size_t known, const std::string& path, const FileStamp& stamp) {
    moved_[known] = true;
    ++report_.renamed;
    if (!options_.dry_run) store_.rename_source(known_[known].id, path, stamp);
  }

  void read_and_put(const FoundFile& file, const IndexOptions& options, const std::string& format,
                    const std::string* command, SourceRow* old) {
    ReadFailure failure{};
    auto content = read_whole(file.path, options.follow_links, options.max_file_bytes, failure);
    if (!content) {
      if (failure.trouble == ReadTrouble::kUnreadable) unread_.push_back(file.path);
      if (failure.trouble == ReadTrouble::kGone) {
        seen_.erase(file.path);  // as if the walk had not met it
      } else if (failure.trouble == ReadTrouble::kContent) {
        drop(old);
      }
      return skip(file.path, failure.reason, {});
    }
    ++report_.files_read;
    report_.bytes_read += content->bytes.size();
    SourceRow source;
    source.path = file.path;
    source.stamp = stamp_to_store(content->stamp, store_.catalogue().clock());
    source.content_hash = hash_of_text("cento file", content->bytes);
    source.format = format;
    const bool same_content = old != nullptr && old->format == format && old->content_hash == source.content_hash;
    if (same_content && !is_zero(old->stamp) && !read_all_) {
      ++report_.unchanged;
      if (!options_.dry_run) store_.touch_source(old->id, source.stamp);
      return;
    }
    if (old == nullptr && renamed_by_content(file.path, source.content_hash, source.stamp, format)) return;
    Result<Document> document = read(file.path, options, format, command, content->bytes);
    if (!document) {
      drop(old);
      // A converter's failure may pass; what bytes hold does not change until they do.
      return skip(file.path, document.error().message(), command == nullptr ? source.stamp : FileStamp{});
    }
    content.reset();
    source.title = document->title;
    put(source, chunk_document(*document, counter_, chunk_tokens_), old, same_content);
  }

  Result<Document> read(const std::string& path, const IndexOptions& options, const std::string& format,
                        const std::string* command, const std::string& bytes) {
    if (command == nullptr) return read_document(bytes, format);
    ConverterLimits limits;
    limits.output_bytes = options.max_file_bytes;
    Result<std::string> text = convert_file(*command, path, limits);
    if (!text) return text.error();
    if (text->empty()) return Error{Code::kInput, "the converter printed nothing"};
    return read_document(*text, format_of_converted(*text));
  }

  void put(const SourceRow& source, const std::vector<NewChunk>& chunks, const SourceRow* old, bool same_content) {
    if (old == nullptr) {
      ++report_.added;
    } else if (same_content) {
      ++report_.unchanged;
    } else {
      ++report_.changed;
    }
    if (options_.dry_run) {
      std::set<Hash> fresh;
      for (const NewChunk& chunk : chunks) {
        const Hash hash = chunk_text_hash(chunk.header, chunk.body);
        if (!store_.chunk_by_hash(hash)) fresh.insert(hash);
      }
      report_.chunks_new += fresh.size();
      return;
    }
    const DocStore::PutCounts counts = store_.put_source(collection_id_, source, chunks);
    report_.chunks_new += counts.chunks_new;
    report_.chunks_removed += counts.chunks_removed;
  }

  // A source whose file is there but is not what it was: its text must not be found any more.
  void drop(const SourceRow* old) {
    if (old == nullptr) return;
    ++report_.removed;
    moved_[static_cast<size_t>(old - known_.data())] = true;
    if (!options_.dry_run) report_.chunks_removed += store_.remove_source(old->id);
  }

  bool is_unread(const std::string& path) const {
    return std::any_of(unread_.begin(), unread_.end(),
                       [&](const std::string& folder) { return is_below(path, folder); });
  }

  void remove_gone() {
    std::unique_ptr<DocStore::Batch> batch;
    if (!options_.dry_run) batch = std::make_unique<DocStore::Batch>(store_);
    size_t n = 0;
    for (size_t k = 0; k < known_.size(); ++k) {
      if (moved_[k] || seen_.count(known_[k].path) != 0 || !may_go(known_[k].path)) continue;
      drop(&known_[k]);
      if (batch && ++n % kBatchFiles == 0) batch->commit();
    }
    if (batch) batch->commit();
  }

  // Not met in the walk. It goes if a root of this run would have met it, unless the file is there and below another
  // root that is not walked now, such as a hidden folder indexed by its own name.
  bool may_go(const std::string& path) const {
    const auto below = [&](const std::string& root) { return is_below(path, root); };
    if (is_unread(path)) return false;
    if (std::any_of(missing_roots_.begin(), missing_roots_.end(), below)) return true;
    if (std::none_of(roots_.begin(), roots_.end(), [&](const Root& root) { return below(root.path); })) return false;
    struct ::stat status {};
    if (::lstat(path.c_str(), &status) != 0) return true;
    return std::none_of(other_roots_.begin(), other_roots_.end(), below);
  }

  void skip(const std::string& path, std::string reason, const FileStamp& stamp) {
    skips_.push_back({path, std::move(reason), stamp});
  }

  IndexReport finish(const Stopwatch& watch) {
    std::sort(skips_.begin(), skips_.end(), [](const SkippedFile& a, const SkippedFile& b) { return a.path < b.path; });
    skips_.erase(std::unique(skips_.begin(), skips_.end(),
                             [](const SkippedFile& a, const SkippedFile& b) { return a.path == b.path; }),
                 skips_.end());
    for (const SkippedFile& file : skips_) report_.skipped.emplace_back(file.path, file.reason);
    if (!options_.dry_run && !report_.stopped) save_skips();
    if (collection_id_ != 0) report_.chunks_total = store_.chunk_count(collection_id_);
    report_.seconds = watch.ms() / 1000;
    return report_;
  }

  // The collection's list: what this run found, and the old entries of folders that it did not walk.
  void save_skips() {
    std::vector<SkippedFile> all = skips_;
    for (const auto& [path, file] : known_skips_) {
      const bool walked = std::any_of(roots_.begin(), roots_.end(), [&, p = std::string_view(path)](const Root& root) {
        return is_below(p, root.path);
      });
      if (!walked && !is_unread(path)) all.push_back(file);
    }
    store_.set_skipped(collection_id_, all);
  }

  DocStore& store_;
  const Tokenizer* tokenizer_;
  TokenCounter counter_;
  const IndexOptions& options_;
  const IndexHooks& hooks_;
  int64_t collection_id_ = 0;
  uint32_t chunk_tokens_ = 0;
  bool read_all_ = false;  // stamps do not count in this run
  std::vector<Root> roots_;
  std::vector<std::string> missing_roots_, other_roots_;  // stored ones: not there; not part of this run
  std::vector<Work> work_;
  std::unordered_set<std::string> seen_;
  std::vector<std::string> unread_;
  std::vector<SourceRow> known_;
  std::vector<bool> moved_;  // of known_: renamed or dropped in this run
  std::unordered_map<std::string, size_t> by_path_;
  std::unordered_multimap<std::string, size_t> by_content_;
  std::unordered_multimap<uint64_t, size_t> by_stamp_;
  std::unordered_map<std::string, SkippedFile> known_skips_;
  std::vector<SkippedFile> skips_;
  IndexReport report_;
};

}  // namespace

IndexReport index_documents(DocStore& store, const Tokenizer* tokenizer, const IndexOptions& options,
                            const IndexHooks& hooks) {
  return Indexer(store, tokenizer, options, hooks).run();
}

}  // namespace cento
