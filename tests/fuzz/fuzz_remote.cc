// Any bytes as what a remote tier gets to read: a URL, a table of parts (as it is, then with its checksum made right),
// and the answers of a server with the Redis protocol.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "fuzz/fuzz_main.h"
#include "kv/redis_line.h"
#include "kv/remote_parts.h"
#include "kv/remote_url.h"

using namespace cento;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void read_url(const std::string& text) {
  (void)without_password(text);
  try {
    const RemoteUrl url = parse_remote_url(text);
    require(url.kind == RemoteUrl::Kind::kFolder ? !url.folder.empty()
                                                 : url.address.unix_path.empty() != url.address.host.empty());
  } catch (const Error& e) {
    require(e.code() == Code::kUsage);
  }
}

void read_parts(std::string text) {
  const auto parse = [&] {
    const auto parts = parse_remote_parts(std::as_bytes(std::span(text)));
    if (parts.ok()) require(parts->header_at + parts->lengths[0] == text.size());
  };
  parse();
  if (text.size() < 12) return;
  const size_t crc_at = 8 + 8 * size_t{static_cast<uint8_t>(text[4])};
  text[5] = text[6] = text[7] = 0;
  if (crc_at + 4 > text.size()) return;
  const uint32_t crc = crc32c(std::as_bytes(std::span(text)).first(crc_at));
  for (size_t i = 0; i < 4; ++i) text[crc_at + i] = static_cast<char>(crc >> (8 * i));
  parse();
}

// A server that says this, a few bytes at a time, and goes.
class Said final : public NetStream {
 public:
  explicit Said(const std::string& text) : text_(text) {}
  Status write(std::span<const std::byte>, Deadline) override { return Status::done(); }
  Result<size_t> read(std::span<std::byte> out, Deadline) override {
    const size_t n = std::min({out.size(), text_.size() - at_, 1 + at_ % 97});
    if (n == 0) return Error{Code::kResource, "the end"};
    std::memcpy(out.data(), text_.data() + at_, n);
    at_ += n;
    return n;
  }
  bool readable() override { return true; }

 private:
  const std::string& text_;
  size_t at_ = 0;
};

void read_answers(const std::string& text) {
  RedisLine line(std::make_unique<Said>(text));
  const RedisCommand commands[] = {{{"GET", "a"}, 1000, 0}, {{"ZREVRANGE", "b", "0", "7"}, 1000, 8}, {{"EXISTS", "c"}}};
  const auto asked = line.ask(commands, in_ms(1000));
  require(asked.ok());
  for (size_t i = 0; i < asked->size(); ++i) {
    const auto answer = line.wait((*asked)[i], in_ms(1000));
    if (!answer.ok()) return;
    size_t n_bytes = answer->bytes.size();
    for (const std::string& item : answer->items) n_bytes += item.size();
    require(n_bytes <= 1000 && answer->items.size() <= commands[i].items_max);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes) {
  const std::string text(reinterpret_cast<const char*>(data), n_bytes);
  read_url(text);
  read_parts(text);
  read_answers(text);
  return 0;
}

namespace cento::test {

std::vector<std::string> builtin_seeds() {
  return {
      "rediss://user:p%40ss@[::1]:7000/3?ns=team.a&ttl=2h&timeout=250ms&connect=1s&ca=%2Fca.pem",
      "redis+unix://:pw@/run/redis.sock?db=2",
      "file:///mnt/share?ttl=30d",
      *remote_parts_text(std::vector<uint64_t>{4, 1000, 1000}) + "head",
      "$5\r\nhello\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n:1\r\n",
      "$-1\r\n*0\r\n-ERR no\r\n",
      "+OK\r\n*-1\r\n:0\r\n",
  };
}

}  // namespace cento::test
