// One connection to a server with the Redis protocol: commands go out in bunches, answers come in that order. The
// hiredis header stops in redis_line.cc.
#pragma once

#include <chrono>
#include <deque>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kv/net_stream.h"

struct redisReader;

namespace cento {

struct RedisAnswer {
  enum class Kind { kNil, kStatus, kBytes, kNumber, kList, kRefused } kind = Kind::kNil;
  std::string bytes;  // of kStatus, kBytes and kRefused
  int64_t number = 0;
  std::vector<std::string> items;  // of kList
};

struct RedisCommand {
  std::vector<std::string_view> words;
  uint64_t bytes_max = 0;  // most bytes that the answer may have; a short one is always taken
  size_t items_max = 0;    // of a list
};

// Memory: what has arrived of one answer, at most its bytes_max and some KiB, whatever length the server claims.
// Several threads may use one; each waits for its own answers and takes in those that come before.
class RedisLine {
 public:
  explicit RedisLine(std::unique_ptr<NetStream> stream);
  ~RedisLine();
  RedisLine(const RedisLine&) = delete;
  RedisLine& operator=(const RedisLine&) = delete;

  // An answer to come. One that nobody waits for is thrown away when it is there.
  class Asked;
  using Handle = std::shared_ptr<Asked>;

  // After an Error, here or in wait, the line is of no more use, and every answer still to come is that Error.
  Result<std::vector<Handle>> ask(std::span<const RedisCommand> commands, Deadline deadline);
  // Once for each. What the server refuses is an answer too.
  Result<RedisAnswer> wait(const Handle& asked, Deadline deadline);
  // For all of them, in order.
  Result<std::vector<RedisAnswer>> call(std::span<const RedisCommand> commands, Deadline deadline);

  // False: broken, or closed by the other side since it was last used.
  bool usable();

 private:
  struct Reader;
  Status take_in(Deadline deadline);
  Status too_long() const;
  Error give_up(Error error);

  std::mutex mutex_;
  std::unique_ptr<NetStream> stream_;
  std::unique_ptr<Reader> reader_;
  std::deque<Handle> waiting_;  // in the order of the answers
  std::optional<Error> broken_;
};

}  // namespace cento
