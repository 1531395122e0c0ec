// The traces of tier_sim.h: one reader, three generators.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <unordered_map>

#include "base/rng.h"
#include "support/tier_sim.h"

namespace cento::test {

namespace {

using Kind = SimRequest::Kind;
constexpr double kSecond = 1000, kHour = 3600e3, kDay = 24 * kHour;
constexpr uint64_t kBlockTokens = 512;

double normal(Rng& rng) {  // Box and Muller 1958
  return std::sqrt(-2 * std::log(1 - rng.uniform())) * std::cos(6.283185307179586 * rng.uniform());
}
double lognormal(Rng& rng, double median, double sigma) { return median * std::exp(sigma * normal(rng)); }
double exponential(Rng& rng, double mean) { return -mean * std::log(1 - rng.uniform()); }
uint64_t tokens(Rng& rng, double median, double sigma, uint64_t most) {
  return std::clamp<uint64_t>(static_cast<uint64_t>(lognormal(rng, median, sigma)), 16, most);
}

// 0 .. n-1, small ones more often: k with probability proportional to (k + 1) ^ -exponent.
class Zipf {
 public:
  Zipf(size_t n, double exponent) {
    double sum = 0;
    for (size_t k = 0; k < n; ++k) sums_.push_back(sum += std::pow(static_cast<double>(k + 1), -exponent));
  }
  size_t operator()(Rng& rng) const {
    const double at = rng.uniform() * sums_.back();
    return static_cast<size_t>(std::upper_bound(sums_.begin(), sums_.end() - 1, at) - sums_.begin());
  }

 private:
  std::vector<double> sums_;
};

uint32_t add_item(SimTrace& trace, const SimMachine& machine, uint64_t pos, uint64_t n_tokens, int32_t parent = -1) {
  trace.items.push_back({n_tokens * machine.bytes_per_token, n_tokens, machine.compute_ms(pos, n_tokens), parent});
  return static_cast<uint32_t>(trace.items.size() - 1);
}

void sort_by_arrival(SimTrace& trace) {
  std::stable_sort(trace.requests.begin(), trace.requests.end(),
                   [](const SimRequest& a, const SimRequest& b) { return a.arrival_ms < b.arrival_ms; });
}

}  // namespace

uint64_t SimTrace::distinct_bytes() const {
  uint64_t sum = 0;
  for (const SimItem& item : items) sum += item.n_bytes;
  return sum;
}

double SimMachine::compute_ms(uint64_t pos, uint64_t n_tokens) const {
  const double n = static_cast<double>(n_tokens), middle = static_cast<double>(pos) + n / 2;
  return 1000 * n / prefill_tokens_s * (1 + middle / attention_tokens);
}

SimTrace read_block_trace(const std::string& path, const SimMachine& machine, double load) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  SimTrace trace;
  trace.name = "mooncake";
  std::unordered_map<int64_t, uint32_t> by_hash;
  double busy_ms = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty()) continue;
    SimRequest request;
    try {
      const auto row = nlohmann::json::parse(line);
      request.arrival_ms = row.at("timestamp").get<double>();
      int32_t parent = -1;
      for (const auto& hash : row.at("hash_ids")) {
        const auto [place, is_new] = by_hash.try_emplace(hash.get<int64_t>());
        if (is_new) place->second = add_item(trace, machine, kBlockTokens * request.needs.size(), kBlockTokens, parent);
        parent = static_cast<int32_t>(place->second);
        request.needs.push_back(place->second);
        busy_ms += trace.items[place->second].cost_ms;
      }
      request.other_ms = 1000 * row.at("output_length").get<double>() / machine.decode_tokens_s;
    } catch (const nlohmann::json::exception& error) {
      throw std::runtime_error(path + ", line " + std::to_string(trace.requests.size() + 1) + ": " + error.what());
    }
    busy_ms += request.other_ms;
    trace.requests.push_back(std::move(request));
  }
  if (trace.requests.empty()) throw std::runtime_error(path + ": no requests");
  sort_by_arrival(trace);
  const double stretch = busy_ms / load / std::max(1.0, trace.requests.back().arrival_ms);
  for (SimRequest& request : trace.requests) request.known_ms = request.arrival_ms *= stretch;
  return trace;
}

namespace {

class ChatMaker {
 public:
  ChatMaker(uint64_t seed, const SimMachine& machine, double scale) : rng_(seed), machine_(machine), scale_(scale) {}

  SimTrace make() {
    trace_.name = "chat";
    for (int i = 0; i < 4; ++i) systems_.push_back(add_item(trace_, machine_, 0, 200 + rng_.below(600)));
    make_documents();
    const auto n_sessions = static_cast<int>(420 * scale_);
    for (int i = 0; i < n_sessions; ++i) session();
    sort_by_arrival(trace_);
    return std::move(trace_);
  }

 private:
  // Half of them precomputed at the start.
  void make_documents() {
    SimRequest stored{.kind = Kind::kStore};
    const auto n_documents = static_cast<size_t>(200 * scale_) + 1;
    for (size_t d = 0; d < n_documents; ++d) {
      documents_.emplace_back();
      for (uint64_t c = 2 + rng_.below(10); c > 0; --c) {
        documents_.back().push_back(add_item(trace_, machine_, 500, kBlockTokens));
        if (d % 2 == 0) stored.makes.push_back(documents_.back().back());
      }
    }
    trace_.requests.push_back(stored);
  }

  struct Session {
    std::vector<uint32_t> chain, chunks;
    uint64_t pos = 0;
    std::vector<uint32_t> prompt() const {
      std::vector<uint32_t> out = chain;
      out.insert(out.end(), chunks.begin(), chunks.end());
      return out;
    }
  };

  void session() {
    Session session;
    session.chain.push_back(systems_[rng_.below(systems_.size())]);
    session.pos = trace_.items[session.chain[0]].n_tokens;
    double now_ms = rng_.uniform() * 4 * kDay;
    while (session.pos < 8000) {
      now_ms = working_hours(now_ms);
      now_ms = sitting(session, now_ms);
      if (rng_.below(5) < 2) return;
      now_ms += lognormal(rng_, 20 * kHour, 1.3);
    }
  }

  // Every day has ten hours in which people write.
  double working_hours(double now_ms) {
    const double day = std::floor(now_ms / kDay), in_day = now_ms - day * kDay;
    return in_day < 10 * kHour ? now_ms : (day + 1) * kDay + rng_.uniform() * 10 * kHour;
  }

  // From the session's opening to its last turn for now; returns when that was.
  double sitting(Session& session, double opened_ms) {
    if (rng_.below(4) == 0) {  // only read
      opened(session, opened_ms, opened_ms + lognormal(rng_, 60 * kSecond, 1));
      return opened_ms;
    }
    if (rng_.below(10) < (session.chain.size() == 1 ? 4u : 1u)) {
      const auto& document = documents_[Zipf(documents_.size(), 0.8)(rng_)];
      session.chunks.insert(session.chunks.end(), document.begin(), document.end());
      std::sort(session.chunks.begin(), session.chunks.end());
      session.chunks.erase(std::unique(session.chunks.begin(), session.chunks.end()), session.chunks.end());
    }
    double known_ms = opened_ms, now_ms = opened_ms + lognormal(rng_, 20 * kSecond, 0.8);
    do {
      const double busy_ms = turn(session, known_ms, now_ms);
      trace_.requests.back().resumes = known_ms == opened_ms;
      known_ms = now_ms;
      now_ms += busy_ms + lognormal(rng_, 45 * kSecond, 1);
    } while (rng_.below(6) > 0 && session.pos < 8000);
    opened(session, known_ms, known_ms + 300 * kSecond);  // open until it has been idle for long
    return known_ms;
  }

  void opened(const Session& session, double from_ms, double to_ms) {
    trace_.requests.push_back(
        {.kind = Kind::kOpen, .known_ms = from_ms, .arrival_ms = to_ms, .needs = session.prompt()});
  }

  double turn(Session& session, double known_ms, double now_ms) {
    const uint64_t asked = tokens(rng_, 60, 1.2, 2000), answered = tokens(rng_, 120, 0.8, 800);
    SimRequest request{.known_ms = known_ms, .arrival_ms = now_ms, .needs = session.prompt()};
    request.other_ms =
        machine_.compute_ms(session.pos, asked) + 1000 * static_cast<double>(answered) / machine_.decode_tokens_s;
    const uint32_t segment =
        add_item(trace_, machine_, session.pos, asked + answered, static_cast<int32_t>(session.chain.back()));
    session.pos += asked + answered;
    session.chain.push_back(segment);
    request.makes.push_back(segment);
    trace_.requests.push_back(std::move(request));
    return trace_.requests.back().other_ms;
  }

  Rng rng_;
  const SimMachine& machine_;
  double scale_;
  SimTrace trace_;
  std::vector<uint32_t> systems_;
  std::vector<std::vector<uint32_t>> documents_;
};

class DocumentsMaker {
 public:
  DocumentsMaker(uint64_t seed, std::vector<SimMachine> machines, double scale)
      : rng_(seed), machines_(std::move(machines)), scale_(scale) {}

  SimTrace make(const char* name) {
    trace_.name = name;
    for (const SimMachine& machine : machines_) prefixes_.push_back(add_item(trace_, machine, 0, 100));
    const auto n_questions = static_cast<size_t>(4000 * scale_);
    store_folder(static_cast<size_t>(200 * scale_) + 8);
    for (size_t i = 0; i < n_questions; ++i) {
      if (i > 0 && i % 400 == 0) store_folder(static_cast<size_t>(60 * scale_) + 4);
      if (i % 50 == 49) change_favourites();
      question();
    }
    sort_by_arrival(trace_);
    return std::move(trace_);
  }

 private:
  struct Document {
    size_t model = 0;
    std::vector<uint32_t> chunks;
  };

  // New documents, read once from end to end; they start among the less popular.
  void store_folder(size_t n_documents) {
    SimRequest request{.kind = Kind::kStore, .known_ms = now_ms_, .arrival_ms = now_ms_};
    for (size_t d = 0; d < n_documents; ++d) {
      Document document;
      document.model = rng_.below(machines_.size());
      for (uint64_t c = 3 + rng_.below(14); c > 0; --c) {
        document.chunks.push_back(
            add_item(trace_, machines_[document.model], 400, c == 1 ? 64 + rng_.below(448) : kBlockTokens));
      }
      request.makes.insert(request.makes.end(), document.chunks.begin(), document.chunks.end());
      by_rank_.insert(by_rank_.begin() + static_cast<ptrdiff_t>(rng_.below(by_rank_.size() + 1)), document);
    }
    trace_.requests.push_back(std::move(request));
  }

  void change_favourites() {
    for (int i = 0; i < 3; ++i) {
      const size_t from = rng_.below(by_rank_.size()), to = rng_.below(1 + by_rank_.size() / 4);
      std::swap(by_rank_[from], by_rank_[to]);
    }
  }

  void question() {
    const double per_chunk_ms = machines_[0].compute_ms(400, kBlockTokens);
    now_ms_ += exponential(rng_, (14 * kSecond + 5 * per_chunk_ms) / 0.8);
    const bool follows = rng_.below(10) < 3 && !last_.chunks.empty();
    if (!follows) last_ = by_rank_[Zipf(by_rank_.size(), 0.9)(rng_)];
    const size_t model = last_.model;
    const bool opened = rng_.below(10) < 3;  // the person has the document before them; else the collection is searched
    SimRequest request{.known_ms = now_ms_, .arrival_ms = now_ms_, .needs = {prefixes_[model]}};
    request.resumes = opened;
    if (opened) request.known_ms -= lognormal(rng_, 20 * kSecond, 0.8);
    for (int i = 0; i < 5; ++i) {
      const Document* from = &last_;
      if (!opened && i >= 3) {
        do from = &by_rank_[Zipf(by_rank_.size(), 0.9)(rng_)];
        while (from->model != model);
      }
      const uint32_t id = from->chunks[Zipf(from->chunks.size(), 0.5)(rng_)];
      if (std::find(request.needs.begin(), request.needs.end(), id) == request.needs.end()) request.needs.push_back(id);
    }
    request.other_ms = 14 * kSecond;
    trace_.requests.push_back(std::move(request));
  }

  Rng rng_;
  std::vector<SimMachine> machines_;
  double scale_;
  SimTrace trace_;
  double now_ms_ = 0;
  std::vector<uint32_t> prefixes_;
  std::vector<Document> by_rank_;
  Document last_;
};

}  // namespace

SimTrace chat_trace(uint64_t seed, const SimMachine& machine, double scale) {
  return ChatMaker(seed, machine, scale).make();
}

SimTrace documents_trace(uint64_t seed, const SimMachine& machine, double scale) {
  return DocumentsMaker(seed, {machine}, scale).make("documents");
}

SimTrace two_models_trace(uint64_t seed, const SimMachine& machine, double scale) {
  SimMachine small = machine;  // many bytes for little work, as SmolLM2-135M's 23,040 bytes a token
  small.prefill_tokens_s *= 5;
  small.bytes_per_token = 23040;
  return DocumentsMaker(seed, {machine, small}, scale).make("two models");
}

}  // namespace cento::test
