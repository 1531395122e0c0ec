// Several `cento` processes, each with a store of its own, that share stored KV.
#include <catch2/catch.hpp>

#include <filesystem>

#include "base/clock.h"
#include "cli/sandbox.h"
#include "support/redis_server.h"

namespace cento::test {
namespace {

const std::string kQuestion = "How many days of annual leave may be carried over?";

// A machine of its own: home, store, model and the same documents.
struct Machine : Sandbox {
  explicit Machine(std::string url) : remote(std::move(url)) {
    add_model();
    add_documents();
    (void)json_of({"index", "docs"});
  }
  RunResult shared(std::vector<std::string> args) const {
    args.insert(args.end(), {"--remote", remote});
    return run(args);
  }
  Json json_of(std::vector<std::string> args) const {
    args.insert(args.end(), {"--json", "--remote", remote});
    return json(args);
  }
  Json query() const { return json_of({"query", kQuestion, "--max-tokens", "4", "--prefill", "blend", "--verify"}); }
  std::string remote;
};

// How many of an answer's chunks come from where.
size_t n_from(const Json& answer, const std::string& from) {
  size_t n = 0;
  for (const Json& chunk : answer["cache"]["chunks"]) n += chunk["from"] == from;
  return n;
}

void check_sharing(const std::string& url) {
  const Machine a(url), b(url), c(url);
  const Json made = a.json_of({"precompute"});
  const int wanted = made["chunks"]["wanted"];
  CHECK((made["chunks"]["made"] == wanted && made["chunks"]["fetched"] == 0));
  const Json fetched = b.json_of({"precompute"});
  CHECK((fetched["chunks"]["made"] == 0 && fetched["chunks"]["fetched"] == wanted));
  CHECK(fetched["chunks"]["present"] == wanted);
  CHECK(b.json({"cache", "verify", "--json"})["bad"].empty());

  // What was there before the remote tier is shared too.
  Machine early("");
  (void)early.json({"precompute", "--json"});
  early.remote = url + (url.starts_with("redis") ? "?ns=later" : "");
  CHECK(early.json_of({"precompute"})["chunks"]["present"] == wanted);
  const Machine late(early.remote);
  CHECK(late.json_of({"precompute"})["chunks"]["fetched"] == wanted);

  // What computes nothing ahead uses the others' work, and has it at home afterwards.
  const Json first = c.query(), second = c.query(), of_a = a.query();
  INFO(first.dump(1));
  REQUIRE(first["cache"]["chunks"].size() > 1);
  CHECK(n_from(first, "remote") + 1 >= first["cache"]["chunks"].size());  // the one that stands first may be computed
  CHECK(n_from(second, "remote") == 0);
  CHECK(n_from(second, "disk") >= n_from(first, "remote"));
  CHECK(first["answer"] == of_a["answer"]);
}

TEST_CASE("cli: what one process has computed the others use, over Redis", "[cli]") {
  const auto server = RedisServer::start();
  if (!server) {
    SUCCEED("skipped: no redis-server");
    return;
  }
  check_sharing(server->url());
}

TEST_CASE("cli: what one process has computed the others use, over a shared folder", "[cli]") {
  const TempDir share;
  std::filesystem::create_directory(share / "cento");
  check_sharing(share.path());
}

TEST_CASE("cli: a remote tier that is away, slow or refuses costs one warning and little time", "[cli]") {
  const auto server = RedisServer::start({"--requirepass", "right"});
  if (!server) {
    SUCCEED("skipped: no redis-server");
    return;
  }
  const auto n_warnings = [](const RunResult& r) {
    size_t n = 0;
    for (size_t i = r.err.find("remote tier"); i != std::string::npos; i = r.err.find("remote tier", i + 1)) ++n;
    return n;
  };
  const Machine box(server->url());
  RunSpec spec = box.spec({"precompute", "--json", "--remote", server->url()});
  spec.environment["CENTO_REMOTE_PASSWORD"] = "right";
  const RunResult made = box.run(spec);
  INFO(shown(made));
  REQUIRE(made.status == 0);
  CHECK(n_warnings(made) == 0);
  CHECK(!server->ask({"KEYS", "cento:b:*"}, "right").empty());

  Machine other(server->url());
  const auto answers = [&](const std::string& why) {
    INFO(why);
    const Stopwatch watch;
    const RunResult r = other.shared({"query", kQuestion, "--max-tokens", "4", "--json"});
    INFO(shown(r));
    CHECK(r.status == 0);
    CHECK(n_warnings(r) == 1);
    CHECK(watch.ms() < 15'000);  // a time-out is 2 s; this machine may be busy
    const Json answer = Json::parse(r.out);
    CHECK(n_from(answer, "remote") == 0);
    CHECK(n_from(answer, "computed") == answer["cache"]["chunks"].size());
  };
  answers("no password");
  server->hold();
  answers("silent");
  server->stop();
  answers("gone");
  other.remote = *static_cast<const Sandbox*>(&other) / "no-share";
  answers("no folder");
  const Json doctor = other.json({"doctor", "--json", "--remote", server->url()}, 3);
  for (const Json& check : doctor["checks"]) CHECK(check["ok"] == (check["name"] != "remote"));
}

TEST_CASE("cli: doctor says whether the remote tier can be used, and nobody shows its password", "[cli]") {
  const auto server = RedisServer::start({"--requirepass", "hunter2"});
  if (!server) {
    SUCCEED("skipped: no redis-server");
    return;
  }
  const Machine box("");
  const std::string url = "redis+unix://:hunter2@" + server->socket();
  const RunResult good = box.run({"doctor", "--remote", url}), bad = box.run({"doctor", "--remote", server->url()}),
                  config = box.run({"config", "--remote", url, "--json"}),
                  wrong = box.run({"doctor", "--remote", "redis://:hunter2@h:x"});
  INFO(shown(good) << shown(bad) << shown(config) << shown(wrong));
  CHECK((good.status == 0 && good.out.find("read and written") != std::string::npos));
  CHECK((bad.status == 3 && bad.out.find("NOAUTH") != std::string::npos));
  CHECK((config.status == 0 && config.out.find("***@") != std::string::npos));
  check_error(wrong, 2, "not a port");
  for (const RunResult* r : {&good, &bad, &config, &wrong})
    CHECK((r->out + r->err).find("hunter2") == std::string::npos);
}

}  // namespace
}  // namespace cento::test
