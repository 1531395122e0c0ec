#include "eval/collection_prompts.h"

#include <algorithm>
#include <set>

#include "base/text.h"
#include "blend/stand_in.h"
#include "docs/indexer.h"
#include "engine/engine_test.h"
#include "eval/own_questions.h"
#include "session/answer.h"
#include "session/chunk_kv.h"
#include "session/identify.h"
#include "session/precompute.h"

namespace cento::test {
namespace {

std::string model_file() {
  static const ModelFile file([] {
    TinyModelSpec spec = tiny_spec("llama", DType::kF32);
    spec.context = 8192;
    return spec;
  }());
  return file.path();
}

// A handbook of some files, each of several chunks, indexed for a tiny model.
struct Handbook {
  Handbook() {
    const char* words[] = {"Wren", "Heron", "Gull", "Tern"};
    for (int f = 0; f < 4; ++f) {
      std::string text = std::string("# About the ") + words[f] + "\n\n";
      for (int i = 0; i < 12; ++i)
        text += std::string("The ") + words[f] + " lies at berth " + std::to_string(100 * f + i) +
                " of the quay and waits there for a pilot with the number " + std::to_string(1000 + 17 * i + f) +
                ".\n\n";
      write_all(docs_folder + "/" + words[f] + ".md", text);
    }
    index();
    identify(engine.model, &catalogue);
  }
  void index() {
    IndexOptions options;
    options.paths = {docs_folder};
    options.chunk_tokens = 160;
    index_documents(docs, &engine.model.tokenizer(), options, {});
    collection = docs.find_collection("default")->id;
  }
  CollectionPrompt prompt(const std::string& question, size_t top_k = 5) {
    return std::move(CollectionPrompts(engine.model, docs, "default", top_k, "").prompt(question, question)).or_throw();
  }
  // Whether KV is stored for exactly this chunk behind exactly this context.
  bool is_stored(const CollectionPrompt& p, size_t i) {
    const Ids context = joined(p.prompt.prefix, p.prompt.contexts[i]);
    const KvKind kind = p.prompt.contexts[i].empty() ? KvKind::kChunkPrefix : KvKind::kChunkStandIn;
    return catalogue.kv(kv_key(identity_of(engine.engine, kind, p.prompt.prefix, context, p.prompt.chunks[i])))
        .has_value();
  }

  TempDir dir;
  std::string docs_folder = dir / "docs";
  LoadedEngine engine{model_file(), best_ops(), Precision::kFast};
  Catalogue catalogue{dir / "store", Db::Mode::kReadWrite};
  KvStore store{catalogue};
  DocStore docs{catalogue};
  int64_t collection = 0;
};

const char* const kQuestion = "Which pilot does the Heron at berth 107 wait for?";

TEST_CASE("collection prompts: the prompt is the one that query makes, token for token", "[eval]") {
  Handbook book;
  for (const size_t top_k : {size_t{1}, size_t{5}}) {
    const CollectionPrompt made = book.prompt(kQuestion, top_k);
    REQUIRE(made.passages.size() == top_k);
    Answerer answerer(book.engine.model, &book.store, &book.docs);
    AskOptions ask;
    ask.prefill = PrefillMode::kFull;
    ask.top_k = top_k;
    ask.max_tokens = 1;
    ask.want_logits = true;
    const Answer answer = answerer.ask(kQuestion, ask, {});
    CHECK(answer.prompt_tokens == made.prompt.n_tokens());
    REQUIRE(answer.citations.size() == top_k);
    for (size_t i = 0; i < top_k; ++i)  // ranks are told best first, and prompted best last
      CHECK(answer.citations[i].chunk == made.passages[top_k - 1 - i].row.hash.short_hex());
    TrialOptions options;
    options.answer_tokens = 0;
    options.own_answer_tokens = 0;
    Trial trial(book.engine.engine, made.prompt, options);
    REQUIRE(trial.prepare(nullptr));
    const size_t vocab = book.engine.model.config().vocab;
    REQUIRE(answer.logits.size() >= vocab);
    CHECK(std::equal(trial.reference().logits.begin(), trial.reference().logits.end(), answer.logits.begin()));
  }
}

TEST_CASE("collection prompts: chunks stand behind what precompute computes them behind", "[eval]") {
  Handbook book;
  const CollectionPrompt before = book.prompt(kQuestion);
  CHECK(book.docs.stand_ins(book.collection).empty());  // measuring pins nothing
  REQUIRE(before.prompt.contexts.size() == 5);
  for (const auto& context : before.prompt.contexts) CHECK(context.size() >= kStandInTokens);
  CHECK_FALSE(book.is_stored(before, 0));
  precompute(book.engine.model, book.store, book.docs, {}, {});
  REQUIRE_FALSE(book.docs.stand_ins(book.collection).empty());
  for (size_t i = 0; i < 5; ++i) CHECK(book.is_stored(before, i));
  const CollectionPrompt after = book.prompt(kQuestion);
  CHECK((after.prompt.contexts == before.prompt.contexts && after.prompt.chunks == before.prompt.chunks));

  // More documents: a fresh draw would be another one, what is pinned stays.
  for (int i = 0; i < 5; ++i)
    write_all(
        book.docs_folder + "/a" + std::to_string(i) + ".md",
        "# Notes\n\nThe Heron needs a pilot on day " + std::to_string(i) + ", says the harbour's book of berths.\n");
  book.index();
  const CollectionPrompt more = book.prompt("Which pilot does the Heron at berth 107 wait for on day 3?", 8);
  precompute(book.engine.model, book.store, book.docs, {}, {});
  for (size_t i = 0; i < more.prompt.chunks.size(); ++i) CHECK(book.is_stored(more, i));
}

TEST_CASE(
    "collection prompts: of a question that nothing fits the reason is told, of a collection that is not there too",
    "[eval]") {
  Handbook book;
  CollectionPrompts prompts(book.engine.model, book.docs, "default", 5, "");
  const auto nothing = prompts.prompt("Who?", "zygote xylophone");
  REQUIRE_FALSE(nothing.ok());
  CHECK_THAT(nothing.error().message(), Catch::Contains("documents"));
  CHECK_FALSE(prompts.prompt("Which pilot?", "").ok());
  CHECK_THROWS_AS(CollectionPrompts(book.engine.model, book.docs, "other", 5, ""), Error);
}

TEST_CASE("collection prompts: evidence is there when each quote is in a passage of its file", "[eval]") {
  const auto passage = [](const std::string& path, const std::string& body) {
    CollectionPassage p;
    p.row.header = "Leave";
    p.row.body = body;
    p.places.push_back({1, path, "", 0, 1, 2});
    return p;
  };
  const std::vector<CollectionPassage> passages = {
      passage("/d/docs/leave.md", "Up to `five` days may be\n  carried over."),
      passage("/d/docs/x/page.html", "amplification attacks (default: 100.0) of parser")};
  const auto holds = [&](std::vector<EvalEvidence> evidence) { return holds_evidence(passages, evidence); };
  CHECK(holds({{"leave.md", "five days may be carried over"}}));
  CHECK(holds({{"docs/leave.md", "UP TO five"}}));
  CHECK(holds({{"", "five days"}}));
  CHECK(holds({{"x/page.html", "attacks</a> (default: <code>100.0</code>) of"}}));
  CHECK(holds({{"leave.md", "five days"}, {"page.html", "of parser"}}));
  CHECK(holds({}));
  CHECK_FALSE(holds({{"leave.md", "five days"}, {"page.html", "nowhere"}}));
  CHECK_FALSE(holds({{"leave.md", "ive days"}}));       // whole words
  CHECK_FALSE(holds({{"eave.md", "five days"}}));       // whole names
  CHECK_FALSE(holds({{"page.html", "five days"}}));     // another file's
  CHECK_FALSE(holds({{"leave.md", "five may days"}}));  // another order
}

TEST_CASE("own questions: are spread over the sources, found again by their seed, and can be answered", "[eval]") {
  Handbook book;
  const auto ask = [&](size_t n, uint64_t seed) { return own_questions(book.docs, book.collection, {n, seed, {}}); };
  const auto ids = [](const std::vector<EvalItem>& items) {
    std::vector<std::string> out;
    for (const EvalItem& i : items) out.push_back(i.id + i.question);
    return out;
  };
  const std::vector<EvalItem> four = ask(4, 1);
  REQUIRE(four.size() == 4);
  std::set<std::string> files;
  for (const EvalItem& item : four) {
    files.insert(item.id.substr(0, item.id.find(':')));
    CHECK((item.kind == EvalKind::kDocqa && item.set == kOwnDocumentsSet && item.turns.size() == 1));
    REQUIRE(item.turns[0].answer_groups.size() == 1);
    CHECK(item.question.find(item.turns[0].answer_groups[0][0]) == std::string::npos);
    CHECK(item.turns[0].evidence[0].quote.find(item.turns[0].answer_groups[0][0]) != std::string::npos);
    // The id ends with what finds the chunk.
    const auto chunk = book.docs.chunk_by_prefix(item.id.substr(item.id.rfind(' ') + 1));
    REQUIRE(chunk);
    CHECK_THAT(chunk->body, Catch::Contains(item.turns[0].answer_groups[0][0]));
  }
  CHECK(files.size() == 4);
  CHECK(ids(ask(4, 1)) == ids(four));
  CHECK(ids(ask(4, 2)) != ids(four));
  const std::vector<EvalItem> six = ask(6, 1);
  REQUIRE(six.size() == 6);
  CHECK(ids({six.begin(), six.begin() + 4}) == ids(four));  // more questions are these and others
  const std::vector<EvalItem> all = ask(10000, 1);
  CHECK((all.size() > 8 && all.size() <= book.docs.chunk_count(book.collection)));
  std::set<std::string> chunks;
  for (const EvalItem& i : all) chunks.insert(i.id);
  CHECK(chunks.size() == all.size());
  size_t polls = 0;
  CHECK(own_questions(book.docs, book.collection, {10000, 1, [&] { return ++polls > 20; }}).size() < all.size());
}

TEST_CASE("own questions: a collection of little text, or with the same sentence everywhere, has few or none",
          "[eval]") {
  TempDir dir;
  Catalogue catalogue(dir / "store", Db::Mode::kReadWrite);
  DocStore docs(catalogue);
  const int64_t id = docs.open_collection("default", 256, "estimate").id;
  CHECK(own_questions(docs, id, {}).empty());
  int n = 0;
  const auto add = [&](const std::string& path, const std::string& body) {
    SourceRow row;
    row.path = path;
    row.content_hash = hash_of_text("t", std::to_string(n++));
    docs.put_source(id, row, {{"", body, 10, 1, 1}});
  };
  add("/a", "Only 5 words.");
  CHECK(own_questions(docs, id, {}).empty());
  const std::string sentence = "Every boat that leaves the basin has to be reported to harbour control on channel 74.";
  add("/\xff\x1b[2J", sentence + " A.");
  add("/c", sentence + " B.");
  const auto items = own_questions(docs, id, {});
  REQUIRE(items.size() == 1);
  CHECK(items[0].turns[0].answer_groups == std::vector<std::vector<std::string>>{{"74"}});
  CHECK(is_valid_utf8(items[0].id));
}

}  // namespace
}  // namespace cento::test
