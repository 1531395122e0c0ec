#include "kv/tier_redis.h"

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <new>
#include <thread>

#include "base/check.h"
#include "base/log.h"
#include "base/text.h"
#include "kv/remote_parts.h"

namespace cento {
namespace {

constexpr size_t kHeader = 0;                                // the part that stands in ":h"
constexpr int64_t kPartsOutliveMs = 60'000;                  // the header: it is to go first
constexpr int64_t kRenewAfterMs = 3'600'000;                 // a use renews what was not renewed for longer
constexpr uint64_t kPutBytesAtOnce = 4 << 20;                // sent before answers are waited for
constexpr uint64_t kReadAheadBytesMax = uint64_t{64} << 20;  // of one file
constexpr uint64_t kListedBytesMax = RemoteTier::kListedMax * 128;

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A part that is longer than the table says is a damaged or replaced blob; only one that is far longer is a reason to
// break the connection off.
uint64_t answer_bytes_max(uint64_t part_bytes) { return 2 * part_bytes + (64 << 10); }

uint64_t seed(const Clock& clock) {
  return static_cast<uint64_t>(clock.steady_us()) ^ static_cast<uint64_t>(::getpid()) << 32;
}

}  // namespace

// A blob's parts as a file.
class RedisFile final : public File {
 public:
  RedisFile(RedisTier& tier, std::shared_ptr<RedisLine> line, const Hash& name, RemoteParts parts, std::string header)
      : tier_(&tier),
        line_(std::move(line)),
        name_(name),
        parts_(std::move(parts)),
        header_(std::move(header)),
        asked_(parts_.lengths.size()),
        taken_(parts_.lengths.size()) {
    for (const uint64_t n : parts_.lengths) {
      from_.push_back(size_);
      size_ += n;
    }
  }

  Status write(std::span<const std::byte>) override {
    return Error{Code::kInternal, "a remote blob is not written in place", tier_->where()};
  }
  Status sync() override { return Status::done(); }
  Result<uint64_t> size() const override { return size_; }

  Status read_at(uint64_t offset, std::span<std::byte> out) const override {
    if (offset > size_ || out.size() > size_ - offset)
      return Error{Code::kInput, "file ends too early", tier_->where()};
    while (!out.empty()) {
      const auto after = std::upper_bound(from_.begin(), from_.end(), offset);
      const auto part = static_cast<size_t>(after - from_.begin()) - 1;
      const uint64_t skip = offset - from_[part];
      const size_t n = std::min<uint64_t>(out.size(), parts_.lengths[part] - skip);
      if (part == kHeader) {
        const auto bytes = std::as_bytes(std::span(header_)).subspan(parts_.header_at + skip, n);
        std::copy(bytes.begin(), bytes.end(), out.begin());
      } else if (n < parts_.lengths[part]) {
        // What is asked for has been allocated already; a server's word for a length does not make us allocate more.
        return Error{Code::kInput, "the parts are not those of its header", tier_->where()};
      } else if (auto s = fetch(part, out.first(n)); !s) {
        return s;
      }
      out = out.subspan(n);
      offset += n;
    }
    return Status::done();
  }

  // Asks for the part and those that will probably be wanted next.
  Status ask_from(size_t part, size_t n_parts) const {
    std::vector<size_t> wanted;
    std::vector<std::string> keys;
    for (size_t p = part; p < std::min(part + n_parts, asked_.size()); ++p) {
      if (asked_[p]) continue;
      const uint64_t n = parts_.lengths[p];
      if (p != part && (taken_[p] || n > kReadAheadBytesMax - std::min(in_flight_, kReadAheadBytesMax))) continue;
      wanted.push_back(p);
      keys.push_back(tier_->key(name_, p));
      in_flight_ += n;
    }
    if (wanted.empty()) return Status::done();
    std::vector<RedisCommand> commands;
    for (size_t i = 0; i < wanted.size(); ++i)
      commands.push_back({{"GET", keys[i]}, answer_bytes_max(parts_.lengths[wanted[i]]), 0});
    const auto handles = line_->ask(commands, tier_->deadline(0));
    if (!handles) return tier_->failed(handles.error());
    for (size_t i = 0; i < wanted.size(); ++i) asked_[wanted[i]] = (*handles)[i];
    return Status::done();
  }

 private:
  Status fetch(size_t part, std::span<std::byte> out) const {
    if (auto s = ask_from(part, tier_->read_ahead_); !s) return s;
    const auto start = std::chrono::steady_clock::now();
    read_bytes_ += out.size();
    auto answer = line_->wait(asked_[part], tier_->deadline(read_bytes_) - waited_);
    waited_ += std::chrono::steady_clock::now() - start;
    asked_[part].reset();
    taken_[part] = true;
    in_flight_ -= parts_.lengths[part];
    if (!answer) return tier_->failed(answer.error());
    if (answer->kind == RedisAnswer::Kind::kRefused) return tier_->refused(*answer);
    tier_->succeeded();
    if (answer->kind == RedisAnswer::Kind::kNil) {
      // Of no use to anybody: who finds no header computes and puts anew.
      const std::string key = tier_->key(name_, kHeader);
      const RedisCommand gone[] = {{{"DEL", key}}};
      (void)line_->ask(gone, tier_->deadline(0)).ok();
      return Error{Code::kInput, "a part is missing", tier_->where()};
    }
    if (answer->kind != RedisAnswer::Kind::kBytes || answer->bytes.size() != out.size())
      return Error{Code::kInput, "a part has another length", tier_->where()};
    const auto bytes = std::as_bytes(std::span(answer->bytes));
    std::copy(bytes.begin(), bytes.end(), out.begin());
    tier_->counters_.bytes_read += out.size();
    return Status::done();
  }

  RedisTier* tier_;
  std::shared_ptr<RedisLine> line_;
  Hash name_;
  RemoteParts parts_;
  std::string header_;          // as it came: table, then the header
  std::vector<uint64_t> from_;  // where each part begins in the blob
  uint64_t size_ = 0;
  mutable std::vector<RedisLine::Handle> asked_;  // null: not asked for now
  mutable std::vector<bool> taken_;               // has been read once, and is not fetched ahead again
  mutable uint64_t in_flight_ = 0, read_bytes_ = 0;
  mutable std::chrono::steady_clock::duration waited_{};
};

RedisTier::RedisTier(RemoteUrl settings, const Clock& clock)
    : settings_(std::move(settings)),
      clock_(&clock),
      tls_(settings_.tls ? make_tls_context(settings_.tls_files) : nullptr),
      breaker_({}, seed(clock)),
      write_breaker_({.failures_max = 1, .wait_ms = 10'000}, seed(clock) + 1) {}

RedisTier::~RedisTier() = default;

std::string RedisTier::key(const Hash& name, size_t part) const {
  return settings_.ns + ":b:" + name.hex() + ":" + (part == kHeader ? "h" : std::to_string(part));
}

std::string RedisTier::group_key(const Hash& group) const { return settings_.ns + ":g:" + group.hex(); }

Deadline RedisTier::deadline(uint64_t n_bytes) const {
  return in_ms(settings_.timeout_ms + static_cast<int64_t>(n_bytes * 1000 / kSlowestBytesPerSecond));
}

// ---- connections and failures

Result<std::unique_ptr<RedisLine>> RedisTier::connect() {
  auto stream = connect_stream(settings_.address, in_ms(settings_.connect_ms));
  if (!stream) return stream.error();
  const Deadline until = deadline(0);
  if (tls_) stream = start_tls(std::move(*stream), tls_, settings_.address.host, until);
  if (!stream) return stream.error();
  auto line = std::make_unique<RedisLine>(std::move(*stream));
  std::vector<RedisCommand> commands;
  const std::string db = std::to_string(settings_.db);
  if (!settings_.password.empty()) {
    RedisCommand auth{{"AUTH", settings_.password}};
    if (!settings_.user.empty()) auth.words.insert(auth.words.begin() + 1, settings_.user);
    commands.push_back(std::move(auth));
  }
  if (settings_.db != 0) commands.push_back({{"SELECT", db}});
  const auto answers = line->call(commands, until);
  if (!answers) return answers.error();
  for (const RedisAnswer& answer : *answers) {
    if (answer.kind != RedisAnswer::Kind::kStatus)
      return Error{Code::kResource, "the server refuses: " + printable(answer.bytes), where()};
  }
  return line;
}

Result<std::shared_ptr<RedisLine>> RedisTier::line() {
  {
    const std::lock_guard lock(mutex_);
    if (!breaker_.allow(now_ms())) return Error{Code::kResource, "away: " + last_failure_, where()};
  }
  Place& place = places_[std::hash<std::thread::id>()(std::this_thread::get_id()) % kLines];
  const std::lock_guard lock(place.mutex);
  if (place.line && place.line->usable()) return place.line;
  place.line.reset();
  try {
    auto line = connect();
    if (!line) return failed(line.error());
    place.line = std::move(*line);
  } catch (const std::bad_alloc&) {
    return failed({Code::kResource, "not enough memory for a connection"});
  }
  return place.line;
}

Error RedisTier::failed(Error error) {
  ++counters_.failures;
  bool warn = false;
  {
    const std::lock_guard lock(mutex_);
    breaker_.failed(now_ms(), is_time_out(error));
    last_failure_ = error.message();
    warn = !std::exchange(warned_, true);
  }
  const std::string text = "remote tier " + where() + ": " + error.message();
  if (warn) {
    log_warning(text + "; going on without it");
  } else {
    log_debug(text);
  }
  return {Code::kResource, error.message(), where()};
}

void RedisTier::succeeded() {
  const std::lock_guard lock(mutex_);
  breaker_.succeeded();
}

// A key of another type is a damaged value, everything else is about the server.
Error RedisTier::refused(const RedisAnswer& answer) {
  if (answer.bytes.starts_with("WRONGTYPE")) {
    succeeded();
    return {Code::kInput, "a value of another type", where()};
  }
  return failed({Code::kResource, "the server refuses: " + printable(answer.bytes), where()});
}

Result<std::vector<RedisAnswer>> RedisTier::call(std::span<const RedisCommand> commands, uint64_t n_bytes) {
  const auto line = this->line();
  if (!line) return line.error();
  auto answers = (*line)->call(commands, deadline(n_bytes));
  if (!answers) return failed(answers.error());
  for (const RedisAnswer& answer : *answers) {
    if (answer.kind == RedisAnswer::Kind::kRefused) return refused(answer);
  }
  succeeded();
  return answers;
}

Status RedisTier::check() {
  const std::string key = settings_.ns + ":check";
  const RedisCommand commands[] = {{{"SET", key, "x", "PX", "60000"}}, {{"GET", key}, 1, 0}};
  const auto answers = call(commands);
  if (!answers) return answers.error();
  if ((*answers)[1].bytes != "x") return Error{Code::kResource, "it does not keep what is written", where()};
  return Status::done();
}

// ---- reading

Result<std::unique_ptr<File>> RedisTier::open(const Hash& name) {
  try {
    const auto line = this->line();
    if (!line) return line.error();
    const std::string header_key = key(name, kHeader);
    const RedisCommand commands[] = {{{"GET", header_key}, 2 * kRemoteHeaderBytesMax, 0}, {{"PTTL", header_key}}};
    auto answers = (*line)->call(commands, deadline(0));
    if (!answers) return failed(answers.error());
    RedisAnswer& header = (*answers)[0];
    if (header.kind == RedisAnswer::Kind::kRefused) return refused(header);
    succeeded();
    if (header.kind == RedisAnswer::Kind::kNil) {
      ++counters_.misses;
      return Error{Code::kInput, "not in the remote tier", where()};
    }
    auto parts = parse_remote_parts(std::as_bytes(std::span(header.bytes)));
    if (!parts) {
      ++counters_.failures;
      return Error{Code::kInput, parts.error().message(), where()};
    }
    const RedisAnswer& left = (*answers)[1];
    const bool fresh = left.kind == RedisAnswer::Kind::kNumber && left.number >= 0 &&
                       left.number >= settings_.ttl_ms - std::min(settings_.ttl_ms / 2, kRenewAfterMs);
    if (settings_.ttl_ms > 0 && !fresh) renew(**line, name, parts->lengths.size());
    ++counters_.hits;
    counters_.bytes_read += header.bytes.size();
    auto file = std::make_unique<RedisFile>(*this, *line, name, std::move(*parts), std::move(header.bytes));
    // The first layer, while the header is looked at. If that fails, so will reading it.
    if (read_ahead_ > 1) (void)file->ask_from(1, 2).ok();
    return std::unique_ptr<File>(std::move(file));
  } catch (const std::bad_alloc&) {
    return Error{Code::kResource, "not enough memory to read it", where()};
  }
}

// The parts first, for the header goes first. Nobody waits for the answers.
void RedisTier::renew(RedisLine& line, const Hash& name, size_t n_parts) {
  const std::string ttl = std::to_string(settings_.ttl_ms),
                    parts_ttl = std::to_string(settings_.ttl_ms + kPartsOutliveMs);
  std::vector<std::string> keys;
  for (size_t p = 1; p < n_parts; ++p) keys.push_back(key(name, p));
  const std::string header_key = key(name, kHeader);
  std::vector<RedisCommand> commands;
  for (const std::string& k : keys) commands.push_back({{"PEXPIRE", k, parts_ttl}});
  commands.push_back({{"PEXPIRE", header_key, ttl}});
  (void)line.ask(commands, deadline(0)).ok();  // what comes next on this line tells
}

bool RedisTier::contains(const Hash& name) {
  const std::string header_key = key(name, kHeader);
  const RedisCommand commands[] = {{{"EXISTS", header_key}}};
  const auto answers = call(commands);
  return answers.ok() && (*answers)[0].kind == RedisAnswer::Kind::kNumber && (*answers)[0].number == 1;
}

std::vector<RemoteTier::Listed> RedisTier::find(const Hash& group) {
  const std::string k = group_key(group), last = std::to_string(kListedMax - 1), ttl = std::to_string(settings_.ttl_ms);
  std::vector<RedisCommand> commands = {{{"ZREVRANGE", k, "0", last}, kListedBytesMax, kListedMax}};
  if (settings_.ttl_ms > 0) commands.push_back({{"PEXPIRE", k, ttl}});
  const auto line = this->line();
  if (!line) return {};
  const auto answers = (*line)->call(commands, deadline(0));
  if (!answers) {
    (void)failed(answers.error());
    return {};
  }
  if ((*answers)[0].kind == RedisAnswer::Kind::kRefused) {
    (void)refused((*answers)[0]);
    return {};
  }
  succeeded();
  std::vector<Listed> out;
  for (const std::string& item : (*answers)[0].items) {
    if (item.size() < 2 || item[1] != ':' || item[0] < '0' || item[0] > '0' + static_cast<int>(KvKind::kChunkStandIn))
      continue;
    const auto name = hash_from_hex(std::string_view(item).substr(2));
    if (name) out.push_back({*name, static_cast<KvKind>(item[0] - '0')});
  }
  return out;
}

// ---- writing

Status RedisTier::list(const Hash& group, const Listed& item) {
  const std::string k = group_key(group), ttl = std::to_string(settings_.ttl_ms);
  const std::string member = std::to_string(static_cast<int>(item.kind)) + ":" + item.name.hex();
  const std::string now = std::to_string(clock_->unix_ms() / 1000),
                    beyond = std::to_string(-1 - static_cast<int>(kListedMax));
  std::vector<RedisCommand> commands = {{{"ZADD", k, now, member}}, {{"ZREMRANGEBYRANK", k, "0", beyond}}};
  if (settings_.ttl_ms > 0) commands.push_back({{"PEXPIRE", k, ttl}});
  const auto answers = call(commands);
  return answers.ok() ? Status::done() : Status(answers.error());
}

Status RedisTier::put(const Hash& name, const BlobView& blob) {
  {
    const std::lock_guard lock(mutex_);
    if (!write_breaker_.allow(now_ms())) return Error{Code::kResource, "away for writing: " + last_failure_, where()};
  }
  Status s;
  try {
    s = put_parts(name, blob);
  } catch (const std::bad_alloc&) {
    s = Error{Code::kResource, "not enough memory to send it", where()};
  }
  const std::lock_guard lock(mutex_);
  if (s.ok()) {
    write_breaker_.succeeded();
    ++counters_.puts;
    counters_.bytes_written += blob.bytes.size();
  } else {
    write_breaker_.failed(now_ms(), false);
  }
  return s;
}

// The old header goes before the first new part is there, the new one comes after the last: nobody takes a mixture for
// a blob. What a put that is broken off leaves behind expires.
Status RedisTier::put_parts(const Hash& name, const BlobView& blob) {
  const auto table = remote_parts_text(blob.parts);
  if (!table) return Error{Code::kResource, table.error().message(), where()};
  const std::string header_key = key(name, kHeader), ttl = std::to_string(settings_.ttl_ms),
                    parts_ttl = std::to_string(settings_.ttl_ms + kPartsOutliveMs);
  const auto line = this->line();
  if (!line) return line.error();
  const auto send = [&](std::span<const RedisCommand> commands, uint64_t n_bytes) -> Status {
    const auto answers = (*line)->call(commands, deadline(n_bytes));
    if (!answers) return failed(answers.error());
    succeeded();
    for (const RedisAnswer& answer : *answers) {
      // Full, read-only, not allowed: it may still be good for reading.
      if (answer.kind != RedisAnswer::Kind::kStatus && answer.kind != RedisAnswer::Kind::kNumber)
        return Error{Code::kResource, "the server refuses: " + printable(answer.bytes), where()};
    }
    return Status::done();
  };
  const auto set = [&](std::string_view k, std::string_view value, std::string_view life) {
    RedisCommand command{{"SET", k, value}};
    if (settings_.ttl_ms > 0) command.words.insert(command.words.end(), {"PX", life});
    return command;
  };
  std::vector<std::string> keys(blob.parts.size());
  std::vector<RedisCommand> commands = {{{"DEL", header_key}}};
  uint64_t at = 0, unsent = 0;
  for (size_t p = 0; p < blob.parts.size(); ++p) {
    const uint64_t n = blob.parts[p];
    CHECK(n <= blob.bytes.size() - at);
    if (p != kHeader) {
      keys[p] = key(name, p);
      commands.push_back(set(keys[p], text_of(blob.bytes.subspan(at, n)), parts_ttl));
      unsent += n;
    }
    at += n;
    if (unsent < kPutBytesAtOnce && p + 1 < blob.parts.size()) continue;
    if (auto s = send(commands, unsent); !s) return s;
    commands.clear();
    unsent = 0;
  }
  CHECK(at == blob.bytes.size());
  const std::string header = *table + std::string(text_of(blob.bytes.first(blob.parts[kHeader])));
  const RedisCommand last[] = {set(header_key, header, ttl)};
  return send(last, header.size());
}

Status RedisTier::evict(const Hash& name) {
  const std::string header_key = key(name, kHeader);
  const RedisCommand get[] = {{{"GET", header_key}, 2 * kRemoteHeaderBytesMax, 0}, {{"DEL", header_key}}};
  const auto answers = call(get);
  if (!answers) return answers.error();
  ++counters_.evictions;
  const auto parts = parse_remote_parts(std::as_bytes(std::span((*answers)[0].bytes)));
  if (!parts || parts->lengths.size() < 2) return Status::done();  // what is left expires
  std::vector<std::string> keys;
  for (size_t p = 1; p < parts->lengths.size(); ++p) keys.push_back(key(name, p));
  RedisCommand del{{"DEL"}};
  del.words.insert(del.words.end(), keys.begin(), keys.end());
  const auto gone = call(std::span(&del, 1));
  return gone.ok() ? Status::done() : Status(gone.error());
}

}  // namespace cento
