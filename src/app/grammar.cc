#include "app/grammar.h"

#include <limits>

#include "base/text.h"
#include "docs/chunker.h"
#include "kv/kv_store.h"
#include "kv/remote_url.h"

namespace cento {
namespace {

constexpr uint64_t kBenchTokensMax = 1u << 24;  // above any context; the model's own is checked when it is known
constexpr size_t kOwnQuestions = 30, kOwnQuestionsMax = 10'000;  // of eval --on-my-documents
constexpr double kInfinity = std::numeric_limits<double>::infinity();

void add_run_options(CommandBuilder& b, RunOptions& run) {
  b.value("--precision", "fast|f32", "arithmetic: fast (int8 against quantised weights) or f32 (reference, slow)",
          "fast", to_choice({"fast", "f32"}, [&run](const std::string& v) {
            run.precision = v == "f32" ? Precision::kF32 : Precision::kFast;
          }));
  b.value("--chat-template", "NAME",
          "chat format, if the model's own is not recognised (" + one_of(ChatTemplate::names()) + ")", "",
          to_text(run.chat_template));
  b.value("--target", "NAME", "instruction set of the kernels, \"ref\" for plain C++", "auto", to_text(run.target));
}

// "a,b,c" without empty words.
std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> words;
  size_t from = 0;
  while (from <= text.size()) {
    const size_t end = std::min(text.find(',', from), text.size());
    const std::string word(trim(text.substr(from, end - from)));
    if (word.empty()) throw BadValue{"an empty word in \"" + text + "\""};
    words.push_back(word);
    from = end + 1;
  }
  return words;
}

SetValues to_word_list(std::vector<std::string>& out, std::vector<std::string> choices) {
  return [&out, choices = std::move(choices)](const std::vector<std::string>& v) {
    out.clear();
    for (const std::string& word : split_list(v.back()))
      to_choice(choices, [&out](const std::string& w) { out.push_back(w); })({word});
  };
}

}  // namespace

Grammar::Grammar() {
  app.set_help_flag("-h,--help", "");
  app.require_subcommand(0, 1);  // one word is a subcommand, the next may be a question that happens to be a name
  doc.path = {"cento"};
  doc.what = "answers from your documents on your own model, without computing the same context twice";
  doc.more = "Index a folder, compute its KV cache once, then ask: each answer is stitched from stored pieces.";
  doc.examples =
      "cento index ./handbook                    # read a folder\n"
      "cento precompute                          # compute and keep its KV\n"
      "cento query \"May I carry over leave?\"     # answer, with sources";
  CommandBuilder program(app, doc, specs, "");
  add_common(program);
  add_index(program);
  add_precompute(program);
  add_query(program);
  add_cache(program);
  add_model(program);
  add_bench(program);
  add_eval(program);
  add_small_ones(program);
}

void Grammar::add_common(CommandBuilder& b) {
  b.value("--store", "DIR", "folder of the catalogue and the stored KV", "$XDG_DATA_HOME/cento", to_text(common.store));
  b.value("--model", "FILE|NAME", "GGUF file, or the name of one in the model folders", "the only one found",
          to_text(common.model));
  b.value("--config", "FILE", "configuration file (TOML)", "$XDG_CONFIG_HOME/cento/config.toml", to_text(config_path));
  b.value("--collection", "NAME", "which set of documents", "default", [this](const std::vector<std::string>& v) {
    if (trim(v.back()).empty() || !is_valid_utf8(v.back())) throw BadValue{"a name is needed"};
    common.collection = v.back();
  });
  b.value("--max-disk", "SIZE", "what stored KV may take; the least useful goes first; 0: no limit", "0",
          to_size(common.limits.disk_bytes_max));
  b.value("--max-ram", "SIZE", "stored KV kept in memory too, for a program that answers more than once", "0",
          to_size(common.limits.ram_bytes_max));
  b.value("--max-age", "TIME", "remove stored KV that was not used for so long (7d); 0: never", "0",
          to_duration_ms(common.limits.max_age_ms));
  b.value("--key-file", "FILE", "key of an encrypted store: 64 digits 0-9 a-f, or 32 bytes", "",
          to_text(common.key_file));
  b.value("--remote", "URL", "share stored KV: redis://HOST, rediss://HOST (TLS), redis+unix:///PATH, or a folder", "",
          [this](const std::vector<std::string>& v) {
            common.remote = v.back();
            if (common.remote.empty()) return;
            try {
              (void)parse_remote_url(common.remote);
            } catch (const Error& e) {
              throw BadValue{e.message() + "; it is one of " + e.hint()};
            }
          });
  b.value("--device", "auto|cpu|cuda", "where to compute", "auto",
          to_choice({"auto", "cpu", "cuda"}, [this](const std::string& v) { common.device = v; }));
  b.value("--threads", "N", "threads to compute with; 0: one for each processor", "0",
          to_number(common.threads, 0, 1024));
  b.flag("--json", "one JSON object on stdout instead of text", common.json);
  b.flag("-q,--quiet", "nothing but answers and errors", common.quiet);
  b.flag("-v,--verbose", "say more about what is done", common.verbose);
  b.value("--color", "auto|always|never", "colour in messages (NO_COLOR is honoured)", "auto",
          to_choice({"auto", "always", "never"}, [this](const std::string& v) {
            common.color = v == "always" ? ColorMode::kAlways : v == "never" ? ColorMode::kNever : ColorMode::kAuto;
          }));
  b.inverse("--no-progress", "no progress bar", common.progress);
  b.flag("--version", "print the version and stop", version);
  // CLI11 has the help flag already; the description lists it like any other.
  doc.options.push_back({.names = {"-h", "--help"}, .help = "print this text and stop"});
}

void Grammar::add_index(CommandBuilder& program) {
  CommandBuilder b = program.subcommand(
      "index", "read files and folders into a collection",
      "Reads Markdown, reStructuredText, HTML and plain text, and only what has changed since the last time.\n"
      "Without a PATH it re-reads the folders that the collection already has; with - it takes a list of paths from "
      "stdin.",
      "cento index ./handbook\n"
      "cento index --collection notes --exclude 'drafts/' ~/notes\n"
      "cento index                               # bring it up to date\n"
      "find . -name '*.md' -print0 | cento index -0 -");
  IndexOptions& o = index.options;
  b.positional("PATH", "file or folder; - for a list on stdin", false, to_texts(o.paths), true);
  b.flag("--dry-run", "say what would be done, change nothing", o.dry_run);
  b.toggle("--prune", "remove what is gone from the folders (default), or keep it", o.prune);
  b.list("--include", "GLOB", "only files that match; as in .gitignore, may be repeated", o.include);
  b.list("--exclude", "GLOB", "not the files and folders that match; may be repeated", o.exclude);
  b.inverse("--no-ignore", "read files that .gitignore and .ignore rule out", o.use_ignore_files);
  b.flag("--hidden", "read hidden files and folders", o.hidden);
  b.flag("--follow", "follow symbolic links out of the folder", o.follow_links);
  b.value("--max-file-size", "SIZE", "larger files are skipped", "64MiB", to_size(o.max_file_bytes));
  b.value("--chunk-tokens", "N", "most tokens in a chunk", "256",
          to_number(o.chunk_tokens, kChunkTokensMin, kChunkTokensMax));
  b.list("--converter", "EXT=COMMAND",
         "command that prints a file of this extension as text; {} is the file; may be repeated", converters);
  b.flag("-0,--null", "the list on stdin is separated by NUL, not by line ends", index.nul_separated);
}

void Grammar::add_precompute(CommandBuilder& program) {
  CommandBuilder b =
      program.subcommand("precompute", "compute and store the KV of a collection's chunks",
                         "Can be stopped at any time: what is stored stays, and the next run goes on from there.",
                         "cento precompute\n"
                         "cento precompute --dry-run                # how much is there to do?\n"
                         "cento precompute --max-bytes 4GiB --only 'people/*'");
  PrecomputeOptions& o = precompute.options;
  b.flag("--dry-run", "say what would be done, store nothing", o.dry_run);
  b.value("--codec", "lossless|int8|k8v4|int4|raw",
          "how KV is packed on disk; KV that is there with another codec is replaced", "int8; what is there stays",
          to_choice({"lossless", "int8", "k8v4", "int4", "raw"},
                    [&o](const std::string& v) { o.codec = *find_kv_codec(v); }));
  b.value(
      "--context", "stand-in|prefix|both",
      "what a chunk is computed behind: text of its kind (closer to a real prompt), the fixed prefix alone, or both",
      "stand-in", to_choice({"stand-in", "prefix", "both"}, [&o](const std::string& v) {
        o.context = v == "prefix" ? ContextKind::kPrefix : v == "both" ? ContextKind::kBoth : ContextKind::kStandIn;
      }));
  b.value("--max-bytes", "SIZE", "most bytes of stored KV; chunks beyond it are skipped", "",
          to_optional_size(o.max_bytes));
  b.value("--only", "GLOB", "only chunks of files that match", "", to_text(o.only_glob));
  add_run_options(b, precompute.run);
}

void Grammar::add_query(CommandBuilder& program) {
  CommandBuilder b = program.subcommand(
      "query", "answer a question from a collection, with sources",
      "Finds the chunks that fit, loads their stored KV, recomputes the part that matters and lets the model answer.",
      "cento query \"May I carry over leave?\"\n"
      "cento query --json --top-k 8 \"Who signs for a loan?\" | jq .citations\n"
      "echo \"What are the core hours?\" | cento query -\n"
      "cento query --file minutes.md \"What was decided about the crane?\"\n"
      "cento query --prefill full --show-sources \"When is the museum open?\"\n"
      "cento query --prompt prompt.json --verify --logits rows.npy");
  AskOptions& o = query.ask;
  b.positional("QUESTION", "the question; - to read it from stdin", false, to_text(query.question));
  b.value("--prompt", "FILE.json",
          "explicit segments instead of a question: {\"system\",\"chunks\",\"question\",\"answer\"?}", "",
          to_text(query.prompt_file));
  b.flag("--keep", "with --prompt: store the KV that was computed", query.keep);
  b.list("--file", "PATH", "put this document before the model too; may be repeated", o.files);
  b.value("--top-k", "N", "chunks to put before the model", "5", to_number(o.top_k, 1, 1000));
  b.list("--chunk", "ID", "this chunk instead of a search; may be repeated", o.chunks);
  b.value("--order", "rank|reading", "order of the chunks: the best last, or those of one source side by side", "rank",
          to_choice({"rank", "reading"}, [&o](const std::string& v) { o.order = *find_chunk_order(v); }));
  b.value("--prefill", "auto|full|prefix|reuse|blend", "how the prompt's KV is made", "auto",
          to_choice({"auto", "full", "prefix", "reuse", "blend"},
                    [&o](const std::string& v) { o.prefill = *find_prefill_mode(v); }));
  std::vector<std::string> policy_list;
  std::string policy_values;
  for (const auto& p : policies()) {
    if (p.needs_scores) continue;
    policy_values += (policy_list.empty() ? "" : "|") + std::string(p.name);
    policy_list.push_back(p.name);
  }
  b.value("--policy", policy_values, "which reused rows are recomputed", policy_name(o.blend.policy),
          to_choice(policy_list, [&o](const std::string& v) { o.blend.policy = *find_policy(v); }));
  b.value("--ratio", "R", "share of the reused rows that is recomputed, 0 to 1", "the model's record",
          to_optional_real(o.blend.ratio, 0, 1));
  b.value("--repair", "none|shift", "what is done to the reused rows that are not recomputed", "the model's record",
          to_choice({"none", "shift"}, [&o](const std::string& v) { o.repair = *find_repair(v); }));
  b.toggle("--guard", "compute anew what the model's record does not trust (default), or take it", o.guard);
  b.value("--max-tokens", "N", "longest answer", "256", to_number(o.max_tokens, 1, 1u << 20));
  b.value("--temperature", "T", "0: always the likeliest token", "0", to_real(o.sampler.temperature, 0, 100));
  b.value("--top-p", "P", "draw from the likeliest tokens that make up this share", "1",
          to_real(o.sampler.top_p, 0, 1));
  b.value("--top-k-tokens", "N", "draw from the N likeliest tokens; 0: all", "0",
          to_number(o.sampler.top_k, 0, 1u << 30));
  b.value("--min-p", "P", "leave out tokens below this share of the likeliest one", "0",
          to_real(o.sampler.min_p, 0, 1));
  b.value("--repetition-penalty", "X", "above 1: recent tokens become less likely", "1",
          to_real(o.sampler.repetition_penalty, 0.01, kInfinity));
  b.value("--seed", "N", "of the draw", "0", to_number(o.sampler.seed, 0, std::numeric_limits<uint64_t>::max()));
  b.list("--stop", "TEXT", "end the answer before this text; may be repeated", o.stop);
  b.flag("--show-sources", "print the passages too", query.show_sources);
  b.toggle("--stream", "print the answer as it comes (default), or whole at the end", query.stream);
  b.flag("--verify", "then run full prefill too and say how close the two are", o.verify);
  b.value("--logits", "FILE.npy", "write the logits of the last prompt row and of each answer row, float32 [rows, V]",
          "", to_text(query.logits_file));
  add_run_options(b, query.run);
}

void Grammar::add_cache(CommandBuilder& program) {
  CommandBuilder b = program.subcommand("cache", "what is stored, and its upkeep", "",
                                        "cento cache status\n"
                                        "cento cache list --json | jq '.blobs[].source'\n"
                                        "cento cache trim --max-bytes 2GiB");
  b.subcommand("status", "sizes and counts", "", "cento cache status --json");
  b.subcommand("list", "every stored piece of KV", "", "cento cache list");
  CommandBuilder folder = b.subcommand(
      "folder", "keep stored KV in a further folder, on another disk",
      "New KV goes where most room is left. A folder that is not there for a while is waited for: what lies in it is\n"
      "neither used nor forgotten.",
      "cento cache folder /mnt/large/cento --max-bytes 200GB\n"
      "cento cache folder /mnt/large/cento --remove");
  folder.positional("DIR", "the folder; made if it is not there", true, to_text(cache.folder));
  folder.value("--max-bytes", "SIZE", "what may lie in it; 0: as far as the disk goes", "0", to_size(cache.max_bytes));
  folder.flag("--remove", "move what lies in it to the other folders, and give it up", cache.remove_folder);
  CommandBuilder rekey = b.subcommand("rekey", "encrypt the stored KV, with another key, or no more",
                                      "The key that the store has now comes from --key-file or CENTO_KEY. Can be "
                                      "stopped anywhere: the same command goes\n"
                                      "on. The text of documents in the catalogue is not encrypted.",
                                      "cento cache rekey --new-key-file ~/.config/cento/key\n"
                                      "cento cache rekey --key-file old --new-key-file new");
  rekey.value("--new-key-file", "FILE", "the key to come; made, with a random key, if it is not there", "",
              to_text(cache.new_key_file));
  rekey.flag("--decrypt", "no key from now on", cache.decrypt);
  CommandBuilder verify = b.subcommand("verify", "read everything and check it",
                                       "Exit status 3 if anything is damaged.", "cento cache verify --repair");
  verify.flag("--repair", "take damaged pieces out of the store: the next precompute computes them again",
              cache.repair);
  CommandBuilder out =
      b.subcommand("export", "all stored KV in one file, for another machine", "", "cento cache export kv.cento");
  out.positional("FILE", "to write; replaced if it is there", true, to_text(cache.file));
  CommandBuilder in = b.subcommand("import", "take in the KV of such a file",
                                   "Every piece is checked as one that is read. It is used where model, prompt text "
                                   "and chunk are the same; index the\n"
                                   "documents first: `cache gc` removes KV of chunks that are in no collection.",
                                   "cento cache import kv.cento");
  in.positional("FILE", "that `cache export` wrote", true, to_text(cache.file));
  b.subcommand("gc", "remove files and rows that nothing refers to", "", "cento cache gc");
  CommandBuilder rm = b.subcommand("rm", "remove stored KV", "", "cento cache rm 3fa9c1d2");
  rm.positional("ID", "id of stored KV or of a chunk, or the beginning of one (8 digits at least)", true,
                to_texts(cache.ids), true);
  CommandBuilder trim =
      b.subcommand("trim", "remove the least useful until the rest fits", "", "cento cache trim --max-bytes 2GiB");
  trim.value("--max-bytes", "SIZE", "what may stay", "", to_size(cache.max_bytes));
}

void Grammar::add_model(CommandBuilder& program) {
  CommandBuilder b = program.subcommand("model", "which models there are and what is in them", "",
                                        "cento model list\n"
                                        "cento model show smollm2-135m-instruct-q4_1.gguf\n"
                                        "cento model check smollm2-135m-instruct-q4_1.gguf\n"
                                        "echo \"two words\" | cento model tokenize -");
  b.subcommand("list", "models in the model folders", "", "cento model list --json");
  CommandBuilder show =
      b.subcommand("show", "what a model file holds and whether cento can run it", "", "cento model show model.gguf");
  show.positional("FILE", "GGUF file, or the name of one in the model folders", true, to_text(model.file));
  CommandBuilder check = b.subcommand(
      "check", "check that stored KV may be reused with a model here, and how much to recompute",
      "Checks that blending everything anew equals full prefill, that saved KV comes back the same and that fast\n"
      "arithmetic is close to float32; then measures on text of its own how many rows have to be recomputed. What it\n"
      "finds is kept in the store and used by query. Exit status 3 if a check fails: then nothing is blended.",
      "cento model check model.gguf");
  check.positional("FILE", "GGUF file, or the name of one in the model folders; none: --model", false,
                   to_text(model.file));
  check.toggle("--calibrate", "measure how many rows have to be recomputed (default), or check only", model.calibrate);
  add_run_options(check, model.run);
  CommandBuilder tokenize =
      b.subcommand("tokenize", "text as the model's tokens", "", "cento model tokenize \"two words\"");
  tokenize.positional("TEXT", "the text; - or nothing: from stdin", false, to_text(model.text));
  tokenize.flag("--special", "read names of control tokens in the text as these tokens", model.specials);
}

void Grammar::add_bench(CommandBuilder& program) {
  CommandBuilder b = program.subcommand(
      "bench", "measure the speed of a model on this machine",
      "Prefill and decode in tokens a second, time to first token of full, prefix, reuse and blend, and of a resumed\n"
      "conversation. With --against also llama.cpp's, on the same file with as many threads.",
      "cento bench\n"
      "cento bench --prompt 2048 --repeat 5 --json | jq .ttft\n"
      "cento bench --against ~/llama.cpp/build/bin/llama-bench");
  SpeedOptions& o = bench.speed;
  b.value("--prompt", "N", "tokens of a prompt", "512", to_number(o.prompt_tokens, 1, kBenchTokensMax));
  b.value("--decode", "N", "tokens of an answer", "64", to_number(o.decode_tokens, 1, kBenchTokensMax));
  b.value("--repeat", "N", "runs of each kind, after one that does not count", "10", to_number(o.repeat, 1, 1000));
  b.value("--against", "LLAMA_BENCH", "llama.cpp's llama-bench, to be run too", "", to_text(bench.peer));
  add_run_options(b, bench.run);
}

void Grammar::add_eval(CommandBuilder& program) {
  CommandBuilder b = program.subcommand(
      "eval", "measure what blending costs in quality and saves in time",
      "Runs every setting on every item beside full prefill of the same tokens and says how close each comes.\n"
      "Data: JSON Lines of questions over passages, of questions over an indexed collection, of texts to summarise,\n"
      "or of prompts. With --on-my-documents it makes its own questions of what the collection holds.\n"
      "With --out a sweep that was stopped goes on where it was.",
      "cento eval questions.jsonl --items 20\n"
      "cento eval qa.jsonl summ.jsonl --policy query,dev-kv,none --ratio .05,.15 --out results\n"
      "cento eval --on-my-documents\n"
      "cento eval prompts.jsonl --logits logits --json | jq '.sets[].settings[] | {name, kl}'");
  EvalOptions& o = eval.eval;
  b.positional("DATA", "file of items", false, to_texts(o.data), true);
  b.optional_value("--on-my-documents", "[N]",
                   "make N questions of the collection and say how often blended answers agree with full prefill; "
                   "without N: 30. --policy is then query and --ratio default, unless they are given",
                   to_number_or(o.own_documents, 1, kOwnQuestionsMax, kOwnQuestions));
  b.value("--top-k", "N", "passages to retrieve for a question over the collection", "5", to_number(o.top_k, 1, 1000));
  std::vector<std::string> names;
  for (const auto& p : policies()) {
    names.push_back(p.name);
    if (p.kind == PolicyKind::kDevK || p.kind == PolicyKind::kDevV || p.kind == PolicyKind::kDevKv)
      names.push_back(std::string(p.name) + "-gradual");
  }
  b.value("--policy", "NAME,...", "policies: " + one_of(names), "query,dev-kv", to_word_list(eval.policies, names));
  b.value("--ratio", "R,...", "shares of the reused rows that are recomputed, 0 to 1; \"default\" is the program's own",
          "0.05,0.15", [this](const std::vector<std::string>& v) {
            eval.ratios.clear();
            for (const std::string& word : split_list(v.back())) {
              double ratio = kDefaultRatio;
              if (word != "default") to_real(ratio, 0, 1)({word});
              eval.ratios.push_back(ratio);
            }
          });
  b.value("--layer-ratios", "R,...",
          "instead of --ratio: one for each layer from the first on, the last for all behind", "",
          [this](const std::vector<std::string>& v) {
            eval.layer_ratios.clear();
            for (const std::string& word : split_list(v.back()))
              to_real(eval.layer_ratios.emplace_back(), 0, 1)({word});
          });
  b.value("--context", "NAME,...", "what chunk KV is computed behind: stand-in, exact-first, prefix", "stand-in",
          to_word_list(eval.contexts, {"stand-in", "exact-first", "prefix"}));
  b.value("--repair", "NAME,...", "what is done to the rows that are not recomputed: none, shift", "none",
          to_word_list(eval.repairs, {"none", "shift"}));
  b.value("--codec", "NAME,...", "what stored KV has been through: lossless, int8, k8v4, int4", "lossless",
          to_word_list(eval.codecs, {"lossless", "int8", "k8v4", "int4"}));
  b.value("--check-layer", "N", "layer whose deviation counts, for dev-k, dev-v, dev-kv and hybrid", "1",
          to_number(eval.blend.check_layer, 1, 1000));
  b.value("--head-rows", "N", "first rows of each chunk that are always recomputed, within the ratio", "0",
          to_number(eval.blend.head_rows, 0, 1u << 20));
  b.value("--smooth", "N", "rows on either side over which the question's attention is averaged", "2",
          to_number(eval.blend.smooth, 0, 1000));
  b.value("--probe-depth", "D", "share of the layers that are asked for the question's attention", "1",
          to_real(eval.blend.probe_depth, 0.01, 1));
  b.value("--items", "N", "items of each file; 0: all", "0", to_number(o.items, 0, 1u << 30));
  b.value("--order", "given|shuffle|reading",
          "order of the passages of an item; of a collection also as they stand in their documents", "given",
          to_choice({"given", "shuffle", "reading"}, [&o](const std::string& v) {
            o.shuffle = v == "shuffle";
            o.collection_order = v == "reading" ? ChunkOrder::kReading : ChunkOrder::kRank;
          }));
  b.value("--seed", "N", "of the order, of the passages that stand in, and of the intervals", "1",
          to_number(o.seed, 0, std::numeric_limits<uint64_t>::max()));
  b.value("--answer-tokens", "N", "tokens of full prefill's answer that are compared", "24",
          to_number(o.answer_tokens, 1, 4096));
  b.value("--own-answer-tokens", "N", "tokens of each setting's own answer, for F1 and ROUGE-L; 0: no scores", "32",
          to_number(o.own_answer_tokens, 0, 4096));
  b.flag("--attention", "also measure how far the attention's output moves, layer by layer", o.attention);
  b.flag("--deviation", "also measure how stored KV's distance from full prefill's is spread over rows and layers",
         o.deviation);
  b.value("--out", "DIR", "write results.json and report.html here, and keep what was measured", "", to_text(o.folder));
  b.value("--logits", "DIR", "write each trial's logits here, float32 [rows, V], as .npy", "",
          to_text(eval.logits_folder));
  add_run_options(b, eval.run);
}

void Grammar::add_small_ones(CommandBuilder& program) {
  program.subcommand("config", "each setting and where its value comes from", "",
                     "cento config\ncento config --json --threads 2");
  program.subcommand("doctor", "check machine, store, models and configuration", "Exit status 0 if all is well.",
                     "cento doctor");
  CommandBuilder c = program.subcommand("completion", "a completion script for a shell", "",
                                        "cento completion bash > ~/.local/share/bash-completion/completions/cento");
  c.positional("bash|zsh|fish", "the shell", true,
               to_choice({"bash", "zsh", "fish"}, [this](const std::string& v) { completion.shell = v; }));
  CommandBuilder h = program.subcommand("help", "the manual page of a subcommand", "", "cento help query");
  h.positional("SUBCOMMAND", "which one; none: the program", false, to_texts(help.topic), true);
}

}  // namespace cento
