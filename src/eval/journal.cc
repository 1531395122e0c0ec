#include "eval/journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace cento {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kJournalBytesMax = uint64_t{4} << 30;
constexpr uint32_t kMagic = 0x31464643;  // "CFF1"
constexpr uint64_t kTokensMax = 1u << 20;

// Not finite: null, which no reader takes for a number.
Json numbers(const std::vector<double>& values) {
  Json out = Json::array();
  for (const double v : values) out.push_back(std::isfinite(v) ? Json(v) : Json());
  return out;
}

// What a line holds in place of what we write there. The JSON library's own conversions are not enough: they make
// numbers of truths, and of a number too large for its type whatever the processor makes of it.
struct Damaged {};

template <class T>
T or_damaged(bool right, const Json& j) {
  if (!right) throw Damaged{};
  return j.get<T>();
}
double real_of(const Json& j) { return or_damaged<double>(j.is_number(), j); }
size_t count_of(const Json& j) { return or_damaged<size_t>(j.is_number_unsigned(), j); }
bool truth_of(const Json& j) { return or_damaged<bool>(j.is_boolean(), j); }
std::string text_of(const Json& j) { return or_damaged<std::string>(j.is_string(), j); }

const Json& array_of(const Json& j) {
  if (!j.is_array()) throw Damaged{};
  return j;
}
std::vector<double> numbers_of(const Json& j) {
  std::vector<double> out;
  for (const Json& v : array_of(j)) out.push_back(v.is_null() ? NAN : real_of(v));
  return out;
}

DeviationProfile deviation_of(const Json& j) {
  DeviationProfile out{numbers_of(j.at("top")), numbers_of(j.at("next")), numbers_of(j.at("last"))};
  const bool whole = out.top_share.empty() || out.top_share.size() == kTopRows.size();
  if (!whole || out.next_layer.size() != out.last_layer.size()) throw Damaged{};
  return out;
}

// KEY: magic, rows, answer tokens, own answer tokens, time; then tokens, logits, CRC-32C of all before it.
struct Head {
  uint32_t magic = kMagic, rows = 0, n_answer = 0, n_own = 0;
  double ttft_ms = 0;
};

void append(std::vector<std::byte>& out, const void* from, size_t n_bytes) {
  const auto* p = static_cast<const std::byte*>(from);
  out.insert(out.end(), p, p + n_bytes);
}

}  // namespace

std::string journal_line(const TrialRecord& r) {
  const TrialOutcome& o = r.outcome;
  Json top = Json::array();
  for (const char c : o.same_top) top.push_back(static_cast<int>(c));
  Json j = {{"key", r.key.hex()},
            {"set", r.set},
            {"item", r.item},
            {"setting", r.setting},
            {"charged", o.charged},
            {"tokens", o.n_tokens},
            {"recomputed", o.n_recomputed},
            {"ttft_ms", o.ttft_ms},
            {"kl", numbers(o.kl)},
            {"top1", std::move(top)},
            {"nll", numbers({o.nll, o.nll_full})},
            {"attention", numbers(o.attention_shift)},
            {"answer", r.answer}};
  if (o.residual) {
    j["residual"] = {{"unselected", o.residual->unselected}, {"entropy", o.residual->entropy},
                     {"chunk_mass", o.residual->chunk_mass}, {"moved", o.residual->moved},
                     {"shift", o.residual->shift},           {"open", o.residual->open}};
  }
  if (o.deviation)
    j["deviation"] = {{"top", numbers(o.deviation->top_share)},
                      {"next", numbers(o.deviation->next_layer)},
                      {"last", numbers(o.deviation->last_layer)}};
  if (r.scores.scored)
    j["scores"] = {
        {"f1", r.scores.f1}, {"exact", r.scores.exact}, {"rouge_l", r.scores.rouge_l}, {"summary", r.scores.summary}};
  if (r.scores.judged) j["right"] = r.scores.right;
  return j.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<TrialRecord> parse_journal_line(const std::string& line) {
  const auto damaged = [] { return Error{Code::kInput, "damaged line"}; };
  try {
    const Json j = Json::parse(line);
    TrialRecord r;
    const auto key = hash_from_hex(text_of(j.at("key")));
    if (!key) return damaged();
    r.key = *key;
    r.set = text_of(j.at("set"));
    r.item = text_of(j.at("item"));
    r.setting = text_of(j.at("setting"));
    TrialOutcome& o = r.outcome;
    o.charged = real_of(j.at("charged"));
    o.n_tokens = count_of(j.at("tokens"));
    o.n_recomputed = count_of(j.at("recomputed"));
    o.ttft_ms = real_of(j.at("ttft_ms"));
    o.kl = numbers_of(j.at("kl"));
    for (const Json& v : array_of(j.at("top1"))) o.same_top.push_back(count_of(v) != 0 ? 1 : 0);
    const std::vector<double> nll = numbers_of(j.at("nll"));
    if (nll.size() != 2 || o.kl.empty() || o.kl.size() != o.same_top.size()) return damaged();
    o.nll = nll[0];
    o.nll_full = nll[1];
    o.attention_shift = numbers_of(j.at("attention"));
    if (j.contains("deviation")) o.deviation = deviation_of(j.at("deviation"));
    r.answer = text_of(j.at("answer"));
    if (j.contains("residual")) {
      const Json& x = j.at("residual");
      const auto of = [&x](const char* name) { return real_of(x.at(name)); };
      o.residual = Residual{of("unselected"), of("entropy"), of("chunk_mass"), of("moved"), of("shift"), of("open")};
    }
    if (j.contains("scores")) {
      const Json& s = j.at("scores");
      r.scores.scored = true;
      r.scores.summary = truth_of(s.at("summary"));
      r.scores.f1 = real_of(s.at("f1"));
      r.scores.exact = real_of(s.at("exact"));
      r.scores.rouge_l = real_of(s.at("rouge_l"));
    }
    r.scores.judged = j.contains("right");
    if (r.scores.judged) r.scores.right = truth_of(j.at("right"));
    return r;
  } catch (const Damaged&) {
    return damaged();
  } catch (const Json::exception&) {
    return damaged();
  }
}

Journal::Journal(const std::string& folder) : path_(folder + "/trials.jsonl") {
  FileSystem::real().make_folders(folder).or_throw();
  file_ = FileHandle(::open(path_.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
  if (!file_.open()) throw system_error("cannot be opened", path_, errno);
  // Before the first byte is read: what another run adds would be measured again.
  if (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) throw system_error("cannot be locked", path_, errno);
    throw Error{Code::kResource, "another run keeps its figures there", path_,
                "wait until it has ended, or name another folder"};
  }
  const std::string text = read_file(path_, kJournalBytesMax).or_throw();
  size_t from = 0;
  while (from < text.size()) {
    const size_t end = std::min(text.find('\n', from), text.size());
    if (auto record = parse_journal_line(text.substr(from, end - from)); record.ok()) {
      records_.insert_or_assign(record->key, std::move(record).value());
    } else {
      ++damaged_;
    }
    from = end + 1;
  }
  // A line that a crash cut off must not swallow the next one.
  if (!text.empty() && text.back() != '\n') write("\n");
}

Journal::~Journal() = default;

const TrialRecord* Journal::find(const Hash& key) const {
  const auto found = records_.find(key);
  return found == records_.end() ? nullptr : &found->second;
}

void Journal::add(TrialRecord record) {
  write(journal_line(record));
  records_.insert_or_assign(record.key, std::move(record));
}

void Journal::write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(file_.get(), text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw system_error("cannot be written", path_, errno);
    text.remove_prefix(static_cast<size_t>(n));
  }
}

std::optional<TrialReference> ReferenceCache::find(const Hash& key, size_t vocab) const {
  const std::string path = folder_ + "/" + key.hex();
  if (!FileSystem::real().exists(path)) return std::nullopt;
  auto read = read_file(path, kJournalBytesMax);
  if (!read.ok()) return std::nullopt;
  const std::string& bytes = read.value();
  Head head;
  if (bytes.size() < sizeof head + sizeof(uint32_t)) return std::nullopt;
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.magic != kMagic || head.n_answer > kTokensMax || head.n_own > kTokensMax || head.rows != head.n_answer + 1)
    return std::nullopt;
  const uint64_t want = sizeof head + (uint64_t{head.n_answer} + head.n_own) * sizeof(int32_t) +
                        uint64_t{head.rows} * vocab * sizeof(float) + sizeof(uint32_t);
  if (bytes.size() != want) return std::nullopt;
  uint32_t crc;
  std::memcpy(&crc, bytes.data() + want - sizeof crc, sizeof crc);
  if (crc != crc32c(std::as_bytes(std::span(bytes).first(want - sizeof crc)))) return std::nullopt;
  TrialReference out;
  out.rows = head.rows;
  out.ttft_ms = head.ttft_ms;
  out.answer.resize(head.n_answer);
  out.own_answer.resize(head.n_own);
  out.logits.resize(size_t{head.rows} * vocab);
  const char* at = bytes.data() + sizeof head;
  const auto take = [&at](void* to, size_t n_bytes) {
    if (n_bytes > 0) std::memcpy(to, at, n_bytes);
    at += n_bytes;
  };
  take(out.answer.data(), out.answer.size() * sizeof(int32_t));
  take(out.own_answer.data(), out.own_answer.size() * sizeof(int32_t));
  take(out.logits.data(), out.logits.size() * sizeof(float));
  const auto in_vocabulary = [vocab](int32_t id) { return id >= 0 && static_cast<size_t>(id) < vocab; };
  if (!std::all_of(out.answer.begin(), out.answer.end(), in_vocabulary)) return std::nullopt;
  return out;
}

Status ReferenceCache::put(const Hash& key, const TrialReference& reference) const {
  if (Status s = FileSystem::real().make_folders(folder_); !s) return s;
  Head head;
  head.rows = static_cast<uint32_t>(reference.rows);
  head.n_answer = static_cast<uint32_t>(reference.answer.size());
  head.n_own = static_cast<uint32_t>(reference.own_answer.size());
  head.ttft_ms = reference.ttft_ms;
  std::vector<std::byte> bytes;
  append(bytes, &head, sizeof head);
  append(bytes, reference.answer.data(), reference.answer.size() * sizeof(int32_t));
  append(bytes, reference.own_answer.data(), reference.own_answer.size() * sizeof(int32_t));
  append(bytes, reference.logits.data(), reference.logits.size() * sizeof(float));
  const uint32_t crc = crc32c(bytes);
  append(bytes, &crc, sizeof crc);
  return atomic_write(FileSystem::real(), folder_ + "/" + key.hex(), bytes);
}

}  // namespace cento
