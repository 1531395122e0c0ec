#include "docs/doc_store.h"

#include <catch2/catch.hpp>

#include "support/shared_data.h"

using namespace cento;

namespace {

struct Fixture {
  test::TempDir dir;
  Catalogue catalogue{dir / "store", Db::Mode::kReadWrite};
  DocStore store{catalogue};
  int64_t id = store.open_collection("default", 256, "estimate").id;

  int64_t number(const std::string& sql) {
    Stmt q = catalogue.db().prepare(sql);
    q.step();
    return q.integer(0);
  }
  // Throws if an index does not agree with the chunks.
  void check_text_indexes() {
    catalogue.db().exec("INSERT INTO chunk_words(chunk_words, rank) VALUES ('integrity-check', 1)");
    catalogue.db().exec("INSERT INTO chunk_trigrams(chunk_trigrams, rank) VALUES ('integrity-check', 1)");
  }
  int64_t matches(const std::string& word) {
    Stmt q = catalogue.db().prepare("SELECT count(*) FROM chunk_words WHERE chunk_words MATCH ?1");
    q.bind_text(1, word);
    q.step();
    return q.integer(0);
  }
  SourceRow source(const std::string& path, const std::string& content) {
    SourceRow row;
    row.path = path;
    row.stamp = {1, 2, content.size(), 4};
    row.content_hash = hash_of_text("test", content);
    row.format = "markdown";
    row.title = "T";
    return row;
  }
};

NewChunk chunk(const std::string& body, uint32_t line = 1) { return {"Head", body, 10, line, line + 1}; }

}  // namespace

TEST_CASE_METHOD(Fixture, "doc store: collections and folders", "[docs]") {
  CHECK(store.open_collection("default", 128, "other").chunk_tokens == 256);  // it was there
  CHECK(!store.find_collection("nope"));
  store.set_collection_tokens(id, 128, "bpe");
  CHECK(store.find_collection("default")->chunk_tokens == 128);
  CHECK(store.find_collection("default")->tokenizer == "bpe");
  store.open_collection("another", 64, "x");
  REQUIRE(store.collections().size() == 2);
  CHECK(store.collections()[0].name == "another");
  store.add_root(id, "/b", "{}");
  store.add_root(id, "/a\xff", "{\"x\":1}");
  store.add_root(id, "/b", "{\"y\":2}");
  CHECK(store.roots(id) == std::vector<std::string>{"/a\xff", "/b"});
  CHECK(store.root_options(id, "/b") == "{\"y\":2}");
  CHECK(store.root_options(id, "/none") == "{}");
}

TEST_CASE_METHOD(Fixture, "doc store: a source is put, changed, renamed, removed, and nothing is left", "[docs]") {
  const auto put = store.put_source(id, source("/a.md", "1"), {chunk("alpha"), chunk("beta", 5), chunk("alpha", 9)});
  CHECK(put.chunks_new == 2);
  CHECK(put.chunks_removed == 0);
  REQUIRE(store.sources(id).size() == 1);
  const SourceRow row = store.sources(id)[0];
  CHECK(row.stamp == FileStamp{1, 2, 1, 4});
  CHECK(row.content_hash == hash_of_text("test", "1"));
  CHECK(store.chunk_count(id) == 2);
  CHECK(matches("alpha") == 1);

  const Hash alpha = chunk_text_hash("Head", "alpha");
  const auto by_hash = store.chunk_by_hash(alpha);
  REQUIRE(by_hash);
  CHECK(by_hash->prompt_text() == "Head\nalpha\n");
  CHECK(store.chunk(by_hash->id)->hash == alpha);
  CHECK(store.chunk_by_prefix(alpha.hex().substr(0, 9))->id == by_hash->id);
  CHECK(!store.chunk_by_prefix("zz"));
  CHECK(!store.chunk_by_prefix(""));
  CHECK(!store.chunk(99999));
  const auto places = store.places(id, by_hash->id);
  REQUIRE(places.size() == 2);
  CHECK(places[0].line_from == 1);
  CHECK(places[1].line_from == 9);
  CHECK(places[1].seq == 2);

  const auto changed = store.put_source(id, source("/a.md", "2"), {chunk("alpha"), chunk("gamma", 5)});
  CHECK(changed.chunks_new == 1);
  CHECK(changed.chunks_removed == 1);
  CHECK(store.chunk_by_hash(alpha)->id == by_hash->id);  // the chunk that stayed is the same row
  CHECK(matches("beta") == 0);
  check_text_indexes();

  store.rename_source(row.id, "/b\xfe.md", {5, 6, 7, 8});
  CHECK(store.sources(id)[0].path == "/b\xfe.md");
  store.touch_source(row.id, {9, 9, 9, 9});
  CHECK(store.sources(id)[0].stamp == FileStamp{9, 9, 9, 9});
  store.forget_stamps(id);
  CHECK(store.sources(id)[0].stamp == FileStamp{});
  CHECK(store.chunk_count(id) == 2);

  CHECK(store.remove_source(row.id) == 2);
  CHECK(number("SELECT count(*) FROM chunks") == 0);
  CHECK(number("SELECT count(*) FROM source_chunks") == 0);
  CHECK(matches("alpha") == 0);
  check_text_indexes();
}

TEST_CASE_METHOD(Fixture, "doc store: equal text is one chunk, whoever holds it", "[docs]") {
  const int64_t other = store.open_collection("other", 256, "estimate").id;
  store.put_source(id, source("/a.md", "1"), {chunk("same"), chunk("a only")});
  store.put_source(id, source("/b.md", "1"), {chunk("same")});
  store.put_source(other, source("/a.md", "1"), {chunk("same")});
  CHECK(number("SELECT count(*) FROM chunks") == 2);
  CHECK(store.chunk_count(id) == 2);
  CHECK(store.chunk_count(other) == 1);
  const int64_t same = store.chunk_by_hash(chunk_text_hash("Head", "same"))->id;
  CHECK(store.places(id, same).size() == 2);
  CHECK(store.remove_source(store.sources(id)[0].id) == 1);
  CHECK(store.chunk(same).has_value());
  CHECK(store.remove_source(store.sources(id)[0].id) == 0);
  CHECK(store.remove_source(store.sources(other)[0].id) == 1);
  // Header and body make one text: how it is parted does not matter.
  CHECK(chunk_text_hash("a", "b") == chunk_text_hash("", "a\nb"));
  CHECK(chunk_text_hash("a", "b") != chunk_text_hash("b", "a"));
}

TEST_CASE_METHOD(Fixture, "doc store: order, neighbours and stand-ins", "[docs]") {
  store.put_source(id, source("/b.md", "1"), {chunk("b0"), chunk("shared"), chunk("b2")});
  store.put_source(id, source("/a.md", "1"), {chunk("a0"), chunk("shared")});
  std::string order;
  for (const auto& c : store.chunks_in_order(id)) order += store.chunk(c.chunk_id)->body + " ";
  CHECK(order == "a0 shared b0 b2 ");
  const int64_t b = store.sources(id)[1].id;
  const auto before = store.preceding(b, 2, 5);
  REQUIRE(before.size() == 2);
  CHECK(before[0].body == "shared");
  CHECK(before[1].body == "b0");
  CHECK(store.preceding(b, 2, 1).size() == 1);
  CHECK(store.preceding(b, 0, 5).empty());
  const std::vector<int64_t> ids = {before[1].id, before[0].id};
  store.set_stand_ins(id, ids);
  CHECK(store.stand_ins(id) == ids);
  store.remove_source(b);  // b0 goes, shared stays in a.md
  CHECK(store.stand_ins(id) == std::vector<int64_t>{ids[1]});
}

TEST_CASE_METHOD(Fixture, "doc store: a batch is all or nothing since its last commit", "[docs]") {
  {
    DocStore::Batch batch(store);
    store.put_source(id, source("/a.md", "1"), {chunk("kept")});
    store.put_source(id, source("/b.md", "1"), {chunk("kept too")});
    batch.commit();
    store.put_source(id, source("/c.md", "1"), {chunk("lost")});
  }
  CHECK(store.sources(id).size() == 2);
  CHECK(matches("lost") == 0);
  store.put_source(id, source("/d.md", "1"), {chunk("alone")});
  CHECK(store.sources(id).size() == 3);
  check_text_indexes();
}

TEST_CASE_METHOD(Fixture, "doc store: skipped files and their stamps", "[docs]") {
  store.set_skipped(id, std::vector<SkippedFile>{{"/x\xff", "binary data", {1, 2, 3, 4}}, {"/y", "later", {}}});
  REQUIRE(store.skipped_files(id).size() == 2);
  CHECK(store.skipped_files(id)[0].stamp == FileStamp{1, 2, 3, 4});
  CHECK(store.skipped(id)[1] == std::pair<std::string, std::string>{"/y", "later"});
  store.set_skipped(id, std::vector<std::pair<std::string, std::string>>{{"/z", "r"}});
  CHECK(store.skipped(id).size() == 1);
}
