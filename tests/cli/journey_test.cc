// index, precompute, query and the rest on a tiny model with random weights: what it answers is noise, but everything
// around the answer is real.
#include <catch2/catch.hpp>

#include <signal.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "cli/sandbox.h"

namespace cento::test {
namespace {

// Blending is asked for by name: with this model either way takes a millisecond, and chance would choose.

std::set<std::string> keys(const Json& object) {
  std::set<std::string> out;
  for (const auto& [key, value] : object.items()) out.insert(key);
  return out;
}
using Keys = std::set<std::string>;

bool has_all(const Json& object, const Keys& wanted) {
  const Keys there = keys(object);
  return std::includes(there.begin(), there.end(), wanted.begin(), wanted.end());
}

const std::string kQuestion = "How many days of annual leave may be carried over?";

TEST_CASE("cli: index, precompute and query, each the second time with nothing left to do", "[cli]") {
  const Sandbox box;
  box.add_model();
  box.add_documents();
  const Json dry = box.json({"index", "docs", "--dry-run", "--json"});
  CHECK(dry["files"]["new"] == 3);
  CHECK_FALSE(std::filesystem::exists(box.store()));

  const Json first = box.json({"index", "docs", "--json"});
  CHECK(keys(first) == Keys{"collection", "files", "chunks", "skipped", "embedded", "seconds"});
  CHECK(keys(first["files"]) == Keys{"seen", "new", "changed", "renamed", "unchanged", "removed", "skipped"});
  CHECK(keys(first["chunks"]) == Keys{"total", "new", "removed"});
  CHECK((first["files"]["new"] == 3 && first["files"]["seen"] == 3));
  const int chunks = first["chunks"]["total"];
  CHECK(chunks >= 3);
  const Json again = box.json({"index", "--json"});
  CHECK((again["files"]["unchanged"] == 3 && again["chunks"]["new"] == 0));
  CHECK_THAT(box.run({"index"}).out, Catch::Contains("3 files: 3 unchanged") && Catch::Contains("nothing to do"));

  const Json foretold = box.json({"precompute", "--dry-run", "--json"});
  CHECK((foretold["chunks"]["wanted"] == chunks && foretold["chunks"]["made"] == 0));
  const Json made = box.json({"precompute", "--json"});
  CHECK(has_all(made, {"model", "chunks", "tokens", "bytes", "bytes_per_token", "seconds", "tokens_per_second"}));
  CHECK(keys(made["chunks"]) == Keys{"wanted", "present", "made", "skipped", "evicted", "recoded", "fetched"});
  CHECK((made["chunks"]["made"] == chunks && made["chunks"]["present"] == 0));
  CHECK(made["bytes"].get<int>() > 0);
  const Json nothing = box.json({"precompute", "--json"});
  CHECK((nothing["chunks"]["made"] == 0 && nothing["chunks"]["present"] == chunks));
  CHECK_THAT(box.run({"precompute"}).out, Catch::Contains("nothing to do"));

  const Json answer = box.json({"query", kQuestion, "--json", "--max-tokens", "8", "--verify", "--prefill", "blend"});
  CHECK(has_all(answer, {"answer", "finish_reason", "citations", "cache", "timings", "verify", "usage", "model"}));
  REQUIRE_FALSE(answer["citations"].empty());
  const Json& citation = answer["citations"][0];
  CHECK(has_all(citation, {"n", "source", "lines", "chunk", "score"}));
  CHECK(citation["n"] == 1);
  CHECK_THAT(citation["source"].get<std::string>(), Catch::EndsWith("leave.md"));
  CHECK(citation["lines"].size() == 2);
  CHECK(has_all(answer["cache"], {"mode", "policy", "ratio", "charged", "why", "tokens", "chunks", "bytes_loaded"}));
  CHECK(keys(answer["cache"]["tokens"]) == Keys{"total", "exact", "reused", "recomputed", "fresh"});
  CHECK(answer["cache"]["mode"] == "blend");
  CHECK(answer["cache"]["chunks"][0]["from"] == "disk");
  const Json& t = answer["cache"]["tokens"];
  CHECK(t["exact"].get<int>() + t["reused"].get<int>() + t["recomputed"].get<int>() + t["fresh"].get<int>() ==
        t["total"].get<int>());
  CHECK(t["total"] == answer["usage"]["prompt_tokens"]);
  CHECK(answer["cache"]["charged"].get<double>() < 1);
  CHECK(has_all(answer["timings"], {"load_model_ms", "retrieve_ms", "kv_load_ms", "prefill_ms", "ttft_ms",
                                    "decode_tokens", "decode_tokens_per_second"}));
  CHECK(keys(answer["verify"]) == Keys{"kl_mean", "kl_max", "top1_agreement", "same_answer"});
  CHECK(answer["model"]["name"] == "tiny");
  CHECK(answer["model"]["fingerprint"].get<std::string>().size() == 64);

  const Json full = box.json({"query", kQuestion, "--json", "--max-tokens", "8", "--prefill", "full"});
  CHECK((full["cache"]["mode"] == "full" && full["cache"]["charged"] == 1.0));
  CHECK(full["usage"]["prompt_tokens"] == answer["usage"]["prompt_tokens"]);
  // Everything recomputed is full prefill: the same greedy answer.
  const Json all = box.json({"query", kQuestion, "--json", "--max-tokens", "8", "--prefill", "blend", "--ratio", "1"});
  CHECK(all["answer"] == full["answer"]);
}

TEST_CASE("cli: query for people: answer, sources, report; from stdin and as one piece", "[cli]") {
  const Sandbox box;
  box.add_model();
  box.add_documents();
  REQUIRE(box.run({"index", "docs"}).status == 0);
  REQUIRE(box.run({"precompute", "-q"}).status == 0);
  const RunResult streamed = box.run({"query", kQuestion, "--prefill", "blend", "--max-tokens", "8"});
  INFO(shown(streamed));
  REQUIRE(streamed.status == 0);
  CHECK_THAT(streamed.out, Catch::Contains("\n\n[1] docs/leave.md:"));
  CHECK_THAT(streamed.err, !Catch::Contains("cache:"));
  const RunResult whole = box.run({"query", kQuestion, "--prefill", "blend", "--max-tokens", "8", "--no-stream"});
  CHECK(whole.out == streamed.out);
  RunSpec piped = box.spec({"query", "-", "--prefill", "blend", "--max-tokens", "8", "-v"});
  piped.stdin_text = kQuestion + "\n";
  const RunResult from_stdin = box.run(piped);
  CHECK(from_stdin.out == streamed.out);
  CHECK_THAT(from_stdin.err,
             Catch::Contains("cache: blend, policy query") && Catch::Contains("time: first token after "));
  CHECK_THAT(box.run({"query", kQuestion, "--prefill", "blend", "--max-tokens", "8", "--show-sources"}).out,
             Catch::Contains("    Up to five days of annual leave"));
  piped.stdin_text = " \n";
  check_error(box.run(piped), 2, "the question is empty");
}

TEST_CASE("cli: what the documents do not hold is said, ends with 6 and cites nothing", "[cli]") {
  const Sandbox box;
  box.add_model();
  box.add_documents();
  REQUIRE(box.run({"index", "docs"}).status == 0);
  const RunResult text = box.run({"query", "Which zeppelin won the quiz?"});
  INFO(shown(text));
  CHECK(text.status == 6);
  CHECK(text.out == "The documents do not say.\n");
  const Json j = box.json({"query", "Which zeppelin won the quiz?", "--json"}, 6);
  CHECK(j["finish_reason"] == "not_found");
  CHECK(j["citations"].empty());
  CHECK(box.json({"cache", "rm", "0123456789", "--json"}, 6)["not_found"] == Json::array({"0123456789"}));
}

TEST_CASE("cli: an edited document is answered from its new text, a deleted one not at all", "[cli]") {
  const Sandbox box;
  box.add_model();
  box.add_documents();
  REQUIRE(box.run({"index", "docs"}).status == 0);
  REQUIRE(box.run({"precompute", "-q"}).status == 0);
  write_all(box / "docs/tides.txt", "Spring tides follow the full moon by two days. The gauge is read every hour.\n");
  std::filesystem::remove(box / "docs/harbour.md");
  const Json j = box.json({"index", "--json"});
  CHECK((j["files"]["changed"] == 1 && j["files"]["removed"] == 1 && j["files"]["unchanged"] == 1));
  CHECK(box.run({"query", "How many tonnes does the crane at the quay lift?"}).status == 6);
  const Json made = box.json({"precompute", "--json"});
  CHECK(made["chunks"]["made"].get<int>() >= 1);
  CHECK(box.run({"cache", "gc"}).status == 0);
  // Nothing of what has gone is left in the store.
  const Json list = box.json({"cache", "list", "--json"});
  for (const auto& blob : list["blobs"]) {
    if (blob["kind"] == "prefix") continue;
    CHECK(blob.contains("source"));
  }
}

TEST_CASE("cli: cache status, list, verify, rm and trim", "[cli]") {
  const Sandbox box;
  box.add_model();
  box.add_documents();
  REQUIRE(box.run({"index", "docs"}).status == 0);
  REQUIRE(box.run({"precompute", "-q"}).status == 0);
  const Json status = box.json({"cache", "status", "--json"});
  CHECK(keys(status) == Keys{"store", "schema", "encrypted", "kv", "stored", "tiers", "models", "collections"});
  CHECK(status["models"].size() == 1);
  CHECK(status["models"][0]["name"] == "tiny");
  CHECK(status["collections"][0]["sources"] == 3);
  const Json blobs = box.json({"cache", "list", "--json"})["blobs"];
  CHECK(status["kv"]["blobs"] == blobs.size());
  REQUIRE(blobs.size() >= 3);
  CHECK(has_all(blobs[0], {"id", "kind", "model", "tokens", "bytes", "codec", "created", "last_used", "hits"}));
  CHECK(box.json({"cache", "verify", "--json"}) ==
        Json({{"blobs", blobs.size()}, {"bytes", status["kv"]["bytes"]}, {"bad", Json::array()}}));

  std::string id;
  for (const auto& blob : blobs) {
    if (blob.contains("chunk")) id = blob["id"];
  }
  // A damaged piece is found, named, and never used.
  const std::string path = box.store() + "/kv/" + id.substr(0, 2) + "/" + id + ".kv";
  std::string bytes = read_all(path);
  bytes[bytes.size() - 5] = static_cast<char>(bytes[bytes.size() - 5] ^ 0x40);
  write_all(path, bytes);
  const Json bad = box.json({"cache", "verify", "--json"}, 3)["bad"];
  REQUIRE(bad.size() == 1);
  CHECK(bad[0]["id"] == id);
  CHECK(box.run({"query", kQuestion, "--max-tokens", "4"}).status == 0);

  const std::string other = blobs[0]["id"] == id ? blobs[1]["id"] : blobs[0]["id"];
  const Json removed = box.json({"cache", "rm", other.substr(0, 12), "ffffffffffff", "--json"}, 5);
  CHECK(removed["removed"] == Json::array({other}));
  const Json trimmed = box.json({"cache", "trim", "--max-bytes", "0", "--json"});
  CHECK(trimmed["bytes"] == 0);
  CHECK(box.json({"cache", "status", "--json"})["kv"]["blobs"] == 0);
  CHECK(box.run({"query", kQuestion, "--max-tokens", "4"}).status == 0);  // an empty cache costs time, nothing else
}

TEST_CASE("cli: a prompt file, its logits and its forced answer", "[cli]") {
  const Sandbox box;
  box.add_model();
  std::string passage;
  for (int i = 0; i < 12; ++i) passage += "The crane number " + std::to_string(i) + " stands at the eastern quay. ";
  const Json prompt = {{"system", "Answer briefly."},
                       {"chunks", {passage, "Tides follow the moon. " + passage}},
                       {"question", "Where is the crane?"},
                       {"answer", "At the quay."}};
  write_all(box / "p.json", prompt.dump());
  const auto logits = [&](const std::vector<std::string>& more, const std::string& file) {
    std::vector<std::string> args = {"query", "--prompt", "p.json", "--json", "--logits", file};
    args.insert(args.end(), more.begin(), more.end());
    const Json j = box.json(args);
    CHECK(j["finish_reason"] == "given");
    return read_all(box / file);
  };
  const std::string full = logits({"--prefill", "full"}, "full.npy"),
                    all = logits({"--prefill", "blend", "--ratio", "1"}, "all.npy");
  CHECK_FALSE(std::filesystem::exists(box.store()));  // nothing is kept unasked
  CHECK(full.substr(0, 6) == "\x93NUMPY");
  CHECK(full.size() == all.size());
  CHECK(full == all);  // the row rule of ops.h: what a row gets does not depend on the rows beside it
  const std::string reused = logits({"--prefill", "reuse"}, "reuse.npy");
  CHECK(reused.size() == full.size());
  CHECK(reused != full);
  REQUIRE(box.run({"query", "--prompt", "p.json", "--keep"}).status == 0);
  CHECK(box.json({"cache", "status", "--json"})["kv"]["blobs"].get<int>() >= 2);
  check_error(box.run({"query", "--prompt", "none.json"}), 3, "");
}

TEST_CASE("cli: a question about a file that is not indexed", "[cli]") {
  const Sandbox box;
  box.add_model();
  box.add_documents("notes");
  const std::vector<std::string> args = {"query",  "When does leave lapse?", "--json", "--max-tokens",   "4",
                                         "--file", "notes/leave.md",         "--file", "notes/tides.txt"};
  const Json j = box.json(args);
  REQUIRE(j["citations"].size() >= 2);
  CHECK(j["citations"][0]["source"] == "notes/leave.md");
  CHECK(j["citations"].back()["source"] == "notes/tides.txt");
  CHECK_FALSE(std::filesystem::exists(box.store()));
  box.add_documents();
  REQUIRE(box.run({"index", "docs"}).status == 0);
  const Json both = box.json(args);
  CHECK_THAT(both["citations"][0]["source"].get<std::string>(),
             Catch::EndsWith("docs/leave.md"));  // what was found comes first
  CHECK(both["citations"].back()["source"] == "notes/tides.txt");
  check_error(box.run({"query", "q", "--file", "none.md"}), 3, "none.md");
}

TEST_CASE("cli: model show and tokenize", "[cli]") {
  const Sandbox box;
  box.add_model();
  const Json j = box.json({"model", "show", "tiny", "--json"});
  CHECK(has_all(j, {"file", "name", "architecture", "layers", "heads", "kv_heads", "head_dim", "context",
                    "kv_bytes_per_token", "tokenizer", "chat_template", "supported"}));
  CHECK(j["supported"] == true);
  CHECK(j["kv_bytes_per_token"] == 2 * 2 * 2 * 16 * 2);  // K and V, layers, KV heads, dims, bytes
  CHECK_THAT(box.run({"model", "show", "tiny"}).out, Catch::Contains("supported           yes"));
  const Json tokens = box.json({"model", "tokenize", "two words", "--json"});
  CHECK(keys(tokens) == Keys{"ids", "pieces"});
  CHECK(tokens["ids"].size() == tokens["pieces"].size());
  RunSpec piped = box.spec({"model", "tokenize", "-", "--json"});
  piped.stdin_text = "two words";
  CHECK(Json::parse(box.run(piped).out) == tokens);
}

TEST_CASE("cli: a prompt above the context is refused with both counts", "[cli]") {
  const Sandbox box;
  TinyModelSpec spec;
  spec.context = 512;
  write_tiny_model(box / "small.gguf", spec);
  write_all(box / "p.json", Json({{"chunks", {std::string(5000, 'x')}}, {"question", "Why?"}}).dump());
  const RunResult r = box.run({"query", "--prompt", "p.json", "--model", "small.gguf"});
  check_error(r, 2, "512");
}

TEST_CASE("cli: Ctrl-C keeps finished work, and the next run finishes", "[cli]") {
  const Sandbox box;
  box.add_model();
  for (int i = 0; i < 60; ++i) {
    std::string text = "# Part " + std::to_string(i) + "\n\n";
    for (int j = 0; j < 30; ++j)
      text += "Sentence " + std::to_string(i * 1000 + j) + " of this part stands alone and says something. ";
    write_all(box / ("docs/part" + std::to_string(i) + ".md"), text + "\n");
  }
  RunSpec index = box.spec({"index", "docs"});
  index.terminal = true;  // there the progress bar says when the work is under way
  index.signal = SIGINT;
  index.signal_after = "index [";
  const RunResult stopped = box.run(index);
  INFO(shown(stopped));
  REQUIRE(stopped.signalled);
  CHECK(stopped.status == 130);
  CHECK_THAT(stopped.out, Catch::Contains("stopped"));
  const Json rest = box.json({"index", "docs", "--json"});
  CHECK(rest["files"]["new"].get<int>() + rest["files"]["unchanged"].get<int>() == 60);
  CHECK(rest["files"]["new"].get<int>() >= 1);

  RunSpec compute = box.spec({"precompute"});
  compute.terminal = true;
  compute.signal = SIGINT;
  compute.signal_after = "precompute [";
  const RunResult cut = box.run(compute);
  INFO(shown(cut));
  REQUIRE(cut.signalled);
  CHECK(cut.status == 130);
  const Json finished = box.json({"precompute", "--json"});
  const Json& c = finished["chunks"];
  CHECK(c["present"].get<int>() + c["made"].get<int>() == c["wanted"].get<int>());
  CHECK(c["present"].get<int>() >= 1);
  CHECK(c["made"].get<int>() >= 1);
  CHECK(box.json({"cache", "verify", "--json"})["bad"].empty());
}

TEST_CASE("cli: killed while it precomputes, the next run goes on and the store is whole", "[cli]") {
  const Sandbox box;
  box.add_model();
  for (int i = 0; i < 20; ++i) {
    write_all(box / ("docs/part" + std::to_string(i) + ".md"),
              "# Part " + std::to_string(i) + "\n\n" + std::string(800, static_cast<char>('a' + i)) + "\n");
  }
  REQUIRE(box.run({"index", "docs"}).status == 0);
  RunSpec compute = box.spec({"precompute"});
  compute.terminal = true;
  compute.signal = SIGKILL;
  compute.signal_after = "precompute [";
  REQUIRE(box.run(compute).status == -SIGKILL);
  CHECK(box.json({"cache", "verify", "--json"})["bad"].empty());
  const Json c = box.json({"precompute", "--json"})["chunks"];
  CHECK(c["present"].get<int>() + c["made"].get<int>() == c["wanted"].get<int>());
}

TEST_CASE("cli: Ctrl-C while the question is awaited ends with 130", "[cli]") {
  const Sandbox box;
  box.add_model();
  RunSpec spec = box.spec({"query", "-"});
  spec.terminal = true;
  spec.signal = SIGINT;
  spec.signal_delay_seconds = 2;
  const RunResult r = box.run(spec);
  INFO(shown(r));
  CHECK(r.status == 130);
  CHECK_FALSE(r.timed_out);
}

TEST_CASE("cli: two processes at once get the same store right", "[cli]") {
  const Sandbox box;
  box.add_model();
  box.add_documents();
  REQUIRE(box.run({"index", "docs"}).status == 0);
  RunSpec both = box.spec({});
  const std::string binary = CENTO_BINARY;
  both.args = {"-c", "'" + binary + "' precompute & '" + binary + "' precompute & '" + binary +
                         "' index docs & wait -n && wait -n && wait -n"};
  const RunResult r = run_program("/bin/bash", both);
  INFO(shown(r));
  CHECK(r.status == 0);
  CHECK(box.json({"cache", "verify", "--json"})["bad"].empty());
  const Json c = box.json({"precompute", "--json"})["chunks"];
  CHECK(c["made"] == 0);
}

TEST_CASE("cli: a reader that closes the pipe in the middle of an answer is no error", "[cli]") {
  const Sandbox box;
  box.add_model();
  box.add_documents();
  REQUIRE(box.run({"index", "docs"}).status == 0);
  RunSpec spec = box.spec({"query", kQuestion, "--max-tokens", "2000"});
  spec.close_stdout_after = 1;
  const RunResult r = box.run(spec);
  INFO(shown(r));
  CHECK(r.status == 0);
  CHECK_FALSE(r.timed_out);
}

}  // namespace
}  // namespace cento::test
