// Reading one chunk's stored KV, layer by layer, from where it can lie.
//
//   bench_remote [TOKENS]    of a model with 30 layers and 3 KV heads of 64 (SmolLM2-135M); 256 tokens
//
// All sources are warm and on this machine, so a network's throughput is not in it; its delay is put in by a relay in
// front of the server. Each run reads all layers in order through the store's own reader: read, checked, unpacked. The
// blob is lossless. Redis: whatever redis-server there is, over TCP.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <deque>
#include <filesystem>
#include <mutex>
#include <thread>

#include "bench.h"
#include "kv/blob_codec.h"
#include "kv/blob_identity.h"
#include "kv/blob_reader.h"
#include "kv/bytes_file.h"
#include "kv/tier_disk.h"
#include "kv/tier_folder.h"
#include "kv/tier_redis.h"
#include "support/kv_samples.h"
#include "support/redis_server.h"
#include "support/shared_data.h"

using namespace cento;
using namespace cento::test;

namespace {

// Carries bytes between a client and a server on the loopback, each `delay_ms` after it took them.
class Relay {
 public:
  Relay(int to_port, double delay_ms) : to_port_(to_port), delay_(static_cast<int64_t>(delay_ms * 1e6)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in a = loopback(0);
    socklen_t n = sizeof a;
    if (::bind(listener_, reinterpret_cast<sockaddr*>(&a), n) != 0 || ::listen(listener_, 8) != 0 ||
        ::getsockname(listener_, reinterpret_cast<sockaddr*>(&a), &n) != 0)
      std::abort();
    port_ = ntohs(a.sin_port);
    threads_.emplace_back([this] { accept(); });
  }
  ~Relay() {
    stopped_ = true;
    for (size_t i = 0; i < threads_.size(); ++i) threads_[i].join();
    ::close(listener_);
  }
  int port() const { return port_; }

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Way {
    std::mutex mutex;
    std::deque<std::pair<Time, std::string>> under_way;
    bool closed = false;
  };

  static sockaddr_in loopback(int port) {
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    a.sin_port = htons(static_cast<uint16_t>(port));
    return a;
  }

  void accept() {
    std::vector<std::thread> carriers;
    while (!stopped_) {
      pollfd p{listener_, POLLIN, 0};
      if (::poll(&p, 1, 20) <= 0) continue;
      const int client = ::accept(listener_, nullptr, nullptr);
      const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      const sockaddr_in a = loopback(to_port_);
      if (::connect(server, reinterpret_cast<const sockaddr*>(&a), sizeof a) != 0) std::abort();
      const int on = 1;  // else the second small piece waits for an acknowledgement, 40 ms
      for (const int fd : {client, server}) (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      for (const auto& [from, to] : {std::pair(client, server), std::pair(server, client)}) {
        auto way = std::make_shared<Way>();
        carriers.emplace_back([this, way, from = from] { take(*way, from); });
        carriers.emplace_back([this, way, to = to] { give(*way, to); });
      }
    }
    for (auto& t : carriers) t.join();
  }

  void take(Way& way, int from) {
    std::string buffer(64 << 10, '\0');
    while (!stopped_) {
      pollfd p{from, POLLIN, 0};
      if (::poll(&p, 1, 20) <= 0) continue;
      const ssize_t n = ::recv(from, buffer.data(), buffer.size(), 0);
      if (n <= 0) break;
      const std::lock_guard lock(way.mutex);
      way.under_way.emplace_back(std::chrono::steady_clock::now() + delay_, buffer.substr(0, static_cast<size_t>(n)));
    }
    const std::lock_guard lock(way.mutex);
    way.closed = true;
  }

  void give(Way& way, int to) {
    for (;;) {
      std::pair<Time, std::string> next;
      {
        const std::lock_guard lock(way.mutex);
        if (!way.under_way.empty()) {
          next = std::move(way.under_way.front());
          way.under_way.pop_front();
        } else if (way.closed) {
          (void)::shutdown(to, SHUT_WR);
          return;
        }
      }
      if (next.second.empty()) {
        ::usleep(20);
        continue;
      }
      std::this_thread::sleep_until(next.first);
      for (size_t at = 0; at < next.second.size();) {
        const ssize_t n = ::send(to, next.second.data() + at, next.second.size() - at, MSG_NOSIGNAL);
        if (n <= 0) return;
        at += static_cast<size_t>(n);
      }
    }
  }

  int to_port_, port_ = 0, listener_ = -1;
  std::chrono::nanoseconds delay_;
  std::atomic<bool> stopped_{false};
  std::vector<std::thread> threads_;
};

struct Source {
  std::string name;
  Tier* tier;
};

void report(const Source& source, const Hash& name, const KvBlock& block) {
  const KvShape& shape = block.shape();
  std::vector<std::byte> k(shape.side_bytes(block.n_tokens())), v(k.size());
  double waited_ms = 0, runs = 0;
  const auto read = [&] {
    auto file = std::move(source.tier->open(name)).or_throw();
    auto header = std::move(read_blob_header(*file, source.name)).or_throw();
    BlobReader reader(std::move(file), std::move(header), source.name);
    for (uint32_t layer = 0; layer < shape.n_layers; ++layer) reader.read_layer(layer, k, v).or_throw();
    waited_ms += reader.cost().read_ms;
    ++runs;
    if (!std::ranges::equal(k, block.k(shape.n_layers - 1))) std::abort();
  };
  const bench::Timing t = bench::measure(read, 15, 0.05);
  std::printf("  %-38s %7.2f ms, a layer %6.3f ms, of that waited for bytes %6.3f ms (spread %.0f %%, %zu runs)\n",
              source.name.c_str(), 1000 * t.median, 1000 * t.median / shape.n_layers, waited_ms / runs / shape.n_layers,
              100 * t.spread, t.runs);
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t n_tokens = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 256;
  SampleIdentity identity;
  identity.shape = {30, 3, 64, KvType::kF16};
  identity.ids.assign(n_tokens, 1);
  const KvBlock block = identity.block(1);
  BlobHeader header = header_of(identity.get());
  const auto bytes = std::move(encode_blob(header, block, KvCodec::kLossless)).or_throw();
  const auto parts = parts_of(std::move(read_blob_header(BytesFile(bytes), "")).or_throw());
  const BlobView view{bytes, parts, 0};

  bench::print_machine(1);
  std::printf("%zu tokens, %zu bytes at rest, %u layers of about %zu bytes\n", static_cast<size_t>(n_tokens),
              bytes.size(), identity.shape.n_layers, bytes.size() / identity.shape.n_layers);
  const TempDir dir, share;
  std::filesystem::create_directory(share / "cento");
  DiskTier disk(FileSystem::real(), dir / "kv", Clock::system());
  FolderTier folder(FileSystem::real(), share.path(), 0);
  for (const Source& source : {Source{"disk", &disk}, Source{"shared folder (a local one)", &folder}}) {
    source.tier->put(header.key, view).or_throw();
    report(source, header.key, block);
  }
  const int port = free_port();
  const auto server = RedisServer::start({"--port", std::to_string(port)});
  if (!server) return 0;
  for (const double delay_ms : {0.0, 0.25, 1.0}) {
    std::unique_ptr<Relay> relay;
    if (delay_ms > 0) relay = std::make_unique<Relay>(port, delay_ms);
    const std::string url = "redis://127.0.0.1:" + std::to_string(relay ? relay->port() : port);
    RedisTier tier(parse_remote_url(url));
    const bench::Timing put = bench::measure([&] { tier.put(header.key, view).or_throw(); }, 7);
    std::printf("  Redis, there and back %.1f ms: put %.2f ms (spread %.0f %%)\n", 2 * delay_ms, 1000 * put.median,
                100 * put.spread);
    for (const size_t n : {size_t{1}, size_t{4}, size_t{8}}) {
      tier.set_read_ahead(n);
      report({"  " + std::to_string(n) + (n == 1 ? " part" : " parts") + " in flight", &tier}, header.key, block);
    }
  }
  return 0;
}
