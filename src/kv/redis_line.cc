#include "kv/redis_line.h"

#include <hiredis/hiredis.h>

#include <array>
#include <charconv>
#include <new>

#include "base/check.h"

namespace cento {
namespace {

constexpr size_t kPieceBytes = 64 << 10;  // read at once
constexpr uint64_t kShortBytes = 512;     // status, refusal, number
constexpr size_t kLengthDigitsMax = 20;   // of 64 bits
constexpr int64_t kLeftOverMs = 20;       // for the rest of a TLS record of which there is a part
constexpr size_t kKeptBytes = 1 << 20;    // of the reader's memory, when it is empty

Error nonsense(const char* what) { return {Code::kResource, std::string("not the Redis protocol: ") + what}; }

struct FreeCommand {
  void operator()(char* p) const noexcept { redisFreeCommand(p); }
};

}  // namespace

class RedisLine::Asked {
 public:
  explicit Asked(const RedisCommand& command)
      : bytes_max(std::max<uint64_t>(command.bytes_max, kShortBytes)), items_max(command.items_max) {}
  const uint64_t bytes_max;
  const size_t items_max;
  bool done = false;
  uint64_t bytes = 0;  // of the answer so far
  RedisAnswer answer;
};

// hiredis calls back for each piece of an answer that is whole in its buffer. What returns null makes it stop.
struct RedisLine::Reader {
  redisReader* reader = nullptr;
  Asked* current = nullptr;
  std::array<std::byte, kPieceBytes> piece;

  Reader() {
    static redisReplyObjectFunctions functions = {on_bytes, on_list, on_number, on_nil, [](void*) {}};
    reader = redisReaderCreateWithFunctions(&functions);
    if (reader == nullptr) throw std::bad_alloc();
    reader->privdata = this;
    reader->maxbuf = kKeptBytes;
  }
  ~Reader() { redisReaderFree(reader); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  static Reader& of(const redisReadTask* task) { return *static_cast<Reader*>(task->privdata); }

  static void* on_bytes(const redisReadTask* task, char* bytes, size_t n) {
    Reader& self = of(task);
    Asked* const asked = self.current;
    if (asked == nullptr || n > asked->bytes_max - asked->bytes) return nullptr;
    try {
      asked->bytes += n;
      if (task->parent != nullptr) {
        asked->answer.items.emplace_back(bytes, n);
      } else {
        using Kind = RedisAnswer::Kind;
        asked->answer.kind = task->type == REDIS_REPLY_ERROR    ? Kind::kRefused
                             : task->type == REDIS_REPLY_STATUS ? Kind::kStatus
                                                                : Kind::kBytes;
        asked->answer.bytes.assign(bytes, n);
      }
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
    return &self;
  }
  static void* on_list(const redisReadTask* task, int n) {
    Reader& self = of(task);
    const bool fits = self.current != nullptr && task->parent == nullptr && n >= 0 &&
                      static_cast<size_t>(n) <= self.current->items_max;
    if (!fits) return nullptr;
    self.current->answer.kind = RedisAnswer::Kind::kList;
    return &self;
  }
  static void* on_number(const redisReadTask* task, long long n) {
    Reader& self = of(task);
    if (self.current == nullptr) return nullptr;
    if (task->parent != nullptr) return &self;  // none of our lists has numbers in it
    self.current->answer.kind = RedisAnswer::Kind::kNumber;
    self.current->answer.number = n;
    return &self;
  }
  static void* on_nil(const redisReadTask* task) {
    Reader& self = of(task);
    if (self.current == nullptr) return nullptr;
    if (task->parent == nullptr) self.current->answer.kind = RedisAnswer::Kind::kNil;
    return &self;
  }
};

RedisLine::RedisLine(std::unique_ptr<NetStream> stream)
    : stream_(std::move(stream)), reader_(std::make_unique<Reader>()) {}

RedisLine::~RedisLine() = default;

Error RedisLine::give_up(Error error) {
  broken_ = error;
  waiting_.clear();
  stream_.reset();
  return error;
}

Result<std::vector<RedisLine::Handle>> RedisLine::ask(std::span<const RedisCommand> commands, Deadline deadline) {
  const std::lock_guard lock(mutex_);
  if (broken_) return *broken_;
  std::vector<Handle> out;
  for (const RedisCommand& command : commands) {
    std::vector<const char*> words;
    std::vector<size_t> lengths;
    for (const std::string_view word : command.words) {
      words.push_back(word.data());
      lengths.push_back(word.size());
    }
    char* text = nullptr;
    const int n = redisFormatCommandArgv(&text, static_cast<int>(words.size()), words.data(), lengths.data());
    const std::unique_ptr<char, FreeCommand> owner(n < 0 ? nullptr : text);
    if (n < 0) return give_up({Code::kResource, "not enough memory for a command"});
    // It counts from its first byte on: a command that was sent in part breaks the line.
    out.push_back(std::make_shared<Asked>(command));
    waiting_.push_back(out.back());
    if (auto s = stream_->write(std::as_bytes(std::span(text, static_cast<size_t>(n))), deadline); !s)
      return give_up(s.error());
  }
  return out;
}

Result<RedisAnswer> RedisLine::wait(const Handle& asked, Deadline deadline) {
  const std::lock_guard lock(mutex_);
  while (!asked->done) {
    if (broken_) return *broken_;
    if (auto s = take_in(deadline); !s) return give_up(s.error());
  }
  return std::move(asked->answer);
}

Result<std::vector<RedisAnswer>> RedisLine::call(std::span<const RedisCommand> commands, Deadline deadline) {
  const auto asked = ask(commands, deadline);
  if (!asked) return asked.error();
  std::vector<RedisAnswer> out;
  for (const Handle& handle : *asked) {
    auto answer = wait(handle, deadline);
    if (!answer) return answer.error();
    out.push_back(std::move(*answer));
  }
  return out;
}

bool RedisLine::usable() {
  const std::lock_guard lock(mutex_);
  // What was asked for and is not wanted any more may still lie there, in front of the end.
  while (!broken_ && stream_->readable()) {
    if (auto s = take_in(in_ms(kLeftOverMs)); !s) (void)give_up(s.error());
  }
  return !broken_;
}

// One piece from the stream, and every answer that it completes.
Status RedisLine::take_in(Deadline deadline) {
  Reader& r = *reader_;
  const auto n = stream_->read(r.piece, deadline);
  if (!n) return n.error();
  if (redisReaderFeed(r.reader, reinterpret_cast<const char*>(r.piece.data()), *n) != REDIS_OK)
    return Error{Code::kResource, "not enough memory for an answer"};
  for (;;) {
    r.current = waiting_.empty() ? nullptr : waiting_.front().get();
    void* whole = nullptr;
    if (redisReaderGetReply(r.reader, &whole) != REDIS_OK) {
      // What it takes for a lack of memory is an answer that our functions did not take.
      return nonsense(r.reader->err == REDIS_ERR_OOM ? "an answer that is too long, or was not asked for"
                                                     : r.reader->errstr);
    }
    if (whole == nullptr) break;
    CHECK(r.current != nullptr);
    r.current->done = true;
    waiting_.pop_front();
  }
  return too_long();
}

// What lies in the reader's buffer is the beginning of the next answer, or of the next item of a list; the reader has
// taken off the byte that says of which type it is.
Status RedisLine::too_long() const {
  const redisReader& r = *reader_->reader;
  const size_t n = r.len - r.pos;
  if (n == 0) return Status::done();
  if (waiting_.empty() || r.ridx < 0) return nonsense("an answer that was not asked for");
  if (r.rstack[r.ridx].type != REDIS_REPLY_STRING)
    return n > kShortBytes + 2 ? nonsense("a line without end") : Status::done();
  const std::string_view text(r.buf + r.pos, n);
  const size_t end = text.find('\r');
  if (end == std::string_view::npos) return n > kLengthDigitsMax ? nonsense("a length without end") : Status::done();
  int64_t claimed = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + end, claimed);
  if (parsed.ec != std::errc{} || parsed.ptr != text.data() + end) return nonsense("a bad length");
  if (claimed > 0 && static_cast<uint64_t>(claimed) > waiting_.front()->bytes_max)
    return nonsense("a longer answer than there can be");
  return Status::done();
}

}  // namespace cento
