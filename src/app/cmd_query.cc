#include <cstdio>
#include <optional>

#include "app/commands.h"
#include "app/interrupt.h"
#include "app/json.h"
#include "app/npy.h"
#include "app/store_options.h"
#include "base/check.h"
#include "base/file.h"
#include "base/text.h"

namespace cento {
namespace {

constexpr uint64_t kQuestionBytesMax = 16ull << 20;
constexpr uint64_t kPromptBytesMax = 256ull << 20;
constexpr const char* kNotFoundText = "The documents do not say.";

Json citations_json(const std::vector<Citation>& citations) {
  Json out = Json::array();
  for (const Citation& c : citations) {
    Json item;
    item["n"] = c.n;
    put_path(item, "source", c.source);
    item["lines"] = {c.line_from, c.line_to};
    item["chunk"] = c.chunk;
    item["score"] = rounded(c.score, 4);
    out.push_back(std::move(item));
  }
  return out;
}

Json cache_json(const CacheReport& c) {
  Json out;
  out["mode"] = prefill_mode_name(c.mode);
  out["policy"] = c.policy;
  out["ratio"] = rounded(c.ratio, 4);
  out["charged"] = rounded(c.charged, 4);
  out["why"] = json_text(c.why);
  out["tokens"] = {
      {"total", c.total}, {"exact", c.exact}, {"reused", c.reused}, {"recomputed", c.recomputed}, {"fresh", c.fresh}};
  out["chunks"] = Json::array();
  for (const ChunkReport& chunk : c.chunks) {
    Json item;
    item["id"] = chunk.id;
    put_path(item, "source", chunk.source);
    item["tokens"] = chunk.tokens;
    item["from"] = chunk.from;
    if (!chunk.reason.empty()) item["reason"] = json_text(chunk.reason);
    out["chunks"].push_back(std::move(item));
  }
  out["bytes_loaded"] = c.bytes_loaded;
  if (c.guard) {
    out["guard"] = {
        {"chance", rounded(c.guard->chance, 4)}, {"limit", rounded(c.guard->limit, 4)}, {"action", c.guard->action}};
  }
  return out;
}

Json answer_json(const Answer& a, LoadedModel& model) {
  const Timings& t = a.timings;
  Json out;
  out["answer"] = a.not_found ? Json(kNotFoundText) : json_text(a.text);
  out["finish_reason"] = a.finish_reason;
  out["citations"] = citations_json(a.citations);
  out["cache"] = cache_json(a.cache);
  out["timings"] = {{"load_model_ms", rounded(t.load_model_ms, 3)},
                    {"retrieve_ms", rounded(t.retrieve_ms, 3)},
                    {"kv_load_ms", rounded(t.kv_load_ms, 3)},
                    {"prefill_ms", rounded(t.prefill_ms, 3)},
                    {"ttft_ms", rounded(t.ttft_ms, 3)},
                    {"decode_tokens", t.decode_tokens},
                    {"decode_tokens_per_second", rounded(t.decode_tokens_per_second, 2)},
                    {"prepare_ms", rounded(t.prepare_ms, 3)},
                    {"load_wait_ms", rounded(t.load_wait_ms, 3)},
                    {"probe_ms", rounded(t.probe_ms, 3)},
                    {"select_ms", rounded(t.select_ms, 3)},
                    {"recompute_ms", rounded(t.recompute_ms, 3)},
                    {"first_token_ms", rounded(t.first_token_ms, 3)},
                    {"kv_read_ms", rounded(t.kv_read_ms, 3)},
                    {"kv_unpack_ms", rounded(t.kv_unpack_ms, 3)},
                    {"kv_place_ms", rounded(t.kv_place_ms, 3)}};
  if (t.precompute_ms > 0) out["timings"]["precompute_ms"] = rounded(t.precompute_ms, 3);
  if (a.verify) {
    // Unrounded: agreement is to be checked against bounds far below any fixed number of decimals.
    out["verify"] = {{"kl_mean", a.verify->kl_mean},
                     {"kl_max", a.verify->kl_max},
                     {"top1_agreement", a.verify->top1_agreement},
                     {"same_answer", a.verify->same_answer}};
  }
  out["usage"] = {{"prompt_tokens", a.prompt_tokens}, {"completion_tokens", a.completion_tokens}};
  out["model"] = {{"name", json_text(model.name())}, {"fingerprint", model.fingerprint().hex()}};
  return out;
}

std::string place_text(const Citation& c) {
  return path_from_here(c.source) + ":" + std::to_string(c.line_from) + "-" + std::to_string(c.line_to);
}

// "[1] people/leave.md:12-30", with the passage below it if wanted.
std::string sources_text(const std::vector<Citation>& citations, bool passages) {
  std::string out;
  for (const Citation& c : citations) {
    out += "[" + std::to_string(c.n) + "] " + printable(place_text(c)) + "\n";
    if (!passages) continue;
    for (const auto line : split_lines(c.text)) out += "    " + std::string(line) + "\n";
  }
  return out;
}

std::vector<std::string> report_lines(const Answer& a) {
  const CacheReport& c = a.cache;
  char line[512];
  std::string mode = prefill_mode_name(c.mode);
  if (!c.policy.empty()) mode += ", policy " + c.policy;
  std::snprintf(
      line, sizeof line,
      "cache: %s: %zu tokens: %zu exact, %zu reused, %zu recomputed, %zu new; charged %.1f %% of full prefill",
      mode.c_str(), c.total, c.exact, c.reused, c.recomputed, c.fresh, 100 * c.charged);
  std::vector<std::string> out = {line};
  if (!c.why.empty()) out.push_back("  why: " + c.why);
  if (c.guard) {
    std::snprintf(line, sizeof line, "  guard: chance of a KL above 0.1 to full prefill %.3f, limit %.3f%s",
                  c.guard->chance, c.guard->limit,
                  c.guard->action == "ratio"  ? ": more rows were recomputed"
                  : c.guard->action == "full" ? " with more rows: everything was computed"
                                              : "");
    out.push_back(line);
  }
  for (const ChunkReport& chunk : c.chunks) {
    if (!chunk.reason.empty()) {
      out.push_back("  chunk " + chunk.id.substr(0, 16) +
                    (chunk.source.empty() ? "" : " of " + path_from_here(chunk.source)) +
                    " was computed: " + chunk.reason);
    }
  }
  std::snprintf(line, sizeof line,
                "time: first token after %.0f ms (%s loaded in %.0f ms), %zu tokens at %.1f tokens/s",
                a.timings.ttft_ms, size_text(c.bytes_loaded).c_str(), a.timings.kv_load_ms, a.timings.decode_tokens,
                a.timings.decode_tokens_per_second);
  out.push_back(line);
  return out;
}

std::string verify_text(const VerifyReport& v) {
  char line[256];
  std::snprintf(
      line, sizeof line,
      "verify: KL to full prefill %.3g on average, %.3g at most; same first choice on %.1f %% of rows; %s answer",
      v.kl_mean, v.kl_max, 100 * v.top1_agreement, v.same_answer ? "the same" : "another");
  return line;
}

// Prints an answer for people, piece by piece or at the end.
class Printer {
 public:
  Printer(Run& run, const QueryCommand& command) : run_(&run), command_(&command) {}

  void piece(const std::string& text) {
    if (run_->common().json || !command_->stream) return;
    run_->terminal.out_foreign(text);
    printed_ += text;
  }

  // After decoding; `verify` comes later.
  void answered(const Answer& a) {
    if (done_ || run_->common().json) return;
    done_ = true;
    if (a.not_found) {
      run_->terminal.out(std::string(kNotFoundText) + "\n");
      if (run_->common().verbose && !a.cache.why.empty()) run_->terminal.note(a.cache.why);
      return;
    }
    if (!command_->stream || printed_.empty()) run_->terminal.out_foreign(a.text);
    const std::string& shown = command_->stream && !printed_.empty() ? printed_ : a.text;
    if (!shown.ends_with('\n')) run_->terminal.out("\n");
    if (!a.citations.empty()) run_->terminal.out_foreign("\n" + sources_text(a.citations, command_->show_sources));
    if (run_->common().verbose || run_->terminal.err_is_terminal()) {
      for (const auto& line : report_lines(a)) run_->terminal.note(line);
    }
    if (a.finish_reason == "length") run_->terminal.note("the answer was cut at --max-tokens");
  }

 private:
  Run* run_;
  const QueryCommand* command_;
  std::string printed_;
  bool done_ = false;
};

std::string read_prompt(const std::string& path) {
  if (path == "-") return read_stdin(kPromptBytesMax);
  return read_file(path, kPromptBytesMax).or_throw();
}

PromptFile prompt_of(const QueryCommand& command) {
  try {
    PromptFile prompt = parse_prompt_file(read_prompt(command.prompt_file));
    prompt.keep = command.keep;
    return prompt;
  } catch (const Error& e) {
    if (e.code() != Code::kUsage || !e.where().empty()) throw;
    throw Error{e.code(), e.message(), command.prompt_file, e.hint()};
  }
}

// A question needs a store, an empty one if it is about files only; a prompt file uses one if it is there, and makes
// one only to keep something.
std::unique_ptr<Store> store_for(Run& run, const QueryCommand& command, std::unique_ptr<ScratchFolder>& scratch) {
  const bool there = store_exists(store_folder(run.common()));
  if (command.keep) return open_store(run.common(), StoreUse::kCreate);
  if (there || (command.prompt_file.empty() && command.ask.files.empty())) {
    return open_store(run.common(), StoreUse::kWriteIfCan);
  }
  if (!command.prompt_file.empty()) return nullptr;
  scratch = std::make_unique<ScratchFolder>();
  CommonOptions common = run.common();
  common.store = scratch->path();
  return open_store(common, StoreUse::kCreate);
}

}  // namespace

int cmd_query(Run& run, const QueryCommand& command) {
  // What can be wrong with little effort comes before the model is loaded.
  std::string question = command.question;
  std::optional<PromptFile> prompt;
  if (!command.prompt_file.empty()) {
    prompt = prompt_of(command);
  } else if (question == "-") {
    question = std::string(trim(read_stdin(kQuestionBytesMax)));
    if (question.empty())
      throw Error{Code::kUsage, "the question is empty", "stdin", "write it to stdin, or as an argument"};
  }
  validate(command.ask.sampler);
  std::unique_ptr<ScratchFolder> scratch;
  const auto store = store_for(run, command, scratch);
  const auto model = load_model(run.common(), command.run);
  throw_if_interrupted();

  Printer printer(run, command);
  AskHooks hooks;
  hooks.on_text = [&](const std::string& piece) { printer.piece(piece); };
  hooks.on_answered = [&](const Answer& so_far) { printer.answered(so_far); };
  hooks.stop = interrupt_requested;
  Answerer answerer(*model, store ? &store->kv : nullptr, store ? &store->docs : nullptr);
  const Answer answer =
      prompt ? answerer.ask_prompt(*prompt, command.ask, hooks) : answerer.ask(question, command.ask, hooks);

  printer.answered(answer);
  if (run.common().json) run.terminal.out(json_line(answer_json(answer, *model)));
  if (answer.verify && !run.common().json) run.terminal.note(verify_text(*answer.verify));
  if (answer.finish_reason == "interrupted") return kInterruptedStatus;
  if (answer.not_found) return kNothingFoundStatus;
  if (!command.logits_file.empty()) {
    CHECK(answer.logits_rows > 0);
    write_npy(command.logits_file, answer.logits, answer.logits_rows, answer.logits.size() / answer.logits_rows);
  }
  return 0;
}

}  // namespace cento
