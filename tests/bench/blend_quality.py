#!/usr/bin/env python3
"""Blended prefill against full prefill on question-answering prompts: time to first token, charged budget, KL, top-1.

  tests/bench/blend_quality.py --cento build/cento --model FILE.gguf --data shared/data/qa/hotpotqa.jsonl [--items 20]

For each item: full prefill answers greedily (24 tokens); that answer is teacher-forced under every other setting, and
--verify compares the logits of the prompt's last row and of each answer row with full prefill's. Chunk KV lies on disk
(--keep), computed behind the fixed prefix and a stand-in context of passages of the following items. Settings run
alternately on each item. TTFT is the median; KL and top-1 are means over items with a 95 % bootstrap interval (10,000
draws, seed 1). Needs python3 only.
"""
import argparse, json, pathlib, random, statistics, subprocess, sys, tempfile

SETTINGS = [
    ("full", ["--prefill", "full"]),
    ("prefix", ["--prefill", "prefix"]),
    ("reuse (none)", ["--prefill", "reuse"]),
    ("blend dev-kv .15", ["--prefill", "blend", "--policy", "dev-kv", "--ratio", "0.15"]),
    ("blend query .05", ["--prefill", "blend", "--policy", "query", "--ratio", "0.05"]),
    ("blend query .15", ["--prefill", "blend", "--policy", "query", "--ratio", "0.15"]),
]


def interval(values, draws=10000):
    rng = random.Random(1)
    means = sorted(statistics.fmean(rng.choices(values, k=len(values))) for _ in range(draws))
    return means[int(0.025 * draws)], means[int(0.975 * draws)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cento", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True, type=pathlib.Path)
    parser.add_argument("--items", type=int, default=20)
    parser.add_argument("--answer-tokens", type=int, default=24)
    parser.add_argument("--threads", default="2")
    parser.add_argument("--no-stand-in", action="store_true", help="chunks behind the fixed prefix alone")
    parser.add_argument("--out", type=pathlib.Path, help="write every run's JSON here, one a line")
    arguments = parser.parse_args()
    items = [json.loads(line) for line in arguments.data.open(encoding="utf-8")]
    rows = {name: [] for name, _ in SETTINGS}
    log = arguments.out.open("w", encoding="utf-8") if arguments.out else None

    def text_of(passage):
        return (passage["title"] + "\n" if passage["title"] else "") + passage["text"]

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)

        def run(prompt, flags):
            path = folder / "prompt.json"
            path.write_text(json.dumps(prompt), encoding="utf-8")
            command = [arguments.cento, "query", "--prompt", str(path), "--model", arguments.model, "--store", str(folder / "store"),
                       "--threads", arguments.threads, "--keep", "--json", "--no-progress", *flags]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(f"{' '.join(command)}\n{done.stderr}")
            return json.loads(done.stdout)

        for index, item in enumerate(items[: arguments.items]):
            prompt = {"chunks": [text_of(p) for p in item["passages"]], "question": item["question"]}
            if not arguments.no_stand_in:
                following = [items[(index + 1 + k) % len(items)] for k in range(2)]
                prompt["stand_in"] = [text_of(p) for other in following for p in other["passages"]]
            first = run(prompt, ["--prefill", "full", "--max-tokens", str(arguments.answer_tokens)])
            prompt["answer"] = first["answer"] or "."
            run(prompt, ["--prefill", "reuse"])  # computes and keeps the chunks' KV
            for name, flags in SETTINGS:
                result = run(prompt, [*flags, "--verify"])
                rows[name].append(result)
                if log:
                    log.write(json.dumps({"item": item["id"], "setting": name, **result}) + "\n")
            print(f"\r{index + 1} of {min(arguments.items, len(items))} items", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)

    tokens = statistics.fmean(r["usage"]["prompt_tokens"] for r in rows["full"])
    full_ttft = statistics.median(r["timings"]["ttft_ms"] for r in rows["full"])
    none_kl = statistics.fmean(r["verify"]["kl_mean"] for r in rows["reuse (none)"])
    print(f"{pathlib.Path(arguments.model).name}, {arguments.data.name}, {len(rows['full'])} items, {tokens:.0f} prompt tokens on average")
    print("| setting | charged | TTFT ms (median) | full / TTFT | KL [95 %] | top-1 [95 %] | gap |")
    print("|---|---|---|---|---|---|---|")
    for name, _ in SETTINGS:
        results = rows[name]
        charged = statistics.fmean(r["cache"]["charged"] for r in results)
        ttft = statistics.median(r["timings"]["ttft_ms"] for r in results)
        kl = [r["verify"]["kl_mean"] for r in results]
        top1 = [r["verify"]["top1_agreement"] for r in results]
        (kl_low, kl_high), (top_low, top_high) = interval(kl), interval(top1)
        print(f"| {name} | {charged:.3f} | {ttft:.0f} | {full_ttft / ttft:.1f} | {statistics.fmean(kl):.4f} [{kl_low:.4f}, {kl_high:.4f}] | "
              f"{statistics.fmean(top1):.3f} [{top_low:.3f}, {top_high:.3f}] | {1 - statistics.fmean(kl) / none_kl:.2f} |")


main()
